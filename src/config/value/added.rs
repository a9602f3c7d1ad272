//! Grammars for the requests that a rule matches, and for the key of its budgets.

use super::grammar::{Grammar, ParseHint, shown};
use crate::policy::{BadPart, KeyPart, PathPattern};

pub(in crate::config) const PATH: Grammar<PathPattern> =
    Grammar { expected: "a path", example: "\"/search\" or \"/v1/{tenant}/*\"", read: path };
pub(in crate::config) const METHOD: Grammar<Box<str>> =
    Grammar { expected: "a method", example: "\"POST\" or [\"POST\", \"PUT\"]", read: method };
pub(in crate::config) const HEADER: Grammar<Box<str>> =
    Grammar { expected: "the name of a header field", example: "\"x-batch\"", read: header };
pub(in crate::config) const KEY: Grammar<KeyPart> = Grammar {
    expected: "a part of a budget key",
    example: "\"host\", \"method\", \"flow\", \"client\", \"path:tenant\", \"header:authorization\" or \"query:api_key\"",
    read: key,
};

fn path(text: &str) -> Result<PathPattern, ParseHint> {
    let said = |wrong: BadPart| format!("{:?}: {wrong}", shown(text));
    let pattern = text.parse().map_err(|wrong| ParseHint { what: Some(said(wrong)), hint: meant_by_path(text) })?;
    match named_by_colons(text) {
        Some(meant) => Err(ParseHint::said(
            format!("{text:?}: a segment of any text is a name in braces"),
            format!("write \"{meant}\""),
        )),
        None => Ok(pattern),
    }
}

/// Advice for `text`, which is no path.
fn meant_by_path(text: &str) -> Option<String> {
    let is_path = |path: &str| path.parse::<PathPattern>().is_ok();
    if let Some((_, rest)) = text.split_once("://") {
        let path = rest.find('/').map_or("/*", |slash| &rest[slash..]);
        return is_path(path).then(|| format!("the host is a key of its own: write path = \"{path}\""));
    }
    if text.contains(['^', '$', '(', '\\', '+']) || text.contains(".*") {
        let plain = text.trim_matches(['^', '$']).replace(".*", "*").replace(['\\', '(', ')'], "");
        let path = if is_path(&plain) { plain } else { "/v1/*".to_owned() };
        return Some(format!("paths are no regular expressions: write \"{path}\""));
    }
    if let Some((before, _)) = text.split_once(['?', '#']) {
        return is_path(before).then(|| format!("the query plays no part: write \"{before}\""));
    }
    let path = format!("/{}", text.trim_start_matches('/')).replace("**", "*");
    let path = named_by_colons(&path).unwrap_or(path);
    (is_path(&path) && path != text).then(|| format!("write \"{path}\""))
}

/// Rewrites `/v1/:id` and `/v1/<id>` as `/v1/{id}`, if there is such a segment.
fn named_by_colons(path: &str) -> Option<String> {
    let name = |segment: &str| {
        let colon = segment.strip_prefix(':').map(|name| name.trim_end_matches('?'));
        let angles = segment.strip_prefix('<').and_then(|name| name.strip_suffix('>'));
        let name = colon.or(angles.map(|name| name.rsplit(':').next().unwrap_or(name)))?;
        (!name.is_empty()).then(|| format!("{{{name}}}"))
    };
    let segments: Vec<_> = path.split('/').map(|segment| (name(segment), segment)).collect();
    segments.iter().any(|(name, _)| name.is_some()).then(|| {
        let segments: Vec<_> = segments.into_iter().map(|(name, own)| name.unwrap_or_else(|| own.to_owned())).collect();
        segments.join("/")
    })
}

fn key(text: &str) -> Result<KeyPart, ParseHint> {
    text.parse().map_err(|wrong: BadPart| ParseHint {
        what: Some(format!("{:?}: {wrong}", shown(text))),
        hint: meant_by_key(text),
    })
}

fn meant_by_key(text: &str) -> Option<String> {
    let lower = text.trim().to_ascii_lowercase();
    let field = lower.trim_start_matches("header").trim_start_matches([' ', '=', '.', ':', '-']);
    Some(match &*lower {
        "ip" | "address" | "remote-addr" | "remote_addr" | "source" => "write \"client\"".to_owned(),
        "user" | "token" | "credential" | "authorization" | "auth" => "write \"header:authorization\"".to_owned(),
        "key" | "api-key" | "apikey" | "api_key" => "write \"header:authorization\" or \"query:api_key\"".to_owned(),
        "path" => "write \"path:NAME\", the name of a segment: path = \"/v1/{NAME}/*\"".to_owned(),
        "url" | "route" => "write a [[rule]] for each path".to_owned(),
        _ if http::HeaderName::from_bytes(field.as_bytes()).is_ok()
            && (field.contains('-') || lower.starts_with("header")) =>
        {
            format!("write \"header:{field}\"")
        }
        _ => return None,
    })
}

/// Parses a method. Methods are case-sensitive (RFC 9110 §9.1), and those of APIs are in capital
/// letters.
fn method(text: &str) -> Result<Box<str>, ParseHint> {
    let token = http::Method::from_bytes(text.as_bytes()).is_ok();
    match text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        false if ["ALL", "ANY", "*"].contains(&text) => Err(ParseHint::hint("leave it out: then all methods count")),
        false if token => Ok(text.into()),
        true if token => Err(ParseHint::hint(format!("write \"{}\"", text.to_ascii_uppercase()))),
        _ => Err(ParseHint::default()),
    }
}

fn header(text: &str) -> Result<Box<str>, ParseHint> {
    http::HeaderName::from_bytes(text.as_bytes()).map(|name| name.as_str().into()).map_err(|_| {
        let name =
            text.split([':', '=', ' ']).next().filter(|name| http::HeaderName::from_bytes(name.as_bytes()).is_ok());
        // The value may be a credential.
        let what = "expected the name of a header field, found more than that".to_owned();
        match name {
            Some(name) => ParseHint::said(
                what,
                format!("write \"{name}\"; budgets of each value are told apart by key = \"header:{name}\""),
            ),
            None => ParseHint::default(),
        }
    })
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
