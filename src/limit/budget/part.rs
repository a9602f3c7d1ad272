//! A part of the quotas that an API reports and several processes use together.

use std::time::Duration;

use crate::{Amount, LimitSpec, lesser};

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

// === impl Part ===

impl Part {
    /// Share of `spec` that is used here: all of a rate that is too small to be divided.
    pub(super) fn of(self, spec: &LimitSpec) -> f64 {
        let units = f64::from(spec.rate.count.get()) * self.equal;
        if is_rate(spec) && units < LEAST { 1.0 } else { self.own }
    }

    /// This part of `spec`. All parts together exceed `spec` by a few units at most.
    pub(super) fn apply(self, spec: &LimitSpec) -> LimitSpec {
        let part = self.of(spec);
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
}

impl Default for Part {
    /// The whole quota.
    fn default() -> Self {
        Self { own: 1.0, equal: 1.0 }
    }
}

/// Returns true if `spec` is a rate and not a quota per window.
fn is_rate(spec: &LimitSpec) -> bool {
    spec.burst() == Amount::MIN && spec.rate.per <= SHORT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(of: &str, part: f64) -> (u32, Duration, u32) {
        let own = Part { own: part, equal: part }.apply(&of.parse().unwrap());
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
        let own = Part { own: 1.0 / 6.0, equal: 1.0 / 3.0 }.apply(&"5/s".parse().unwrap());
        assert_eq!((own.rate.count.get(), own.rate.per), (1, ms(1200)));
    }
}
