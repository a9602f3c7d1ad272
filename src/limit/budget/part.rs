//! A part of the quotas that an API reports and several processes use together.

use std::time::Duration;

use super::{Budget, Limit, Source};
use crate::{Amount, LimitSpec, Unit, lesser};

/// A process's part of the quotas that an API reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// Actual part; 1 is all.
    pub own: f64,
    /// Part that each process would have if all used equally much.
    pub equal: f64,
}

/// A part of fewer units is not rounded down: too many units would remain unused.
const FEW: f64 = 20.0;
/// Tolerance when a part is rounded up: three thirds of three must not be more than three.
const ROUNDING: f64 = 0.01;
/// Smallest equal part of a rate, in units: below it the rate is divided for no process. Processes that each send
/// evenly collide now and then. An API that refuses those collisions would be used less than by members that each adapt
/// to its refusals.
const LEAST: f64 = 1.5;
/// Even spacing over at most this window may be a bucket that reports its depth: then its rate counts.
const SHORT: Duration = Duration::from_secs(3);

/// Windows count as equal if they differ by at most one part in this many.
const SAME: u32 = 8;

// === impl Part ===

impl Default for Part {
    /// The whole quota.
    fn default() -> Self {
        Self { own: 1.0, equal: 1.0 }
    }
}

impl Budget {
    /// Sets the part of the API's quotas that is used here; other processes use the rest.
    pub fn set_part(&mut self, part: Part) {
        self.part = part;
        for limit in self.meters.windows_mut() {
            if let Some(reported) = limit.reported() {
                limit.fit(part_of(&reported, part));
            }
        }
    }

    /// Part of the API's quotas that is used here.
    pub fn part(&self) -> Part {
        self.part
    }

    /// Part of the quota of `source` that is used here; for an unknown quota, the part of a divided one.
    pub fn part_in(&self, source: Source) -> f64 {
        let reported = self.meters.windows().find(|limit| limit.source == source).and_then(|limit| limit.reported());
        reported.map_or(self.part.own, |spec| part_in(&spec, self.part))
    }

    /// Like [`part_in`](Self::part_in), for a quota of `requests` per `window`. If a fleet shares an equal configured
    /// limit, this process's part of that limit counts too: the rest is used by members, not by strangers.
    pub fn part_known(&self, source: Source, requests: f64, window: Duration) -> f64 {
        let is_same = |limit: &&Limit| {
            let LimitSpec { unit, rate, .. } = limit.spec;
            unit == Unit::REQUESTS
                && f64::from(rate.count.get()) == requests
                && rate.per.abs_diff(window) * SAME <= window
        };
        let part = self.part_in(source);
        let shares = self.meters.windows().filter(is_same).filter_map(|limit| limit.share.as_ref());
        shares.map(|share| share.due_part()).fold(part, f64::min)
    }

    /// Returns true if several processes use the API's quotas, and some rate among them is not divided.
    pub fn is_undivided(&self) -> bool {
        let Part { equal, .. } = self.part;
        let mut reported = self.meters.windows().filter_map(|limit| limit.reported());
        equal < 1.0 && reported.any(|spec| part_in(&spec, Part { own: equal, equal }) >= 1.0)
    }

    /// Smallest rate that the API reports for all processes together, in units per second.
    pub fn reported_rate(&self) -> Option<f64> {
        let reported = self.meters.windows().filter_map(|limit| limit.reported());
        reported.map(|spec| spec.rate.per_second()).min_by(f64::total_cmp)
    }

    /// Changes the limit at `index`; sent requests stay sent. Does nothing without such a limit.
    pub fn retune(&mut self, index: usize, spec: LimitSpec) {
        let part = self.part;
        if let Some(limit) = self.meters.windows_mut().nth(index) {
            limit.reported = reported(limit.source, spec).map(Box::new);
            limit.fit(limit.reported().map_or(spec, |reported| part_of(&reported, part)));
        }
    }
}

/// Returns `spec` if `source` is a quota that the API reports.
pub(super) fn reported(source: Source, spec: LimitSpec) -> Option<LimitSpec> {
    matches!(source, Source::Advertised(_)).then_some(spec)
}

/// Part of `spec` that is used here, where `part` is this member's part of divided quotas.
pub(super) fn part_in(spec: &LimitSpec, Part { own, equal }: Part) -> f64 {
    let units = f64::from(spec.rate.count.get()) * equal;
    if is_rate(spec) && units < LEAST { 1.0 } else { own }
}

/// The `part` of `spec` for one process. All parts together exceed `spec` by a few units at most.
pub(super) fn part_of(spec: &LimitSpec, part: Part) -> LimitSpec {
    let part = part_in(spec, part);
    if part >= 1.0 {
        return *spec;
    }
    let units = f64::from(spec.rate.count.get()) * part;
    let (mut own, few) = (*spec, units < FEW);
    let whole = |units: f64| {
        // The remaining quota that the API reports shows whether there is one more unit.
        let whole = if few { (units - ROUNDING).ceil() } else { units.floor() };
        Amount::new(whole as u32).unwrap_or(Amount::MIN)
    };
    own.rate.count = whole(units);
    if few && is_rate(spec) {
        // For a rate, a whole number of units takes longer.
        let whole = units.round().max(1.0);
        own.rate.count = Amount::new(whole as u32).unwrap_or(Amount::MIN);
        own.rate.per = spec.rate.per.mul_f64(whole / units);
    }
    own.burst = spec.burst.map(|of_all| lesser(whole(f64::from(of_all.get()) * part), own.rate.count));
    own
}

/// Returns true if `spec` is a rate and not a quota per window.
fn is_rate(spec: &LimitSpec) -> bool {
    spec.burst() == Amount::MIN && spec.rate.per <= SHORT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(of: &str, part: f64) -> (u32, Duration, u32) {
        let own = part_of(&of.parse().unwrap(), Part { own: part, equal: part });
        (own.rate.count.get(), own.rate.per, own.burst().get())
    }

    #[test]
    fn a_part_of_a_limit_has_its_window_or_its_rate() {
        let s = Duration::from_secs;
        assert_eq!(part("100/10s", 1.0), (100, s(10), 1));
        assert_eq!(part("100/10s", 0.333), (33, s(10), 1));
        assert_eq!(part("100/10s burst 90", 0.5), (50, s(10), 45));
    }

    /// Three members with a third of 5/min each have 2: the API refuses the sixth request.
    #[test]
    fn a_few_of_a_window_are_rounded_up() {
        let s = Duration::from_secs;
        assert_eq!(part("5/60s burst 5", 1.0 / 3.0), (2, s(60), 2));
        assert_eq!(part("3/60s burst 3", 1.0 / 3.0), (1, s(60), 1));
        assert_eq!(part("1/60s", 0.25), (1, s(60), 1));
        assert_eq!(part("3/60s", 1.0 / 3.0), (1, s(60), 1), "of what is spaced as well");
    }

    /// 10/s for three members: 3.33 each, as three in 0.9 s.
    #[test]
    fn a_few_of_a_rate_take_longer() {
        let ms = Duration::from_millis;
        assert_eq!(part("10/1s", 1.0 / 3.0), (3, ms(900), 1));
        assert_eq!(part("3/1s", 1.0 / 3.0), (3, ms(1000), 1), "less than one and a half");
        // 5/s for three members; this one uses less than half of an equal part: 0.83/s, as the rate is divided.
        let own = part_of(&"5/s".parse().unwrap(), Part { own: 1.0 / 6.0, equal: 1.0 / 3.0 });
        assert_eq!((own.rate.count.get(), own.rate.per), (1, ms(1200)));
    }
}
