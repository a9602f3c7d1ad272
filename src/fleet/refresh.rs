//! When a member speaks of what it uses, without any reason: of all at the same time, so that one call does for it.

use std::time::Duration;

use super::stock::ShareNeed;
use crate::clock::{Instant, nanos};

/// What is used or wanted is spoken of this often.
const REFRESH: Duration = Duration::from_millis(1250);

/// When one limit is spoken of next, and what was said of it last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refresh {
    at: Instant,
    /// What was needed, and when that was said.
    said: Option<ShareNeed>,
    since: Instant,
}

// === impl Refresh ===

impl Refresh {
    /// Nothing was said yet.
    pub(super) fn new() -> Self {
        Self { at: Instant::START, said: None, since: Instant::START }
    }

    pub(super) fn at(&self) -> Instant {
        self.at
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.at
    }

    /// It is due at `at`, unless that is later than it was, although it may be the same that is said.
    pub(super) fn hasten(&mut self, at: Instant) {
        (self.at, self.said) = (self.at.min(at), None);
    }

    /// This was said.
    pub(super) fn said(&mut self, now: Instant, need: ShareNeed) {
        *self = Self { at: next_refresh(now), said: Some(need), since: now };
    }

    /// Whether this turn is left out, in which `need` would be said for no other reason than that it is a turn. That is so in every
    /// other turn, the same ones of all limits, if about the same was said last and nothing was taken since; `taken` is when that was
    /// last. Whoever wants more is told when there is some.
    pub(super) fn leaves_out(&mut self, now: Instant, need: ShareNeed, taken: Instant) -> bool {
        let turn = now.as_nanos() / nanos(REFRESH);
        let left_out = turn % 2 == 1 && taken < self.since && self.said.is_some_and(|said| need.is_like(said));
        if left_out {
            self.at = refresh_from(now + Duration::from_nanos(1));
        }
        left_out
    }
}

/// When what was spoken of just now is spoken of again.
pub(super) fn next_refresh(now: Instant) -> Instant {
    refresh_from(now + REFRESH / 2)
}

/// When all that a member speaks of is spoken of next, from `at` on.
pub(super) fn refresh_from(at: Instant) -> Instant {
    let length = nanos(REFRESH);
    Instant::from_nanos(at.as_nanos().div_ceil(length) * length)
}
