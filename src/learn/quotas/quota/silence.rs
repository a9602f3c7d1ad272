//! When a quota that answers no longer report is ignored, and when it is forgotten.

use std::time::Duration;

use andante_clock::Instant;
use andante_limit::{Budget, Source};

use super::{Born, Quota, Refill};

/// Silence, in windows, after which a quota is dormant while answers report others of its name.
const SILENT: f64 = 1.2;
/// Silence after which a quota with an unknown window is dormant.
const SILENT_AT_LEAST: Duration = Duration::from_secs(5);
/// Minimum time to remember a quota that only refusals report.
const RARE: Duration = Duration::from_secs(600);

impl Quota {
    /// Returns true if the quota is silent for long.
    pub(in crate::quotas) fn is_silent(&self, now: Instant) -> bool {
        let window = self.window_estimator.known().map_or(SILENT_AT_LEAST, |window| window.mul_f64(SILENT));
        self.common && now.since(self.heard) > window.saturating_mul(1 << self.woken.min(10))
    }

    /// Marks the quota as dormant: no kind of request draws on it any more, as far as is known.
    pub(in crate::quotas) fn sleep(&mut self, budget: &mut Budget) {
        (self.dormant, self.common, self.kept) = (true, false, false);
        budget.unlearn(Source::Advertised(self.id));
    }

    /// Wakes a dormant quota that is reported again. Requests sent meanwhile may draw on it.
    pub(in crate::quotas) fn wake(&mut self, born: impl FnOnce(u8) -> Born) {
        if !std::mem::take(&mut self.dormant) {
            return;
        }
        let born = born(self.id);
        (self.ledger, self.newest, self.unanswered) = (born.ledger, born.newest, born.unanswered);
        self.refill = Refill::default();
        self.woken += 1;
    }

    /// Time to remember a silent quota. A quota that only refusals report is seldom reported, so it is remembered for
    /// longer.
    pub(in crate::quotas) fn remembered(&self) -> Duration {
        let window = self.window.or(self.window_estimator.known()).unwrap_or_default();
        if self.common || self.dormant { window * 3 } else { (window * 20).max(RARE) }
    }
}
