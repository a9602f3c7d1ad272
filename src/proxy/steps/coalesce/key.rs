//! Decides which requests are identical, and which answers are for all of them.

use http::{
    HeaderMap, Method, StatusCode,
    header::{CACHE_CONTROL, SET_COOKIE, UPGRADE},
    response,
};
use http_body::{Body as _, SizeHint};

use crate::{
    policy::Origin,
    proxy::{
        call::Call,
        message::{fields, shared_body::MOST},
        sharing::Key,
        steps::{
            keyed_hash,
            same_request::{fields_hash, varies},
        },
    },
};

/// Hash of `origin`.
pub(super) fn origin(origin: &Origin) -> u64 {
    keyed_hash::of(origin)
}

/// Key of `call`: every part that could change an API's answer, including the credential. `None` if the answer is for
/// `call` alone. The body of a QUERY is part of the key once it was read (RFC 10008 §2.7).
pub(super) fn of(call: &Call, origin: u64) -> Option<Key> {
    let request = &call.request;
    let body = match *request.method() {
        Method::GET | Method::HEAD => request.body().is_end_stream().then_some(None)?,
        Method::QUERY => Some(request.body().fingerprint()?),
        _ => return None,
    };
    let fields = request.headers();
    if call.bound || fields.contains_key(UPGRADE) || says(fields, "no-store") {
        return None;
    }
    // A gateway's answers contain the address by which their worker came in.
    let location = call.location.as_ref().map(|location| format!("{location:?}"));
    Some(Key::new(origin, |half| {
        let target = (request.method().as_str(), request.uri().to_string());
        keyed_hash::of((half, origin, target, fields_hash(fields, half), body, call.cost, &location))
    }))
}

/// Returns whether the answer with this `head` and a body of this `size` is for all identical requests.
pub(super) fn is_for_all(head: &response::Parts, size: &SizeHint) -> bool {
    let fits = size.lower() <= MOST as u64;
    // A new cookie begins a session, which belongs to one worker.
    fits && !varies(&head.headers) && is_lasting(head.status) && !head.headers.contains_key(SET_COOKIE)
}

/// Returns whether another request would most likely get the same answer.
fn is_lasting(status: StatusCode) -> bool {
    let passing = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS];
    !status.is_server_error() && !status.is_informational() && !passing.contains(&status)
}

/// Returns whether `Cache-Control` has this directive.
fn says(fields: &HeaderMap, directive: &str) -> bool {
    fields::tokens(fields, &CACHE_CONTROL).any(|said| said.eq_ignore_ascii_case(directive))
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;

    fn is_shared(status: u16, lines: &[(&str, &str)], size: u64) -> bool {
        let mut answer = Response::builder().status(status);
        for (name, value) in lines {
            answer = answer.header(*name, *value);
        }
        is_for_all(&answer.body(()).unwrap().into_parts().0, &SizeHint::with_exact(size))
    }

    #[test]
    fn answers_that_another_request_would_get_too_are_for_all() {
        for status in [200, 204, 301, 304, 400, 401, 403, 404, 410] {
            assert!(is_shared(status, &[], 0), "{status}");
        }
        for status in [408, 425, 429, 500, 502, 503, 504] {
            assert!(!is_shared(status, &[], 0), "{status}");
        }
    }

    #[test]
    fn what_varies_by_more_than_the_key_sets_a_cookie_or_is_too_large_is_for_one() {
        assert!(is_shared(200, &[("vary", "Accept, Authorization")], 10));
        assert!(is_shared(200, &[("cache-control", "private, no-store")], 10));
        for (name, value) in
            [("vary", "*"), ("vary", "accept, X-Request-Id"), ("vary", "Prefer"), ("set-cookie", "a=b")]
        {
            assert!(!is_shared(200, &[(name, value)], 10), "{name}: {value}");
        }
        assert!(is_shared(200, &[], 1024 * 1024));
        assert!(!is_shared(200, &[], 1024 * 1024 + 1));
    }
}
