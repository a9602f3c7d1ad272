//! One process of a fleet, with a clock of its own.

use super::Place;
use crate::{
    clock::Instant,
    fleet::{Entry, Lease, Member, Micros, SharedPauses},
    limit::{Budget, Cost, Unit},
};

/// One process.
pub(super) struct Process {
    /// How often it was started.
    pub(super) life: u32,
    pub(super) budget: Budget,
    /// How many of its requests have no answer yet, if that is limited.
    pub(super) in_flight: u32,
    pub(super) member: Member,
    pub(super) lease: Lease,
    pub(super) under_way: Option<(u64, Micros, Vec<Entry>)>,
    pub(super) reports: bool,
    pub(super) next_look: Micros,
    pub(super) next_beat: Micros,
    pub(super) not_before: Micros,
    /// How many requests wait, and how many have left.
    pub(super) waiting: u32,
    pub(super) turn: usize,
    pub(super) greedy: bool,
    pub(super) sent: u64,
    /// Its clock: ahead by this, and faster by so many parts of a million.
    pub(super) ahead: Micros,
    pub(super) faster: i64,
    /// What the fleet knows of pauses, and until when this process pauses.
    pub(super) pauses: SharedPauses,
    pub(super) closed: Instant,
    /// Until when it has to, by the one clock.
    pub(super) obliged: Micros,
    /// The shortest way to the API.
    pub(super) way: Micros,
    pub(super) cut_until: Micros,
    /// The store that it takes for the one that counts.
    pub(super) place: Place,
    /// Until when it reaches no other one than the one before.
    pub(super) parted_until: Micros,
    /// The system stops it when it waits for the next reply; up to when it does.
    pub(super) stops: bool,
    pub(super) stopped_until: Micros,
    pub(super) starts_at: Micros,
    /// When it began, by the one clock.
    pub(super) began: Micros,
    pub(super) wakes_at: Micros,
}

// === impl Process ===

impl Process {
    pub(super) fn at(&self, now: Micros) -> Instant {
        let local = now + now / 1_000_000 * self.faster + self.ahead;
        Instant::from_nanos(local.unsigned_abs() * 1000)
    }

    /// When its clock shows `local`, or right after.
    pub(super) fn truly(&self, local: Instant) -> Micros {
        if local == Instant::FAR {
            return Micros::MAX;
        }
        let local = (local.as_nanos() / 1000) as Micros - self.ahead;
        local - local / 1_000_000 * self.faster + 2
    }

    /// Whether it holds a token of the in-flight limit that is not in use, whatever becomes of its lease.
    pub(super) fn has_token(&mut self, local: Instant) -> bool {
        self.budget.in_flight_share(local).is_some_and(|share| self.in_flight < share.held)
    }

    pub(super) fn requests(&self) -> u64 {
        if self.greedy { 50 } else { self.waiting.into() }
    }

    /// How many units wait.
    pub(super) fn backlog(&self, costs: &[u32]) -> u64 {
        let next = (0..self.requests() as usize).map(|ahead| costs[(self.turn + ahead) % costs.len()]);
        next.map(u64::from).sum()
    }

    /// What the next request takes.
    pub(super) fn cost(&self, costs: &[u32], unit: Unit) -> Cost {
        Cost::MIN.with(unit, costs[self.turn % costs.len()])
    }
}
