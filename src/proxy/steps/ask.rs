//! What a request asks of its lane: by what it claims its turn, for how long it may wait, what it costs, and on which budgets
//! it draws. Pure: the proxy asks with it, and `andante explain` says it.

use std::time::Duration;

use http::{HeaderName, Method, Request, header::HeaderMap};

use super::{
    claim,
    costs::{self, SeenBody},
    draws,
};
use crate::{
    clock::Instant,
    error::Error,
    lane::{
        AddedRule, AdmitRequest, Lane,
        order::{Claim, Turn},
    },
    learn::RouteKey,
    limit::Cost,
    proxy::{message::fields::FoundFields, session::Requester},
};

/// What the worker is willing to put up with (RFC 7240).
const PREFER: HeaderName = HeaderName::from_static("prefer");

/// What a request says of itself, in fields that the upstream does not see.
pub(crate) struct RequestTerms {
    /// By what it claims its turn.
    pub(crate) claim: Claim,
    /// What it says that it costs, or what is wrong with that.
    pub(crate) cost: Result<Option<Cost>, Error>,
    /// For how long it may wait.
    pub(crate) patience: Duration,
}

/// What waits for a slot.
pub(crate) struct Asking<'a> {
    pub(crate) lane: &'a Lane,
    /// The rules for some of the requests to its origin.
    pub(crate) added: &'a [AddedRule],
    pub(crate) claim: Claim,
    /// What it says that it costs.
    pub(crate) cost: Option<Cost>,
    /// Whose it is, by a keyed hash of its credentials; 0 if it has none.
    pub(crate) credential: u32,
    /// What is known of its body.
    pub(crate) body: SeenBody<'a>,
    pub(crate) turn: Turn,
    pub(crate) deadline: Instant,
    /// The port that it goes to.
    pub(crate) port: u16,
}

/// What the request with these `fields` says of itself, which comes from `requester` and is for `lane`.
/// `found` is what it has of fields.
pub(crate) fn terms(
    fields: &HeaderMap,
    found: FoundFields,
    requester: Requester,
    lane: &Lane,
    added: &[AddedRule],
) -> RequestTerms {
    let policy = lane.policy();
    let learned = policy.learns_patience.then(|| lane.departures().patience()).flatten();
    let longest = policy.max_wait.min(learned.unwrap_or(Duration::MAX));
    if !found.term {
        // As most requests.
        return RequestTerms { claim: claim::usual(requester, policy), cost: Ok(None), patience: longest };
    }
    let patience = patience(fields).min(longest);
    let (claim, cost) = (claim::read(fields, requester, policy), claim::cost(fields, policy, added));
    RequestTerms { claim, cost, patience }
}

/// What `request`, as it will be sent, asks of its lane.
pub(crate) fn of<B>(request: &Request<B>, asking: Asking<'_>) -> Result<AdmitRequest, Error> {
    let Asking { lane, added, claim, cost, credential, body, turn, deadline, port } = asking;
    let by_rule = costs::of(added, request, lane, &claim, body);
    let cost = cost.map_or(by_rule, |said| said.completed_by(&by_rule));
    let cost = costs::with_uncosted(cost, added, request, lane.policy(), &claim).shared(&lane.policy().limits);
    let draws = draws::of(added, request, &claim, cost)?;
    let kind = match *request.method() {
        // What is inside of a tunnel is unknown.
        Method::CONNECT => RouteKey::NONE,
        _ => draws::of_kind(
            &draws,
            RouteKey::new(request.method().as_str(), request.uri().path()).with_credential(credential),
        ),
    };
    Ok(AdmitRequest { cost, kind, claim, deadline, turn, draws, port })
}

/// How long the worker is willing to wait: `Prefer: wait=30`, in seconds (RFC 7240 §4.3).
fn patience(fields: &HeaderMap) -> Duration {
    if !fields.contains_key(PREFER) {
        return Duration::MAX;
    }
    let preferences = fields.get_all(PREFER).iter().filter_map(|line| line.to_str().ok());
    let mut preferences = preferences.flat_map(|line| line.split([',', ';']));
    let wait = preferences.find_map(|preference| {
        let (name, value) = preference.split_once('=')?;
        name.trim().eq_ignore_ascii_case("wait").then(|| value.trim().trim_matches('"').parse::<u32>().ok())?
    });
    wait.map_or(Duration::MAX, |seconds| Duration::from_secs(u64::from(seconds)))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn patience_is_read_from_prefer() {
        let wait = |value: &'static str| {
            let mut fields = HeaderMap::new();
            fields.insert("prefer", HeaderValue::from_static(value));
            patience(&fields)
        };
        assert_eq!(wait("wait=30"), Duration::from_secs(30));
        assert_eq!(wait("respond-async, Wait=\"7\""), Duration::from_secs(7));
        assert_eq!(wait("wait=soon"), Duration::MAX);
        assert_eq!(wait("return=minimal"), Duration::MAX);
    }
}
