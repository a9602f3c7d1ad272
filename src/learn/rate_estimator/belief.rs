//! A rate that is believed in, and how it grows and falls.

use std::collections::VecDeque;

/// Requests per second. Times are in seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Belief {
    /// What it was at `at`, or is about to be again: from there it grows slowly at first, and then ever faster.
    most: f64,
    at: f64,
    /// How long it takes until it is tried whether there is more.
    calm: f64,
    steepness: f64,
    /// Over what time it was measured, and how many requests were served in that.
    pub(super) span: f64,
    pub(super) count: f64,
    /// Only a lower bound is known: grows as requests are served.
    rising: Option<Rising>,
    /// How often it was too much, one time soon after the other.
    cuts: u32,
    series: Series,
    /// What was delivered lately: when, and how many a second.
    best: VecDeque<(f64, f64)>,
    episode: Option<(f64, f64)>,
}

/// Refusals soon after one another, each of which has lowered the rate.
#[derive(Clone, Debug)]
struct Series {
    /// The rate when they began, and how many were served until the second.
    rate: f64,
    served: f64,
    /// The fewest and the most that were served between two of them.
    between: (f64, f64),
    /// When each of the last left, and how many were served until then.
    refusals: VecDeque<(f64, f64)>,
    /// A bucket that refills no slower and no faster than this explains all of them.
    slowest: f64,
    fastest: f64,
}

#[derive(Clone, Copy, Debug)]
struct Rising {
    rate: f64,
    served: f64,
    /// It grows after so many.
    step: f64,
    /// This is more than there is.
    most: f64,
}

/// How fast it grows, and how fast near a rate that was too much a short time ago.
const STEEPNESS: f64 = 0.05;
const STEEP: f64 = 0.08;
/// By so much less it begins.
const DIP: f64 = 0.02;
/// By so much it grows in one step of slow start.
const STEP: f64 = 1.6;
/// That is after so many, and after so few where nothing is saved up.
const SOME: f64 = 6.0;
const FEW: f64 = 2.0;
/// It falls by this share, and by twice as much each time if that was too much again soon.
const CUT: f64 = 0.01;
const MOST_CUT: f64 = 0.15;
/// Where a larger share is refused it is the rate that is too high.
const MOST_NOISE: f64 = 0.4;
/// So many refusals soon after one another are remembered.
const MOST_REFUSALS: usize = 16;
/// For how many seconds, or requests, deliveries are remembered.
const REMEMBERED: f64 = 15.0;
const REMEMBERED_REQUESTS: f64 = 100.0;

// === impl Belief ===

impl Belief {
    /// `count` requests were served in a window of `span` seconds.
    pub(super) fn of_window(rate: f64, span: f64, count: f64, now: f64) -> Self {
        Self { most: rate, at: now, calm: calm(rate, span), steepness: STEEPNESS, span, count, ..Self::default() }
    }

    /// The same, kept for at least `time` seconds before more is tried.
    pub(super) fn kept(mut self, time: f64) -> Self {
        self.keep(time);
        self
    }

    /// It is kept for at least `time` seconds before more is tried.
    pub(super) fn keep(&mut self, time: f64) {
        self.calm = self.calm.max(time);
    }

    /// The same if there may be more.
    pub(super) fn at_least(rate: f64, span: f64, count: f64, now: f64) -> Self {
        let rising = Rising { rate, served: 0.0, step: SOME, most: f64::INFINITY };
        Self { rising: Some(rising), ..Self::of_window(rate, span, count, now) }
    }

    /// The same where nothing is saved up: what is served shows at once that the rate is not too high.
    pub(super) fn one_by_one(mut self) -> Self {
        self.rising.iter_mut().for_each(|rising| rising.step = FEW);
        self
    }

    /// The same, and `most` a second have been refused.
    pub(super) fn below(mut self, most: f64) -> Self {
        self.rising.iter_mut().for_each(|rising| rising.most = most);
        self
    }

    pub(super) fn rate(&self, now: f64) -> f64 {
        if let Some(rising) = self.rising {
            return rising.rate;
        }
        let time = ((now - self.at).max(0.0) / self.calm).min(12.0) - 1.0;
        let steepness = if time < 0.0 { DIP } else { self.steepness };
        self.most * (1.0 + steepness * time.powi(3))
    }

    pub(super) fn is_rising(&self) -> bool {
        self.rising.is_some()
    }

    /// It was not used up for `idle` seconds.
    pub(super) fn rest(&mut self, idle: f64) {
        self.at += idle.max(0.0);
    }

    /// Begins anew at `rate`.
    pub(super) fn restart(&mut self, now: f64, rate: f64) {
        (self.most, self.at) = (rate.max(1e-6), now);
    }

    /// It is `rate`, and for `time` seconds at least no more is tried, though only a lower bound was known.
    pub(super) fn settle(&mut self, now: f64, rate: f64, time: f64) {
        self.rising = None;
        self.restart(now, rate);
        self.keep(time);
    }

    /// It is `rate`, and more is tried later.
    pub(super) fn holds_on(&mut self, now: f64, rate: f64) {
        (self.most, self.at) = (rate, now - self.calm);
    }

    /// A request was served, sent at `sent`. Says whether it has grown beyond all limits.
    pub(super) fn served(&mut self, now: f64, sent: f64, way: f64) -> bool {
        let Some(rising) = &mut self.rising else { return false };
        if sent >= self.at {
            rising.served += 1.0;
        }
        if rising.served >= f64::max(rising.step, rising.rate * way) {
            *rising = Rising { rate: rising.rate * STEP, served: 0.0, ..*rising };
            (self.most, self.at) = (rising.rate, now);
            if rising.rate * STEP > rising.most {
                (self.calm, self.rising) = (calm(rising.rate, self.span), None);
            }
        }
        self.most > super::UNLIMITED
    }

    /// Counts deliveries, as BBR does: a rate that was served lately can be served again.
    pub(super) fn delivered(&mut self, now: f64) {
        if self.rising.is_some() {
            return;
        }
        let (since, count) = self.episode.unwrap_or((now, 0.0));
        self.episode = Some((since, count + 1.0));
        if count + 1.0 > 16.0 && now - since > 1.0 {
            self.best.push_back((now, count / (now - since)));
            self.episode = Some((now, 1.0));
            let oldest = now - f64::max(REMEMBERED, REMEMBERED_REQUESTS / self.rate(now));
            while self.best.front().is_some_and(|(at, _)| *at < oldest) {
                self.best.pop_front();
            }
        }
    }

    /// Refused in slow start, but as many were served as before: that is the window.
    pub(super) fn holds(&mut self, now: f64) {
        let rate = self.count / self.span;
        (self.rising, self.most, self.at, self.calm) = (None, rate, now, calm(rate, self.span));
    }

    /// Refused in slow start before anything could be seen.
    pub(super) fn rises_anew(&mut self) {
        if let Some(rising) = &mut self.rising {
            rising.served = 0.0;
        }
    }

    /// Refused in slow start: it is between the last two steps.
    pub(super) fn risen_too_far(&mut self, now: f64) {
        let rate = self.rate(now) / STEP.sqrt();
        (self.rising, self.most, self.at, self.cuts) = (None, rate, now, 0);
        (self.calm, self.series) = (calm(rate, self.span.min(5.0)), Series::default());
    }

    /// It was too much, after `served` requests, for one that left at `sent`. Says which share is refused whatever it is, if
    /// that is so.
    pub(super) fn too_much(&mut self, now: f64, sent: f64, served: f64, refusals: f64) -> Option<f64> {
        let rate = self.rate(now);
        let since = now - self.at.max(self.series.last());
        let soon = since < (self.calm * 0.5).min(f64::max(10.0, 20.0 / rate));
        self.cuts = if soon { self.cuts + 1 } else { 0 };
        let cut = (CUT * 2f64.powi(self.cuts.min(4) as i32)).min(MOST_CUT);
        let floor = self.best.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        let lower = (rate * (1.0 - cut)).max(floor.min(rate));
        self.series.refused(self.cuts, rate, sent, served);
        let in_vain = self.cuts >= 3
            && self.span <= 5.0
            && lower < 0.6 * self.series.rate
            && served < 1.5 * self.series.served.max(4.0)
            && served < 20.0
            && !self.series.is_regular()
            && refusals < MOST_NOISE;
        if in_vain {
            self.rising = Some(Rising { rate: self.series.rate, served: 0.0, step: SOME, most: f64::INFINITY });
            (self.cuts, self.series) = (0, Series::default());
        }
        (self.most, self.at, self.calm) = (lower, now, calm(lower, self.span));
        self.steepness = if self.cuts >= 1 { STEEP } else { STEEPNESS };
        in_vain.then(|| refusals.max(0.05))
    }
}

impl Default for Series {
    fn default() -> Self {
        let (between, fastest) = ((f64::INFINITY, 0.0), f64::INFINITY);
        Self { rate: 0.0, served: 0.0, between, refusals: VecDeque::new(), slowest: 0.0, fastest }
    }
}

impl Series {
    /// One more is refused, that left at `sent`, after so many `cuts` and `served` requests at this `rate`.
    fn refused(&mut self, cuts: u32, rate: f64, sent: f64, served: f64) {
        if cuts == 0 {
            *self = Self::default();
        }
        if cuts <= 1 {
            (self.rate, self.served) = (rate, served);
        }
        if cuts >= 1 {
            self.between = (self.between.0.min(served), self.between.1.max(served));
        }
        let all = self.refusals.back().map_or(0.0, |(_, before)| before + served);
        for (at, before) in &self.refusals {
            let (count, took) = (all - before, (sent - at).max(1e-3));
            self.slowest = self.slowest.max((count - 1.0) / took);
            self.fastest = self.fastest.min((count + 1.0) / took);
        }
        if self.refusals.len() == MOST_REFUSALS {
            self.refusals.pop_front();
        }
        self.refusals.push_back((sent, all));
    }

    /// When the last one left that was refused.
    fn last(&self) -> f64 {
        self.refusals.back().map_or(f64::NEG_INFINITY, |(last, _)| *last)
    }

    /// Chance is irregular. From one refusal to another a bucket serves what it refills in that time, or one more or less, and a
    /// window of the clock the same each time.
    fn is_regular(&self) -> bool {
        let (fewest, most) = self.between;
        self.slowest <= self.fastest || fewest >= 3.0 && most - fewest <= 1.0
    }
}

/// For how long a rate is kept before more is tried.
fn calm(rate: f64, span: f64) -> f64 {
    (85.0 / rate).clamp(15.0, 120.0).max((span * 0.7).min(1200.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that sends evenly at what is believed, first 20/s, and lets one slot pass after a refusal. `serves` says which of
    /// its requests are served, by when they leave. Returns the share that is taken for chance, and the rate in the end.
    fn asks(mut serves: impl FnMut(f64) -> bool) -> (Option<f64>, f64) {
        let mut belief = Belief::of_window(20.0, 1.0, 20.0, 100.0);
        let (mut now, mut served, mut refused) = (100.0, 0.0, 0.0);
        while now < 108.0 {
            if serves(now) {
                served += 1.0;
            } else {
                refused += 1.0;
                if let Some(share) = belief.too_much(now, now, served, 0.2) {
                    return (Some(share), belief.rate(now));
                }
                served = 0.0;
            }
            now += 1.0 / belief.rate(now);
        }
        assert!(refused >= 4.0, "{refused}");
        (None, belief.rate(now))
    }

    /// Two hundred in ten seconds by a bucket that holds three: it is empty soon at any rate above 10/s, and refuses each second
    /// one of 20/s.
    #[test]
    fn a_shallow_bucket_that_refuses_as_soon_at_any_rate_is_no_chance() {
        for phase in 0..20 {
            let (mut level, mut at) = (f64::from(phase) * 0.1, 100.0);
            let (chance, rate) = asks(|now| {
                level = f64::min(level + 10.0 * (now - at), 3.0);
                at = now;
                let serves = level >= 1.0;
                level -= f64::from(u8::from(serves));
                serves
            });
            assert_eq!(chance, None, "{phase}");
            assert!((8.0..10.5).contains(&rate), "{phase}: {rate}");
        }
    }

    /// From one a second to ten in five steps of 1.6: 1.6^5 is 10.5.
    #[test]
    fn a_lower_bound_grows_sooner_where_nothing_is_saved_up() {
        let ten = |mut belief: Belief| {
            let served = (1..100).find(|number| {
                belief.served(f64::from(*number), f64::from(*number), 0.1);
                belief.rate(f64::from(*number)) >= 10.0
            });
            served.expect("it grows")
        };
        let belief = || Belief::at_least(1.0, 1.0, 1.0, 0.0);
        assert_eq!([ten(belief()), ten(belief().one_by_one())], [30, 10]);
    }

    #[test]
    fn what_is_refused_at_random_at_any_rate_is_chance() {
        for seed in 0..20_u64 {
            // Two in five, as a linear congruential generator draws them (Knuth, MMIX).
            let mut state = seed;
            let (chance, _) = asks(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                state >> 33 > (1 << 31) / 5 * 2
            });
            assert_eq!(chance, Some(0.2), "{seed}");
        }
    }
}
