//! Parses Structured Fields (RFC 9651), more leniently than the RFC: malformed parts are skipped, and the rest still
//! counts.

use smallvec::SmallVec;

/// Member of a list with its parameters.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Item<'a> {
    /// Token, string or number without a key and without quotes. The last one counts, since some APIs send two.
    pub(super) name: Option<&'a str>,
    /// Pairs of `key=value`, without quotes.
    pub(super) parameters: SmallVec<[(&'a str, &'a str); 4]>,
}

// === impl Item ===

impl<'a> Item<'a> {
    /// Value of the first of `keys` that is present.
    pub(super) fn parameter(&self, keys: &[&str]) -> Option<&'a str> {
        let found = |key: &&str| self.parameters.iter().find(|(name, _)| name.eq_ignore_ascii_case(key));
        keys.iter().find_map(found).map(|(_, value)| *value)
    }
}

/// Members of `value`. Commas and semicolons in strings separate nothing.
pub(super) fn items(value: &str) -> impl Iterator<Item = Item<'_>> {
    let members = split(value, b',').map(|member| {
        let mut item = Item::default();
        for part in split(member, b';').map(str::trim).filter(|part| !part.is_empty()) {
            match split_at_equals(part) {
                Some((key, value)) => item.parameters.push((key.trim(), unquoted(value.trim()))),
                None => item.name = Some(unquoted(part)),
            }
        }
        item
    });
    members.filter(|item| item.name.is_some() || !item.parameters.is_empty())
}

/// Splits `value` at each `separator` outside of strings.
pub(super) fn split(value: &str, separator: u8) -> impl Iterator<Item = &str> {
    let mut rest = Some(value);
    std::iter::from_fn(move || {
        let text = rest?;
        let (mut quoted, mut escaped) = (false, false);
        let end = text.bytes().position(|c| {
            let ends = c == separator && !quoted;
            match c {
                _ if escaped => escaped = false,
                b'\\' if quoted => escaped = true,
                b'"' => quoted = !quoted,
                _ => {}
            }
            ends
        });
        // Separators are ASCII, so both halves are whole.
        let (part, after) = end.map_or((text, None), |end| (&text[..end], Some(&text[end + 1..])));
        rest = after;
        Some(part)
    })
}

fn split_at_equals(part: &str) -> Option<(&str, &str)> {
    // A string or a byte sequence may contain `=`, and has no key.
    if part.starts_with(['"', ':']) { None } else { part.split_once('=') }
}

fn unquoted(text: &str) -> &str {
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_and_semicolons_in_strings_separate_nothing() {
        let read: Vec<_> = items(r#"100, 100;w=60;comment="a, b;w=1 \" =", "n,1" ; r = 5 ; t=0"#).collect();
        assert_eq!(read.len(), 3);
        assert_eq!(read[1].parameter(&["w"]), Some("60"));
        assert_eq!(
            (read[2].name, read[2].parameter(&["r"]), read[2].parameter(&["t"])),
            (Some("n,1"), Some("5"), Some("0"))
        );
    }

    #[test]
    fn a_string_as_a_key_is_a_name() {
        let read = items(r#""fixed window";"api";q=500;w=300"#).next().unwrap();
        assert_eq!((read.name, read.parameter(&["q"])), (Some("api"), Some("500")));
    }

    #[test]
    fn what_is_malformed_is_left_out() {
        for value in ["", ",,;;,", "\"", "\\", "=", ";=;", "\"a", ":::"] {
            assert!(items(value).count() <= 1, "{value}: {:?}", items(value).collect::<Vec<_>>());
        }
        assert_eq!(items("a;r=1;;;t=,b").next().unwrap().parameters[..], [("r", "1"), ("t", "")]);
    }
}
