//! What is reserved for requests of which only the answers say what they take.

use super::{
    State,
    usage::{Usual, usual_of},
};
use crate::{
    clock::Instant,
    limit::{Budget, Cost, Unit, UsualAmount},
    policy::Policy,
};

/// What is known when one leaves.
#[derive(Clone, Copy)]
pub(super) struct Reserving<'a> {
    policy: &'a Policy,
    usual: &'a [Usual],
    /// How many of them are under way.
    under_way: u32,
}

impl<T> State<T> {
    /// What is taken for a request of this cost at `now`.
    pub(super) fn reserve(&mut self, now: Instant, cost: Cost) -> Cost {
        Reserving::new(&self.policy, &self.usual, self.untold).of(&mut self.budget, now, cost)
    }
}

// === impl Reserving ===

impl<'a> Reserving<'a> {
    pub(super) fn new(policy: &'a Policy, usual: &'a [Usual], under_way: u32) -> Self {
        Self { policy, usual, under_way }
    }

    /// What is taken for a request of this cost at `now`.
    pub(super) fn of(self, budget: &mut Budget, now: Instant, cost: Cost) -> Cost {
        let unsaid = self.policy.usage.iter().map(|source| source.unit).filter(|unit| !cost.says(*unit));
        unsaid.fold(cost, |cost, unit| cost.reserving(unit, self.of_unit(budget, now, unit)))
    }

    fn of_unit(self, budget: &mut Budget, now: Instant, unit: Unit) -> u32 {
        let (usual, least) = (usual_of(self.usual, unit), self.policy.least_of(unit));
        let unknown = UsualAmount::default();
        let amount = usual.map_or(&unknown, |usual| &usual.amount);
        let most = amount.reserve(self.under_way, budget.due_part(unit), least);
        if self.under_way > 0 {
            return most;
        }
        // No other answer will come that could show that less suffices: it takes no more than is free.
        budget.room(unit, now).map_or(most, |room| most.min(room.max(1)))
    }
}
