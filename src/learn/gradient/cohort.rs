//! Requests that left one after the other, and how long their answers took.

use super::mean::Mean;
use crate::limit::Seq;

/// A cohort: complete once its requests have ended. If twice as many others have left meanwhile, a tenth may be missing, and
/// if four times as many have, all but the most: requests that hang hold up nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cohort {
    /// How many requests pass before its first one.
    skips: u32,
    /// How many it is to have, and how many of them have left.
    size: u32,
    left: u32,
    /// The first and the last of those.
    first: Seq,
    last: Seq,
    times: Mean,
    /// How many ended without a time; of them, those whose clients had gone.
    lost: u32,
    abandoned: u32,
    /// How many others have left since.
    others: u32,
    /// The most that were under way when one of them left.
    most: u32,
}

/// Fewer say too little; Netflix's smallest window has 10.
const FEWEST: u32 = 16;
/// More say no more that is worth the time.
const LARGEST: u32 = 100;

impl Cohort {
    /// One for a limit of so many at once: what leaves in about the time that an answer takes.
    pub(super) fn of(limit: u32) -> Self {
        Self { size: limit.clamp(FEWEST, LARGEST), ..Self::default() }
    }

    /// The same, after so many others have left.
    pub(super) fn after(self, others: u32) -> Self {
        Self { skips: others, ..self }
    }

    /// A request leaves.
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

    /// One was answered, after so many seconds.
    pub(super) fn answered(&mut self, seq: Seq, seconds: f64) {
        if self.has(seq) {
            self.times.add(seconds);
        }
    }

    /// One has ended without telling how long an answer takes.
    pub(super) fn lost(&mut self, seq: Seq, abandoned: bool) {
        if self.has(seq) {
            self.lost += 1;
            self.abandoned += u32::from(abandoned);
        }
    }

    fn has(&self, seq: Seq) -> bool {
        self.left > 0 && (self.first..=self.last).contains(&seq)
    }

    /// Whether all of its requests have left.
    pub(super) fn has_left(&self) -> bool {
        self.left >= self.size
    }

    pub(super) fn is_complete(&self) -> bool {
        let missing = match self.others / self.size.max(1) {
            0 | 1 => 0,
            2 | 3 => self.size / 10,
            // What is left is still more than a half.
            _ => self.size.div_ceil(2) - 1,
        };
        self.has_left() && self.times.count() + self.lost + missing >= self.size
    }

    /// The most that were under way.
    pub(super) fn most(&self) -> u32 {
        self.most
    }

    /// What it has measured; `None` if most of it did not tell.
    pub(super) fn mean(&self) -> Option<Mean> {
        (self.times.count() > self.size / 2).then_some(self.times)
    }

    /// Whether the clients of most of it had gone before their answers.
    pub(super) fn was_abandoned(&self) -> bool {
        self.abandoned > self.size / 2
    }
}
