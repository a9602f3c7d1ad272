//! A lane that passes from one process to the next while both of them run.

use std::time::Duration;

use super::{LaneRecord, State};
use crate::clock::Instant;

/// Which of two processes sends the requests of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Handover {
    /// This one. There is no other.
    #[default]
    Ours,
    /// The one before. Requests wait here until its last one has left.
    Awaited,
    /// This one, which only waits for answers since then.
    Emptied(Instant),
    /// The next one. Requests that still come here are refused.
    Given,
}

impl<T> State<T> {
    /// Another process still sends for this lane. Nothing leaves before [`predecessor_ended`](Self::predecessor_ended).
    pub(in crate::lane) fn await_predecessor(&mut self) {
        self.handover = Handover::Awaited;
    }

    /// Whether another process still sends for this lane.
    pub(in crate::lane) fn awaits_predecessor(&self) -> bool {
        self.handover == Handover::Awaited
    }

    /// Counts everything that the process before has sent, as `other` has it. Requests leave again once the lane is
    /// [released](Self::predecessor_ended).
    pub(in crate::lane) fn inherits(&mut self, now: Instant, other: &mut Self) {
        if self.fleet.is_some() {
            // Its part of the fleet's budget stays its own.
            let inheritance = other.inheritance(now);
            self.absorbed(now, &inheritance);
        } else {
            // Nothing was taken of this budget yet. The other one knows when what was sent has arrived.
            std::mem::swap(&mut self.budget, &mut other.budget);
            self.learned.absorb(&other.learned.record(now), now);
        }
        self.narrow.inherits(&mut other.narrow, now, self.epoch);
    }

    /// The process before sends nothing more for this lane.
    pub(in crate::lane) fn predecessor_ended(&mut self) {
        self.handover = Handover::Ours;
        (self.rechecks, self.unwritten) = (true, true);
    }

    /// Gives the lane to the next process, and returns its record. Returns `None` while requests wait or are under way.
    /// Where no limit counts those that are under way, it waits no longer than `patience` for them once none waits.
    pub(in crate::lane) fn hand_over(&mut self, now: Instant, patience: Duration) -> Option<LaneRecord> {
        if self.awaits_predecessor() {
            return None;
        }
        if !self.queue.is_empty() {
            self.handover = Handover::Ours;
            return None;
        }
        if self.under_way() > 0 {
            let since = if let Handover::Emptied(since) = self.handover { since } else { now };
            self.handover = Handover::Emptied(since);
            if self.in_flight.limit().is_some() || now < since + patience {
                return None;
            }
        }
        self.handover = Handover::Given;
        Some(self.record(now, true))
    }

    /// Whether the next process has this lane.
    pub(in crate::lane) fn is_given(&self) -> bool {
        self.handover == Handover::Given
    }
}
