//! In-flight requests of one budget, and the limit on their number.

use std::time::Duration;

use andante_clock::Instant;
use andante_hint::Cause;
use andante_learn::{AnswerReport, GradientEvidence, GradientLimit};
use andante_limit::{InFlightLimit, Seq};

/// The number of in-flight requests that draw on a budget, and the limit on it.
#[derive(Debug)]
pub(super) struct InFlight {
    count: u32,
    limit: Option<Bound>,
    /// When a request last left or ended, and the mean time until one ends while there is no room.
    changed: Instant,
    turnover: Option<Duration>,
}

#[derive(Debug)]
enum Bound {
    Fixed(u32),
    Gradient(Box<GradientLimit>),
}

/// The weight of a new measurement in the moving average is 1/`SHARE`.
const SHARE: u32 = 8;

impl InFlight {
    pub(super) fn new(limit: Option<InFlightLimit>) -> Self {
        Self { count: 0, limit: limit.map(Bound::new), changed: Instant::START, turnover: None }
    }

    /// Applies `limit` from now on. A learned limit stays if the new configuration still says `auto`.
    pub(super) fn reconfigure(&mut self, limit: Option<InFlightLimit>) {
        match (&self.limit, limit) {
            (Some(Bound::Gradient(_)), Some(InFlightLimit::Auto)) => {}
            _ => (self.limit, self.turnover) = (limit.map(Bound::new), None),
        }
    }

    /// Forgets the learned limit.
    pub(super) fn forget(&mut self) {
        if let Some(Bound::Gradient(gradient)) = &mut self.limit {
            **gradient = GradientLimit::default();
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// The current limit.
    pub(super) fn limit(&self) -> Option<u32> {
        self.limit.as_ref().map(|bound| match bound {
            Bound::Fixed(most) => *most,
            Bound::Gradient(gradient) => gradient.limit(),
        })
    }

    pub(super) fn has_room(&self) -> bool {
        self.has_room_for(1)
    }

    /// Returns whether this many more requests may leave.
    pub(super) fn has_room_for(&self, more: u32) -> bool {
        self.limit().is_none_or(|most| self.count + more <= most)
    }

    /// Mean time until a place frees up while there is no room; `None` before the first measurement.
    pub(super) fn turnover(&self) -> Option<Duration> {
        self.turnover
    }

    /// The time for which one place may stay empty before more than one request is lost.
    pub(super) fn idles(&self) -> Duration {
        let known = |most| self.turnover.unwrap_or_default().saturating_mul(most);
        self.limit().map_or(Duration::MAX, known)
    }

    /// The evidence for a learned limit.
    pub(super) fn grounds(&self) -> Option<GradientEvidence> {
        match &self.limit {
            Some(Bound::Gradient(gradient)) => Some(gradient.grounds()),
            _ => None,
        }
    }

    /// Returns whether nothing was learned.
    pub(super) fn is_blank(&self) -> bool {
        !matches!(&self.limit, Some(Bound::Gradient(gradient)) if !gradient.is_blank())
    }

    /// Records a request that leaves. `free` places stay free although requests wait: they count as used.
    pub(super) fn took(&mut self, seq: Seq, now: Instant, free: u32) {
        self.count += 1;
        self.changed = now;
        let count = self.count + free;
        self.learn(|gradient| gradient.took(seq, count));
    }

    /// Records an answer's head, which came after `took`.
    pub(super) fn answered(&mut self, seq: Seq, took: Duration, heard: &AnswerReport<'_>) {
        self.learn(|gradient| match heard.hint.cause {
            _ if heard.hint.is_hearsay() => gradient.unmeasured(seq),
            Cause::Overload | Cause::Concurrency => gradient.overloaded(seq),
            Cause::None if !heard.failed => gradient.answered(seq, took),
            // Refusals and errors may come sooner than answers that take work.
            Cause::None | Cause::Quota => gradient.unmeasured(seq),
        });
    }

    /// Records a request that could not be sent, broke off, or timed out.
    pub(super) fn broke(&mut self, seq: Seq) {
        self.learn(|gradient| gradient.broke(seq));
    }

    /// Records a request that has ended and is no longer in flight, while `free` places stay free although requests wait.
    pub(super) fn ended(&mut self, now: Instant, free: u32) {
        if !self.has_room_for(1 + free) {
            let took = now.since(self.changed);
            self.turnover = Some(self.turnover.map_or(took, |known| known - known / SHARE + took / SHARE));
        }
        self.count -= 1;
        self.changed = now;
    }

    /// Records a request that will not be answered any more; `sent` tells whether it had been sent.
    pub(super) fn unanswered(&mut self, seq: Seq, sent: bool) {
        self.learn(|gradient| if sent { gradient.abandoned(seq) } else { gradient.unmeasured(seq) });
    }

    fn learn(&mut self, event: impl FnOnce(&mut GradientLimit)) {
        if let Some(Bound::Gradient(gradient)) = &mut self.limit {
            event(gradient);
        }
    }
}

// === impl Bound ===

impl Bound {
    fn new(limit: InFlightLimit) -> Self {
        match limit {
            InFlightLimit::Fixed(most) => Self::Fixed(most.get()),
            InFlightLimit::Auto => Self::Gradient(Box::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_out_outlives_a_reload_that_does_not_change_it() {
        let mut in_flight = InFlight::new(Some(InFlightLimit::Auto));
        for seq in 0..16 {
            in_flight.took(seq, Instant::START, 0);
            in_flight.answered(seq, Duration::from_millis(5), &AnswerReport::SERVED);
            in_flight.ended(Instant::START, 0);
        }
        assert!(!in_flight.is_blank());
        in_flight.reconfigure(Some(InFlightLimit::Auto));
        assert!(!in_flight.is_blank());
        in_flight.reconfigure(Some(InFlightLimit::Fixed(std::num::NonZeroU32::MIN)));
        assert!(in_flight.is_blank() && in_flight.limit() == Some(1) && in_flight.grounds().is_none());
        in_flight.reconfigure(Some(InFlightLimit::Auto));
        assert!(in_flight.is_blank() && in_flight.limit() == Some(4));
        in_flight.reconfigure(None);
        assert!(in_flight.has_room() && in_flight.limit().is_none());
    }
}
