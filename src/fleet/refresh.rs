//! When a member speaks of what it uses, without any reason: of all at the same time, so that one call does for it.

use std::time::Duration;

use crate::clock::{Instant, nanos};

/// What is used or wanted is spoken of this often.
const REFRESH: Duration = Duration::from_millis(1250);

/// When what was spoken of just now is spoken of again.
pub(super) fn next_refresh(now: Instant) -> Instant {
    refresh_from(now + REFRESH / 2)
}

/// When all that a member speaks of is spoken of next, from `at` on.
pub(super) fn refresh_from(at: Instant) -> Instant {
    let length = nanos(REFRESH);
    Instant::from_nanos(at.as_nanos().div_ceil(length) * length)
}
