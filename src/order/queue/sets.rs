//! The sets of budgets on which tickets draw, in addition to the common limits: each set has a number, each budget a
//! wait point.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::NONE;
use crate::slab::{Map, Slab};

/// The sets of budgets of the waiting tickets.
#[derive(Debug, Default)]
pub(super) struct Sets {
    sets: Slab<Set>,
    /// The number of each set. This hash resists collisions: andante numbers the budgets, but clients choose which of
    /// them form a set.
    numbers: HashMap<Numbers, u32>,
    budgets: Map<u32, BudgetWaitPoint>,
}

type Numbers = SmallVec<[u32; 4]>;

#[derive(Debug)]
struct Set {
    budgets: Numbers,
    wait_points: Numbers,
    users: u32,
}

/// A budget's wait point, and the number of sets that contain the budget.
#[derive(Debug)]
struct BudgetWaitPoint {
    wait_point: u32,
    sets: u32,
}

impl Sets {
    /// The number of this set: [`NONE`] if it is empty. A budget that was in no set before gets a `new_wait_point`.
    pub(super) fn number(&mut self, budgets: &[u32], mut new_wait_point: impl FnMut() -> u32) -> u32 {
        if budgets.is_empty() {
            return NONE;
        }
        if let Some(set) = self.numbers.get(budgets) {
            return *set;
        }
        let wait_points = budgets.iter().map(|budget| {
            let shared = self
                .budgets
                .entry(*budget)
                .or_insert_with(|| BudgetWaitPoint { wait_point: new_wait_point(), sets: 0 });
            shared.sets += 1;
            shared.wait_point
        });
        let wait_points = wait_points.collect();
        let set = self.sets.insert(Set { budgets: budgets.into(), wait_points, users: 0 });
        self.numbers.insert(budgets.into(), set);
        set
    }

    /// Counts one more flow queue that uses the set.
    pub(super) fn keep(&mut self, set: u32) {
        if set != NONE {
            self.sets[set].users += 1;
        }
    }

    /// Counts one flow queue less that uses the set. Returns the wait points of budgets that are in no set any more.
    pub(super) fn release(&mut self, set: u32) -> Numbers {
        let mut unused = Numbers::new();
        if set == NONE {
            return unused;
        }
        self.sets[set].users -= 1;
        if self.sets[set].users > 0 {
            return unused;
        }
        let Set { budgets, .. } = self.sets.remove(set);
        self.numbers.remove(&budgets);
        for budget in budgets {
            let shared = self.budgets.get_mut(&budget).expect("a set has it");
            shared.sets -= 1;
            if shared.sets == 0 {
                unused.push(shared.wait_point);
                self.budgets.remove(&budget);
            }
        }
        unused
    }

    /// Returns whether no ticket draws on any budget.
    pub(super) fn is_empty(&self) -> bool {
        self.sets.len() == 0
    }

    /// The budgets of a set.
    pub(super) fn budgets(&self, set: u32) -> &[u32] {
        if set == NONE { &[] } else { &self.sets[set].budgets }
    }

    /// The wait points of a set's budgets.
    pub(super) fn wait_points(&self, set: u32) -> &[u32] {
        if set == NONE { &[] } else { &self.sets[set].wait_points }
    }

    /// The wait point of this budget, if any ticket draws on it.
    pub(super) fn wait_point_of(&self, budget: u32) -> Option<u32> {
        self.budgets.get(&budget).map(|shared| shared.wait_point)
    }
}
