//! Requests that left one after the other, with their response times.

use andante_limit::Seq;

use super::mean::Mean;

/// A cohort, which is complete once its requests have ended. If twice as many others have left meanwhile, a tenth may
/// be missing. If four times as many have left, nearly half may be missing, so that hanging requests block nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cohort {
    /// Requests to skip before the first one of the cohort.
    skips: u32,
    /// Intended size, and number of requests that have left.
    size: u32,
    left: u32,
    /// First and last request of the cohort.
    first: Seq,
    last: Seq,
    times: Mean,
    /// Requests that ended without a response time, and how many of them because their clients had left.
    lost: u32,
    abandoned: u32,
    /// Requests outside the cohort that have left since.
    others: u32,
    /// Largest number in flight when a request of the cohort left.
    most: u32,
}

/// Smallest cohort that says enough; Netflix's smallest window has 10.
const FEWEST: u32 = 16;
/// Largest cohort; a larger one is not worth the time.
const LARGEST: u32 = 100;

impl Cohort {
    /// Cohort for a limit: about as many requests as leave within one response time.
    pub(super) fn of(limit: u32) -> Self {
        Self { size: limit.clamp(FEWEST, LARGEST), ..Self::default() }
    }

    /// Returns the cohort, to begin after `others` requests have left.
    pub(super) fn after(self, others: u32) -> Self {
        Self { skips: others, ..self }
    }

    /// Records that a request leaves.
    pub(super) fn took(&mut self, seq: Seq, under_way: u32) {
        if self.skips > 0 {
            self.skips -= 1;
        } else if self.left < self.size {
            self.first = if self.left == 0 { seq } else { self.first };
            (self.last, self.left, self.most) = (seq, self.left + 1, self.most.max(under_way));
        } else {
            self.others = self.others.saturating_add(1);
        }
    }

    /// Records that a request was answered, after so many seconds.
    pub(super) fn answered(&mut self, seq: Seq, seconds: f64) {
        if self.has(seq) {
            self.times.add(seconds);
        }
    }

    /// Records that a request has ended without a response time.
    pub(super) fn lost(&mut self, seq: Seq, abandoned: bool) {
        if self.has(seq) {
            self.lost += 1;
            self.abandoned += u32::from(abandoned);
        }
    }

    fn has(&self, seq: Seq) -> bool {
        self.left > 0 && (self.first..=self.last).contains(&seq)
    }

    /// Returns true if all requests of the cohort have left.
    pub(super) fn has_left(&self) -> bool {
        self.left >= self.size
    }

    pub(super) fn is_complete(&self) -> bool {
        let missing = match self.others / self.size.max(1) {
            0 | 1 => 0,
            2 | 3 => self.size / 10,
            // More than half of the cohort remains.
            _ => self.size.div_ceil(2) - 1,
        };
        self.has_left() && self.times.count() + self.lost + missing >= self.size
    }

    /// Largest number of requests in flight.
    pub(super) fn most(&self) -> u32 {
        self.most
    }

    /// Mean response time; `None` if most requests have none.
    pub(super) fn mean(&self) -> Option<Mean> {
        (self.times.count() > self.size / 2).then_some(self.times)
    }

    /// Returns true if most clients had left before their answers.
    pub(super) fn was_abandoned(&self) -> bool {
        self.abandoned > self.size / 2
    }
}
