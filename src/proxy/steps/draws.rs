//! Which budgets of narrower rules a request draws on, beside its lane's own.

use std::borrow::Cow;

use http::Request;
use smallvec::SmallVec;

use super::keyed_hash;
use crate::{
    error::Error,
    lane::{AddedRule, Draw, Draws, order::Claim},
    learn::RouteKey,
    limit::Cost,
    policy::{Added, KeyPart, Mismatch, Policy, RuleCost, Segments, TooSmall, segments},
};

pub(crate) type Values<'a> = SmallVec<[Option<Cow<'a, [u8]>>; 4]>;

/// The budgets that `request` draws on, of those of `rules`: each rule that is for it has one, up to the first that says
/// `only`.
pub(super) fn of<B>(rules: &[AddedRule], request: &Request<B>, claim: &Claim, cost: Cost) -> Result<Draws, Error> {
    if rules.is_empty() {
        return Ok(None);
    }
    let path = segments(request.uri().path());
    let mut draws: SmallVec<[Draw; 4]> = SmallVec::new();
    for (AddedRule { policy: rule, draws: counter }, added) in matching(rules, request, &path) {
        if let Some(TooSmall { cost, limit }) = rule.too_small_for(&cost) {
            return Err(Error::TooCostly { cost, limit });
        }
        let values = values(added, request, &path, claim);
        counter.inc();
        draws.push(Draw { budget: keyed_hash::of((&*rule.name, &*values)), rule: rule.clone() });
    }
    Ok((!draws.is_empty()).then(|| draws.into_iter().collect()))
}

/// Those of `rules` that are for `request`.
pub(crate) fn matching<'a, B>(
    rules: &'a [AddedRule],
    request: &'a Request<B>,
    path: &'a Segments<'_>,
) -> impl Iterator<Item = (&'a AddedRule, &'a Added)> {
    let mut ended = false;
    let added = rules.iter().filter_map(|rule| Some((rule, rule.policy.added.as_ref()?)));
    let matching = added.filter(move |(_, added)| mismatch(added, request, path).is_none());
    matching.take_while(move |(_, added)| !std::mem::replace(&mut ended, added.only))
}

/// Why a rule is not for `request`, whose path has these segments.
pub(crate) fn mismatch<'a, B>(added: &'a Added, request: &Request<B>, path: &Segments<'_>) -> Option<Mismatch<'a>> {
    added.mismatch(request.method().as_str(), path, |name| request.headers().contains_key(name))
}

/// What the key of a rule says of `request`.
pub(crate) fn values<'a, B>(
    added: &Added,
    request: &'a Request<B>,
    path: &'a Segments<'_>,
    claim: &Claim,
) -> Values<'a> {
    added.key.iter().map(|part| value(part, added, request, path, claim)).collect()
}

/// `kind`, of a request with these draws: what it is refused for is a matter of the narrowest of them, that with the
/// longest key; of equals the first.
pub(super) fn of_kind(draws: &Draws, kind: RouteKey) -> RouteKey {
    let parts = |draw: &Draw| draw.rule.added.as_ref().map_or(0, |added| added.key.len());
    let narrowest = draws.as_ref().and_then(|draws| draws.iter().rev().max_by_key(|draw| parts(draw)));
    narrowest.map_or(kind, |draw| kind.with_budget(draw.budget))
}

/// What its rule says that a request costs: that of the first narrower rule that matches it and has a cost, or else `own`,
/// the rule of its host.
pub(crate) fn cost<'a, B>(rules: &'a [AddedRule], request: &Request<B>, own: &'a Policy) -> Option<&'a RuleCost> {
    let said = rules.iter().filter_map(|rule| Some((rule.policy.added.as_ref()?, rule.policy.cost.as_ref()?)));
    let mut said = said.peekable();
    if said.peek().is_none() {
        return own.cost.as_ref();
    }
    let path = segments(request.uri().path());
    let found = said.find(|(added, _)| mismatch(added, request, &path).is_none());
    found.map(|(_, cost)| cost).or(own.cost.as_ref())
}

/// What one part of a key says of a request; `None` if it says nothing, for which there is a budget as well.
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
        KeyPart::Header(name) => request.headers().get(&**name).map(|value| value.as_bytes().into()),
        KeyPart::Query(name) => query(request.uri().query()?, name).map(|value| value.as_bytes().into()),
        KeyPart::Flow => Some(claim.flow.0.to_le_bytes().to_vec().into()),
        KeyPart::Client => Some(claim.client.to_string().into_bytes().into()),
    }
}

/// The value of the first parameter called `name`, as it is written.
fn query<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    let parameters = query.split('&').map(|parameter| parameter.split_once('=').unwrap_or((parameter, "")));
    parameters.filter(|(found, _)| *found == name).map(|(_, value)| value).next()
}
