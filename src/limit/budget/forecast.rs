//! Predicts when a budget lets requests leave.

use std::{cmp::Reverse, time::Duration};

use andante_clock::Instant;
use smallvec::SmallVec;

use super::{Budget, Limit, Meter};
use crate::{
    Amount, Cost, LimitSpec, Margin, Unit,
    charge::{Scope, Source},
};

/// Rate of each limit in units per second, with its source.
pub type Rates = SmallVec<[(Source, f64); 4]>;

/// Only this many of the slowest limits are predicted round by round: an API may report 32 nested windows.
const ROUNDS_OF: usize = 6;

/// A request that takes `amount` of one unit, if no request leaves before `from`.
struct Projection<'a> {
    now: Instant,
    from: Instant,
    amount: Amount,
    margin: &'a Margin,
}

impl Budget {
    /// Rate of each limit of `unit`, in units per second.
    pub fn rates(&self, unit: Unit) -> Rates {
        let limits = self.meters.windows().filter(|limit| limit.spec.unit == unit);
        limits.map(|limit| (limit.source, limit.spec.rate.per_second())).collect()
    }

    /// Rate of the slowest limit of `unit`, in units per second; `None` without a limit.
    pub fn slowest(&self, unit: Unit) -> Option<f64> {
        self.rates(unit).iter().map(|(_, rate)| *rate).reduce(f64::min)
    }

    /// Time between two departures of requests of this `cost` and `scope` while more of them wait, by the slowest limit.
    pub fn interval(&self, cost: &Cost, scope: Scope) -> Duration {
        let limits = self.meters.windows().filter(|limit| scope.includes(limit.source));
        limits.filter_map(|limit| limit.refills(cost)).max().unwrap_or_default()
    }

    /// Units of this kind that may leave back to back at `now`, as far as the spacing of configured limits counts.
    pub fn saved(&self, unit: Unit, now: Instant) -> u64 {
        let limits = self.meters.windows().filter(|limit| limit.source == Source::Config && limit.spec.unit == unit);
        limits.map(|limit| limit.saved(now)).min().unwrap_or_default()
    }

    /// Predicts when a request of `cost` and `scope` leaves if no request leaves before `from` and no response changes
    /// a limit. `ahead` returns the units that wait before it for a limit.
    pub fn project(
        &mut self,
        now: Instant,
        from: Instant,
        ahead: impl Fn(Source, Unit) -> u64,
        cost: Cost,
        scope: Scope,
    ) -> Instant {
        cost.each().fold(from, |at, takes| at.max(self.project_unit(now, from, &ahead, takes, scope)))
    }

    /// Like [`project`](Self::project), for the limits of one unit; the request takes `amount` of it.
    fn project_unit(
        &mut self,
        now: Instant,
        from: Instant,
        ahead: &impl Fn(Source, Unit) -> u64,
        (unit, amount): (Unit, Amount),
        scope: Scope,
    ) -> Instant {
        let (mut renewed, mut limits) = (from, SmallVec::<[&mut Limit; 4]>::new());
        for meter in self.meters.holding(self.yields, scope).filter(|meter| meter.unit() == unit) {
            match meter {
                Meter::Window(limit) => limits.push(limit),
                Meter::Calendar(count) => {
                    renewed = renewed.max(count.project(from, ahead(Source::Config, unit), amount));
                }
            }
        }
        // The slowest come first, because they are predicted round by round.
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
    /// When a request leaves under `limits`, the slowest first, with `ahead` units before it in each.
    ///
    /// Under a limit of N in a window W, a request leaves W after the Nth unit before it. So each round leaves W later
    /// than the round before, and the faster limits decide about the first round. O(2^limits), however many units are
    /// ahead.
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
        // Assume that the units ahead in other limits are spread evenly over the rounds.
        let share = first as f64 / *own as f64;
        let others: SmallVec<[u64; 4]> = others.iter().map(|other| (*other as f64 * share).round() as u64).collect();
        let in_first = self.alone(slowest, first).max(self.together(faster, &others));
        at.max(in_first + slowest.spec.rate.per.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX)))
    }

    /// When the request leaves under one limit alone.
    fn alone(&self, limit: &mut Limit, ahead: u64) -> Instant {
        let Self { now, from, amount, margin } = *self;
        let opens = limit.share.as_ref().and_then(|share| share.opens());
        let (from, margin) = (opens.map_or(from, |opens| from.max(opens)), limit.margin(margin));
        // Units that in-flight requests are likely to take come before the request.
        let before = ahead + u64::from(limit.outstanding);
        let window = limit.project(now, from, before, amount, margin);
        let spread = limit.window.spread(now, ahead, limit.reserve(), margin, limit.taken);
        let at = limit.gcra.project(from, ahead).max(window).max(spread);
        limit.ends.map_or(at, |ends| at.min(ends.max(from) + unused(&limit.spec, ahead)))
    }
}

/// Waiting time of a request for an unused `limit` with `ahead` units before it.
fn unused(limit: &LimitSpec, ahead: u64) -> Duration {
    let times = |of: Duration, count: u64| of.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
    let count = u64::from(limit.rate.count.get());
    let beyond_burst = (ahead % count + 1).saturating_sub(limit.burst().get().into());
    times(limit.rate.per, ahead / count) + times(limit.rate.interval(), beyond_burst)
}
