//! Cost of a request: the bound on a stated cost, and else its rule's fixed cost, with amounts from the body's length
//! and beginning. For amounts that neither shows, the lane reserves its usage estimate.

use http::Request;
use http_body::Body;
use smallvec::SmallVec;

use super::draws;
use crate::{
    error::Error,
    lane::{AddedRule, Lane, order::Claim},
    limit::{Amount, Cost, Unit},
    policy::{CostSource, MaxCost, MemberPath, Policy, normal_form::PathReadings},
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
    let most = |unit| smallest_limit(rules, request, lane.policy(), claim, unit).map_or(u32::MAX, Amount::get);
    rule.seen.iter().fold(rule.known, |cost, (unit, source)| {
        let seen = match source {
            CostSource::Length(None) => body.length.and_then(|bytes| lane.of_length(*unit, bytes)),
            CostSource::Length(Some(per_byte)) => body.length.map(|bytes| per_byte.of(bytes)),
            // If answers report the usage, an amount above a whole window is not used as an estimate: all other
            // requests would wait until the window is empty.
            CostSource::Body(paths) => body
                .beginning
                .and_then(|json| of_body(json, paths))
                .filter(|amount| !lane.policy().reports(*unit) || *amount <= most(*unit)),
        };
        // An estimate never rejects a request: a cost above every window waits for a whole one.
        seen.map_or(cost, |amount| cost.with(*unit, amount.min(most(*unit))))
    })
}

/// Cost that a request states, without zeros that would hide its use. A stated 0 counts as nothing stated for a unit
/// whose usage answers report, and for a unit of a rule that counts no requests. Fails if the cost is more than a
/// request may state: `max-cost`, or else a tenth of the smallest limit of the unit.
pub(super) fn stated<B>(
    cost: Cost,
    rules: &[AddedRule],
    request: &Request<B>,
    own: &Policy,
    claim: &Claim,
) -> Result<Cost, Error> {
    for (unit, amount) in cost.each().filter(|(unit, amount)| *unit != Unit::REQUESTS || amount.get() > 1) {
        let by_rule =
            draws::said(rules, request, own, |policy| policy.max_cost.as_ref().and_then(|most| most.of(unit)));
        let limit = || smallest_limit(rules, request, own, claim, unit);
        let (most, bound) = match (by_rule, limit()) {
            (Some(most), _) => (most, "`max-cost` of its rule".to_owned()),
            (None, Some(limit)) => (MaxCost::by_default(limit), format!("a tenth of its smallest limit, of {limit}")),
            (None, None) => continue,
        };
        if amount > most {
            return Err(Error::OverMaxCost { stated: format!("{amount} {unit}"), most, bound });
        }
    }
    let path = PathReadings::of(request.uri().path());
    let of_request = || draws::matching(rules, request, &path, claim).map(|(rule, _)| &*rule.policy).chain([own]);
    Ok(cost.without_zeros(|unit| of_request().any(|policy| policy.reports(unit) || policy.uncosted.contains(&unit))))
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
    let tells = |unit| of_request().any(|policy| policy.reports(unit));
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

/// Smallest limit of `unit` that applies to `request`.
fn smallest_limit<B>(
    rules: &[AddedRule],
    request: &Request<B>,
    own: &Policy,
    claim: &Claim,
    unit: Unit,
) -> Option<Amount> {
    let path = PathReadings::of(request.uri().path());
    // An exempt request does not draw on the host's own limits.
    let mut apart = false;
    let narrower = draws::matching(rules, request, &path, claim).filter_map(|(rule, added)| {
        apart |= added.is_only_for(&path);
        rule.policy.least_of(unit)
    });
    let narrower = narrower.min();
    let own = if apart { None } else { own.least_of(unit) };
    narrower.into_iter().chain(own).min()
}
