//! Handover of a lane from one process to the next while both run.

use std::time::Duration;

use andante_clock::Instant;

use super::{LaneRecord, State};

/// Which of two processes sends the requests of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Handover {
    /// This process. There is no other.
    #[default]
    Ours,
    /// The previous process. Requests wait here until its last one has left.
    Awaited,
    /// This process, which has only waited for answers since then.
    Emptied(Instant),
    /// The next process. Requests that still arrive here are refused.
    Given,
}

impl<T> State<T> {
    /// Marks the lane as still served by another process. Requests wait until
    /// [`predecessor_ended`](Self::predecessor_ended).
    pub(crate) fn await_predecessor(&mut self) {
        self.handover = Handover::Awaited;
    }

    /// Returns whether another process still sends for this lane.
    pub(crate) fn awaits_predecessor(&self) -> bool {
        self.handover == Handover::Awaited
    }

    /// Counts everything that the previous process has sent, as recorded in `other`. Requests leave again once the lane
    /// is [released](Self::predecessor_ended).
    pub(crate) fn inherits(&mut self, now: Instant, other: &mut Self) {
        if self.fleet.is_some() {
            // This process keeps its own share of the fleet's budget.
            self.absorb(now, other);
        } else {
            // This budget is unused yet. The other budget knows when sent requests have arrived.
            std::mem::swap(&mut self.budget, &mut other.budget);
            self.learned.absorb(&other.learned.record(now), now);
        }
        self.sub_limits.inherits(&mut other.sub_limits, now, self.epoch);
    }

    /// Records that the previous process sends nothing more for this lane.
    pub(crate) fn predecessor_ended(&mut self) {
        self.handover = Handover::Ours;
        (self.rechecks, self.unwritten) = (true, true);
    }

    /// Hands the lane to the next process, and returns its record. Returns `None` while requests wait or are in flight.
    /// Without a limit on in-flight requests, it waits for them at most `patience` after the queue has emptied.
    pub(crate) fn hand_over(&mut self, now: Instant, patience: Duration) -> Option<LaneRecord> {
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

    /// Returns whether the next process has this lane.
    pub(crate) fn is_given(&self) -> bool {
        self.handover == Handover::Given
    }
}
