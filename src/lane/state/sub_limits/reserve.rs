//! The budget of requests outside the [reserve](andante_policy::Reserve). Everything that a lane sent before it had a
//! reserve counts in it, because the urgent part of it is unknown.

use andante_clock::Instant;
use andante_limit::Budget;

use super::SubLimits;

impl SubLimits {
    /// Turns the new `budget` into that of requests outside the reserve, for a lane whose own budget is `own`. A budget
    /// that was forgotten because nothing counted any more begins empty.
    pub(super) fn besides_reserve(
        unreserved_since: &mut Option<Instant>,
        mut budget: Budget,
        own: &Budget,
        now: Instant,
    ) -> Budget {
        if let Some(since) = unreserved_since.take() {
            budget.absorb(own, since, now);
        }
        budget
    }
}
