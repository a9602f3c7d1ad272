//! Sub-limits for display.

use std::{collections::BTreeMap, sync::Arc};

use andante_clock::Instant;

use super::{Narrow, NarrowBudget};
use crate::{request::Draw, snapshot::NarrowUsage};

impl Narrow {
    /// Usage of the budgets, summed per rule and sorted by rule name. O(budgets).
    pub(in crate::state) fn usage(&mut self, now: Instant) -> Vec<NarrowUsage> {
        let mut rules: BTreeMap<Arc<str>, (NarrowUsage, u32)> = BTreeMap::new();
        let mut most: BTreeMap<Arc<str>, u32> = BTreeMap::new();
        for (number, narrow) in self.budgets.iter() {
            let name = &narrow.rule.name;
            let (usage, crowd) = rules.entry(name.clone()).or_insert_with(|| (NarrowUsage::none(name.clone()), 0));
            usage.budgets += 1;
            usage.busy += usize::from(narrow.waiting > 0);
            usage.waiting += u64::from(narrow.waiting);
            usage.in_flight += u64::from(narrow.in_flight.count());
            usage.used.add_all(&narrow.used);
            if usage.budgets == 1 || narrow.waiting > *crowd {
                *crowd = narrow.waiting;
                most.insert(name.clone(), number);
            }
        }
        let usage = rules.into_values().zip(most.into_values()).map(|((mut usage, _), number)| {
            let NarrowBudget { budget, in_flight, .. } = &mut *self.budgets[number];
            let in_flight_limit = in_flight.limit();
            self.used.get(&usage.rule).into_iter().for_each(|used| usage.used.add_all(used));
            NarrowUsage { in_flight_limit, limits: budget.usage(now), calendar: budget.calendar(now), ..usage }
        });
        usage.collect()
    }

    /// Usage of the budget of this `draw`.
    pub(in crate::state) fn usage_of(&mut self, draw: &Draw, now: Instant) -> NarrowUsage {
        let mut usage = NarrowUsage::none(draw.rule.name.clone());
        if let Some(number) = self.ids.get(&self.key_of(draw)) {
            let narrow = &mut self.budgets[*number];
            (usage.budgets, usage.busy) = (1, usize::from(narrow.waiting > 0));
            (usage.waiting, usage.in_flight) = (narrow.waiting.into(), narrow.in_flight.count().into());
            usage.in_flight_limit = narrow.in_flight.limit();
            usage.used = narrow.used.clone();
            (usage.limits, usage.calendar) = (narrow.budget.usage(now), narrow.budget.calendar(now));
        }
        usage
    }
}
