//! Sub-limits for display.

use std::{collections::BTreeMap, sync::Arc};

use andante_clock::Instant;

use super::{SubLimit, SubLimits};
use crate::{request::Draw, snapshot::SubLimitUsage};

impl SubLimits {
    /// Usage of the budgets, summed per rule and sorted by rule name. O(budgets).
    pub(in crate::state) fn usage(&mut self, now: Instant) -> Vec<SubLimitUsage> {
        let mut rules: BTreeMap<Arc<str>, (SubLimitUsage, u32)> = BTreeMap::new();
        let mut most: BTreeMap<Arc<str>, u32> = BTreeMap::new();
        for (number, sub_limit) in self.budgets.iter() {
            let name = &sub_limit.rule.name;
            let (usage, crowd) = rules.entry(name.clone()).or_insert_with(|| (SubLimitUsage::none(name.clone()), 0));
            usage.budgets += 1;
            usage.busy += usize::from(sub_limit.waiting > 0);
            usage.waiting += u64::from(sub_limit.waiting);
            usage.in_flight += u64::from(sub_limit.in_flight.count());
            usage.used.add_all(&sub_limit.used);
            if usage.budgets == 1 || sub_limit.waiting > *crowd {
                *crowd = sub_limit.waiting;
                most.insert(name.clone(), number);
            }
        }
        let usage = rules.into_values().zip(most.into_values()).map(|((mut usage, _), number)| {
            let SubLimit { budget, in_flight, .. } = &mut *self.budgets[number];
            let in_flight_limit = in_flight.limit();
            self.used.get(&usage.rule).into_iter().for_each(|used| usage.used.add_all(used));
            SubLimitUsage { in_flight_limit, limits: budget.usage(now), calendar: budget.calendar(now), ..usage }
        });
        usage.collect()
    }

    /// Usage of the budget of this `draw`.
    pub(in crate::state) fn usage_of(&mut self, draw: &Draw, now: Instant) -> SubLimitUsage {
        let mut usage = SubLimitUsage::none(draw.rule.name.clone());
        if let Some(number) = self.ids.get(&self.key_of(draw)) {
            let sub_limit = &mut self.budgets[*number];
            (usage.budgets, usage.busy) = (1, usize::from(sub_limit.waiting > 0));
            (usage.waiting, usage.in_flight) = (sub_limit.waiting.into(), sub_limit.in_flight.count().into());
            usage.in_flight_limit = sub_limit.in_flight.limit();
            usage.used = sub_limit.used.clone();
            (usage.limits, usage.calendar) = (sub_limit.budget.usage(now), sub_limit.budget.calendar(now));
        }
        usage
    }
}
