//! The fields of an answer that may be about limits, picked out in one pass.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName};

/// What a name has to contain to be looked at, four letters of it at a time.
const MARKS: [u32; 10] = [
    mark(b"limi"), // limit
    mark(b"retr"), // retry-after
    mark(b"quot"), // quota
    mark(b"hrot"), // throttle
    mark(b"rema"), // remaining
    mark(b"usag"), // usage
    mark(b"used"),
    mark(b"-mbx"),
    mark(b"odex"), // x-codex-primary-reset-at
    mark(b"grpc"),
];

/// Fields with their values, names in lower case and each but once.
#[derive(Debug, Default)]
pub(super) struct Fields<'a> {
    list: Vec<Field<'a>>,
}

/// One field.
#[derive(Debug)]
pub(super) struct Field<'a> {
    /// Its name, in lower case.
    pub(super) name: &'a str,
    /// Its lines, joined by commas.
    pub(super) value: Cow<'a, str>,
}

// === impl Fields ===

impl<'a> Fields<'a> {
    /// Those of `headers` that may be about limits. Allocates nothing if there are none.
    pub(super) fn pick(headers: &'a HeaderMap) -> Self {
        let names = headers.keys().filter(|name| is_marked(name.as_str()));
        Self { list: names.filter_map(|name| Field::new(name, headers)).collect() }
    }

    /// The announcements of what is not enforced yet (`Beta-RateLimit`, `X-Beta-RateLimit-Limit`), under the names they
    /// will have; and what remains.
    pub(super) fn split_off_announced(&mut self) -> Self {
        let (mut announced, mut rest) = (Vec::new(), Vec::with_capacity(self.list.len()));
        for Field { name, value } in self.list.drain(..) {
            match name.strip_prefix("x-").unwrap_or(name).strip_prefix("beta-") {
                Some(name) => announced.push(Field { name, value }),
                None => rest.push(Field { name, value }),
            }
        }
        self.list = rest;
        Self { list: announced }
    }

    /// The value of `name`, which is in lower case.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.iter().find(|field| field.name == name).map(|field| &*field.value)
    }

    /// Each of them, in the order of the answer.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Field<'a>> {
        self.list.iter()
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Takes out those that `understood` had a use for.
    pub(super) fn retain_not(&mut self, mut understood: impl FnMut(&Field<'a>) -> bool) {
        self.list.retain(|field| !understood(field));
    }
}

// === impl Field ===

impl<'a> Field<'a> {
    fn new(name: &'a HeaderName, headers: &'a HeaderMap) -> Option<Self> {
        // What is no text is not about limits.
        let mut lines = headers.get_all(name).iter().filter_map(|line| std::str::from_utf8(line.as_bytes()).ok());
        let mut value = Cow::Borrowed(lines.next()?.trim());
        for line in lines {
            value.to_mut().push_str(", ");
            value.to_mut().push_str(line.trim());
        }
        Some(Self { name: name.as_str(), value })
    }
}

fn is_marked(name: &str) -> bool {
    let mut last = 0_u32;
    name.bytes().any(|letter| {
        last = last << 8 | u32::from(letter);
        MARKS.contains(&last)
    })
}

const fn mark(letters: &[u8; 4]) -> u32 {
    u32::from_be_bytes(*letters)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn names_that_may_be_about_limits_are_picked_and_no_others() {
        for name in [
            "retry-after",
            "x-ms-retry-after-ms",
            "ratelimit",
            "x-rate-limit-remaining",
            "x-mbx-used-weight-1m",
            "x-remaining-today",
            "x-app-usage",
            "x-quota-reset",
            "grpc-status",
            "x-daylimit-remaining",
        ] {
            assert!(is_marked(name), "{name}");
        }
        for name in [
            "content-type",
            "date",
            "server",
            "x-request-id",
            "etag",
            "cache-control",
            "vary",
            "strict-transport-security",
        ] {
            assert!(!is_marked(name), "{name}");
        }
    }

    #[test]
    fn repeated_lines_are_one_value() {
        let mut headers = HeaderMap::new();
        for line in ["\"a\";r=0", " \"b\";r=1 "] {
            headers.append("ratelimit", HeaderValue::from_static(line));
        }
        headers.append("ratelimit", HeaderValue::from_bytes(b"\xff").unwrap());
        assert_eq!(Fields::pick(&headers).value("ratelimit"), Some("\"a\";r=0, \"b\";r=1"));
    }
}
