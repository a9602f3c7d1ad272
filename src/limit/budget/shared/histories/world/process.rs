//! A process of a fleet, with its own clock.

use andante_clock::Instant;
use andante_fleet::{Entry, Lease, Member, Micros, SharedPauses};

use super::Place;
use crate::{Budget, Cost, Unit};

/// A process of the fleet.
pub(super) struct Process {
    /// Number of starts.
    pub(super) life: u32,
    pub(super) budget: Budget,
    /// Requests without a response, if their number is limited.
    pub(super) in_flight: u32,
    pub(super) member: Member,
    pub(super) lease: Lease,
    pub(super) under_way: Option<(u64, Micros, Vec<Entry>)>,
    pub(super) reports: bool,
    pub(super) next_look: Micros,
    pub(super) next_beat: Micros,
    pub(super) not_before: Micros,
    /// Number of waiting requests, and number of requests that have left.
    pub(super) waiting: u32,
    pub(super) turn: usize,
    pub(super) greedy: bool,
    pub(super) sent: u64,
    /// Offset of the process's clock, and its drift in parts per million.
    pub(super) ahead: Micros,
    pub(super) faster: i64,
    /// Pauses that the fleet knows, and the end of this process's own pause.
    pub(super) pauses: SharedPauses,
    pub(super) closed: Instant,
    /// End of the pause that it must observe, by the global clock.
    pub(super) obliged: Micros,
    /// The shortest way to the API.
    pub(super) way: Micros,
    pub(super) cut_until: Micros,
    /// Store that the process takes for the active one.
    pub(super) place: Place,
    /// End of the time in which the process reaches only the replaced store.
    pub(super) parted_until: Micros,
    /// The system stops the process while it waits for the next reply; and the end of that stop.
    pub(super) stops: bool,
    pub(super) stopped_until: Micros,
    pub(super) starts_at: Micros,
    /// When the process began, by the global clock.
    pub(super) began: Micros,
    pub(super) wakes_at: Micros,
}

// === impl Process ===

impl Process {
    pub(super) fn at(&self, now: Micros) -> Instant {
        let local = now + now / 1_000_000 * self.faster + self.ahead;
        Instant::from_nanos(local.unsigned_abs() * 1000)
    }

    /// Global time at which the process's clock shows `local`, or right after.
    pub(super) fn truly(&self, local: Instant) -> Micros {
        if local == Instant::FAR {
            return Micros::MAX;
        }
        let local = (local.as_nanos() / 1000) as Micros - self.ahead;
        local - local / 1_000_000 * self.faster + 2
    }

    /// Returns true if the process holds an unused token of the in-flight limit, whether or not its lease
    /// holds.
    pub(super) fn has_token(&mut self, local: Instant) -> bool {
        self.budget.in_flight_share(local).is_some_and(|share| self.in_flight < share.held)
    }

    pub(super) fn requests(&self) -> u64 {
        if self.greedy { 50 } else { self.waiting.into() }
    }

    /// Number of waiting units.
    pub(super) fn backlog(&self, costs: &[u32]) -> u64 {
        let next = (0..self.requests() as usize).map(|ahead| costs[(self.turn + ahead) % costs.len()]);
        next.map(u64::from).sum()
    }

    /// Cost of the next request.
    pub(super) fn cost(&self, costs: &[u32], unit: Unit) -> Cost {
        Cost::MIN.with(unit, costs[self.turn % costs.len()])
    }
}
