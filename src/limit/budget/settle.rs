//! Settles charges once responses have reported the usage.

use andante_clock::Instant;

use super::Budget;
use crate::{Amount, Charge, Unit, lesser};

impl Budget {
    /// Settles a `charge` of this budget: its response reported by `now` that the request used `used` of `unit`.
    ///
    /// The usage counts from now on, instead of the reservation: the API knows it no sooner. Usage beyond the
    /// reservation is a debt, which is paid before the next request leaves.
    pub fn settle(&mut self, charge: Charge, unit: Unit, used: u32, now: Instant) {
        let Charge { seq, cost, scope } = charge;
        let (reserved, used) = (cost.of(unit), Amount::new(used));
        let next = self.next;
        self.next += used.map_or(0, |used| used.get().into());
        let limits = self.limits.iter_mut().filter(|limit| limit.spec.unit == unit && scope.includes(limit.source));
        for limit in limits {
            let reserved = reserved.filter(|_| limit.since <= seq);
            reserved.into_iter().for_each(|reserved| limit.window.refund(seq, reserved));
            used.into_iter().for_each(|used| limit.window.count_answered(next, used, now, now));
            let whole = |amount: Option<Amount>| amount.map_or(0, |amount| lesser(limit.spec.rate.count, amount).get());
            let (reserved, used) = (whole(reserved), whole(used));
            limit.gcra.settle(now, reserved, used);
        }
        if scope.is_apart() {
            return;
        }
        let beyond = |used: Amount| Amount::new(used.get() - reserved.map_or(0, Amount::get).min(used.get()));
        if let Some(beyond) = used.and_then(beyond) {
            self.took_units(now, unit, beyond);
        }
        for limit in self.calendar.iter_mut().filter(|limit| limit.unit() == unit) {
            reserved.into_iter().for_each(|reserved| limit.return_unused(seq, reserved));
            used.into_iter().for_each(|used| limit.take(now, next, used));
        }
        let history = self.history(unit);
        reserved.into_iter().for_each(|reserved| history.return_unused(seq, reserved));
        used.into_iter().for_each(|used| history.take(now, next, used));
        if let Some((_, ahead)) = self.ahead.iter_mut().flatten().find(|(other, _)| *other == unit) {
            reserved.into_iter().for_each(|reserved| ahead.return_unused(reserved));
            used.into_iter().for_each(|used| ahead.take(used));
        }
    }
}
