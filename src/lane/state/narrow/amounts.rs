//! How much narrower budgets hold, and what waits for that.

use std::sync::Arc;

use super::{Drawn, Narrow};
use crate::{
    clock::Instant,
    lane::order::Waits,
    limit::{Amount, Cost, Unit},
};

impl Narrow {
    /// What the rule of a budget is called, which is why what waits for it does.
    pub(in crate::lane::state) fn rule_name(&self, number: u32) -> &Arc<str> {
        &self.budgets[number].rule.name
    }

    /// The rule of the one of these budgets the limits of which hold least of `unit`.
    pub(in crate::lane::state) fn rule_of(&self, numbers: &[u32], unit: Unit) -> Option<&Arc<str>> {
        self.strictest(numbers, unit).map(|(number, _)| self.rule_name(number))
    }

    /// When what has drawn on these budgets has left, if nobody knows yet how much of `unit` it takes.
    pub(in crate::lane::state) fn untold_since(&mut self, drawn: &Drawn, unit: Unit) -> Option<Instant> {
        let mut since = None;
        self.each(drawn, |narrow, charge| since = since.or(narrow.untold.left(charge.seq, unit)));
        since
    }

    /// The one of these budgets the limits of which hold least of `unit`, and how much that is.
    pub(in crate::lane::state) fn strictest(&self, numbers: &[u32], unit: Unit) -> Option<(u32, Amount)> {
        let least = numbers.iter().filter_map(|number| Some((*number, self.budgets[*number].rule.least_of(unit)?)));
        least.min_by_key(|(_, least)| *least)
    }

    /// How many requests that draw on a budget are under way of which nobody knows how much of `unit` they take.
    pub(in crate::lane::state) fn untold(&self, number: u32, unit: Unit) -> usize {
        self.budgets[number].untold.count(unit)
    }

    /// Which part of `unit` of a budget is due to this process, if it is shared with others.
    pub(in crate::lane::state) fn due_part(&self, number: u32, unit: Unit) -> Option<f64> {
        self.budgets[number].budget.due_part(unit)
    }

    /// How much of `unit` is left of a budget.
    pub(in crate::lane::state) fn room(&mut self, number: u32, unit: Unit, now: Instant) -> Option<u32> {
        self.budgets[number].budget.room(unit, now)
    }

    /// How many wait for a budget, and how many may.
    pub(in crate::lane::state) fn places(&self, number: u32) -> (usize, usize) {
        let narrow = &self.budgets[number];
        (narrow.waiting as usize, narrow.rule.max_waiting)
    }

    /// How many requests wait for nothing but a budget's next slots, and how many of these there are in a second.
    pub(in crate::lane::state) fn next_slots(&self, number: u32) -> (f64, Option<f64>) {
        let narrow = &self.budgets[number];
        let next = narrow.backlog.as_ref().map_or(0.0, |backlog| backlog.units_of(Waits::ForAll, Unit::REQUESTS, 0.0));
        (next, narrow.budget.slowest(Unit::REQUESTS))
    }

    /// When the next slot of a budget is there; [`Instant::FAR`] if an answer must come first.
    pub(in crate::lane::state) fn next_slot(&mut self, number: u32, now: Instant) -> Instant {
        self.budgets[number].earliest(now, Cost::MIN)
    }
}
