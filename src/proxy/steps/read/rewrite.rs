//! Rewrites a worker's request to a proxy into the request for the upstream.

use http::{
    HeaderMap, HeaderValue, Method, Request, Uri, Version,
    header::{CONNECTION, CONTENT_LENGTH, COOKIE, HOST, TE, TRANSFER_ENCODING, UPGRADE},
    uri::PathAndQuery,
};
use http_body::Body;

use crate::proxy::message::fields::{self, FoundFields};

/// Rewrites `request` to `host` in place, into the form of HTTP/1.1. `via` is andante's own name, unless the rule omits
/// `Via`. `found` holds the flags of its fields, and `path` replaces its target's path if set.
pub(crate) fn rewrite<B: Body>(
    via: Option<&[HeaderValue; 3]>,
    host: &HeaderValue,
    request: &mut Request<B>,
    found: FoundFields,
    path: Option<PathAndQuery>,
) {
    let received = request.version();
    let upgrade = if found.upgrade { upgrade(request) } else { None };
    let (sized, empty) = (found.length, request.body().is_end_stream());
    let unsized_body = !empty && request.body().size_hint().exact().is_none();
    let trailers = found.remove_hop_by_hop(request.headers_mut());
    let get = matches!(*request.method(), Method::GET | Method::HEAD);
    let fields = request.headers_mut();
    if sized && empty {
        // An empty body does not show its length field: for POST it makes a difference whether there was one.
        fields.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    } else if unsized_body && get {
        // hyper sends a GET's body only if the fields announce it.
        fields.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    if trailers {
        // TE concerns this hop only, on which andante accepts trailers, too.
        fields.insert(TE, HeaderValue::from_static("trailers"));
        fields.insert(CONNECTION, HeaderValue::from_static("te"));
    }
    if let Some(upgrade) = upgrade {
        fields.insert(UPGRADE, upgrade);
        fields.insert(CONNECTION, HeaderValue::from_static(if trailers { "te, upgrade" } else { "upgrade" }));
    }
    if received == Version::HTTP_2 {
        join_cookies(fields);
    }
    if fields.get(HOST) != Some(host) {
        fields.insert(HOST, host.clone());
    }
    if let Some(via) = via {
        fields::add_via(fields, via, received);
    }
    *request.version_mut() = Version::HTTP_11;
    *request.uri_mut() = path.map_or_else(|| origin_form(request.uri()), Uri::from);
}

/// The protocol that the worker wants to switch to (RFC 9110 §7.8): by any method and with a body, as kubectl and
/// docker do by POST. HTTP itself is excluded, because its requests would not be paced.
fn upgrade<B: Body>(request: &Request<B>) -> Option<HeaderValue> {
    let fields = request.headers();
    let wanted = fields.get(UPGRADE)?;
    let asked = fields::tokens(fields, &CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"));
    if !asked || request.version() != Version::HTTP_11 {
        return None;
    }
    let kept: Vec<&str> = fields::tokens(fields, &UPGRADE).filter(|protocol| !carries_requests(protocol)).collect();
    match fields.get_all(UPGRADE).iter().nth(1) {
        None if wanted.to_str().is_ok_and(|wanted| wanted == kept.join(", ")) => Some(wanted.clone()),
        _ => HeaderValue::try_from(kept.join(", ")).ok().filter(|_| !kept.is_empty()),
    }
}

/// Returns whether the protocol is HTTP itself, in the clear or inside TLS (RFC 7540 §3.2, RFC 2817), with a version or
/// without.
fn carries_requests(protocol: &str) -> bool {
    let name = protocol.split(['/', ';']).next().unwrap_or_default().trim();
    ["h2c", "h2", "http", "tls"].iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Joins the `Cookie` fields: HTTP/2 allows several, HTTP/1.1 only one (RFC 9113 §8.2.3).
fn join_cookies(fields: &mut HeaderMap) {
    if fields.get_all(COOKIE).iter().nth(1).is_some() {
        let pieces: Vec<&[u8]> = fields.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
        if let Ok(mut whole) = HeaderValue::from_bytes(&pieces.join(&b"; "[..])) {
            whole.set_sensitive(true);
            fields.insert(COOKIE, whole);
        }
    }
}

/// The target without scheme and authority, its bytes unchanged.
fn origin_form(uri: &Uri) -> Uri {
    Uri::from(match uri.path_and_query() {
        Some(path) if path.as_str().starts_with('?') => with_slash(path),
        // The path that is left of `http://host#fragment` only shows itself as "/", and would be written as nothing
        // (RFC 9112 §3.2.1).
        Some(path) if path.as_str() != "/" => path.clone(),
        _ => PathAndQuery::from_static("/"),
    })
}

#[cold]
fn with_slash(query: &PathAndQuery) -> PathAndQuery {
    query.to_string().parse().unwrap_or_else(|_| PathAndQuery::from_static("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_become_origin_form() {
        let form = |uri: &str| origin_form(&uri.parse().unwrap()).to_string();
        assert_eq!(form("http://a.test/"), "/");
        assert_eq!(form("http://a.test/x?y"), "/x?y");
        assert_eq!(form("http://a.test"), "/");
        assert_eq!(form("http://a.test?q=1"), "/?q=1");
        assert_eq!(form("http://a.test#x"), "/");
    }

    #[test]
    fn path_and_query_keep_their_bytes() {
        let uri = "http://a.test/%7Ea/../b//c;d?x=%2F&y=a+b";
        assert_eq!(origin_form(&uri.parse().unwrap()).to_string(), "/%7Ea/../b//c;d?x=%2F&y=a+b");
    }

    #[test]
    fn what_carries_requests_is_never_switched_to() {
        for protocol in ["h2c", "H2C", "h2c/1", "h2c;q=1", "HTTP/2.0", "TLS/1.0"] {
            assert!(carries_requests(protocol), "{protocol}");
        }
        for protocol in ["websocket", "SPDY/3.1", "h2cx", "tlsx"] {
            assert!(!carries_requests(protocol), "{protocol}");
        }
    }

    #[test]
    fn cookies_that_came_apart_are_one_again() {
        let mut fields = HeaderMap::new();
        for cookie in ["a=1", "b=2"] {
            fields.append(COOKIE, HeaderValue::from_static(cookie));
        }
        join_cookies(&mut fields);
        assert_eq!(fields.get_all(COOKIE).iter().collect::<Vec<_>>(), ["a=1; b=2"]);
    }
}
