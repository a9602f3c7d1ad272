//! Dry runs: ask sub-limits a question, and remove the budgets created only for it.

use andante_clock::Instant;
use smallvec::SmallVec;

use super::{SubLimits, record::StoredBudget};
use crate::request::Draws;

/// State to restore after a dry run.
pub(in crate::state) struct Trial {
    new: SmallVec<[u64; 4]>,
    /// Stored budgets that the dry run takes.
    stored: Vec<(u64, StoredBudget)>,
    apart: bool,
    unreserved_since: Option<Instant>,
}

impl SubLimits {
    /// Begins a dry run on these budgets.
    pub(in crate::state) fn try_out(&self, draws: &Draws) -> Trial {
        let budgets = draws.iter().flat_map(|draws| &**draws).map(|draw| self.key_of(draw));
        let new: SmallVec<[u64; 4]> = budgets.filter(|budget| !self.ids.contains_key(budget)).collect();
        let stored = new.iter().filter_map(|key| Some((*key, self.stored.get(key)?.clone()))).collect();
        Trial { new, stored, apart: self.apart, unreserved_since: self.unreserved_since }
    }

    /// Ends the dry run: removes the budgets that no request has drawn on.
    pub(in crate::state) fn end_trial(&mut self, trial: Trial) {
        let Trial { new, stored, apart, unreserved_since } = trial;
        for budget in new {
            if let Some(number) = self.ids.remove(&budget) {
                self.budgets.remove(number);
            }
        }
        self.stored.extend(stored);
        self.open.set(self.budgets.len());
        (self.apart, self.unreserved_since) = (apart, unreserved_since);
    }
}
