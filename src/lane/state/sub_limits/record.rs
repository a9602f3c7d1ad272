//! Sub-limits in their stored form, and how they start from it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use andante_clock::Instant;
use andante_limit::{Budget, BudgetRecord, MarginSpec};
use andante_policy::Policy;
use serde::{Deserialize, Serialize};

use super::{SubLimit, SubLimits};

/// A sub-limit as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SubLimitRecord {
    /// Key among the lane's sub-limits.
    key: u64,
    budget: BudgetRecord,
}

/// A stored budget that nothing has drawn on since.
#[derive(Clone, Debug)]
pub(super) struct StoredBudget(Budget);

/// Limits with longer windows than this are stored: shorter ones count as used up after a restart, and are soon free.
const LASTING: Duration = Duration::from_secs(60);
/// Number of budgets stored per lane, the most recently used: each adds some 500 bytes to each write.
const MOST_STORED: usize = 1024;

/// Returns whether budgets of a rule are stored. The budget besides a reserve is rebuilt from the lane's own budget
/// instead.
fn lasts(rule: &Policy) -> bool {
    !rule.is_besides_reserve()
        && (!rule.calendar.is_empty() || rule.limits.iter().any(|limit| limit.rate.per > LASTING))
}

// === impl SubLimitRecord ===

impl SubLimitRecord {
    /// Returns whether a budget restored from this record at `restored_at` counts nothing `now`.
    pub(in crate::state) fn is_over(&self, restored_at: Instant, now: Instant, epoch: Duration) -> bool {
        Budget::restored(&self.budget, MarginSpec::Auto, None, restored_at, epoch).is_idle(now)
    }
}

// === impl StoredBudget ===

impl StoredBudget {
    /// When the budget was last drawn on.
    pub(super) fn last(&self) -> Option<Instant> {
        self.0.last()
    }
}

// === impl SubLimits ===

impl SubLimits {
    /// Returns whether any of these budgets is worth storing.
    pub(in crate::state) fn is_lasting(&self) -> bool {
        !self.stored.is_empty() || self.budgets.iter().any(|(_, sub_limit)| lasts(&sub_limit.rule))
    }

    /// The records to be stored.
    pub(in crate::state) fn record(&mut self, now: Instant, last: bool) -> Vec<SubLimitRecord> {
        let lasting = self.budgets.iter_mut().filter(|sub_limit| lasts(&sub_limit.rule));
        let drawn_on = lasting.map(|sub_limit| {
            let SubLimit { key, budget, .. } = &mut **sub_limit;
            (*key, budget)
        });
        let before = self.stored.iter_mut().map(|(key, StoredBudget(budget))| (*key, budget));
        let mut all: Vec<_> =
            drawn_on.chain(before).filter_map(|(key, budget)| Some((budget.last()?, key, budget))).collect();
        all.retain_mut(|(_, _, budget)| !budget.is_idle(now));
        all.sort_unstable_by_key(|(last, key, _)| (std::cmp::Reverse(*last), *key));
        all.truncate(MOST_STORED);
        all.into_iter().map(|(_, key, budget)| SubLimitRecord { key, budget: budget.record(now, last) }).collect()
    }

    /// Continues from these `records`. After a process that was killed, they lack the last second before its end.
    pub(in crate::state) fn restore(
        &mut self,
        records: &[SubLimitRecord],
        now: Instant,
        epoch: Duration,
        killed: bool,
    ) {
        let restored = records.iter().map(|SubLimitRecord { key, budget }| {
            let mut budget = Budget::restored(budget, MarginSpec::Auto, None, now, epoch);
            if killed {
                budget.presume_short(now);
            }
            (*key, budget)
        });
        let worth =
            restored.filter_map(|(key, mut budget)| (!budget.is_idle(now)).then_some((key, StoredBudget(budget))));
        self.stored = worth.collect::<BTreeMap<_, _>>();
    }

    /// Continues from the budgets of the previous process, restored as `other`. Short windows count as used up by
    /// `now`.
    pub(in crate::state) fn inherits(&mut self, other: &mut Self, now: Instant, epoch: Duration) {
        self.unknown_until = Some(now);
        self.stored.append(&mut other.stored);
        let opened: Vec<_> =
            self.budgets.iter().map(|(_, sub_limit)| (sub_limit.key, sub_limit.rule.clone())).collect();
        for (key, rule) in opened {
            let stored = self.take_stored(key, &rule, now, epoch);
            let sub_limit = &mut self.budgets[self.ids[&key]];
            if let Some(stored) = stored {
                sub_limit.budget.absorb(&stored, Instant::START, now);
            }
            sub_limit.budget.presume_short(now);
        }
    }

    /// Forgets stored budgets that no longer count anything.
    pub(super) fn forget_stored(&mut self, now: Instant) {
        self.stored.retain(|_, StoredBudget(budget)| !budget.is_idle(now));
    }

    /// Takes the stored budget with this key, adapted to `rule`.
    pub(super) fn take_stored(
        &mut self,
        key: u64,
        rule: &Arc<Policy>,
        now: Instant,
        epoch: Duration,
    ) -> Option<Budget> {
        let StoredBudget(mut budget) = self.stored.remove(&key)?;
        budget.reconfigure(&rule.limits, rule.margin, now);
        budget.reconfigure_calendar(&rule.calendar, epoch);
        Some(budget)
    }
}
