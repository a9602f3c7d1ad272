//! Checks that the rules for one request count no more than three units besides requests.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use super::RawRule;
use crate::{
    config::diagnostic::Diagnostic,
    limit::{Cost, Unit},
    policy::{HostPattern, Origin, Policy, Rules, Scheme},
};

/// A rule, with the units that its requests cost and that no earlier rule has.
type UnitsOfRule<'a> = (&'a RawRule, Vec<Unit>);

/// Stands for names that no rule contains, and is no valid name.
const OTHER_NAME: &str = "?";
/// Stands for ports that no rule contains, and is no valid port.
const OTHER_PORT: u16 = 0;

/// Compares rules that may apply to one request: the own rule of its host, and added rules whose requests overlap.
pub(super) fn check(drafts: &[RawRule], problems: &mut Vec<Diagnostic>) {
    if count(&units_of(drafts.iter())) <= Cost::MOST {
        return;
    }
    let rules = Rules::new(drafts.iter().map(|draft| draft.policy.clone()).collect());
    let mut reported = HashSet::new();
    for origin in origins(drafts) {
        let own = rules.position(&origin).map(|number| &drafts[number]);
        let holds = |draft: &&RawRule| match draft.policy.added {
            None => own.is_some_and(|own| std::ptr::eq(own, *draft)),
            Some(_) => draft.policy.hosts.iter().any(|host| host.matches(&origin)),
        };
        let holding: Vec<_> = drafts.iter().filter(holds).collect();
        for one in &holding {
            let together = units_of(holding.iter().copied().filter(|other| may_hold_together(one, other)));
            if let Some((last, _)) = together.last()
                && count(&together) > Cost::MOST
                && reported.insert(&*last.policy.name)
            {
                problems.push(too_many(last, &together));
            }
        }
    }
}

/// Returns whether both rules may match the same request to one host.
fn may_hold_together(one: &RawRule, other: &RawRule) -> bool {
    one.policy.added.as_ref().zip(other.policy.added.as_ref()).is_none_or(|(one, other)| one.overlaps(other))
}

/// Units that a request may cost under `rules` together.
fn units_of<'a>(rules: impl Iterator<Item = &'a RawRule>) -> Vec<UnitsOfRule<'a>> {
    let mut known = BTreeSet::new();
    let new = rules.map(|rule| (rule, units(&rule.policy).filter(|unit| known.insert(*unit)).collect::<Vec<_>>()));
    new.filter(|(_, new)| !new.is_empty()).collect()
}

/// Units besides requests that a request costs under this rule; some of them more than once.
fn units(policy: &Policy) -> impl Iterator<Item = Unit> {
    let cost = policy.cost.iter().flat_map(|cost| cost.units());
    let used = policy.usage.iter().map(|source| source.unit).filter(|unit| *unit != Unit::REQUESTS);
    policy.units().chain(cost).chain(used)
}

fn count(units: &[UnitsOfRule<'_>]) -> usize {
    units.iter().map(|(_, units)| units.len()).sum()
}

/// An origin for each kind of host that the rules distinguish.
fn origins(drafts: &[RawRule]) -> Vec<Origin> {
    let patterns = || drafts.iter().flat_map(|draft| &draft.policy.hosts);
    let of_pattern = |pattern: &HostPattern| {
        let host: Arc<str> = match pattern.name() {
            None => OTHER_NAME.into(),
            Some(name) if pattern.is_single() => name.into(),
            Some(name) => format!("{OTHER_NAME}.{name}").into(),
        };
        let origin = move |port| Origin { scheme: Scheme::Http, host: host.clone(), port };
        let ported = patterns().filter_map(|other| Some((other, origin(other.port()?))));
        let ported = ported.filter(|(other, origin)| other.matches(origin)).map(|(_, origin)| origin);
        ported.chain([origin(pattern.port().unwrap_or(OTHER_PORT))]).collect::<Vec<_>>()
    };
    let mut known = HashSet::new();
    patterns().flat_map(of_pattern).filter(|origin| known.insert(origin.clone())).collect()
}

fn too_many(last: &RawRule, together: &[UnitsOfRule<'_>]) -> Diagnostic {
    let of_rule = |(rule, units): &UnitsOfRule<'_>| {
        let units: Vec<_> = units.iter().map(ToString::to_string).collect();
        format!("{} by the rule {:?}", units.join(", "), &*rule.policy.name)
    };
    let units: Vec<_> = together.iter().map(of_rule).collect();
    let what = format!("a request may cost {} units besides requests: {}", count(together), units.join(", "));
    let hint = format!("have the rules that hold for one host count {} of them at most", Cost::MOST);
    Diagnostic::error(&last.named, what, hint)
}
