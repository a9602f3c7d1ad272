//! The budget of all that is not [reserved](crate::policy::Reserve). What a lane has sent before it had one counts for it,
//! because nobody knows what of that was urgent.

use super::Narrow;
use crate::{clock::Instant, limit::Budget};

impl Narrow {
    /// `budget`, which is new, as that of all that is not reserved in a lane which has sent what `own` knows of. One that was
    /// forgotten because nothing counted any more begins with nothing.
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

    /// What `other` has sent `since` then counts for this lane from now on.
    pub(in crate::lane::state) fn absorbed(&mut self, other: &Budget, since: Instant, now: Instant) {
        let reserves = self.budgets.iter_mut().filter(|narrow| narrow.rule.is_besides_reserve());
        reserves.for_each(|narrow| narrow.budget.absorb(other, since, now));
    }
}
