//! Periodic reports of a member's use: all limits at the same instants, so that one call reports them all.

use std::time::Duration;

use andante_clock::{Instant, nanos};

use super::stock::ShareNeed;

/// Interval of reports on limits that are used or wanted.
const REFRESH: Duration = Duration::from_millis(1250);

/// When one limit is reported next, and its last report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refresh {
    at: Instant,
    /// The last report and its time.
    said: Option<ShareNeed>,
    since: Instant,
}

// === impl Refresh ===

impl Refresh {
    /// A limit without a report so far.
    pub(super) fn new() -> Self {
        Self { at: Instant::START, said: None, since: Instant::START }
    }

    pub(super) fn at(&self) -> Instant {
        self.at
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.at
    }

    /// Makes the next report due at `at` at the latest, even if it repeats the last one.
    pub(super) fn hasten(&mut self, at: Instant) {
        (self.at, self.said) = (self.at.min(at), None);
    }

    /// Records a report.
    pub(super) fn said(&mut self, now: Instant, need: ShareNeed) {
        *self = Self { at: next_refresh(now), said: Some(need), since: now };
    }

    /// Returns true if this turn's report of `need` is skipped. Every other turn, the same for all limits, is skipped
    /// if the last report was about equal and no token was taken since; `taken` is when one last was. A member that
    /// wants more is told when there is some.
    pub(super) fn leaves_out(&mut self, now: Instant, need: ShareNeed, taken: Instant) -> bool {
        let turn = now.as_nanos() / nanos(REFRESH);
        let left_out = turn % 2 == 1 && taken < self.since && self.said.is_some_and(|said| need.is_like(said));
        if left_out {
            self.at = refresh_from(now + Duration::from_nanos(1));
        }
        left_out
    }
}

/// When a limit reported at `now` is reported again.
pub(super) fn next_refresh(now: Instant) -> Instant {
    refresh_from(now + REFRESH / 2)
}

/// The next common instant of reports, from `at` on.
pub(super) fn refresh_from(at: Instant) -> Instant {
    let length = nanos(REFRESH);
    Instant::from_nanos(at.as_nanos().div_ceil(length) * length)
}
