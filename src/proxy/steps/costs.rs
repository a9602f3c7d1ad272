//! What a request costs that does not say so itself: its rule's word, with what its length and the beginning of its body
//! show. Of what neither shows, its lane reserves what is usual.

use http::{Request, header::CONTENT_LENGTH};

use super::draws;
use crate::{
    lane::{AddedRule, Lane, order::Claim},
    limit::{Cost, Unit},
    policy::{CostSource, MemberPath, segments},
    proxy::message::json_number,
};

/// What `request` costs by the rule that is for it. Of its body `beginning` is known, if anything.
pub(super) fn of<B>(
    rules: &[AddedRule],
    request: &Request<B>,
    lane: &Lane,
    claim: &Claim,
    beginning: Option<&[u8]>,
) -> Cost {
    let Some(rule) = draws::cost(rules, request, lane.policy()) else { return Cost::MIN };
    rule.seen.iter().fold(rule.known, |cost, (unit, source)| {
        let seen = match source {
            CostSource::Length(None) => length(request).and_then(|bytes| lane.of_length(*unit, bytes)),
            CostSource::Length(Some(per_byte)) => length(request).map(|bytes| per_byte.of(bytes)),
            CostSource::Body(paths) => beginning.and_then(|json| of_body(json, paths)),
        };
        // An estimate refuses nothing: whatever fits into no window waits for a whole one.
        seen.map_or(cost, |amount| cost.with(*unit, amount.min(most(rules, request, lane, claim, *unit))))
    })
}

/// The length of its body, if it tells one.
pub(super) fn length<B>(request: &Request<B>) -> Option<u64> {
    request.headers().get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// What the first of these members says that is there; a request that says nothing takes 1.
fn of_body(json: &[u8], paths: &[MemberPath]) -> Option<u32> {
    paths.iter().find_map(|path| json_number::at(json, path)).map(|amount| amount.max(1))
}

/// What the smallest limit of `unit` holds that is for `request`.
fn most<B>(rules: &[AddedRule], request: &Request<B>, lane: &Lane, claim: &Claim, unit: Unit) -> u32 {
    let path = segments(request.uri().path());
    let narrower = draws::matching(rules, request, &path, claim).filter_map(|(rule, _)| rule.policy.least_of(unit));
    let least = narrower.chain(lane.policy().least_of(unit)).min();
    least.map_or(u32::MAX, |count| count.get())
}
