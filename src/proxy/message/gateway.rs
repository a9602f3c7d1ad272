//! Requests whose target is a gateway path instead of a URL: `/https://api.example.com/v1`, or the path of a named
//! route. Pure: finds the target of a path, and the form in which an answer keeps the client on the gateway. Never
//! decides which clients may use the path.
//!
//! ```text
//! GET /https://api.example.com/v1/x?y  →  GET /v1/x?y of https://api.example.com
//! GET /openai/models                   →  GET /v1/models of https://api.openai.com, if `to` ends in /v1
//! ```

mod cookie;
mod location;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::uri::PathAndQuery;

pub(crate) use self::location::LocationRewriter;
use crate::{
    error::Error,
    policy::{Gateway, Scheme},
};

/// Target of a request that came in origin form.
#[derive(Debug)]
pub(crate) struct Target {
    /// Scheme of the upstream.
    pub(crate) scheme: Scheme,
    /// The authority as the client wrote it, yet to be parsed; a named route's host.
    pub(crate) authority: String,
    /// Path for the upstream, byte for byte as the client wrote it.
    pub(crate) path: PathAndQuery,
    /// Rewriter for the answer.
    pub(crate) location: Arc<LocationRewriter>,
}

/// The target of `path`; `None` if `path` is no gateway's. The longest matching path of `routes` wins, and `/openai`
/// does not match `/openaix`.
pub(crate) fn target(path: &PathAndQuery, routes: &[Gateway]) -> Option<Result<Target, Error>> {
    // Checked first, so that no route can shadow it.
    if let Some((scheme, authority, prefix)) = written_out(path.as_str()) {
        if authority.contains('@') {
            return Some(Err(Error::UserInfo));
        }
        let rest = &path.as_str()[prefix.len()..];
        return Some(lead(scheme, authority, prefix, "", rest));
    }
    let (route, rest) = routes
        .iter()
        .filter_map(|route| Some((route, below(path.as_str(), &route.path)?)))
        .max_by_key(|(route, _)| route.path.len())?;
    Some(lead(route.to.scheme, route.to.authority(), &route.path, &route.base, rest))
}

/// Builds a target from the upstream's base path (`base`) and the rest of the client's path (`rest`).
fn lead(scheme: Scheme, authority: String, prefix: &str, base: &str, rest: &str) -> Result<Target, Error> {
    let slash = if base.is_empty() && !rest.starts_with('/') { "/" } else { "" };
    // Parts of a parsed path make a valid path again. Only the limit on its length can fail, for a long base.
    let path = PathAndQuery::try_from([slash, base, rest].concat()).map_err(|_| Error::UriTooLong)?;
    let bare = !rest.starts_with('/');
    let location = Arc::new(LocationRewriter::new(prefix, base, (scheme, &authority), &path, bare));
    Ok(Target { scheme, authority, path, location })
}

/// Splits `/https://host` into the scheme, the host, and the whole as written. The scheme may have any case. One of its
/// slashes may be missing, because some clients and proxies merge two. Its colon may be escaped: pip escapes colons in
/// the links that it follows.
fn written_out(path: &str) -> Option<(Scheme, String, &str)> {
    let (scheme, after) = path.strip_prefix('/')?.split_once('/')?;
    let scheme = [":", "%3A", "%3a"].into_iter().find_map(|colon| scheme.strip_suffix(colon))?;
    let scheme = [Scheme::Https, Scheme::Http].into_iter().find(|known| scheme.eq_ignore_ascii_case(known.as_str()))?;
    let after = after.strip_prefix('/').unwrap_or(after);
    let written = &after[..after.find(['/', '?']).unwrap_or(after.len())];
    let start = path.len() - after.len();
    let authority = written.replace("%3A", ":").replace("%3a", ":");
    Some((scheme, authority, &path[..start + written.len()]))
}

/// The part of `path` after `prefix`, if `path` is below it or equal to it. Nothing is below an empty prefix: a request
/// to the proxy's own address is a mistake that needs its own answer.
fn below<'a>(path: &'a str, prefix: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(prefix).filter(|_| !prefix.is_empty())?;
    (rest.is_empty() || rest.starts_with(['/', '?'])).then_some(rest)
}
