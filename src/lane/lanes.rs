//! Finds the lane of a request, or makes it; forgets lanes that remember nothing.

use std::{
    collections::HashMap,
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
    metrics::Metrics,
    policy::{Origin, Rules},
};

/// All lanes.
pub struct Lanes {
    rules: Rules,
    clock: Clock,
    metrics: Metrics,
    /// Of each rule, in the order of the rules; those of hosts without one come last.
    rules_lanes: Vec<RuleLanes>,
}

/// The lanes of one rule.
#[derive(Default)]
struct RuleLanes {
    lanes: RwLock<HashMap<LaneKey, Arc<Lane>>>,
    /// At how many lanes the idle ones are looked for.
    crowded: AtomicUsize,
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
        for rule in rules.iter() {
            metrics.expect(&rule.name);
            let slowest = rule.limits.iter().map(|limit| limit.rate.per_second()).reduce(f64::min);
            if let Some(slowest) = slowest {
                metrics.rule(&rule.name).set_limit_per_second(slowest);
            }
        }
        let rules_lanes = (0..=rules.iter().count()).map(|_| RuleLanes::default()).collect();
        Self { rules, clock, metrics, rules_lanes }
    }

    /// The lane for requests to `origin`.
    pub fn find(&self, origin: &Origin) -> Arc<Lane> {
        let key = RequestKey::new(&self.rules, origin);
        let rule_lanes = &self.rules_lanes[key.rule.unwrap_or(self.rules_lanes.len() - 1)];
        if let Some(lane) = rule_lanes.lanes.read().get(key.borrowed()) {
            return lane.clone();
        }
        let mut lanes = rule_lanes.lanes.write();
        if lanes.len() >= rule_lanes.crowded.load(Ordering::Relaxed).max(FEW) {
            forget(&mut lanes);
            rule_lanes.crowded.store(lanes.len() * 2, Ordering::Relaxed);
        }
        lanes.entry(key.to_lane_key()).or_insert_with(|| self.open(key)).clone()
    }

    /// Forgets lanes that remember nothing, if there are many, and notices if the system's clock was set. To be called
    /// every few seconds, on a tokio runtime.
    pub fn sweep(&self) {
        if self.rules.iter().any(|rule| !rule.calendar.is_empty()) {
            self.all().iter().filter(|lane| !lane.policy().calendar.is_empty()).for_each(Lane::read_clock);
        }
        for rule_lanes in &self.rules_lanes {
            let mut lanes = rule_lanes.lanes.write();
            if lanes.len() > FEW {
                forget(&mut lanes);
                lanes.shrink_to(FEW);
            }
        }
    }

    /// How many lanes there are.
    pub fn len(&self) -> usize {
        self.rules_lanes.iter().map(|rule_lanes| rule_lanes.lanes.read().len()).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every lane there is.
    pub fn all(&self) -> Vec<Arc<Lane>> {
        self.rules_lanes
            .iter()
            .flat_map(|rule_lanes| rule_lanes.lanes.read().values().cloned().collect::<Vec<_>>())
            .collect()
    }

    /// The rules that the lanes are made by.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    fn open(&self, key: RequestKey<'_>) -> Arc<Lane> {
        let (policy, metrics) = match key.rule.map(|rule| self.rules.get(rule)) {
            Some(rule) => (rule, self.metrics.rule(&rule.name)),
            None => (self.rules.unruled(), self.metrics.unruled(key.host)),
        };
        Arc::new(Lane::new(key.host.clone(), policy.clone(), metrics, self.clock))
    }
}

/// Forgets lanes that remember nothing, and some of those that only have learned something, if those are many.
fn forget(lanes: &mut HashMap<LaneKey, Arc<Lane>>) {
    // Nobody but the map holds it, and under the map's lock nobody can get it: no budget is ever made twice.
    let is_free = |lane: &Arc<Lane>| Arc::strong_count(lane) == 1;
    let mut learned = Vec::new();
    lanes.retain(|key, lane| {
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
