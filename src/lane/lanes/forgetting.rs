//! Forgetting of lanes when there are many.

use std::{collections::HashMap, sync::Arc};

use andante_clock::Instant;
use tracing::warn;

use super::{FEW, Lanes, OpenLane};
use crate::{Lane, state::Memory};

/// This many lanes of a rule are kept for what they have learned, if as many fit. Beyond that, the least recently used
/// ones that do not pause are forgotten first.
const LEARNED: usize = 16 * FEW;
// === impl Lanes ===

impl Lanes {
    /// Forgets lanes that remember nothing, if there are many, and notices if the system's clock was set. To be called
    /// every few seconds, on a tokio runtime.
    pub fn sweep(&self) {
        let rules = self.rules();
        let calendar = |added: bool| {
            let mut rules = rules.iter().filter(|rule| rule.added.is_some() == added);
            rules.any(|rule| !rule.calendar.is_empty())
        };
        let (own, added) = (calendar(false), calendar(true));
        if own || added {
            self.all().iter().filter(|lane| added || !lane.policy().calendar.is_empty()).for_each(Lane::read_clock);
        }
        self.all().iter().for_each(|lane| lane.forget_idle());
        for rule_lanes in &self.table.read().rules_lanes {
            let mut lanes = rule_lanes.lanes.write();
            if lanes.len() > FEW {
                self.forgotten(forget(&mut lanes, self.capacity.lanes, *self.held.lock()));
                lanes.shrink_to(FEW);
            }
        }
        let forgotten = self.capacity.take_forgotten();
        if forgotten > 0 {
            warn!(
                budgets = forgotten,
                hint = "let a rule's `key` name fewer different values, or raise `max-memory`",
                "more keys are in use than fit: the least recently used are forgotten, and their limits start unused"
            );
        }
        if let Some(kept) = &self.kept {
            kept.sweep(self.clock.now(), self.clock.epoch());
        }
    }
}

/// Forgets lanes that remember nothing, and some of those that only have learned something, if those are many. Returns
/// the store's names of the forgotten lanes.
///
/// Up to `most` lanes are kept for the requests sent in them, however long their windows. Beyond that, the least
/// recently used are forgotten first. A host's limit is exceeded by that only if requests return within its window,
/// after as many other hosts.
///
/// A lane that is opened while all are paused `until` then is paused, too, and may be forgotten for that.
pub(super) fn forget(lanes: &mut HashMap<Arc<str>, OpenLane>, most: usize, until: Option<Instant>) -> Vec<Arc<str>> {
    // Only the map holds it, and the map is locked, so no other part can get it: no budget is ever created twice.
    let is_free = |lane: &Arc<Lane>| Arc::strong_count(lane) == 1 && lane.is_alone();
    let (mut learned, mut counted, mut gone) = (Vec::new(), Vec::new(), Vec::new());
    lanes.retain(|key, OpenLane { lane, .. }| {
        let memory = if is_free(lane) { lane.memory(until) } else { Memory::Owed };
        match memory {
            Memory::Owed => {}
            Memory::Counted(last) => counted.push((last, key.clone())),
            Memory::Pause => learned.push((Instant::FAR, key.clone())),
            Memory::Learned(last) => learned.push((last, key.clone())),
            Memory::Nothing => {
                gone.extend(lane.kept_as().cloned());
                return false;
            }
        }
        true
    });
    keep_latest(lanes, learned, LEARNED.min(most), &mut gone);
    let lost = keep_latest(lanes, counted, most, &mut gone);
    if let Some(OpenLane { lane, .. }) = lanes.values().next().filter(|_| lost > 0) {
        let rule = &lane.policy().name;
        warn!(
            %rule, hosts = lost, kept = lanes.len(),
            "more hosts are in use than andante remembers: the least recently used are forgotten, and their limits start unused"
        );
    }
    gone
}

/// Keeps up to `most` of the `idle` lanes, the most recently used. Returns the number of forgotten lanes.
fn keep_latest(
    lanes: &mut HashMap<Arc<str>, OpenLane>,
    mut idle: Vec<(Instant, Arc<str>)>,
    most: usize,
    gone: &mut Vec<Arc<str>>,
) -> usize {
    if idle.len() <= most {
        return 0;
    }
    // A quarter more than needed, so that not each new lane searches for one to forget.
    idle.sort_unstable();
    idle.truncate(idle.len() - most * 3 / 4);
    let removed = idle.iter().filter_map(|(_, key)| lanes.remove(key));
    gone.extend(removed.filter_map(|open| open.lane.kept_as().cloned()));
    idle.len()
}
