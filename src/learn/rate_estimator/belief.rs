//! A rate estimate, and how it grows and falls.

use std::collections::VecDeque;

/// Rate estimate in requests per second. Times are in seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Belief {
    /// Rate at `at`, or the rate that it is about to reach again. From there it grows slowly at first, and then ever
    /// faster.
    most: f64,
    at: f64,
    /// Time until a higher rate is tried.
    calm: f64,
    steepness: f64,
    /// Period of the measurement, and number of requests served in it.
    pub(super) span: f64,
    pub(super) count: f64,
    /// Set while only a lower bound is known: the rate grows as requests are served.
    rising: Option<Rising>,
    /// Consecutive reductions, each soon after the previous one.
    cuts: u32,
    series: Series,
    /// Recent deliveries: time and rate per second.
    best: VecDeque<(f64, f64)>,
    episode: Option<(f64, f64)>,
}

/// Refusals in short succession; each has lowered the rate.
#[derive(Clone, Debug)]
struct Series {
    /// Rate at the first refusal, and number of requests served until the second.
    rate: f64,
    served: f64,
    /// Fewest and most requests served between two refusals.
    between: (f64, f64),
    /// Send time of each recent refused request, and number of requests served until then.
    refusals: VecDeque<(f64, f64)>,
    /// Lowest and highest refill rate of a bucket that would explain all the refusals.
    slowest: f64,
    fastest: f64,
}

#[derive(Clone, Copy, Debug)]
struct Rising {
    rate: f64,
    served: f64,
    /// Number of served requests after which the rate grows.
    step: f64,
    /// Rate that was refused.
    most: f64,
}

/// Curvature of the growth, and its value soon after a rate that was too high.
const STEEPNESS: f64 = 0.05;
const STEEP: f64 = 0.08;
/// Share by which the growth begins below the last rate.
const DIP: f64 = 0.02;
/// Growth factor of one step in slow start.
const STEP: f64 = 1.6;
/// Served requests per step, and their number for an API that saves up no requests.
const SOME: f64 = 6.0;
const FEW: f64 = 2.0;
/// First reduction of the rate, and the largest one; each further reduction soon after the last is twice as large.
const CUT: f64 = 0.01;
const MOST_CUT: f64 = 0.15;
/// Share of refused requests above which the rate is too high, and the refusals are not random.
const MOST_NOISE: f64 = 0.4;
/// Number of refusals in short succession that are remembered.
const MOST_REFUSALS: usize = 16;
/// Seconds, or requests, for which deliveries are remembered.
const REMEMBERED: f64 = 15.0;
const REMEMBERED_REQUESTS: f64 = 100.0;

// === impl Belief ===

impl Belief {
    /// Estimate from `count` requests served in a window of `span` seconds.
    pub(super) fn of_window(rate: f64, span: f64, count: f64, now: f64) -> Self {
        Self { most: rate, at: now, calm: calm(rate, span), steepness: STEEPNESS, span, count, ..Self::default() }
    }

    /// Returns the estimate with at least `time` seconds before a higher rate is tried.
    pub(super) fn kept(mut self, time: f64) -> Self {
        self.keep(time);
        self
    }

    /// Sets a minimum of `time` seconds before a higher rate is tried.
    pub(super) fn keep(&mut self, time: f64) {
        self.calm = self.calm.max(time);
    }

    /// Estimate that is only a lower bound.
    pub(super) fn at_least(rate: f64, span: f64, count: f64, now: f64) -> Self {
        let rising = Rising { rate, served: 0.0, step: SOME, most: f64::INFINITY };
        Self { rising: Some(rising), ..Self::of_window(rate, span, count, now) }
    }

    /// Returns the estimate for an API that saves up no requests: each served request shows that the rate is not too
    /// high.
    pub(super) fn one_by_one(mut self) -> Self {
        self.rising.iter_mut().for_each(|rising| rising.step = FEW);
        self
    }

    /// Returns the estimate with the knowledge that `most` per second were refused.
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

    /// Excludes `idle` seconds in which the rate was not used up.
    pub(super) fn rest(&mut self, idle: f64) {
        self.at += idle.max(0.0);
    }

    /// Restarts the growth at `rate`.
    pub(super) fn restart(&mut self, now: f64, rate: f64) {
        (self.most, self.at) = (rate.max(1e-6), now);
    }

    /// Sets the rate, also if only a lower bound was known. For at least `time` seconds no higher rate is tried.
    pub(super) fn settle(&mut self, now: f64, rate: f64, time: f64) {
        self.rising = None;
        self.restart(now, rate);
        self.keep(time);
    }

    /// Sets the rate; a higher one is tried later.
    pub(super) fn holds_on(&mut self, now: f64, rate: f64) {
        (self.most, self.at) = (rate, now - self.calm);
    }

    /// Records that a request was served, sent at `sent`. Returns true if the rate has grown beyond all limits.
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

    /// Counts deliveries, like BBR: a rate that was served lately can be served again.
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

    /// Handles a refusal in slow start after the expected number of requests: the measured window was right.
    pub(super) fn holds(&mut self, now: f64) {
        let rate = self.count / self.span;
        (self.rising, self.most, self.at, self.calm) = (None, rate, now, calm(rate, self.span));
    }

    /// Handles a refusal in slow start that came too soon to tell anything.
    pub(super) fn rises_anew(&mut self) {
        if let Some(rising) = &mut self.rising {
            rising.served = 0.0;
        }
    }

    /// Handles a refusal in slow start: the limit is between the last two steps.
    pub(super) fn risen_too_far(&mut self, now: f64) {
        let rate = self.rate(now) / STEP.sqrt();
        (self.rising, self.most, self.at, self.cuts) = (None, rate, now, 0);
        (self.calm, self.series) = (calm(rate, self.span.min(5.0)), Series::default());
    }

    /// Lowers the rate after a refusal of a request that left at `sent`, with `served` requests before. Returns the
    /// share that is refused at any rate, if the refusals are random.
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
    /// Records a refusal of a request that left at `sent`, after `cuts` reductions and `served` requests at `rate`.
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

    /// Send time of the last refused request.
    fn last(&self) -> f64 {
        self.refusals.back().map_or(f64::NEG_INFINITY, |(last, _)| *last)
    }

    /// Returns true if the refusals are regular, which random ones are not. Between two refusals a bucket serves its
    /// refill, plus or minus one; a window of a clock serves the same number each time.
    fn is_regular(&self) -> bool {
        let (fewest, most) = self.between;
        self.slowest <= self.fastest || fewest >= 3.0 && most - fewest <= 1.0
    }
}

/// Time for which a rate is kept before a higher one is tried.
fn calm(rate: f64, span: f64) -> f64 {
    (85.0 / rate).clamp(15.0, 120.0).max((span * 0.7).min(1200.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a client that sends evenly at the estimated rate, first 20/s, and skips one slot after a refusal.
    /// `serves` says whether a request is served, by the time that it leaves. Returns the share that is taken for
    /// random, and the final rate.
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

    /// Two hundred in ten seconds, by a bucket with a depth of three. Rates above 10/s soon empty the bucket, and at
    /// 20/s it refuses every second request.
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

    /// From one per second to ten in five steps of 1.6: 1.6^5 is 10.5.
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
