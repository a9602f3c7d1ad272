//! Checks that the costs of requests are known, and that some limit counts them.

use std::collections::BTreeSet;

use super::RawRule;
use crate::{
    config::diagnostic::Diagnostic,
    limit::Unit,
    policy::{CostSource, Policy, TooSmall},
};

/// Compares the costs in rules with their limits, and with the usage in answers.
pub(super) fn check(drafts: &[RawRule], problems: &mut Vec<Diagnostic>) {
    drafts.iter().for_each(|draft| fits(draft, drafts, problems));
    drafts.iter().for_each(|draft| bounds_counted(draft, drafts, problems));
    drafts.iter().for_each(|draft| is_learned(draft, drafts, problems));
    drafts.iter().for_each(|draft| is_read(draft, drafts, problems));
    drafts.iter().for_each(|draft| is_said(draft, drafts, problems));
}

/// Checks that a request's cost fits its limits, and that some limit counts it.
fn fits(draft: &RawRule, drafts: &[RawRule], problems: &mut Vec<Diagnostic>) {
    let Some(cost) = &draft.cost else { return };
    if let Some(TooSmall { cost: much, limit }) = draft.policy.too_small_for(&cost.value.known) {
        let what = format!("a request that costs {much} fits no window of {limit}");
        problems.push(Diagnostic::error(cost, what, "raise the limit, or lower the cost"));
    }
    let counted = |unit| beside(draft, drafts).any(|policy| policy.units().any(|counted| counted == unit));
    for unit in cost.value.units().filter(|unit| !counted(*unit)) {
        let hint = format!("write limits = [\"90000 {unit}/min\"], or leave it out");
        problems.push(Diagnostic::error(cost, format!("no limit counts {unit}"), hint));
    }
}

/// Checks that some limit counts each unit of which a rule bounds the stated cost.
fn bounds_counted(draft: &RawRule, drafts: &[RawRule], problems: &mut Vec<Diagnostic>) {
    let Some(most) = &draft.max_cost else { return };
    let counted: BTreeSet<_> = beside(draft, drafts).flat_map(Policy::counted).collect();
    for unit in most.value.units().filter(|unit| !counted.contains(unit)) {
        let hint = match counted.first() {
            Some(counted) => format!("write max-cost = \"{counted}=N\", or leave it out"),
            None => "write limits = [\"500/min\"], or leave it out".to_owned(),
        };
        problems.push(Diagnostic::error(most, format!("no limit counts {unit}"), hint));
    }
}

/// Checks that answers report the cost of a request's length, unless the rule states it.
fn is_learned(draft: &RawRule, drafts: &[RawRule], problems: &mut Vec<Diagnostic>) {
    let Some(cost) = &draft.cost else { return };
    let learned = cost.value.seen.iter().filter(|(_, source)| *source == CostSource::Length(None));
    for (unit, _) in learned {
        let tells = |policy: &Policy| policy.usage.iter().any(|source| source.unit == *unit);
        // For narrower rules, the host's own rule reads the usage.
        let told = match draft.policy.added {
            None => tells(&draft.policy),
            Some(_) => beside(draft, drafts).any(tells),
        };
        if !told {
            let what = format!("cannot learn {unit} per byte: no `usage` reads {unit} from answers");
            let hint = format!("write usage = [\"{unit}=MEMBER\"], or say what a byte is: \"{unit}=length*0.25\"");
            problems.push(Diagnostic::error(cost, what, hint));
        }
    }
}

/// Checks that the bodies are read in which requests show their costs.
fn is_read(draft: &RawRule, drafts: &[RawRule], problems: &mut Vec<Diagnostic>) {
    let Some(cost) = draft.cost.as_ref().filter(|cost| cost.value.is_in_body()) else { return };
    // For narrower rules, the host's own rule reads bodies.
    let read = match draft.policy.added {
        None => draft.policy.read_body.is_some(),
        Some(_) => beside(draft, drafts).any(|policy| policy.read_body.is_some()),
    };
    if !read {
        let hint = "write read-body = \"8KiB\" into the rule of the host: so much is read before a request waits";
        problems.push(Diagnostic::error(cost, "bodies are not read before their requests leave", hint));
    }
}

/// Checks that some limit counts the usage in answers, and that some source states the cost in each counted unit.
fn is_said(draft: &RawRule, drafts: &[RawRule], problems: &mut Vec<Diagnostic>) {
    let counted = |unit| beside(draft, drafts).any(|policy| policy.units().any(|counted| counted == unit));
    for source in draft.usage.iter().flatten().filter(|source| !counted(source.value.unit)) {
        let unit = source.value.unit;
        let hint = format!("write limits = [\"90000 {unit}/min\"], or the unit that the limits count");
        problems.push(Diagnostic::error(source, format!("no limit counts {unit}"), hint));
    }
    let counts = if draft.policy.uncosted.is_empty() { "it takes none" } else { "each counts as 1" };
    for unit in unsaid(draft, drafts) {
        let what = format!("nothing says how many {unit} a request takes: {counts}, unless it has Andante-Cost");
        let hint = format!("write usage = [\"{unit}=MEMBER\"] for what answers say, or cost = \"{unit}=N\"");
        problems.push(Diagnostic::warning(&draft.named, what, hint));
    }
}

/// Records the counted units whose cost nothing states, for each rule that would otherwise limit nothing. A request
/// then costs 1 of each.
pub(in crate::config) fn settle_uncosted(drafts: &mut [RawRule]) {
    let uncosted = |draft: &RawRule| {
        let policy = &draft.policy;
        // The hosts' own rule states costs of the narrower rule's requests, too.
        let own = drafts.iter().map(|other| &other.policy);
        let own = own.filter(|other| other.added.is_none() && other.hosts == policy.hosts);
        let said = |unit| own.clone().chain([policy]).any(|policy| says(policy, unit));
        let counts_none = policy.counted().all(|unit| unit != Unit::REQUESTS && !said(unit));
        if counts_none { policy.units().collect() } else { BTreeSet::new() }
    };
    let uncosted: Vec<_> = drafts.iter().map(uncosted).collect();
    for (draft, uncosted) in drafts.iter_mut().zip(uncosted) {
        draft.policy.uncosted = uncosted.into_iter().collect();
    }
}

/// Returns whether the rule's costs, or usage in answers, state the amount of this unit.
fn says(policy: &Policy, unit: Unit) -> bool {
    policy.cost.as_ref().is_some_and(|cost| cost.names(unit)) || policy.usage.iter().any(|source| source.unit == unit)
}

/// The rules that may apply to a request together with `draft`, including `draft`.
fn beside<'a>(draft: &'a RawRule, drafts: &'a [RawRule]) -> impl Iterator<Item = &'a Policy> {
    let overlap = |other: &Policy| {
        draft.policy.hosts.iter().any(|host| other.hosts.iter().any(|of_other| host.overlaps(of_other)))
    };
    drafts.iter().map(|draft| &draft.policy).filter(move |policy| overlap(policy))
}

/// The units that a rule counts and whose cost nothing states.
fn unsaid(draft: &RawRule, drafts: &[RawRule]) -> BTreeSet<Unit> {
    // The host's own rule states costs for narrower rules, too.
    draft.policy.units().filter(|unit| !beside(draft, drafts).any(|policy| says(policy, *unit))).collect()
}
