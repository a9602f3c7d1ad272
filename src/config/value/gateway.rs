//! Grammars for gateway routes: `/openai`, and its target.

use std::sync::Arc;

use super::grammar::{Grammar, ParseHint};
use crate::policy::{Origin, Scheme};

/// Target of a gateway's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) struct GatewayTarget {
    pub(in crate::config) to: Origin,
    /// Path at the target: `/v1`, or nothing.
    pub(in crate::config) base: Arc<str>,
}

pub(in crate::config) const PATH: Grammar<Arc<str>> =
    Grammar { expected: "a path", example: "\"/openai\"", read: route };
pub(in crate::config) const TO: Grammar<GatewayTarget> =
    Grammar { expected: "the URL of an API", example: "\"https://api.openai.com\"", read: target };

fn route(text: &str) -> Result<Arc<str>, ParseHint> {
    if !text.starts_with('/') {
        let meant = format!("/{}", text.trim_matches('/'));
        let hint = (plain(&meant).is_ok() && meant != "/").then(|| format!("write \"{meant}\""));
        return Err(ParseHint { what: None, hint });
    }
    let path = plain(text)?;
    if path.is_empty() {
        let hint = "write one of its own, as in \"/openai\": what is below \"/\" is not a gateway's alone";
        return Err(ParseHint::said("a gateway cannot be all paths", hint));
    }
    let first = path[1..].split('/').next().unwrap_or_default().to_ascii_lowercase();
    if first.starts_with("http:") || first.starts_with("https:") {
        let hint = "write a name: paths like /https://api.example.com/ are gateways without being told";
        return Err(ParseHint::said("a gateway's path cannot look like a URL", hint));
    }
    Ok(path.into())
}

/// Parses a gateway's target. Quotes nothing of it, because a password may be anywhere in it.
fn target(text: &str) -> Result<GatewayTarget, ParseHint> {
    let wrong = |found: &str| ParseHint { what: Some(format!("expected {}, found {found}", TO.expected)), hint: None };
    let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("no URL"))?;
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => return Err(wrong("a URL that is neither http nor https")),
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        let hint = "leave it out: credentials are the workers' own, in the fields of their requests";
        return Err(ParseHint::said("a user name has no place here", hint));
    }
    if rest.contains(['?', '#']) {
        let hint = "end it before the \"?\" or \"#\": what workers ask for is appended";
        return Err(ParseHint::said("a query or fragment has no place here", hint));
    }
    let to = Origin::parse(scheme, authority, Some(scheme.default_port()))
        .map_err(|_| wrong("a URL without a good host and port"))?;
    Ok(GatewayTarget { to, base: plain(&rest[authority.len()..])?.into() })
}

/// A path that every hop reads the same way, without its trailing slash. Requests are compared with it byte by byte, so
/// that it needs the form that it has in requests (RFC 3986 §3.3).
fn plain(text: &str) -> Result<&str, ParseHint> {
    let path = text.strip_suffix('/').unwrap_or(text);
    for segment in path.split('/').skip(1) {
        let dots = segment.to_ascii_lowercase().replace("%2e", ".");
        if segment.is_empty() || dots == "." || dots == ".." {
            let hint = "write it without \"//\", \".\" and \"..\"";
            return Err(ParseHint::said("a path with segments that are empty or dots can be read in two ways", hint));
        }
        if !encoded(segment) {
            let hint = "write it percent-encoded, as it stands in requests: %20 for a space";
            return Err(ParseHint::said("a path has characters that no request can have there", hint));
        }
    }
    Ok(path)
}

/// Returns whether `segment` consists of `pchar` alone.
fn encoded(segment: &str) -> bool {
    let bytes = segment.as_bytes();
    bytes.iter().enumerate().all(|(at, byte)| match byte {
        b'%' => bytes.get(at + 1..at + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)),
        _ => byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(byte),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_kept_as_it_is_but_for_its_last_slash() {
        for (text, path) in
            [("/openai", "/openai"), ("/openai/", "/openai"), ("/a/b:c@d%20e", "/a/b:c@d%20e"), ("/httpx", "/httpx")]
        {
            assert_eq!(PATH.read(text).as_deref(), Ok(path), "{text}");
        }
    }

    #[test]
    fn a_path_that_can_be_read_in_two_ways_is_none() {
        for text in [
            "",
            "/",
            "//",
            "//a",
            "/a//b",
            "/a//",
            "/.",
            "/a/..",
            "/a/%2E%2e/b",
            "/a?b",
            "/a#b",
            "/a b",
            "/a%2",
            "/ü",
            "/a\\b",
            "/http:",
            "/https://api.example.com",
            "/HTTPS:/x",
            "openai",
        ] {
            assert!(PATH.read(text).is_err(), "{text}");
        }
        assert_eq!(PATH.read("openai/").unwrap_err().hint, "write \"/openai\"");
    }

    #[test]
    fn a_gateway_leads_to_an_origin_and_perhaps_below_it() {
        let read = |text: &str| TO.read(text).map(|to| format!("{} {} {:?}", to.to.scheme.as_str(), to.to, to.base));
        assert_eq!(read("https://api.openai.com").unwrap(), "https api.openai.com:443 \"\"");
        assert_eq!(read("HTTP://API.example.com:81/").unwrap(), "http api.example.com:81 \"\"");
        assert_eq!(read("https://[::1]/v1/").unwrap(), "https [::1]:443 \"/v1\"");
        assert_eq!(read("https://a/v1/%7Ex").unwrap(), "https a:443 \"/v1/%7Ex\"");
        for text in ["", "a", "a/v1", "ftp://a", "https://", "https:///v1", "https://a:x/", "https://a/../b"] {
            assert!(TO.read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_password_is_never_quoted() {
        for text in [
            "https://me:hunter2@a/",
            "https://me:hunter2",
            "https://me:hunter2/x@a",
            "https://me:hunter2?x@a",
            "me:hunter2@a",
            "ftp://me:hunter2@a",
            "https://a/?key=hunter2",
            "https://a/#hunter2",
            "https://a/ hunter2",
        ] {
            let wrong = TO.read(text).unwrap_err();
            assert!(!format!("{wrong:?}").contains("hunter2"), "{text}: {wrong:?}");
        }
    }
}
