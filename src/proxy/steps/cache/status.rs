//! How the cache handled a request, as it tells the worker (RFC 9211).

use http::{HeaderMap, HeaderValue, StatusCode};

use crate::proxy::message::fields::{self, CACHE_STATUS};

/// Why a request was forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forwarded {
    /// It takes no part in caching.
    Bypass,
    /// Its method is not one whose answers are stored.
    Method,
    /// Nothing is stored for it.
    Miss,
    /// What is stored is stale.
    Stale,
    /// What is stored is fresh, but the request wants it validated, or fresher.
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

/// A stored answer was used.
pub(super) fn hit(fields: &mut HeaderMap) {
    fields.append(CACHE_STATUS, HeaderValue::from_static("andante; hit"));
}

/// Whether it says that the answer was kept, and none was asked for.
pub(super) fn is_hit(fields: &HeaderMap) -> bool {
    fields.get_all(CACHE_STATUS).iter().any(|line| line == "andante; hit")
}

/// The request took part in the call of another one (RFC 9211 §2.8).
pub(super) const COLLAPSED: &str = "collapsed";
/// It did, and had to go on by itself.
const NOT_COLLAPSED: &str = "collapsed=?0";

/// Removes what a shared call says, and tells which of these it is.
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

/// The request was forwarded, and what was stored before got this `status`, if it was asked about.
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
