//! Finds the lane of a request, or makes it; forgets lanes that remember nothing.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::RwLock;

use super::{
    Lane,
    key::{LaneKey, RequestKey},
    state::Memory,
};
use crate::{
    clock::{Clock, Instant},
    metrics::{Metrics, RuleMetrics},
    policy::{Origin, Rules},
};

/// All lanes.
pub struct Lanes {
    clock: Clock,
    metrics: Metrics,
    /// Written by a reload alone. While one moves the lanes, nobody can open another one for the same requests.
    table: RwLock<Table>,
}

/// The rules, and the lanes that are made by them.
struct Table {
    rules: Arc<Rules>,
    /// Of each rule, in the order of the rules; those of hosts without one come last.
    rules_lanes: Vec<RuleLanes>,
    reloaded: bool,
}

/// The lanes of one rule.
#[derive(Default)]
struct RuleLanes {
    lanes: RwLock<HashMap<LaneKey, OpenLane>>,
    /// At how many lanes the idle ones are looked for.
    crowded: AtomicUsize,
}

/// A lane, and the first origin that it was asked for: the rule that is for it after a reload gets the lane.
struct OpenLane {
    lane: Arc<Lane>,
    origin: Origin,
}

/// This many lanes of a rule are kept although they remember nothing, for people to see what was done in them.
const FEW: usize = 1024;
/// This many lanes of a rule are kept for what they have learned. Beyond, those go first that were used longest ago and do
/// not pause.
const LEARNED: usize = 16 * FEW;

// === impl Lanes ===

impl Lanes {
    /// No lane yet.
    pub fn new(rules: Rules, metrics: Metrics, clock: Clock) -> Self {
        show(&metrics, &rules);
        Self { clock, metrics, table: RwLock::new(Table::new(rules, false)) }
    }

    /// The lane for requests to `origin`.
    pub fn find(&self, origin: &Origin) -> Arc<Lane> {
        let table = self.table.read();
        let key = RequestKey::new(&table.rules, origin);
        let rule_lanes = table.of(key);
        if let Some(open) = rule_lanes.lanes.read().get(key.borrowed()) {
            return open.lane.clone();
        }
        // Before this rule was there, its requests may have gone by another one.
        let relatives = if table.reloaded { table.of_host(key) } else { Vec::new() };
        let mut lanes = rule_lanes.lanes.write();
        if lanes.len() >= rule_lanes.crowded.load(Ordering::Relaxed).max(FEW) {
            forget(&mut lanes);
            rule_lanes.crowded.store(lanes.len() * 2, Ordering::Relaxed);
        }
        let open = || {
            let lane = self.open(&table.rules, key);
            relatives.iter().for_each(|relative| lane.absorb(relative));
            OpenLane { lane, origin: origin.clone() }
        };
        lanes.entry(key.to_lane_key()).or_insert_with(open).lane.clone()
    }

    /// From now on `rules` hold. Each lane goes to the rule that is for its requests now, with all that it remembers and
    /// with those that wait in it. Must be called on a tokio runtime, which drives the lanes.
    pub fn reload(&self, rules: Rules) {
        let mut table = self.table.write();
        show(&self.metrics, &rules);
        for gone in table.rules.iter().filter(|rule| rules.iter().all(|other| other.name != rule.name)) {
            self.metrics.rule(&gone.name).set_limit_per_second(None);
        }
        let mut next = Table::new(rules.reusing(&table.rules), true);
        let Table { rules, rules_lanes, .. } = &mut next;
        for OpenLane { lane, origin } in
            table.rules_lanes.drain(..).flat_map(|of_rule| of_rule.lanes.into_inner().into_values())
        {
            let key = RequestKey::new(rules, &origin);
            let policy = key.rule.map_or(rules.unruled(), |rule| rules.get(rule));
            let moved = if Arc::ptr_eq(policy, lane.policy()) {
                lane
            } else {
                lane.reconfigured(policy.clone(), self.metrics_of(rules, key))
            };
            let last = rules_lanes.len() - 1;
            match rules_lanes[key.rule.unwrap_or(last)].lanes.get_mut().entry(key.to_lane_key()) {
                Entry::Vacant(place) => drop(place.insert(OpenLane { lane: moved, origin })),
                // Two rules for ports of one host have become one. Requests that wait in the lane that goes leave as before.
                Entry::Occupied(taken) => taken.get().lane.absorb(&moved),
            }
        }
        *table = next;
    }

    /// Forgets lanes that remember nothing, if there are many, and notices if the system's clock was set. To be called
    /// every few seconds, on a tokio runtime.
    pub fn sweep(&self) {
        if self.rules().iter().any(|rule| !rule.calendar.is_empty()) {
            self.all().iter().filter(|lane| !lane.policy().calendar.is_empty()).for_each(Lane::read_clock);
        }
        for rule_lanes in &self.table.read().rules_lanes {
            let mut lanes = rule_lanes.lanes.write();
            if lanes.len() > FEW {
                forget(&mut lanes);
                lanes.shrink_to(FEW);
            }
        }
    }

    /// How many lanes there are.
    pub fn len(&self) -> usize {
        self.table.read().rules_lanes.iter().map(|rule_lanes| rule_lanes.lanes.read().len()).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every lane there is.
    pub fn all(&self) -> Vec<Arc<Lane>> {
        let lanes =
            |of_rule: &RuleLanes| of_rule.lanes.read().values().map(|open| open.lane.clone()).collect::<Vec<_>>();
        self.table.read().rules_lanes.iter().flat_map(lanes).collect()
    }

    /// The rules that the lanes are made by.
    pub fn rules(&self) -> Arc<Rules> {
        self.table.read().rules.clone()
    }

    fn open(&self, rules: &Rules, key: RequestKey<'_>) -> Arc<Lane> {
        let policy = key.rule.map_or(rules.unruled(), |rule| rules.get(rule));
        Arc::new(Lane::new(key.host.clone(), policy.clone(), self.metrics_of(rules, key), self.clock))
    }

    fn metrics_of(&self, rules: &Rules, key: RequestKey<'_>) -> Arc<RuleMetrics> {
        match key.rule {
            Some(rule) => self.metrics.rule(&rules.get(rule).name),
            None => self.metrics.unruled(key.host),
        }
    }
}

// === impl Table ===

impl Table {
    fn new(rules: Rules, reloaded: bool) -> Self {
        let rules_lanes = (0..=rules.iter().count()).map(|_| RuleLanes::default()).collect();
        Self { rules: Arc::new(rules), rules_lanes, reloaded }
    }

    /// The lanes of the rule of `key`.
    fn of(&self, key: RequestKey<'_>) -> &RuleLanes {
        &self.rules_lanes[key.rule.unwrap_or(self.rules_lanes.len() - 1)]
    }

    /// The lanes that all rules have for the host of `key`.
    fn of_host(&self, key: RequestKey<'_>) -> Vec<Arc<Lane>> {
        let of_rule = |lanes: &RuleLanes| lanes.lanes.read().get(key.borrowed()).map(|open| open.lane.clone());
        self.rules_lanes.iter().filter_map(of_rule).collect()
    }
}

/// Shows all of `rules` among the metrics, and what they allow.
fn show(metrics: &Metrics, rules: &Rules) {
    for rule in rules.iter() {
        let slowest = rule.limits.iter().map(|limit| limit.rate.per_second()).reduce(f64::min);
        metrics.rule(&rule.name).set_limit_per_second(slowest);
    }
}

/// Forgets lanes that remember nothing, and some of those that only have learned something, if those are many.
fn forget(lanes: &mut HashMap<LaneKey, OpenLane>) {
    // Nobody but the map holds it, and under the map's lock nobody can get it: no budget is ever made twice.
    let is_free = |lane: &Arc<Lane>| Arc::strong_count(lane) == 1 && lane.is_alone();
    let mut learned = Vec::new();
    lanes.retain(|key, OpenLane { lane, .. }| {
        let memory = if is_free(lane) { lane.memory() } else { Memory::Owed };
        match memory {
            Memory::Owed => {}
            Memory::Pause => learned.push((Instant::FAR, key.clone())),
            Memory::Learned(last) => learned.push((last, key.clone())),
            Memory::Nothing => return false,
        }
        true
    });
    if learned.len() > LEARNED {
        // A quarter more than need be: not each new lane is to look for one that can go.
        learned.sort_unstable();
        learned.truncate(learned.len() - LEARNED * 3 / 4);
        learned.iter().for_each(|(_, key)| drop(lanes.remove(key)));
    }
}
