//! Requests for a path of ours in the place of a proxy's target: `/https://api.example.com/v1`, or the path of a named
//! route. Pure: tells where a path leads, and how the answer must read for the client to stay here. Never decides who
//! may use it.
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

/// Where a request leads that came in origin form.
#[derive(Debug)]
pub(crate) struct Target {
    /// How the upstream is spoken to.
    pub(crate) scheme: Scheme,
    /// As the client wrote it, yet to be parsed; a named route's host.
    pub(crate) authority: String,
    /// What the upstream is to get, byte for byte as the client wrote it.
    pub(crate) path: PathAndQuery,
    /// For the answer.
    pub(crate) location: Arc<LocationRewriter>,
}

/// Where `path` leads; `None` if it is no gateway's. Of `routes` the longest path wins, and `/openai` is not `/openaix`.
pub(crate) fn target(path: &PathAndQuery, routes: &[Gateway]) -> Option<Result<Target, Error>> {
    // First, so that no route can stand in front of it.
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

/// Puts a target together from what comes before the path there (`base`) and what the client wants of it (`rest`).
fn lead(scheme: Scheme, authority: String, prefix: &str, base: &str, rest: &str) -> Result<Target, Error> {
    let slash = if base.is_empty() && !rest.starts_with('/') { "/" } else { "" };
    // Parts of a path that was read make a path again. The limit on its length is the one thing that a long base breaks.
    let path = PathAndQuery::try_from([slash, base, rest].concat()).map_err(|_| Error::UriTooLong)?;
    let bare = !rest.starts_with('/');
    let location = Arc::new(LocationRewriter::new(prefix, base, (scheme, &authority), &path, bare));
    Ok(Target { scheme, authority, path, location })
}

/// Takes `/https://host` apart, in any case and also with one of its slashes lost: some clients, and proxies on the way
/// here, make one of two, and pip escapes the colons of links that it follows. Gives scheme, host, and the whole as it was
/// written.
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

/// What of `path` comes after `prefix`, if it is below it or at it. A prefix that says nothing has nothing below it: a
/// request to the proxy's own address is a mistake that needs its own answer.
fn below<'a>(path: &'a str, prefix: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(prefix).filter(|_| !prefix.is_empty())?;
    (rest.is_empty() || rest.starts_with(['/', '?'])).then_some(rest)
}
