//! How it is written which requests a rule is for, and what its budgets are told apart by.

use super::grammar::{Grammar, ParseHint};
use crate::policy::{BadPart, KeyPart, PathPattern};

pub(in crate::config) const PATH: Grammar<PathPattern> =
    Grammar { expected: "a path", example: "\"/search\" or \"/v1/{tenant}/*\"", read: part };
pub(in crate::config) const METHOD: Grammar<Box<str>> =
    Grammar { expected: "a method", example: "\"POST\" or [\"POST\", \"PUT\"]", read: method };
pub(in crate::config) const HEADER: Grammar<Box<str>> =
    Grammar { expected: "the name of a header field", example: "\"x-batch\"", read: header };
pub(in crate::config) const KEY: Grammar<KeyPart> = Grammar {
    expected: "what tells budgets apart",
    example: "\"host\", \"method\", \"flow\", \"client\", \"path:tenant\", \"header:authorization\" or \"query:api_key\"",
    read: part,
};

fn part<T: std::str::FromStr<Err = BadPart>>(text: &str) -> Result<T, ParseHint> {
    text.parse().map_err(|wrong: BadPart| ParseHint { what: Some(format!("{text:?}: {wrong}")), hint: None })
}

/// Methods are case-sensitive (RFC 9110 §9.1), and those of APIs are in capital letters.
fn method(text: &str) -> Result<Box<str>, ParseHint> {
    let token = http::Method::from_bytes(text.as_bytes()).is_ok();
    match text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        false if token => Ok(text.into()),
        true if token => Err(ParseHint::hint(format!("write \"{}\"", text.to_ascii_uppercase()))),
        _ => Err(ParseHint::default()),
    }
}

fn header(text: &str) -> Result<Box<str>, ParseHint> {
    http::HeaderName::from_bytes(text.as_bytes()).map(|name| name.as_str().into()).map_err(|_| ParseHint::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_told_with_what_is_meant() {
        assert_eq!(METHOD.read("post").unwrap_err().hint, "write \"POST\"");
        assert!(METHOD.read("a b").is_err() && HEADER.read("a b").is_err());
        assert_eq!(HEADER.read("X-Batch").as_deref(), Ok("x-batch"));
        assert_eq!(PATH.read("search").unwrap_err().what, "\"search\": a path begins with /");
        assert!(KEY.read("cookie").unwrap_err().what.contains("none of host"));
    }
}
