//! Amounts of sub-limits, and of their queues.

use std::sync::Arc;

use andante_clock::Instant;
use andante_limit::{Amount, Cost, Unit};

use super::{Drawn, SubLimits};

impl SubLimits {
    /// Name of a budget's rule, which refusals report as the cause of the wait.
    pub(in crate::state) fn rule_name(&self, number: u32) -> &Arc<str> {
        &self.budgets[number].rule.name
    }

    /// Name of the rule whose limits allow the least of `unit`, among these budgets.
    pub(in crate::state) fn rule_of(&self, numbers: &[u32], unit: Unit) -> Option<&Arc<str>> {
        self.strictest(numbers, unit).map(|(number, _)| self.rule_name(number))
    }

    /// When the request that has drawn on these budgets left, if its use of `unit` is still unknown.
    pub(in crate::state) fn pending_since(&mut self, drawn: &Drawn, unit: Unit) -> Option<Instant> {
        let mut since = None;
        self.each(drawn, |sub_limit, charge| since = since.or(sub_limit.pending_usage.left(charge.seq, unit)));
        since
    }

    /// The budget among these whose limits allow the least of `unit`, and that amount.
    pub(in crate::state) fn strictest(&self, numbers: &[u32], unit: Unit) -> Option<(u32, Amount)> {
        let least = numbers.iter().filter_map(|number| Some((*number, self.budgets[*number].rule.least_of(unit)?)));
        least.min_by_key(|(_, least)| *least)
    }

    /// Number of in-flight requests that draw on a budget and whose use of `unit` is still unknown.
    pub(in crate::state) fn pending_usage(&self, number: u32, unit: Unit) -> usize {
        self.budgets[number].pending_usage.count(unit)
    }

    /// This process's due part of `unit` of a budget, if the budget is shared with others.
    pub(in crate::state) fn due_part(&self, number: u32, unit: Unit) -> Option<f64> {
        self.budgets[number].budget.due_part(unit)
    }

    /// Amount of `unit` left in a budget.
    pub(in crate::state) fn room(&mut self, number: u32, unit: Unit, now: Instant) -> Option<u32> {
        self.budgets[number].budget.room(unit, now)
    }

    /// Number of requests waiting for a budget, and the most that may.
    pub(in crate::state) fn places(&self, number: u32) -> (usize, usize) {
        let sub_limit = &self.budgets[number];
        (sub_limit.waiting as usize, sub_limit.rule.max_waiting)
    }

    /// When a budget's next slot matures; [`Instant::FAR`] if an answer must come first.
    pub(in crate::state) fn next_slot(&mut self, number: u32, now: Instant) -> Instant {
        self.budgets[number].earliest(now, Cost::MIN)
    }
}
