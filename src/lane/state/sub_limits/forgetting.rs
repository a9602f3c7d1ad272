//! Forgetting of sub-limits: those that remember nothing, and others if there are too many.

use std::sync::Arc;

use andante_clock::Instant;

use super::{SubLimits, record::StoredBudget};
use crate::capacity::{Capacity, OpenBudgets};

/// Number of budgets compared when one has to be forgotten, as in an approximated least-recently-used cache.
const SAMPLES: u32 = 16;

// === impl SubLimits ===

impl SubLimits {
    /// Counts these budgets together with those of all lanes from now on.
    pub(in crate::state) fn set_capacity(&mut self, capacity: Arc<Capacity>) {
        self.open = OpenBudgets::within(capacity);
        self.open.set(self.budgets.len());
    }

    /// Forgets budgets that remember nothing, among the next `looks` of them. Keeps budgets whose
    /// numbers are `named`.
    pub(in crate::state) fn forget_idle(&mut self, looks: u32, now: Instant, named: impl Fn(u32) -> bool) {
        let end = self.budgets.end();
        for _ in 0..looks.min(end) {
            self.next_look = if self.next_look + 1 >= end { 0 } else { self.next_look + 1 };
            let idle = self.budgets.get_mut(self.next_look).is_some_and(|sub_limit| sub_limit.is_idle(now));
            if idle && !named(self.next_look) {
                self.forget(self.next_look);
            }
        }
        if self.budgets.len() == 0 && end > 0 {
            (self.budgets, self.ids) = Default::default();
        }
    }

    /// Time of the last draw on the remaining budgets, including those of an earlier process. `None` if nothing counts
    /// that only this lane knows. The lane itself counts requests outside the reserve.
    ///
    /// Call after [`forget_idle`](Self::forget_idle) of all budgets.
    pub(in crate::state) fn last_counted(&mut self, now: Instant) -> Option<Instant> {
        self.forget_stored(now);
        let own = self.budgets.iter().filter(|(_, sub_limit)| !sub_limit.rule.is_besides_reserve());
        let own = own.map(|(_, sub_limit)| sub_limit.budget.last());
        own.chain(self.stored.values().map(StoredBudget::last)).map(|last| last.unwrap_or(Instant::START)).max()
    }

    /// Forgets one of the next few budgets that no request uses: one whose limits are all free, or else the least
    /// recently used one. Budgets stand in the order of their creation, so the oldest goes first.
    pub(super) fn forget_oldest(&mut self, now: Instant, named: impl Fn(u32) -> bool) {
        let end = self.budgets.end();
        let numbers = (1..=SAMPLES.min(end)).map(|offset| (self.next_look + offset) % end);
        let oldest = numbers.filter(|number| !named(*number)).filter_map(|number| {
            let sub_limit = self.budgets.get_mut(number).filter(|sub_limit| sub_limit.is_unused())?;
            Some((!sub_limit.is_idle(now), sub_limit.budget.last(), number))
        });
        let Some((counts, _, number)) = oldest.min() else {
            self.next_look = if end == 0 { 0 } else { (self.next_look + SAMPLES) % end };
            return;
        };
        if counts {
            self.open.forgot();
        }
        self.forget(number);
        self.next_look = number;
    }

    fn forget(&mut self, number: u32) {
        let sub_limit = self.budgets.remove(number);
        self.ids.remove(&sub_limit.key);
        self.used.entry(sub_limit.rule.name.clone()).or_default().add_all(&sub_limit.used);
        self.open.set(self.budgets.len());
    }
}
