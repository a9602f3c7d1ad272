//! Applies operators' commands to a running andante.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use rustix::process::{Signal, getpid, kill_process};
use tracing::info;

use crate::{
    admin::{FlowName, LaneChoice, Steered, Steering},
    clock::Instant,
    lane::{
        Lane,
        order::{Claim, FlowId},
    },
    limit::{Limits, Unit},
    policy::{AssignedWeight, Policy},
    proxy::{Proxy, reweigh_waiting},
};

/// Executes operators' commands on a proxy.
pub(super) struct Steerer {
    proxy: Arc<Proxy>,
    changed: Arc<Mutex<ChangedRules>>,
}

/// The rules that operators have changed, by their names.
#[derive(Default)]
struct ChangedRules {
    rules: HashMap<Arc<str>, ChangedRule>,
    /// Number of changes so far: the end of one change does not end another.
    serial: u64,
}

struct ChangedRule {
    /// Rule in the configuration.
    original: Arc<Policy>,
    /// Rule in force.
    current: Arc<Policy>,
    limits: Option<TemporaryLimits>,
    weights: Option<Vec<AssignedWeight>>,
}

/// Limits that hold temporarily.
struct TemporaryLimits {
    /// Number of the change that set them.
    number: u64,
    limits: Limits,
    until: Instant,
}

// === impl Steerer ===

impl Steerer {
    pub(super) fn new(proxy: Arc<Proxy>) -> Self {
        Self { proxy, changed: Arc::default() }
    }

    /// The units other than requests that the limits of the rule called `name` count in the configuration.
    pub(super) fn units(&self, name: &str) -> Vec<Unit> {
        let (changed, rules) = (self.changed.lock(), self.proxy.lanes.rules());
        let rule = rules.iter().find(|rule| *rule.name == *name);
        let known = |rule| changed.rules.get(name).filter(|known| Arc::ptr_eq(&known.current, rule));
        rule.into_iter().flat_map(|rule| known(rule).map_or(rule, |known| &known.original).units()).collect()
    }

    /// Applies `steering` to the chosen lanes; `None` if there are none. Must be called on a tokio runtime.
    pub(super) fn steer(&self, choice: &LaneChoice, steering: &Steering) -> Option<Steered> {
        let lanes = &self.proxy.lanes;
        let found = match choice {
            LaneChoice::One(name) => vec![lanes.named_or_opened(&name.rule, &name.host)?],
            LaneChoice::OfHost(host) => Some(lanes.of_host_or_opened(host)).filter(|found| !found.is_empty())?,
            LaneChoice::All => lanes.all(),
        };
        let done = |lanes| Some(Steered { lanes, requests: 0 });
        let requests = |requests| Some(Steered { lanes: found.len(), requests });
        match steering {
            Steering::Pause(length) if *choice == LaneChoice::All => done(lanes.pause_all(*length)),
            Steering::Resume if *choice == LaneChoice::All => done(lanes.resume_all()),
            Steering::Pause(length) => done(found.iter().map(|lane| lane.pause(*length)).count()),
            Steering::Resume => done(found.iter().map(Lane::resume).count()),
            Steering::Forget => done(found.iter().map(Lane::forget_learned).count()),
            Steering::Drop(flow) => requests(found.iter().map(|lane| lane.drop_waiting(|claim| is(flow, claim))).sum()),
            Steering::First(flow) => {
                requests(found.iter().filter(|lane| lane.let_first(|claim| is(flow, claim))).count())
            }
            Steering::Limit { rule, limits, length } => {
                let until = self.proxy.clock.now() + *length;
                let temporary = |number| TemporaryLimits { number, limits: limits.clone(), until };
                let number = self.change(rule, |changed, number| changed.limits = Some(temporary(number)))?;
                self.end_later(rule, number, until);
                let text = format!("limited to {limits} for {length:?} by an operator");
                Some(self.note(rule, &text))
            }
            Steering::Weights { rule, weights } => {
                self.change(rule, |changed, _| changed.weights = Some(weights.clone()))?;
                reweigh_waiting(&self.proxy);
                Some(self.note(rule, "given other weights by an operator"))
            }
            Steering::Drain => {
                // Acts like a service manager: the process that started andante handles the rest.
                let sent = kill_process(getpid(), Signal::TERM);
                sent.is_ok()
                    .then_some(Steered { lanes: found.len(), requests: found.iter().map(|lane| lane.waiting()).sum() })
            }
        }
    }

    /// Changes the rule called `name`, and keeps its other changes. Returns the number of this change.
    fn change(&self, name: &Arc<str>, change: impl FnOnce(&mut ChangedRule, u64)) -> Option<u64> {
        let mut changed = self.changed.lock();
        changed.serial += 1;
        let number = changed.serial;
        let mut next = None;
        self.proxy
            .change_rule(name, |now| {
                // A rule that a reload replaced counts as configured.
                let known = changed.rules.remove(name).filter(|known| Arc::ptr_eq(&known.current, now));
                let mut rule = known.unwrap_or_else(|| ChangedRule::of(now));
                change(&mut rule, number);
                let policy = rule.policy();
                next = Some(rule);
                Some(policy)
            })
            .zip(next)
            .map(|(current, rule)| {
                changed.rules.insert(name.clone(), ChangedRule { current, ..rule });
                number
            })
    }

    /// Ends of temporary limits, by rule.
    pub(super) fn ends(&self) -> HashMap<Arc<str>, Instant> {
        let (changed, rules) = (self.changed.lock(), self.proxy.lanes.rules());
        // A reload has ended changes of rules that it replaced.
        let hold = changed.rules.iter().filter(|(_, rule)| rules.iter().any(|now| Arc::ptr_eq(now, &rule.current)));
        hold.filter_map(|(name, rule)| Some((name.clone(), rule.limits.as_ref()?.until))).collect()
    }

    /// Ends the change of limits with this `number` at `until`.
    fn end_later(&self, name: &Arc<str>, number: u64, until: Instant) {
        let (proxy, changed, name) = (Arc::downgrade(&self.proxy), self.changed.clone(), name.clone());
        let clock = self.proxy.clock;
        tokio::spawn(async move {
            clock.sleep_until(until).await;
            end(&proxy, &changed, &name, number);
        });
    }

    /// Writes `text` into the journal of each lane of a rule. Returns the number of lanes.
    fn note(&self, rule: &str, text: &str) -> Steered {
        let lanes = self.proxy.lanes.all();
        let lanes = lanes.iter().filter(|lane| *lane.policy().name == *rule);
        Steered { lanes: lanes.map(|lane| lane.note(text.to_owned())).count(), requests: 0 }
    }
}

/// Restores the configured limits of the rule called `name`, if the change with this `number` still holds.
fn end(proxy: &Weak<Proxy>, changed: &Mutex<ChangedRules>, name: &Arc<str>, number: u64) {
    let Some(proxy) = proxy.upgrade() else { return };
    let mut changed = changed.lock();
    let Some(rule) = changed.rules.get_mut(name) else { return };
    if rule.limits.as_ref().is_none_or(|limits| limits.number != number) {
        return;
    }
    rule.limits = None;
    let current = proxy.change_rule(name, |now| Arc::ptr_eq(&rule.current, now).then(|| rule.policy()));
    match current {
        Some(current) => {
            rule.current = current;
            info!(rule = &**name, "the limits that an operator has set are over");
        }
        // A reload has already ended it.
        None => drop(changed.rules.remove(name)),
    }
}

/// Returns whether `claim` belongs to the `flow`, which has a name of `/status`.
fn is(flow: &FlowName, claim: &Claim) -> bool {
    let named = |hash: &String| claim.flow != FlowId::default() && *hash == claim.flow.shown();
    claim.client.to_string() == flow.client && flow.flow.as_ref().is_none_or(named)
}

// === impl ChangedRule ===

impl ChangedRule {
    fn of(policy: &Arc<Policy>) -> Self {
        Self { original: policy.clone(), current: policy.clone(), limits: None, weights: None }
    }

    /// The rule with all changes.
    fn policy(&self) -> Policy {
        let mut policy = Policy::clone(&self.original);
        if let Some(TemporaryLimits { limits, .. }) = &self.limits {
            policy.limits.clone_from(&limits.limits);
            policy.calendar.clone_from(&limits.calendar);
            policy.in_flight = limits.in_flight.or(policy.in_flight);
        }
        if let Some(weights) = &self.weights {
            policy.turns.weights.clone_from(weights);
        }
        policy
    }
}
