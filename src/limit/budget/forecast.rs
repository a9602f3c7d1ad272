//! What a budget will let go, and when.

use smallvec::SmallVec;

use super::{Budget, counting, holding};
use crate::{
    clock::Instant,
    limit::{
        Amount, CalendarCount, Cost, Unit,
        charge::{Scope, Source},
    },
};

/// The rate of each limit in units per second, with its source.
pub type Rates = SmallVec<[(Source, f64); 4]>;

impl Budget {
    /// How many requests, or other units, a second each limit of them allows.
    pub fn rates(&self, unit: Unit) -> Rates {
        let limits = self.limits.iter().filter(|limit| limit.spec.unit == unit);
        limits.map(|limit| (limit.source, limit.spec.rate.per_second())).collect()
    }

    /// How many units of this sort may leave back to back at `now`, as far as the spacing of what is configured counts.
    pub fn saved(&self, unit: Unit, now: Instant) -> u64 {
        let limits = self.limits.iter().filter(|limit| limit.source == Source::Config && limit.spec.unit == unit);
        limits.map(|limit| limit.saved(now)).min().unwrap_or_default()
    }

    /// Predicts when a request of `cost` and `scope` leaves if nothing leaves before `from` and no answer changes a
    /// limit. `ahead` returns how much of a unit waits before it for a limit.
    pub fn project(
        &mut self,
        now: Instant,
        from: Instant,
        ahead: impl Fn(Source, Unit) -> u64,
        cost: Cost,
        scope: Scope,
    ) -> Instant {
        let at = cost.each().fold(from, |at, takes| at.max(self.project_unit(now, from, &ahead, takes, scope)));
        self.project_afterwards((now, from, at), &ahead, cost, scope).unwrap_or(at)
    }

    /// The same, as if only the limits of one unit counted, of which it takes so much.
    pub(super) fn project_unit(
        &mut self,
        now: Instant,
        from: Instant,
        ahead: &impl Fn(Source, Unit) -> u64,
        (unit, amount): (Unit, Amount),
        scope: Scope,
    ) -> Instant {
        let (margin, cost) = (&self.margin, Cost::MIN.with(unit, amount.get()));
        let of_unit = |limit: &&mut CalendarCount| limit.unit() == unit;
        let renewed = counting(&mut self.calendar, &cost, scope).map(|(limit, _)| limit).filter(of_unit);
        let renewed = renewed.fold(from, |at, limit| at.max(limit.project(from, ahead(Source::Config, unit), amount)));
        let limits = holding(&mut self.limits, self.yields, scope).filter(|limit| limit.spec.unit == unit);
        limits.fold(renewed, |at, limit| {
            let (margin, ahead) = (limit.margin(margin), ahead(limit.source, unit));
            let window = limit.project(now, from, ahead, amount, margin);
            let spread = limit.window.spread(now, ahead, limit.reserve(), margin, limit.taken);
            at.max(limit.gcra.project(from, ahead)).max(window).max(spread)
        })
    }
}
