//! Asks narrower budgets a question, and removes those that were made only for it.

use smallvec::SmallVec;

use super::{Narrow, NarrowUsage};
use crate::{
    clock::Instant,
    lane::request::{Draw, Draws},
};

/// What was not there before a question.
pub(in crate::lane::state) struct Trial {
    new: SmallVec<[u64; 4]>,
    apart: bool,
    reserve_known: bool,
}

impl Narrow {
    /// Begins a question about these budgets.
    pub(in crate::lane::state) fn try_out(&self, draws: &Draws) -> Trial {
        let budgets = draws.iter().flat_map(|draws| &**draws).map(|draw| draw.budget);
        let new = budgets.filter(|budget| !self.ids.contains_key(budget)).collect();
        Trial { new, apart: self.apart, reserve_known: self.reserve_known }
    }

    /// Ends it: removes the budgets that no request has drawn on.
    pub(in crate::lane::state) fn end_trial(&mut self, trial: Trial) {
        let Trial { new, apart, reserve_known } = trial;
        for budget in new {
            if let Some(number) = self.ids.remove(&budget) {
                self.budgets.remove(number);
            }
        }
        (self.apart, self.reserve_known) = (apart, reserve_known);
    }

    /// How far the budget of this `draw` is used.
    pub(in crate::lane::state) fn usage_of(&mut self, draw: &Draw, now: Instant) -> NarrowUsage {
        let mut usage = NarrowUsage::none(draw.rule.name.clone());
        if let Some(number) = self.ids.get(&draw.budget) {
            let narrow = &mut self.budgets[*number];
            (usage.budgets, usage.busy) = (1, usize::from(narrow.waiting > 0));
            (usage.waiting, usage.in_flight) = (narrow.waiting.into(), narrow.in_flight.into());
            (usage.limits, usage.calendar) = (narrow.budget.usage(now), narrow.budget.calendar(now));
        }
        usage
    }
}
