//! Directives of `Cache-Control`, in requests and in answers (RFC 9111 §5.2).

use std::time::Duration;

use http::{
    HeaderMap,
    header::{CACHE_CONTROL, PRAGMA},
};

use super::{fields, quoted_list::quoted_members};

/// Number of seconds that stands for infinity (RFC 9111 §1.2.2).
pub(crate) const FOREVER: Duration = Duration::from_secs(1 << 31);

/// Cache directives of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestDirectives {
    /// No part of the request or its answer may be stored.
    pub(crate) no_store: bool,
    /// A stored answer must not be used without validation.
    pub(crate) no_cache: bool,
    /// The client wants only a stored answer.
    pub(crate) only_if_cached: bool,
    /// Maximum age of the answer.
    pub(crate) max_age: Option<Duration>,
    /// Minimum time for which the answer has to stay fresh.
    pub(crate) min_fresh: Option<Duration>,
    /// Maximum time for which the answer may have been stale.
    pub(crate) max_stale: Option<Duration>,
}

/// Cache directives of an answer for a private cache: `s-maxage` and `proxy-revalidate` are for shared ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AnswerDirectives {
    /// The answer must not be stored.
    pub(crate) no_store: bool,
    /// The answer must not be used again without validation.
    pub(crate) no_cache: bool,
    /// Once stale, the answer must not be used without validation, even if a request allows stale answers.
    pub(crate) must_revalidate: bool,
    /// The answer may be stored only if its status is understood.
    pub(crate) must_understand: bool,
    /// The answer says that it may be stored.
    pub(crate) storable: bool,
    /// Time for which the answer is fresh. An unreadable value, or two different values, make the answer stale (RFC
    /// 9111 §4.2.1).
    pub(crate) max_age: Option<Duration>,
}

// === impl RequestDirectives ===

impl RequestDirectives {
    /// Directives of a request with these `fields`.
    pub(crate) fn of(fields: &HeaderMap) -> Self {
        let mut said = Self::default();
        for (name, value) in directives(fields) {
            match name.as_str() {
                "no-store" => said.no_store = true,
                "no-cache" => said.no_cache = true,
                "only-if-cached" => said.only_if_cached = true,
                // No answer meets an age that cannot be read.
                "max-age" => said.max_age = Some(value.and_then(seconds).unwrap_or_default()),
                "min-fresh" => said.min_fresh = value.and_then(seconds),
                "max-stale" => said.max_stale = value.map_or(Some(FOREVER), seconds),
                _ => {}
            }
        }
        // HTTP/1.0's equivalent (RFC 9111 §5.4).
        if !fields.contains_key(CACHE_CONTROL) {
            said.no_cache = fields::tokens(fields, &PRAGMA).any(|token| token.eq_ignore_ascii_case("no-cache"));
        }
        said
    }
}

// === impl AnswerDirectives ===

impl AnswerDirectives {
    /// Directives of an answer with these `fields`.
    pub(crate) fn of(fields: &HeaderMap) -> Self {
        let mut said = Self::default();
        for (name, value) in directives(fields) {
            match name.as_str() {
                "no-store" => said.no_store = true,
                // Also if it names fields: storing an answer without them would hardly be worth it (RFC 9111 §5.2.2.4).
                "no-cache" => said.no_cache = true,
                "must-revalidate" => said.must_revalidate = true,
                "must-understand" => said.must_understand = true,
                "public" | "private" => said.storable = true,
                "max-age" => {
                    let age = value.and_then(seconds).unwrap_or_default();
                    let other = said.max_age.is_some_and(|before| before != age);
                    said.max_age = Some(if other { Duration::ZERO } else { age });
                }
                _ => {}
            }
        }
        said
    }
}

/// The directives in lower case, with their values if they have any.
fn directives(fields: &HeaderMap) -> impl Iterator<Item = (String, Option<&[u8]>)> {
    let lines = fields.get_all(CACHE_CONTROL).into_iter();
    lines.flat_map(|line| quoted_members(line.as_bytes())).map(|member| {
        let (name, value) = match member.iter().position(|byte| *byte == b'=') {
            Some(at) => (&member[..at], Some(unquoted(&member[at + 1..]))),
            None => (member, None),
        };
        (String::from_utf8_lossy(name).to_ascii_lowercase(), value)
    })
}

/// Text between the quotes of a quoted string. Numbers have no escapes.
fn unquoted(value: &[u8]) -> &[u8] {
    match value {
        [b'"', inner @ .., b'"'] => inner,
        _ => value,
    }
}

/// Parses digits and nothing else. A number above the largest one counts as the largest (RFC 9111 §1.2.2).
pub(crate) fn seconds(value: &[u8]) -> Option<Duration> {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let number = digits.then(|| str::from_utf8(value).ok())?.map(|text| text.parse().unwrap_or(u64::MAX));
    number.map(|seconds| Duration::from_secs(seconds).min(FOREVER))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn lines(lines: &[&str]) -> HeaderMap {
        lines.iter().map(|line| (CACHE_CONTROL, HeaderValue::try_from(*line).unwrap())).collect()
    }

    fn max_age(said: &[&str]) -> Option<u64> {
        AnswerDirectives::of(&lines(said)).max_age.map(|age| age.as_secs())
    }

    /// RFC 9111 §5.2: names are case-insensitive, values tokens or quoted strings.
    #[test]
    fn a_lifetime_is_read_in_every_form_that_it_may_have() {
        for (said, seconds) in [
            ("max-age=60", 60),
            ("MaX-aGe=60", 60),
            ("max-age=\"60\"", 60),
            ("max-age=0060", 60),
            ("public, max-age=60, x", 60),
            ("max-age=60, max-age=60", 60),
            // §1.2.2: a number too large to represent.
            ("max-age=99999999999999999999999", 1 << 31),
        ] {
            assert_eq!(max_age(&[said]), Some(seconds), "{said}");
        }
    }

    /// RFC 9111 §4.2.1: caches are encouraged to consider responses with invalid freshness information to be stale.
    #[test]
    fn a_lifetime_that_is_invalid_or_said_twice_is_none() {
        for said in ["max-age=-1", "max-age=60.0", "max-age='60'", "max-age", "max-age=6o", "max-age=60, max-age=1"] {
            assert_eq!(max_age(&[said]), Some(0), "{said}");
        }
        assert_eq!(max_age(&["max-age=1", "max-age=60"]), Some(0));
    }

    #[test]
    fn what_stands_inside_of_a_quoted_string_is_no_directive() {
        assert_eq!(max_age(&["ext=\"max-age=60, no-store\", max-age=1"]), Some(1));
        assert!(!AnswerDirectives::of(&lines(&["ext=\"a\\\", no-store\""])).no_store);
        assert_eq!(max_age(&["ext=\"max-age=60\""]), None);
    }

    #[test]
    fn what_is_for_shared_caches_says_nothing_here() {
        let said = AnswerDirectives::of(&lines(&["s-maxage=60, proxy-revalidate"]));
        assert_eq!(said, AnswerDirectives::default());
    }

    #[test]
    fn requests_say_how_old_an_answer_may_be() {
        let said = RequestDirectives::of(&lines(&["max-age=5, min-fresh=7", "max-stale"]));
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!((said.max_age, said.min_fresh, said.max_stale), (seconds(5), seconds(7), Some(FOREVER)));
        assert_eq!(RequestDirectives::of(&lines(&["max-stale=3"])).max_stale, seconds(3));
        assert_eq!(RequestDirectives::of(&lines(&["max-age=x"])).max_age, seconds(0));
    }

    /// RFC 9111 §5.4: `Pragma` counts only if `Cache-Control` is missing.
    #[test]
    fn pragma_counts_where_there_is_no_cache_control() {
        let mut fields = HeaderMap::from_iter([(PRAGMA, HeaderValue::from_static("No-Cache"))]);
        assert!(RequestDirectives::of(&fields).no_cache);
        fields.insert(CACHE_CONTROL, HeaderValue::from_static("max-age=5"));
        assert!(!RequestDirectives::of(&fields).no_cache);
    }
}
