//! What a budget will let go, and when.

use std::{cmp::Reverse, time::Duration};

use smallvec::SmallVec;

use super::{Budget, Limit, counting, holding};
use crate::{
    clock::Instant,
    limit::{
        Amount, CalendarCount, Cost, LimitSpec, Margin, Unit,
        charge::{Scope, Source},
    },
};

/// The rate of each limit in units per second, with its source.
pub type Rates = SmallVec<[(Source, f64); 4]>;

/// Of more limits than this only the slowest come back to how they begin: an API may report 32 that do, one within another.
const ROUNDS_OF: usize = 6;

/// A request that takes so much of one unit, if nothing leaves before `from`.
struct Projection<'a> {
    now: Instant,
    from: Instant,
    amount: Amount,
    margin: &'a Margin,
}

impl Budget {
    /// How many requests, or other units, a second each limit of them allows.
    pub fn rates(&self, unit: Unit) -> Rates {
        let limits = self.limits.iter().filter(|limit| limit.spec.unit == unit);
        limits.map(|limit| (limit.source, limit.spec.rate.per_second())).collect()
    }

    /// How many a second the slowest of them allows; `None` without any.
    pub fn slowest(&self, unit: Unit) -> Option<f64> {
        self.rates(unit).iter().map(|(_, rate)| *rate).reduce(f64::min)
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
        self.project_afterwards(now, from, at, &ahead, cost, scope).unwrap_or(at)
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
        let cost = Cost::MIN.with(unit, amount.get());
        let of_unit = |limit: &&mut CalendarCount| limit.unit() == unit;
        let renewed = counting(&mut self.calendar, &cost, scope).map(|(limit, _)| limit).filter(of_unit);
        let renewed = renewed.fold(from, |at, limit| at.max(limit.project(from, ahead(Source::Config, unit), amount)));
        let limits = holding(&mut self.limits, self.yields, scope).filter(|limit| limit.spec.unit == unit);
        let mut limits: SmallVec<[&mut Limit; 4]> = limits.collect();
        // The slowest first, which come back to how they begin.
        limits.sort_by_key(|limit| Reverse(limit.spec.rate.interval()));
        let ahead: SmallVec<[u64; 4]> = limits.iter().map(|limit| ahead(limit.source, unit)).collect();
        let projection = Projection { now, from, amount, margin: &self.margin };
        let (slowest, others) = limits.split_at_mut(ROUNDS_OF.min(ahead.len()));
        let (of_slowest, of_others) = ahead.split_at(slowest.len());
        let others = others.iter_mut().zip(of_others).map(|(limit, ahead)| projection.alone(limit, *ahead));
        others.fold(renewed, Instant::max).max(projection.together(slowest, of_slowest))
    }
}

// === impl Projection ===

impl Projection<'_> {
    /// When a request leaves by `limits`, the slowest first, if so much is `ahead` of it by each.
    ///
    /// What leaves by a limit of N in a window W does so W after the Nth unit before it: with each round it leaves W later
    /// than in the round before, and in the first one when the faster limits let it. O(2^limits), however much is ahead.
    fn together(&self, limits: &mut [&mut Limit], ahead: &[u64]) -> Instant {
        let (Some((slowest, faster)), Some((own, others))) = (limits.split_first_mut(), ahead.split_first()) else {
            return self.from;
        };
        let at = self.alone(slowest, *own).max(self.together(faster, others));
        let rounds = (own + u64::from(slowest.whole(self.amount).get()) - 1) / slowest.round();
        if rounds == 0 || faster.is_empty() {
            return at;
        }
        let first = own.saturating_sub(rounds * slowest.round());
        // What others count of the rounds is taken to be spread alike.
        let share = first as f64 / *own as f64;
        let others: SmallVec<[u64; 4]> = others.iter().map(|other| (*other as f64 * share).round() as u64).collect();
        let in_first = self.alone(slowest, first).max(self.together(faster, &others));
        at.max(in_first + slowest.spec.rate.per.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX)))
    }

    /// The same by one limit.
    fn alone(&self, limit: &mut Limit, ahead: u64) -> Instant {
        let Self { now, from, amount, margin } = *self;
        let opens = limit.share.as_ref().and_then(|share| share.opens());
        let (from, margin) = (opens.map_or(from, |opens| from.max(opens)), limit.margin(margin));
        // What those under way are likely to take comes before it.
        let before = ahead + u64::from(limit.outstanding);
        let window = limit.project(now, from, before, amount, margin);
        let spread = limit.window.spread(now, ahead, limit.reserve(), margin, limit.taken);
        let at = limit.gcra.project(from, ahead).max(window).max(spread);
        if limit.ends == Instant::FAR {
            return at;
        }
        at.min(limit.ends.max(from) + unused(&limit.spec, ahead))
    }
}

/// How long a request waits for `limit`, of which nothing was used, if so much is `ahead` of it.
fn unused(limit: &LimitSpec, ahead: u64) -> Duration {
    let times = |of: Duration, count: u64| of.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
    let count = u64::from(limit.rate.count.get());
    let beyond_burst = (ahead % count + 1).saturating_sub(limit.burst().get().into());
    times(limit.rate.per, ahead / count) + times(limit.rate.interval(), beyond_burst)
}
