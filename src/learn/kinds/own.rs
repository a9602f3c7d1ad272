//! A group of requests with a limit of its own: its pauses, and its pace.

use std::time::Duration;

use andante_clock::Instant;
use andante_limit::Seq;

use crate::{
    Changes, LearnedChange, Reason,
    found::is_news,
    gate::Gate,
    grounds::{OwnGroup, OwnLimit},
    rate_estimator::{AnsweredRequest, ApiRefusal, RateEstimator},
};

/// State of one group.
#[derive(Clone, Debug)]
pub(super) struct GroupPace {
    estimator: RateEstimator,
    gate: Gate,
    unanswered: u32,
    /// When the last request left, and when the next one is due at the learned rate.
    taken: Instant,
    due: Instant,
    slot: Duration,
    refused: Instant,
    /// The group's requests, and the evidence for a limit of its own.
    group: OwnGroup,
    /// Rate and concurrency limit that were reported last.
    reported: (Option<f64>, Option<u32>),
}

/// Time after which an unused group is forgotten.
const UNUSED: Duration = Duration::from_secs(600);
/// Time after the last refusal at which a group without a rate estimate is forgotten.
const UNLIMITED: Duration = Duration::from_secs(120);
/// A request that is at most this late still gets the slot that it missed.
const LATE: Duration = Duration::from_millis(20);

// === impl GroupPace ===

impl GroupPace {
    /// Begins a group. `newest` is the last request that has left.
    pub(super) fn new(estimator: RateEstimator, group: OwnGroup, now: Instant, newest: Seq) -> Self {
        let (slot, mut gate) = (Duration::ZERO, Gate::default());
        gate.take(now, newest);
        Self { estimator, gate, unanswered: 0, taken: now, due: now, slot, refused: now, group, reported: (None, None) }
    }

    /// When the next request may leave.
    pub(super) fn earliest(&self) -> Instant {
        let opens = self.gate.earliest(self.due);
        let crowded = self.gate.is_open() && !self.estimator.has_room(self.unanswered);
        if crowded { opens.max(self.taken + self.estimator.hangs()) } else { opens }
    }

    /// End of the pause, if the group pauses.
    pub(super) fn closed(&self) -> Option<Instant> {
        self.gate.until().map(|(until, _)| until)
    }

    /// The group's requests.
    pub(super) fn group(&self) -> OwnGroup {
        self.group.clone()
    }

    /// Time between two requests.
    pub(super) fn slot(&self) -> Duration {
        self.slot
    }

    /// Returns true if the group is to be forgotten.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        let open = self.closed().is_none_or(|until| until <= now);
        let over = |since: Instant, after| open && now.since(since) >= after;
        over(self.taken, UNUSED) || self.estimator.rate(now).is_none() && over(self.refused, UNLIMITED)
    }

    pub(super) fn take(&mut self, now: Instant, seq: Seq, waited: bool) {
        self.unanswered += 1;
        self.taken = now;
        self.gate.take(now, seq);
        self.estimator.take(now, waited);
        self.slot = self.estimator.rate(now).map_or(Duration::ZERO, |rate| Duration::from_secs_f64(1.0 / rate));
        let late = now.since(self.due).min(LATE).min(self.slot);
        self.due = now + (self.slot - late);
    }

    pub(super) fn served(&mut self, answered: AnsweredRequest) {
        if self.gate.served(answered.seq) {
            self.estimator.opened(self.unanswered);
        }
        let crowd = self.unanswered.min(answered.crowd);
        self.estimator.served(AnsweredRequest { crowd, ..answered }, false);
    }

    pub(super) fn refused(&mut self, answered: AnsweredRequest, refusal: ApiRefusal) {
        self.refused = answered.at;
        let reason = if refusal.wait.is_some() { Reason::RetryAfter } else { Reason::Refused };
        let newest = self.gate.newest();
        let crowd = self.unanswered.min(answered.crowd);
        if let Some(until) =
            self.estimator.refused(AnsweredRequest { crowd, ..answered }, ApiRefusal { newest, ..refusal })
        {
            self.gate.close(answered.at, until, reason);
        }
    }

    /// Reports a new rate or concurrency limit. Small changes are not reported.
    pub(super) fn found(&mut self, now: Instant, changes: &mut Changes) {
        let (rate, at_once) = (self.estimator.rate(now), self.estimator.at_once());
        let new_rate = rate.is_some_and(|rate| is_news(rate, self.reported.0));
        let new_at_once = at_once.is_some() && at_once != self.reported.1;
        if new_rate {
            self.reported.0 = rate;
        }
        self.reported.1 = at_once;
        if new_rate || new_at_once {
            changes.push(LearnedChange::OwnLimit(Box::new(self.looked_at(now))));
        }
    }

    /// The group's limits, for status output.
    pub(super) fn looked_at(&self, now: Instant) -> OwnLimit {
        let (rate, at_once) = (self.estimator.rate_evidence(now), self.estimator.concurrency_evidence());
        OwnLimit {
            group: self.group.clone(),
            per_second: self.estimator.rate(now),
            at_once: self.estimator.at_once(),
            grounds: rate.into_iter().chain(at_once).collect(),
            next_slot: self.earliest().since(now),
        }
    }

    pub(super) fn too_many(&mut self) {
        self.estimator.too_many(self.unanswered);
    }

    pub(super) fn ended(&mut self, seq: Seq) {
        self.unanswered = self.unanswered.saturating_sub(1);
        self.gate.ended(seq);
    }
}
