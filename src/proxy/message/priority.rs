//! `Priority` (RFC 9218), a structured dictionary (RFC 9651 §3.2): the urgency of a request.

use http::{HeaderMap, HeaderName, HeaderValue};
use sfv::{Dictionary, ListEntry, Parser};

pub(crate) const PRIORITY: HeaderName = HeaderName::from_static("priority");

/// The urgency in the field, 0 to 7. `None` if there is none, or if the field is malformed. A malformed field is to be
/// ignored, as is an urgency of another type or range (RFC 9218 §4).
pub(crate) fn urgency(fields: &HeaderMap) -> Option<u8> {
    if !fields.contains_key(PRIORITY) {
        return None;
    }
    let lines: Vec<_> = fields.get_all(PRIORITY).iter().map(HeaderValue::as_bytes).collect();
    let dictionary: Dictionary = Parser::new(&lines.join(&b", "[..])).parse().ok()?;
    let ListEntry::Item(item) = dictionary.get("u")? else { return None };
    let urgency = u8::try_from(item.bare_item.as_integer()?).ok()?;
    (urgency <= 7).then_some(urgency)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&'static str]) -> Option<u8> {
        let mut fields = HeaderMap::new();
        for line in lines {
            fields.append("priority", HeaderValue::from_static(line));
        }
        urgency(&fields)
    }

    #[test]
    fn urgencies_are_read_as_rfc_9218_writes_them() {
        // RFC 9218 §4.1, §4.2.
        for (line, urgency) in
            [("u=0", 0), ("u=5, i", 5), ("i, u=1", 1), ("i=?0,u=7", 7), ("u=2;x=1", 2), ("u=1, u=6", 6)]
        {
            assert_eq!(of(&[line]), Some(urgency), "{line}");
        }
        assert_eq!(of(&["i", "u=4"]), Some(4));
        assert_eq!(of(&["a=(1 \"x\\\"\" tok);b, c=:aGk=:, d=-1.5, u=1"]), Some(1));
    }

    #[test]
    fn what_is_malformed_out_of_range_or_of_another_type_is_ignored() {
        for line in [
            "",
            "i",
            "u",
            "u=8",
            "u=-1",
            "u=1.0",
            "u=?1",
            "u=high",
            "u=\"1\"",
            "u=(1)",
            "U=1",
            "u=",
            "u=1,",
            "u=1;;",
            "u=1 i",
            "=1",
            "u=1, a=\"open",
            "u=0x1",
            "u=1234567890123456",
            "u=1, a=?2",
        ] {
            assert_eq!(of(&[line]), None, "{line}");
        }
        assert_eq!(of(&["u=1", "=", "i"]), None);
        assert_eq!(of(&[]), None);
    }
}
