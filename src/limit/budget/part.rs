//! A part of what an API reports: it allows that to several processes together.

use std::time::Duration;

use super::{Budget, Limit, Source};
use crate::limit::{Amount, LimitSpec, Unit, lesser};

/// A part of what an API reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// How large it is; 1 is all.
    pub own: f64,
    /// How large it is where all processes use the same.
    pub equal: f64,
}

/// A part of fewer units is not rounded down: what is left over for nobody would be too much.
const FEW: f64 = 20.0;
/// Parts are no closer to what they are meant to be: three thirds of three are not more than three.
const ROUNDING: f64 = 0.01;
/// A rate is not divided where an equal part would be fewer units: so it is divided by all or by none. Several that send
/// evenly, each for itself, come at the same time now and then, and what refuses that is asked in vain and used less than by
/// members that each find their own way.
const LEAST: f64 = 1.5;
/// What is spaced evenly within so short a time may be a bucket that reports its depth: its rate counts.
const SHORT: Duration = Duration::from_secs(3);

/// Windows are the same that differ by no more than one in so many.
const SAME: u32 = 8;

// === impl Part ===

impl Default for Part {
    /// All of it.
    fn default() -> Self {
        Self { own: 1.0, equal: 1.0 }
    }
}

impl Budget {
    /// So large a part of what the API reports is used here, and others use the rest.
    pub fn set_part(&mut self, part: Part) {
        self.part = part;
        for limit in &mut self.limits {
            if let Some(reported) = limit.reported() {
                limit.fit(part_of(&reported, part));
            }
        }
    }

    /// How large a part of what the API reports is used here.
    pub fn part(&self) -> Part {
        self.part
    }

    /// How large a part of what `source` reports is used here; of what is not known yet, that of what is divided.
    pub fn part_in(&self, source: Source) -> f64 {
        let reported = self.limits.iter().find(|limit| limit.source == source).and_then(|limit| limit.reported());
        reported.map_or(self.part.own, |spec| part_in(&spec, self.part))
    }

    /// The same of as many requests in as long a window, of which others of a fleet use their parts of a configured limit that is
    /// the same: what they use is no stranger's.
    pub fn part_known(&self, source: Source, requests: f64, window: Duration) -> f64 {
        let is_same = |limit: &&Limit| {
            let LimitSpec { unit, rate, .. } = limit.spec;
            unit == Unit::REQUESTS
                && f64::from(rate.count.get()) == requests
                && rate.per.abs_diff(window) * SAME <= window
        };
        let part = self.part_in(source);
        let shares = self.limits.iter().filter(is_same).filter_map(|limit| limit.share.as_ref());
        shares.map(|share| share.due_part()).fold(part, f64::min)
    }

    /// Whether others use what the API reports, and its rate is not divided.
    pub fn is_undivided(&self) -> bool {
        let Part { equal, .. } = self.part;
        let mut reported = self.limits.iter().filter_map(|limit| limit.reported());
        equal < 1.0 && reported.any(|spec| part_in(&spec, Part { own: equal, equal }) >= 1.0)
    }

    /// How many requests a second the API allows all processes together, as it reports itself.
    pub fn reported_rate(&self) -> Option<f64> {
        let reported = self.limits.iter().filter_map(|limit| limit.reported());
        reported.map(|spec| spec.rate.per_second()).min_by(f64::total_cmp)
    }

    /// Another rate for the limit at `index`; what was sent already stays sent. Does nothing without such a limit.
    pub fn retune(&mut self, index: usize, spec: LimitSpec) {
        let part = self.part;
        if let Some(limit) = self.limits.get_mut(index) {
            limit.reported = reported(limit.source, spec).map(Box::new);
            limit.fit(limit.reported().map_or(spec, |reported| part_of(&reported, part)));
        }
    }
}

impl Limit {
    /// It is this from now on; what was sent already stays sent.
    pub(super) fn fit(&mut self, spec: LimitSpec) {
        self.spec = spec;
        self.gcra.retune(&spec);
        self.window.retune(&spec);
    }
}

/// The limit `spec` of `source`, if that is an API that reports it.
pub(super) fn reported(source: Source, spec: LimitSpec) -> Option<LimitSpec> {
    matches!(source, Source::Advertised(_)).then_some(spec)
}

/// How large a part of `spec` is used here, where `part` is this member's of what is divided.
pub(super) fn part_in(spec: &LimitSpec, Part { own, equal }: Part) -> f64 {
    let units = f64::from(spec.rate.count.get()) * equal;
    if is_rate(spec) && units < LEAST { 1.0 } else { own }
}

/// So large a `part` of `spec`. All parts together are no more than that, but for a few units.
pub(super) fn part_of(spec: &LimitSpec, part: Part) -> LimitSpec {
    let part = part_in(spec, part);
    if part >= 1.0 {
        return *spec;
    }
    let units = f64::from(spec.rate.count.get()) * part;
    let (mut own, few) = (*spec, units < FEW);
    let whole = |units: f64| {
        // What is left says whether there is one more.
        let whole = if few { (units - ROUNDING).ceil() } else { units.floor() };
        Amount::new(whole as u32).unwrap_or(Amount::MIN)
    };
    own.rate.count = whole(units);
    if few && is_rate(spec) {
        // A rate: the same units take longer.
        let whole = units.round().max(1.0);
        own.rate.count = Amount::new(whole as u32).unwrap_or(Amount::MIN);
        own.rate.per = spec.rate.per.mul_f64(whole / units);
    }
    own.burst = spec.burst.map(|of_all| lesser(whole(f64::from(of_all.get()) * part), own.rate.count));
    own
}

/// Whether it is a rate, and not so many in a window.
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

    /// Three that have a third of 5/min have 2 each: who asks last is refused the sixth.
    #[test]
    fn a_few_of_a_window_are_rounded_up() {
        let s = Duration::from_secs;
        assert_eq!(part("5/60s burst 5", 1.0 / 3.0), (2, s(60), 2));
        assert_eq!(part("3/60s burst 3", 1.0 / 3.0), (1, s(60), 1));
        assert_eq!(part("1/60s", 0.25), (1, s(60), 1));
        assert_eq!(part("3/60s", 1.0 / 3.0), (1, s(60), 1), "of what is spaced as well");
    }

    /// 10/s for three: 3.33 each, which are three in 0.9 s.
    #[test]
    fn a_few_of_a_rate_take_longer() {
        let ms = Duration::from_millis;
        assert_eq!(part("10/1s", 1.0 / 3.0), (3, ms(900), 1));
        assert_eq!(part("3/1s", 1.0 / 3.0), (3, ms(1000), 1), "less than one and a half");
        // 5/s of three, of which this one uses less than half of an equal part: .83 a second, as the others divide it.
        let own = part_of(&"5/s".parse().unwrap(), Part { own: 1.0 / 6.0, equal: 1.0 / 3.0 });
        assert_eq!((own.rate.count.get(), own.rate.per), (1, ms(1200)));
    }
}
