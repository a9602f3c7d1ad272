//! Reservations for requests whose usage is known only from the answer.

use andante_clock::Instant;
use andante_limit::{Budget, Cost, EstimatedAmount, PendingUsage, Unit};
use andante_policy::Policy;

use super::{
    State,
    sub_limits::{Drawn, SubLimits},
    usual::{Usual, estimate_of},
};

/// Inputs of a reservation.
#[derive(Clone, Copy)]
pub(super) struct Reserving<'a> {
    policy: &'a Policy,
    usual: &'a [Usual],
    /// In-flight requests with pending usage that draw on the lane's own budget.
    pending_usage: &'a PendingUsage,
}

/// The budgets that a request draws on: the lane's own, unless it is exempt, and its sub-limits.
pub(super) struct Sources<'a> {
    pub(super) own: Option<&'a mut Budget>,
    pub(super) sub_limits: &'a mut SubLimits,
    pub(super) numbers: &'a [u32],
}

impl<T> State<T> {
    /// The amounts taken at `now` for a request of this cost that draws on these sub-limits.
    pub(super) fn reserve(&mut self, now: Instant, cost: Cost, drawn: Option<&Drawn>) -> Cost {
        if self.policy.usage.is_empty() {
            return cost;
        }
        let Self { budget: own, sub_limits, .. } = self;
        let own = (!drawn.is_some_and(Drawn::is_apart)).then_some(own);
        let sources = &mut Sources { own, sub_limits, numbers: drawn.map_or(&[], Drawn::numbers) };
        Reserving::new(&self.policy, &self.usual, &self.pending_usage).of(sources, now, cost)
    }
}

// === impl Reserving ===

impl<'a> Reserving<'a> {
    pub(super) fn new(policy: &'a Policy, usual: &'a [Usual], pending_usage: &'a PendingUsage) -> Self {
        Self { policy, usual, pending_usage }
    }

    /// The amounts taken for a request of this cost at `now`.
    pub(super) fn of(self, sources: &mut Sources<'_>, now: Instant, cost: Cost) -> Cost {
        let unsaid = self.policy.usage.iter().map(|source| source.unit).filter(|unit| !cost.says(*unit));
        unsaid.fold(cost, |cost, unit| cost.reserving(unit, self.of_unit(sources, now, unit)))
    }

    /// The usage estimates.
    pub(super) fn usual(self) -> &'a [Usual] {
        self.usual
    }

    /// The reservation in one unit. Where a narrower rule limits the unit, only the rule's requests count for the
    /// estimate: others may use a hundred times as much, which would never fit.
    fn of_unit(self, Sources { own, sub_limits, numbers }: &mut Sources<'_>, now: Instant, unit: Unit) -> u32 {
        let strictest = sub_limits.strictest(numbers, unit);
        let usual = estimate_of(self.usual, unit, strictest.map(|(number, _)| &**sub_limits.rule_name(number)));
        let own_least = own.as_ref().and_then(|_| self.policy.least_of(unit));
        let least = strictest.map(|(_, least)| least).into_iter().chain(own_least).min();
        let under_way =
            strictest.map_or(self.pending_usage.count(unit), |(number, _)| sub_limits.pending_usage(number, unit));
        let sub_limit_part = strictest.and_then(|(number, _)| sub_limits.due_part(number, unit));
        let own_part = own.as_ref().and_then(|own| own.due_part(unit));
        let part = sub_limit_part.into_iter().chain(own_part).reduce(f64::min);
        let unknown = EstimatedAmount::default();
        let amount = usual.map_or(&unknown, |usual| &usual.amount).reserve(under_way, part, least);
        // With no other pending answer that could lower the estimate, a reservation takes no more than is free.
        let alone = self.pending_usage.count(unit) == 0;
        let of_own = own.as_mut().filter(|_| alone).and_then(|own| own.room(unit, now));
        let of_sub_limit =
            strictest.filter(|_| under_way == 0).and_then(|(number, _)| sub_limits.room(number, unit, now));
        of_own.into_iter().chain(of_sub_limit).fold(amount, |amount, room| amount.min(room.max(1)))
    }
}
