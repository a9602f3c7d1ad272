//! A request's demand on its lane: its claim, its patience, its cost, and the budgets on which it draws. Pure: the
//! proxy sends this demand, and `andante explain` prints it.

use std::time::Duration;

use http::{
    HeaderName, Method, Request,
    header::{HeaderMap, PROXY_AUTHORIZATION},
};

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
        order::{Claim, Turn, Urgency},
    },
    learn::RouteKey,
    limit::Cost,
    policy::Policy,
    proxy::{message::fields::FoundFields, session::Requester},
};

/// Preferences of the worker (RFC 7240).
const PREFER: HeaderName = HeaderName::from_static("prefer");

/// Terms that a request states, in fields that the upstream does not see.
pub(crate) struct RequestTerms {
    /// Claim of the request on its turn.
    pub(crate) claim: Claim,
    /// Cost that the request states, or the error in it.
    pub(crate) cost: Result<Option<Cost>, Error>,
    /// Maximum time that the request may wait.
    pub(crate) patience: Duration,
}

/// A request that is about to wait for a slot.
pub(crate) struct Asking<'a> {
    pub(crate) lane: &'a Lane,
    /// Rules for some of the requests to the origin.
    pub(crate) added: &'a [AddedRule],
    pub(crate) claim: Claim,
    /// Cost that the request states, checked by [`stated_cost`].
    pub(crate) cost: Option<Cost>,
    /// Keyed hash of the request's credentials; 0 if it has none.
    pub(crate) credential: u32,
    /// Known facts about the body.
    pub(crate) body: SeenBody<'a>,
    pub(crate) turn: Turn,
    pub(crate) deadline: Instant,
    /// Port of the upstream.
    pub(crate) port: u16,
}

/// Terms of a request with these `fields`, which comes from `requester` and is for `lane`. `found` holds the flags of
/// its fields.
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
        // The usual case.
        return RequestTerms { claim: claim::usual(requester, policy), cost: Ok(None), patience: longest };
    }
    let patience = patience(fields).min(longest);
    let (claim, cost) = (claim::read(fields, requester, policy), claim::cost(fields, policy, added));
    RequestTerms { claim, cost, patience }
}

/// Fields of a CONNECT that state the terms of its tunnel, without credentials for andante.
pub(crate) fn stated(fields: &HeaderMap) -> HeaderMap {
    let mut stated = fields.clone();
    stated.remove(PROXY_AUTHORIZATION);
    stated
}

/// `claim` with the urgency of the first matching sub-limit rule that has one, unless the request states its own.
/// `request` is in the form in which it will be sent.
pub(crate) fn with_urgency<B>(
    claim: Claim,
    request: &Request<B>,
    requester: Requester,
    lane: &Lane,
    added: &[AddedRule],
) -> Claim {
    let urgency = |policy: &Policy| policy.turns.urgency;
    if added.iter().all(|rule| urgency(&rule.policy).is_none()) {
        return claim;
    }
    let turns = &lane.policy().turns;
    let by_rule = draws::said(added, request, lane.policy(), urgency).and_then(Urgency::new).unwrap_or_default();
    Claim { urgency: claim::urgency(request.headers(), requester, turns, by_rule), ..claim }
}

/// The `stated` cost as far as it counts for `request`, in the form in which it will be sent. Fails if the cost is more
/// than a request may state.
pub(crate) fn stated_cost<B>(
    stated: Option<Cost>,
    request: &Request<B>,
    lane: &Lane,
    added: &[AddedRule],
    claim: &Claim,
) -> Result<Option<Cost>, Error> {
    stated.map(|cost| costs::stated(cost, added, request, lane.policy(), claim)).transpose()
}

/// The demand on its lane of `request`, in the form in which it will be sent.
pub(crate) fn of<B>(request: &Request<B>, asking: Asking<'_>) -> Result<AdmitRequest, Error> {
    let Asking { lane, added, claim, cost, credential, body, turn, deadline, port } = asking;
    let by_rule = costs::of(added, request, lane, &claim, body);
    let cost = cost.map_or(by_rule, |said| said.completed_by(&by_rule));
    let cost = costs::with_uncosted(cost, added, request, lane.policy(), &claim).shared(&lane.policy().limits);
    let draws = draws::of(added, request, &claim, cost)?;
    let kind = match *request.method() {
        // The content of a tunnel is unknown.
        Method::CONNECT => RouteKey::NONE,
        _ => draws::of_kind(
            &draws,
            RouteKey::new(request.method().as_str(), request.uri().path()).with_credential(credential),
        ),
    };
    Ok(AdmitRequest { cost, kind, claim, deadline, turn, draws, port })
}

/// Maximum time that the worker is willing to wait: `Prefer: wait=30`, in seconds (RFC 7240 §4.3).
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
