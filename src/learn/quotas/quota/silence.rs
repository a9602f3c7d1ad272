//! When a quota that answers do not tell of any more is passed over, and when it is forgotten.

use std::time::Duration;

use super::{Born, Quota, Refill};
use crate::{
    clock::Instant,
    limit::{Budget, Source},
};

/// A budget is dormant if it is silent for so much of its window while others of its name are told of.
const SILENT: f64 = 1.2;
/// The same for one whose window is not known.
const SILENT_AT_LEAST: Duration = Duration::from_secs(5);
/// What speaks only when it refuses is remembered for at least so long.
const RARE: Duration = Duration::from_secs(600);

impl Quota {
    /// Whether it is silent for long while others of its name are told of.
    pub(in crate::learn::quotas) fn is_silent(&self, now: Instant) -> bool {
        let window = self.window_estimator.known().map_or(SILENT_AT_LEAST, |window| window.mul_f64(SILENT));
        self.common && now.since(self.heard) > window.saturating_mul(1 << self.woken.min(10))
    }

    /// No kind of request draws on it any more, as far as is known.
    pub(in crate::learn::quotas) fn sleep(&mut self, budget: &mut Budget) {
        (self.dormant, self.common, self.kept) = (true, false, false);
        budget.unlearn(Source::Advertised(self.id));
    }

    /// It is told of again, if it was dormant: whatever was sent meanwhile may draw on it.
    pub(in crate::learn::quotas) fn wake(&mut self, born: impl FnOnce(u8) -> Born) {
        if !std::mem::take(&mut self.dormant) {
            return;
        }
        let born = born(self.id);
        (self.ledger, self.newest, self.unanswered) = (born.ledger, born.newest, born.unanswered);
        self.refill = Refill::default();
        self.woken += 1;
    }

    /// For how long it is remembered without a word: what speaks only when it refuses does so seldom.
    pub(in crate::learn::quotas) fn remembered(&self) -> Duration {
        let window = self.window.or(self.window_estimator.known()).unwrap_or_default();
        if self.common || self.dormant { window * 3 } else { (window * 20).max(RARE) }
    }
}
