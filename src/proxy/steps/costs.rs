//! What a request costs that does not say so itself: its rule's word, with what its length and the beginning of its body
//! show. Of what neither shows, its lane reserves what is usual.

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

/// What is known of a request's body before its turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SeenBody<'a> {
    /// How long it is, if it tells that.
    pub(crate) length: Option<u64>,
    /// What it begins with, if that was read.
    pub(crate) beginning: Option<&'a [u8]>,
}

impl SeenBody<'_> {
    /// What a body shows of which nothing was read.
    pub(crate) fn unread(body: &impl Body) -> Self {
        Self { length: length(body), beginning: None }
    }
}

/// What `request` costs by the rule that is for it. Of its `body` so much is known.
pub(super) fn of<B>(rules: &[AddedRule], request: &Request<B>, lane: &Lane, claim: &Claim, body: SeenBody<'_>) -> Cost {
    let Some(rule) = draws::cost(rules, request, lane.policy()) else { return Cost::MIN };
    rule.seen.iter().fold(rule.known, |cost, (unit, source)| {
        let seen = match source {
            CostSource::Length(None) => body.length.and_then(|bytes| lane.of_length(*unit, bytes)),
            CostSource::Length(Some(per_byte)) => body.length.map(|bytes| per_byte.of(bytes)),
            // More than a whole window is no estimate where answers tell: it would have all others wait until the window
            // is empty.
            CostSource::Body(paths) => body
                .beginning
                .and_then(|json| of_body(json, paths))
                .filter(|amount| !tells(lane, *unit) || *amount <= most(rules, request, lane, claim, *unit)),
        };
        // An estimate refuses nothing: whatever fits into no window waits for a whole one.
        seen.map_or(cost, |amount| cost.with(*unit, amount.min(most(rules, request, lane, claim, *unit))))
    })
}

/// A `cost` and 1 of each unit of a rule for `request` that counts no requests, if nobody says how much it takes of any of them: it
/// would not be limited otherwise.
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

/// The length of its body, if it has one and tells that.
pub(super) fn length(body: &impl Body) -> Option<u64> {
    // Most have none, which is soon seen.
    if body.is_end_stream() { None } else { body.size_hint().exact().filter(|length| *length > 0) }
}

/// What the first of these members says that is there; a request that says nothing takes 1.
fn of_body(json: &[u8], paths: &[MemberPath]) -> Option<u32> {
    paths.iter().find_map(|path| json_number::at(json, path)).map(|amount| amount.max(1))
}

/// Whether answers tell what was used of `unit`, so that the usual is known.
fn tells(lane: &Lane, unit: Unit) -> bool {
    lane.policy().usage.iter().any(|source| source.unit == unit)
}

/// What the smallest limit of `unit` holds that is for `request`.
fn most<B>(rules: &[AddedRule], request: &Request<B>, lane: &Lane, claim: &Claim, unit: Unit) -> u32 {
    let path = PathReadings::of(request.uri().path());
    // What is apart does not draw on the host's own limits.
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
