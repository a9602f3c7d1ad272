//! What is reserved for requests of which only the answers say what they take.

use super::{
    State,
    narrow::{Drawn, Narrow},
    usual::{Usual, usual_of},
};
use crate::{
    clock::Instant,
    limit::{Budget, Cost, Unit, Untold, UsualAmount},
    policy::Policy,
};

/// What is known when one leaves.
#[derive(Clone, Copy)]
pub(super) struct Reserving<'a> {
    policy: &'a Policy,
    usual: &'a [Usual],
    /// Those under way that draw on the lane's own budget.
    untold: &'a Untold,
}

/// What it may take of: the lane's own budget, and narrower ones.
pub(super) struct Sources<'a> {
    pub(super) own: &'a mut Budget,
    pub(super) narrow: &'a mut Narrow,
    pub(super) numbers: &'a [u32],
    /// It draws on the narrower ones only.
    pub(super) apart: bool,
}

impl<T> State<T> {
    /// What is taken at `now` for a request of this cost that draws on these narrower budgets.
    pub(super) fn reserve(&mut self, now: Instant, cost: Cost, drawn: Option<&Drawn>) -> Cost {
        let Self { budget: own, narrow, .. } = self;
        let (numbers, apart) = drawn.map_or((&[][..], false), |drawn| (drawn.numbers(), drawn.is_apart()));
        let sources = &mut Sources { own, narrow, numbers, apart };
        Reserving::new(&self.policy, &self.usual, &self.untold).of(sources, now, cost)
    }
}

// === impl Reserving ===

impl<'a> Reserving<'a> {
    pub(super) fn new(policy: &'a Policy, usual: &'a [Usual], untold: &'a Untold) -> Self {
        Self { policy, usual, untold }
    }

    /// What is taken for a request of this cost at `now`.
    pub(super) fn of(self, sources: &mut Sources<'_>, now: Instant, cost: Cost) -> Cost {
        let unsaid = self.policy.usage.iter().map(|source| source.unit).filter(|unit| !cost.says(*unit));
        unsaid.fold(cost, |cost, unit| cost.reserving(unit, self.of_unit(sources, now, unit)))
    }

    /// What requests used lately.
    pub(super) fn usual(self) -> &'a [Usual] {
        self.usual
    }

    /// Where a narrower rule limits the unit, by what its requests have used: others may use a hundred times as much, and one of
    /// these would never fit there.
    fn of_unit(self, Sources { own, narrow, numbers, apart }: &mut Sources<'_>, now: Instant, unit: Unit) -> u32 {
        let strictest = narrow.strictest(numbers, unit);
        let usual = usual_of(self.usual, unit, strictest.map(|(number, _)| &**narrow.rule_name(number)));
        let least = strictest.map(|(_, least)| least).into_iter().chain(self.policy.least_of(unit)).min();
        let under_way = strictest.map_or(self.untold.count(unit), |(number, _)| narrow.untold(number, unit));
        let part =
            strictest.and_then(|(number, _)| narrow.due_part(number, unit)).into_iter().chain(own.due_part(unit));
        let amount = usual.map_or(&UsualAmount::default(), |usual| &usual.amount).reserve(
            under_way,
            part.reduce(f64::min),
            least,
        );
        // Where no other answer will come that could show that less suffices it takes no more than is free.
        let alone = !*apart && self.untold.count(unit) == 0;
        let of_own = if alone { own.room(unit, now) } else { None };
        let of_narrow = strictest.filter(|_| under_way == 0).and_then(|(number, _)| narrow.room(number, unit, now));
        of_own.into_iter().chain(of_narrow).fold(amount, |amount, room| amount.min(room.max(1)))
    }
}
