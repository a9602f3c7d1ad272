//! Budgets of sub-limits on which a request draws, in addition to its lane's own.

use std::{borrow::Cow, sync::Arc};

use http::Request;
use smallvec::SmallVec;

use super::keyed_hash;
use crate::{
    error::Error,
    lane::{AddedRule, Draw, Draws, order::Claim},
    learn::RouteKey,
    limit::Cost,
    policy::{
        Added, KeyPart, Mismatch, Policy, Reserve, RuleCost, TooSmall,
        normal_form::{self, PathReadings, Segments},
    },
};

/// Name of the one budget for everything that is not reserved.
const RESERVE: &str = "reserve";

pub(crate) type Values<'a> = SmallVec<[Option<Cow<'a, [u8]>>; 4]>;

/// The budgets of `rules` on which `request` draws: one of each matching rule, or two if servers may read its path in
/// two ways. The budgets end at the first rule with `only`.
pub(super) fn of<B>(rules: &[AddedRule], request: &Request<B>, claim: &Claim, cost: Cost) -> Result<Draws, Error> {
    if rules.is_empty() {
        return Ok(None);
    }
    let path = PathReadings::of(request.uri().path());
    let mut draws: SmallVec<[Draw; 4]> = SmallVec::new();
    for (AddedRule { policy: rule, .. }, added) in matching(rules, request, &path, claim) {
        if let Some(TooSmall { cost, limit }) = rule.too_small_for(&cost) {
            let limit = if added.patient { format!("{limit}, which is what is not reserved") } else { limit };
            return Err(Error::TooCostly { cost, limit });
        }
        let apart = added.is_only_for(&path);
        // Each reading of the path may belong to another budget.
        for reading in added.matching(&path) {
            // A lane has one reserve, regardless of the rule's name.
            let budget = match added.patient {
                true => keyed_hash::lasting(RESERVE),
                false => Draw::budget_of(&rule.name, keyed_hash::lasting(&*values(added, request, reading, claim))),
            };
            if draws.last().is_none_or(|last| last.budget != budget) {
                draws.push(Draw { budget, rule: rule.clone(), apart });
            }
        }
    }
    Ok((!draws.is_empty()).then(|| draws.into_iter().collect()))
}

/// Counts a request with these `draws` at each of the `rules` on which it draws.
pub(crate) fn count(rules: &[AddedRule], draws: &Draws) {
    let drawn =
        |rule: &&AddedRule| draws.iter().flat_map(|all| all.iter()).any(|draw| Arc::ptr_eq(&draw.rule, &rule.policy));
    rules.iter().filter(drawn).for_each(|rule| rule.draws.inc());
}

/// The `rules` that are for `request`.
pub(crate) fn matching<'a, B>(
    rules: &'a [AddedRule],
    request: &'a Request<B>,
    path: &'a PathReadings<'_>,
    claim: &'a Claim,
) -> impl Iterator<Item = (&'a AddedRule, &'a Added)> {
    let mut ended = false;
    let added = rules.iter().filter_map(|rule| Some((rule, rule.policy.added.as_ref()?)));
    let matching = added.filter(move |(_, added)| mismatch(added, request, path, claim).is_none());
    matching.take_while(move |(_, added)| !std::mem::replace(&mut ended, added.is_only_for(path)))
}

/// Reason why a rule is not for `request`, whose path has these readings.
pub(crate) fn mismatch<'a, B>(
    added: &'a Added,
    request: &Request<B>,
    path: &PathReadings<'_>,
    claim: &Claim,
) -> Option<Mismatch<'a>> {
    if added.patient && claim.urgency.get() < Reserve::PATIENT {
        return Some(Mismatch::Urgent);
    }
    of_fields(added, request, path)
}

/// Reason why a rule is not for `request`, regardless of its claim.
fn of_fields<'a, B>(added: &'a Added, request: &Request<B>, path: &PathReadings<'_>) -> Option<Mismatch<'a>> {
    added.mismatch(request.method().as_str(), path, |name| request.headers().contains_key(name))
}

/// Values of a rule's key in `request`, with this reading of its `path`.
pub(crate) fn values<'a, B>(
    added: &Added,
    request: &'a Request<B>,
    path: &'a Segments<'_>,
    claim: &Claim,
) -> Values<'a> {
    added.key.iter().map(|part| value(part, added, request, path, claim)).collect()
}

/// `kind` with the budget to which a rejection of the request counts: the first of its draws with the most key parts.
/// The unreserved budget is andante's own, and the API's rejections do not count to it.
pub(super) fn of_kind(draws: &Draws, kind: RouteKey) -> RouteKey {
    let parts = |draw: &Draw| draw.rule.added.as_ref().map_or(0, |added| added.key.len());
    let of_the_api = draws.iter().flat_map(|draws| draws.iter().rev()).filter(|draw| !draw.rule.is_besides_reserve());
    let narrowest = of_the_api.max_by_key(|draw| parts(draw));
    narrowest.map_or(kind, |draw| kind.with_budget(draw.budget))
}

/// Cost of a request by its rule: the first matching sub-limit rule with a cost, or else `own`, the rule of its host.
pub(crate) fn cost<'a, B>(rules: &'a [AddedRule], request: &Request<B>, own: &'a Policy) -> Option<&'a RuleCost> {
    said(rules, request, own, |policy| policy.cost.as_ref())
}

/// The value that `key` reads for `request`: from the first matching sub-limit rule with a value, or else from `own`,
/// the rule of its host.
pub(super) fn said<'a, B, T>(
    rules: &'a [AddedRule],
    request: &Request<B>,
    own: &'a Policy,
    key: impl Fn(&'a Policy) -> Option<T>,
) -> Option<T> {
    let said = rules.iter().filter_map(|rule| Some((rule.policy.added.as_ref()?, key(&rule.policy)?)));
    let mut said = said.peekable();
    if said.peek().is_none() {
        return key(own);
    }
    let path = PathReadings::of(request.uri().path());
    let found = said.find(|(added, _)| of_fields(added, request, &path).is_none());
    found.map(|(_, value)| value).or_else(|| key(own))
}

/// The request's value for one part of a key. `None` if the request has none; such requests have a budget as well.
fn value<'a, B>(
    part: &KeyPart,
    added: &Added,
    request: &'a Request<B>,
    path: &'a Segments<'_>,
    claim: &Claim,
) -> Option<Cow<'a, [u8]>> {
    match part {
        // Each host has budgets of its own.
        KeyPart::Host => None,
        KeyPart::Method => Some(request.method().as_str().as_bytes().into()),
        KeyPart::Path(name) => added.named(name, path).map(|segment| segment.as_bytes().into()),
        KeyPart::Header(name) => {
            normal_form::field(name, request.headers().get_all(&**name).iter().map(http::HeaderValue::as_bytes))
        }
        KeyPart::Query(name) => normal_form::parameter(request.uri().query()?, name),
        KeyPart::Flow => Some(claim.flow.0.to_le_bytes().to_vec().into()),
        KeyPart::Client => Some(claim.client.to_string().into_bytes().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{lane::order::Urgency, limit::Limits};

    fn reserving(limits: &str) -> Vec<AddedRule> {
        let limits: Limits = limits.parse().unwrap();
        let mut policy = Policy::new("api", Vec::new());
        (policy.limits, policy.turns.reserve) = (limits.limits, Reserve::new(10));
        policy.besides_reserve().into_iter().map(AddedRule::uncounted).collect()
    }

    fn drawn(rules: &[AddedRule], urgency: u8, cost: u32) -> Result<Draws, Error> {
        let claim = Claim { urgency: Urgency::new(urgency).unwrap(), ..Claim::USUAL };
        of(rules, &Request::new(()), &claim, Cost::new(cost).unwrap())
    }

    #[test]
    fn only_what_is_not_urgent_draws_on_what_is_not_reserved() {
        let rules = reserving("10/s");
        let budgets = |urgency| drawn(&rules, urgency, 1).unwrap().map_or(0, |draws| draws.len());
        assert_eq!([0, 1, 2, 3, 7].map(budgets), [0, 0, 1, 1, 1]);
    }

    #[test]
    fn a_refusal_is_no_matter_of_a_reserve() {
        let (draws, kind) = (drawn(&reserving("10/s"), 3, 1).unwrap(), RouteKey::new("GET", "/"));
        assert!(draws.is_some());
        assert_eq!(of_kind(&draws, kind).budget(), kind.budget());
    }

    #[test]
    fn what_costs_more_than_the_rest_is_told_so() {
        let error = drawn(&reserving("10/s"), 3, 10).unwrap_err().to_string();
        assert_eq!(error, "a request that costs 10 fits no window of 9/s, which is what is not reserved");
        assert!(drawn(&reserving("10/s"), 1, 10).unwrap().is_none());
    }
}
