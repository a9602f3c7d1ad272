//! A group of requests with a limit of its own: its pauses, and its pace.

use std::time::Duration;

use crate::{
    clock::Instant,
    learn::{
        Reason,
        finder::{Answered, Finder, Refusal},
        gate::Gate,
    },
    limit::Unit,
};

/// What is known of one group.
#[derive(Clone, Debug)]
pub(super) struct Own {
    finder: Finder,
    gate: Gate,
    unanswered: u32,
    /// When the last one left, and when the next one is due at the rate that was found.
    taken: Instant,
    due: Instant,
    slot: Duration,
    refused: Instant,
}

/// A group that nobody uses is forgotten after this.
const UNUSED: Duration = Duration::from_secs(600);
/// One of which nothing is believed any more, after this.
const UNLIMITED: Duration = Duration::from_secs(120);
/// Who comes so late gets the slot back that it has missed.
const LATE: Duration = Duration::from_millis(20);

// === impl Own ===

impl Own {
    /// `newest` is the last request to have left.
    pub(super) fn new(finder: Finder, now: Instant, newest: Unit) -> Self {
        let (slot, mut gate) = (Duration::ZERO, Gate::default());
        gate.take(now, newest);
        Self { finder, gate, unanswered: 0, taken: now, due: now, slot, refused: now }
    }

    /// When the next one may leave.
    pub(super) fn earliest(&self) -> Instant {
        let opens = self.gate.earliest(self.due);
        let crowded = self.gate.is_open() && !self.finder.has_room(self.unanswered);
        if crowded { opens.max(self.taken + self.finder.hangs()) } else { opens }
    }

    /// Until when it pauses, if it does.
    pub(super) fn closed(&self) -> Option<Instant> {
        self.gate.until().map(|(until, _)| until)
    }

    /// How long one has to wait after the other.
    pub(super) fn slot(&self) -> Duration {
        self.slot
    }

    /// Whether it is to be forgotten.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        let open = self.closed().is_none_or(|until| until <= now);
        let over = |since: Instant, after| open && now.since(since) >= after;
        over(self.taken, UNUSED) || self.finder.rate(now).is_none() && over(self.refused, UNLIMITED)
    }

    pub(super) fn take(&mut self, now: Instant, unit: Unit, waited: bool) {
        self.unanswered += 1;
        self.taken = now;
        self.gate.take(now, unit);
        self.finder.take(now, waited);
        self.slot = self.finder.rate(now).map_or(Duration::ZERO, |rate| Duration::from_secs_f64(1.0 / rate));
        let late = now.since(self.due).min(LATE).min(self.slot);
        self.due = now + (self.slot - late);
    }

    pub(super) fn served(&mut self, answered: Answered) {
        if self.gate.served(answered.unit) {
            self.finder.opened(self.unanswered);
        }
        let crowd = self.unanswered.min(answered.crowd);
        self.finder.served(Answered { crowd, ..answered }, false);
    }

    pub(super) fn refused(&mut self, answered: Answered, refusal: Refusal) {
        self.refused = answered.at;
        let reason = if refusal.wait.is_some() { Reason::RetryAfter } else { Reason::Refused };
        let newest = self.gate.newest();
        let crowd = self.unanswered.min(answered.crowd);
        if let Some(until) = self.finder.refused(Answered { crowd, ..answered }, Refusal { newest, ..refusal }) {
            self.gate.close(answered.at, until, reason);
        }
    }

    pub(super) fn too_many(&mut self) {
        self.finder.too_many(self.unanswered);
    }

    pub(super) fn ended(&mut self, unit: Unit) {
        self.unanswered = self.unanswered.saturating_sub(1);
        self.gate.ended(unit);
    }
}
