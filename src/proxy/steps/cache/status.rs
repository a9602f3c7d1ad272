//! The `Cache-Status` that tells the worker how the cache handled a request (RFC 9211).

use http::{HeaderMap, HeaderValue, StatusCode};

use crate::proxy::message::fields::{self, CACHE_STATUS};

/// Reason why a request was forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forwarded {
    /// The request takes no part in caching.
    Bypass,
    /// Answers to the request's method are not stored.
    Method,
    /// There is no stored answer.
    Miss,
    /// The stored answer is stale.
    Stale,
    /// The stored answer is fresh, but the request wants it validated, or fresher.
    Request,
}

// === impl Forwarded ===

impl Forwarded {
    fn as_str(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Method => "method",
            Self::Miss => "miss",
            Self::Stale => "stale",
            Self::Request => "request",
        }
    }
}

/// Adds the status of an answer from the cache.
pub(super) fn hit(fields: &mut HeaderMap) {
    fields.append(CACHE_STATUS, HeaderValue::from_static("andante; hit"));
}

/// Returns whether the status says that an answer was kept, so that no request was sent.
pub(super) fn is_hit(fields: &HeaderMap) -> bool {
    fields.get_all(CACHE_STATUS).iter().any(|line| line == "andante; hit")
}

/// The request took part in another request's call (RFC 9211 §2.8).
pub(super) const COLLAPSED: &str = "collapsed";
/// The request took part in another request's call, and had to continue alone.
const NOT_COLLAPSED: &str = "collapsed=?0";

/// Removes the status of a shared call, and returns which of the two it is.
pub(super) fn take_collapsed(fields: &mut HeaderMap) -> Option<&'static str> {
    let says = |said: &&str| {
        let told = |line: &HeaderValue| line.as_bytes().strip_prefix(b"andante; fwd=miss; ") == Some(said.as_bytes());
        fields.get_all(CACHE_STATUS).iter().any(told)
    };
    let collapsed = [COLLAPSED, NOT_COLLAPSED].into_iter().find(says);
    if fields.contains_key(CACHE_STATUS) {
        fields::remove_our_status(fields, CACHE_STATUS);
    }
    collapsed
}

/// Adds the status of a forwarded request. `status` is the API's answer to a validation of the stored answer, if there
/// was one.
pub(super) fn forwarded(
    fields: &mut HeaderMap,
    why: Forwarded,
    status: Option<StatusCode>,
    also: impl Iterator<Item = &'static str>,
) {
    let mut text = format!("andante; fwd={}", why.as_str());
    if let Some(status) = status {
        text = format!("{text}; fwd-status={}", status.as_u16());
    }
    for parameter in also {
        text = format!("{text}; {parameter}");
    }
    fields.append(CACHE_STATUS, HeaderValue::try_from(text).expect("visible ASCII"));
}
