//! Picks the fields of an answer that may be about limits, in one pass.

use std::borrow::Cow;

use http::{
    HeaderMap, HeaderName,
    header::{CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, DATE, ETAG, SERVER, VARY},
};

/// Parts of names that may be about limits, four letters each.
const MARKS: [u32; 12] = [
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
    mark(b"c-pr"), // anthropic-priority-input-tokens-reset
    mark(b"c-fa"), // anthropic-fast-input-tokens-reset
];

/// Longest field that is read. Longer ones say nothing about limits, and the parsers of lists need not be quick on
/// them.
const LONGEST: usize = 8192;

/// Largest number of names that are read, since each budget is compared with all others.
const MAX_NAMES: usize = 128;

/// Fields with their values; names are in lower case and unique.
#[derive(Debug, Default)]
pub(super) struct Fields<'a> {
    list: Vec<Field<'a>>,
}

/// One field.
#[derive(Debug)]
pub(super) struct Field<'a> {
    /// Name in lower case.
    pub(super) name: &'a str,
    /// Lines of the field, joined by commas.
    pub(super) value: Cow<'a, str>,
}

// === impl Fields ===

impl<'a> Fields<'a> {
    /// Picks the `headers` that may be about limits. Allocates nothing if there are none.
    pub(super) fn pick(headers: &'a HeaderMap) -> Self {
        let mut list = Vec::<Field<'_>>::new();
        // Lines of the same name are adjacent. Metadata that a user stored with an object (`x-amz-meta-`) says nothing
        // about limits.
        let told = headers.iter().filter(|(name, _)| may_tell(name) && !name.as_str().contains("-meta-"));
        for (name, line) in told {
            // A value that is no text is not about limits.
            let line = std::str::from_utf8(line.as_bytes()).unwrap_or_default().trim();
            // An empty line adds nothing to the others (RFC 9110 §5.6.1), and means nothing alone.
            if line.is_empty() {
                continue;
            }
            let full = list.len() == MAX_NAMES;
            match list.last_mut().filter(|last| last.name == name.as_str()) {
                Some(last) => last.value.to_mut().extend([", ", line]),
                None if full => break,
                None => list.push(Field { name: name.as_str(), value: line.into() }),
            }
        }
        list.retain(|field| field.value.len() <= LONGEST);
        Self { list }
    }

    /// Takes out the announced limits that are not enforced yet (`Beta-RateLimit`, `X-Beta-RateLimit-Limit`), and
    /// returns them under their future names.
    pub(super) fn split_off_announced(&mut self) -> Self {
        let mut announced = Vec::new();
        self.list.retain_mut(|field| {
            let name = field.name.strip_prefix("x-").unwrap_or(field.name).strip_prefix("beta-");
            announced.extend(name.map(|name| Field { name, value: std::mem::take(&mut field.value) }));
            name.is_none()
        });
        Self { list: announced }
    }

    /// Value of the field `name`, given in lower case.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.iter().find(|field| field.name == name).map(|field| &*field.value)
    }

    /// Iterates in the order of the answer.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Field<'a>> {
        self.list.iter()
    }

    /// Returns whether the list is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Removes the fields that `understood` accepts.
    pub(super) fn retain_not(&mut self, mut understood: impl FnMut(&Field<'a>) -> bool) {
        self.list.retain(|field| !understood(field));
    }
}

/// Returns whether a field of this `name` may be about limits.
pub(super) fn may_tell(name: &HeaderName) -> bool {
    !is_common(name) && is_marked(name.as_str())
}

fn is_marked(name: &str) -> bool {
    let mut last = 0_u32;
    name.bytes().any(|letter| {
        last = last << 8 | u32::from(letter);
        // Nearly all letters fail one of the two bit tests: they end no mark, or follow a letter that no mark has
        // there.
        ENDS & bit(last) != 0 && BEFORE_ENDS & bit(last >> 8) != 0 && MARKS.contains(&last)
    })
}

/// Returns whether nearly every answer has a field of this `name` that is about no limit. The names that the library
/// knows are compared as numbers.
fn is_common(name: &HeaderName) -> bool {
    matches!(*name, DATE | SERVER | CONTENT_TYPE | CONTENT_LENGTH | CONNECTION | CACHE_CONTROL | VARY | ETAG)
}

/// Last and next-to-last letters of the marks, one bit each.
const ENDS: u32 = ends(0);
const BEFORE_ENDS: u32 = ends(8);

const fn ends(shift: u32) -> u32 {
    let (mut at, mut bits) = (0, 0);
    while at < MARKS.len() {
        bits |= bit(MARKS[at] >> shift);
        at += 1;
    }
    bits
}

/// Bit of a small letter; other characters share the bit of some letter.
const fn bit(letter: u32) -> u32 {
    1 << (letter & 31)
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
        headers.append("ratelimit", HeaderValue::from_static(" "));
        headers.append("x-ratelimit-limit", HeaderValue::from_static(""));
        assert_eq!(Fields::pick(&headers).iter().count(), 1);
        assert_eq!(Fields::pick(&headers).value("ratelimit"), Some("\"a\";r=0, \"b\";r=1"));
    }
}
