//! Asks narrower budgets a question, and removes those that were made only for it.

use smallvec::SmallVec;

use super::Narrow;
use crate::{clock::Instant, lane::request::Draws};

/// What was not there before a question.
pub(in crate::lane::state) struct Trial {
    new: SmallVec<[u64; 4]>,
    apart: bool,
    unreserved_since: Option<Instant>,
}

impl Narrow {
    /// Begins a question about these budgets.
    pub(in crate::lane::state) fn try_out(&self, draws: &Draws) -> Trial {
        let budgets = draws.iter().flat_map(|draws| &**draws).map(|draw| self.key_of(draw));
        let new = budgets.filter(|budget| !self.ids.contains_key(budget)).collect();
        Trial { new, apart: self.apart, unreserved_since: self.unreserved_since }
    }

    /// Ends it: removes the budgets that no request has drawn on.
    pub(in crate::lane::state) fn end_trial(&mut self, trial: Trial) {
        let Trial { new, apart, unreserved_since } = trial;
        for budget in new {
            if let Some(number) = self.ids.remove(&budget) {
                self.budgets.remove(number);
            }
        }
        self.open.set(self.budgets.len());
        (self.apart, self.unreserved_since) = (apart, unreserved_since);
    }
}
