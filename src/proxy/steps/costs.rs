//! Cost of a request that does not state one: its rule's fixed cost, with amounts from the body's length and beginning.
//! For amounts that neither shows, the lane reserves its usage estimate.

use http::Request;
use http_body::Body;
use smallvec::SmallVec;

use super::draws;
use crate::{
    lane::{AddedRule, Lane, order::Claim},
    limit::{Cost, Unit},
    policy::{CostSource, MemberPath, Policy, normal_form::PathReadings},
    proxy::message::json_number,
};

/// Facts about a request's body that are known before its turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SeenBody<'a> {
    /// Length of the body, if stated.
    pub(crate) length: Option<u64>,
    /// Beginning of the body, if it was read.
    pub(crate) beginning: Option<&'a [u8]>,
}

impl SeenBody<'_> {
    /// Facts about a body that was not read.
    pub(crate) fn unread(body: &impl Body) -> Self {
        Self { length: length(body), beginning: None }
    }
}

/// Cost of `request` by the rule that is for it, with these facts about its `body`.
pub(super) fn of<B>(rules: &[AddedRule], request: &Request<B>, lane: &Lane, claim: &Claim, body: SeenBody<'_>) -> Cost {
    let Some(rule) = draws::cost(rules, request, lane.policy()) else { return Cost::MIN };
    rule.seen.iter().fold(rule.known, |cost, (unit, source)| {
        let seen = match source {
            CostSource::Length(None) => body.length.and_then(|bytes| lane.of_length(*unit, bytes)),
            CostSource::Length(Some(per_byte)) => body.length.map(|bytes| per_byte.of(bytes)),
            // If answers report the usage, an amount above a whole window is not used as an estimate: all other
            // requests would wait until the window is empty.
            CostSource::Body(paths) => body
                .beginning
                .and_then(|json| of_body(json, paths))
                .filter(|amount| !tells(lane, *unit) || *amount <= most(rules, request, lane, claim, *unit)),
        };
        // An estimate never rejects a request: a cost above every window waits for a whole one.
        seen.map_or(cost, |amount| cost.with(*unit, amount.min(most(rules, request, lane, claim, *unit))))
    })
}

/// Adds 1 of each unit of a rule that counts no requests, unless the request or answers state an amount of one of these
/// units. Otherwise that rule would not limit the request.
pub(super) fn with_uncosted<B>(
    cost: Cost,
    rules: &[AddedRule],
    request: &Request<B>,
    own: &Policy,
    claim: &Claim,
) -> Cost {
    if rules.iter().map(|rule| &*rule.policy).chain([own]).all(|policy| policy.uncosted.is_empty()) {
        return cost;
    }
    let path = PathReadings::of(request.uri().path());
    let narrower: SmallVec<[_; 4]> =
        draws::matching(rules, request, &path, claim).map(|(rule, _)| &*rule.policy).collect();
    let of_request = || narrower.iter().copied().chain([own]);
    let tells = |unit| of_request().any(|policy| policy.usage.iter().any(|source| source.unit == unit));
    of_request().fold(cost, |with, policy| {
        let unsaid = policy.uncosted.iter().all(|unit| !cost.says(*unit) && !tells(*unit));
        policy.uncosted.iter().filter(|_| unsaid).fold(with, |with, unit| with.with(*unit, 1))
    })
}

/// Length of the body, if it is not empty and states its length.
pub(super) fn length(body: &impl Body) -> Option<u64> {
    // Most requests have no body: a cheap check.
    if body.is_end_stream() { None } else { body.size_hint().exact().filter(|length| *length > 0) }
}

/// Amount in the first of these members that is present; at least 1.
fn of_body(json: &[u8], paths: &[MemberPath]) -> Option<u32> {
    paths.iter().find_map(|path| json_number::at(json, path)).map(|amount| amount.max(1))
}

/// Returns whether answers report the usage of `unit`, so that there is a usage estimate.
fn tells(lane: &Lane, unit: Unit) -> bool {
    lane.policy().usage.iter().any(|source| source.unit == unit)
}

/// Size of the smallest limit of `unit` that applies to `request`.
fn most<B>(rules: &[AddedRule], request: &Request<B>, lane: &Lane, claim: &Claim, unit: Unit) -> u32 {
    let path = PathReadings::of(request.uri().path());
    // An exempt request does not draw on the host's own limits.
    let mut apart = false;
    let narrower = draws::matching(rules, request, &path, claim).filter_map(|(rule, added)| {
        apart |= added.is_only_for(&path);
        rule.policy.least_of(unit)
    });
    let narrower = narrower.min();
    let own = if apart { None } else { lane.policy().least_of(unit) };
    let least = narrower.into_iter().chain(own).min();
    least.map_or(u32::MAX, |count| count.get())
}
