//! How much longer than usual a request may take to the API before the window's promise would break.
//!
//! Nobody can measure the way alone, only the time to the answer. Its spread (longest less shortest) is an upper bound of
//! what the way adds, and so the margin follows it; but a slow API spreads its answers as well, so that what is learned
//! this way is capped at 4% of the window. Beyond that only the API itself convinces us, by refusing a request although
//! the window was kept.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::{Instant, nanos};

/// How wide the margin for jitter on the way to the API is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MarginSpec {
    /// Start small, learn from the spread of the time to answer and from refusals.
    #[default]
    Auto,
    /// Always this much.
    Fixed(Duration),
}

/// The margin of one lane.
#[derive(Clone, Debug)]
pub struct Margin {
    spec: MarginSpec,
    /// Times to answer of the running epoch and of the one before.
    epochs: [MarginEpoch; 2],
    /// What refusals have taught, as it was when the last of them was believed.
    floor: Duration,
    floor_since: Instant,
    /// When the pause began that may not be over, and what the floor was before: if the pause outlasts a window, it taught nothing.
    pause: Option<(Instant, Duration)>,
}

#[derive(Clone, Copy, Debug)]
struct MarginEpoch {
    since: Instant,
    samples: u32,
    shortest: Duration,
    longest: Duration,
}

/// How long times to answer are remembered: between one and two epochs.
const EPOCH: Duration = Duration::from_secs(30);
/// Before this many answers the spread says nothing.
const SAMPLES: u32 = 8;
/// The margin to begin with, unless 2% of the window is less.
const INITIAL: Duration = Duration::from_millis(10);
/// Half of what refusals have taught is forgotten after each of these without another.
const HALF_LIFE: Duration = Duration::from_secs(600);

/// A margin as it is stored. Durations are in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MarginRecord {
    floor: u64,
    floor_since: Instant,
    /// Since when, how many, the shortest and the longest.
    epochs: Vec<(Instant, u32, u64, u64)>,
}

// === impl Margin ===

impl Margin {
    /// A margin that knows nothing yet.
    pub fn new(spec: MarginSpec) -> Self {
        Self { spec, epochs: [MarginEpoch::NONE; 2], floor: Duration::ZERO, floor_since: Instant::START, pause: None }
    }

    /// As it is written down.
    pub fn record(&self) -> MarginRecord {
        let told = self.epochs.iter().filter(|epoch| epoch.samples > 0);
        let epochs = told.map(|epoch| (epoch.since, epoch.samples, nanos(epoch.shortest), nanos(epoch.longest)));
        MarginRecord { floor: nanos(self.floor), floor_since: self.floor_since, epochs: epochs.collect() }
    }

    /// As it was written down.
    pub fn restored(spec: MarginSpec, record: &MarginRecord) -> Self {
        let mut epochs = [MarginEpoch::NONE; 2];
        for (epoch, &(since, samples, shortest, longest)) in epochs.iter_mut().zip(&record.epochs) {
            let [shortest, longest] = [shortest, longest].map(Duration::from_nanos);
            *epoch = MarginEpoch { since, samples, shortest, longest };
        }
        Self { spec, epochs, floor: Duration::from_nanos(record.floor), floor_since: record.floor_since, pause: None }
    }

    /// Another specification from here on; what was learned is kept.
    pub fn respecify(&mut self, spec: MarginSpec) {
        self.spec = spec;
    }

    /// The margin for windows of length `per`.
    pub fn of(&self, per: Duration) -> Duration {
        match self.spec {
            MarginSpec::Fixed(margin) => margin,
            MarginSpec::Auto => {
                let learnt = self.spread().map_or_else(
                    || INITIAL.min(per / 50),
                    |spread| (spread + spread / 4 + Duration::from_millis(1)).min(per / 25),
                );
                learnt.max(self.floor.min(per / 4))
            }
        }
    }

    /// An answer came `took` after its request was sent.
    pub fn observe(&mut self, now: Instant, took: Duration) {
        if now.since(self.epochs[0].since) >= EPOCH {
            self.epochs = [MarginEpoch { since: now, ..MarginEpoch::NONE }, self.epochs[0]];
        }
        let epoch = &mut self.epochs[0];
        epoch.samples += 1;
        epoch.shortest = epoch.shortest.min(took);
        epoch.longest = epoch.longest.max(took);
        if self.floor > Duration::ZERO && now.since(self.floor_since) >= HALF_LIFE {
            (self.floor, self.floor_since) = (self.floor / 2, now);
        }
    }

    /// The API refused a request that was sent at `sent`, although the window (the shortest being `per`) was kept. If it
    /// `tries` whether a pause is over, after a whole window without requests, then no margin would have helped.
    pub fn refused(&mut self, now: Instant, sent: Instant, per: Duration, tries: bool) {
        match self.pause {
            Some((since, before)) if tries && sent.since(since) > per => {
                self.floor = before;
                return;
            }
            // It was under way when the pause began, or tries too soon to tell.
            Some((since, _)) if tries || sent < since => {}
            _ => self.pause = Some((now, self.floor)),
        }
        // Requests that were under way before the last lesson tell nothing about the margin since.
        if self.spec == MarginSpec::Auto && (sent >= self.floor_since || self.floor.is_zero()) {
            self.floor = (self.of(per) * 2).max(Duration::from_millis(2)).min(per / 4);
            self.floor_since = now;
        }
    }

    /// The API served a request that was sent at `sent`: a pause that began before is over, and what was learned when it began
    /// is true.
    pub fn served(&mut self, sent: Instant) {
        self.pause.take_if(|(since, _)| *since <= sent);
    }

    /// The shortest time to an answer that is remembered, if any is.
    pub fn shortest(&self) -> Option<Duration> {
        self.epochs.iter().filter(|epoch| epoch.samples > 0).map(|epoch| epoch.shortest).min()
    }

    /// The longest time to an answer that is remembered, if any is.
    pub fn longest(&self) -> Option<Duration> {
        self.epochs.iter().filter(|epoch| epoch.samples > 0).map(|epoch| epoch.longest).max()
    }

    fn spread(&self) -> Option<Duration> {
        let [one, two] = &self.epochs;
        (one.samples + two.samples >= SAMPLES)
            .then(|| one.longest.max(two.longest).saturating_sub(one.shortest.min(two.shortest)))
    }
}

impl MarginEpoch {
    const NONE: Self = Self { since: Instant::START, samples: 0, shortest: Duration::MAX, longest: Duration::ZERO };
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn ms(of: u64) -> Duration {
        Duration::from_millis(of)
    }

    fn at(of: u64) -> Instant {
        Instant::START + ms(of)
    }

    #[test]
    fn it_starts_small_and_follows_the_spread() {
        let mut margin = Margin::new(MarginSpec::Auto);
        assert_eq!(margin.of(SECOND), ms(10));
        assert_eq!(margin.of(ms(100)), ms(2));
        for took in [50, 54, 52, 51, 53, 50, 54, 50] {
            margin.observe(at(1000), ms(took));
        }
        assert_eq!(margin.of(SECOND), ms(6));
    }

    #[test]
    fn a_slow_api_does_not_cost_more_than_four_percent() {
        let mut margin = Margin::new(MarginSpec::Auto);
        for took in 0..100 {
            margin.observe(at(1000), ms(took * 50));
        }
        assert_eq!(margin.of(SECOND), ms(40));
    }

    #[test]
    fn an_outlier_is_forgotten_after_two_epochs() {
        let mut margin = Margin::new(MarginSpec::Auto);
        margin.observe(at(0), ms(30));
        for second in 0..70 {
            margin.observe(at(second * 1000), ms(5));
        }
        assert_eq!(margin.of(SECOND), ms(1));
    }

    #[test]
    fn a_refusal_doubles_it_once_per_lesson_and_is_forgotten_in_the_end() {
        let mut margin = Margin::new(MarginSpec::Auto);
        margin.refused(at(2000), at(1990), SECOND, false);
        assert_eq!(margin.of(SECOND), ms(20));
        margin.refused(at(2001), at(1995), SECOND, false); // was under way already
        assert_eq!(margin.of(SECOND), ms(20));
        margin.refused(at(3000), at(2990), SECOND, false);
        assert_eq!(margin.of(SECOND), ms(40));
        for ten_minutes in 1..4 {
            margin.observe(at(3000 + ten_minutes * 600_000), ms(1));
        }
        assert_eq!(margin.of(SECOND), ms(10));
    }

    #[test]
    fn a_fixed_margin_stays() {
        let mut margin = Margin::new(MarginSpec::Fixed(ms(7)));
        margin.refused(at(1), at(0), SECOND, false);
        margin.observe(at(1), ms(500));
        assert_eq!(margin.of(SECOND), ms(7));
    }

    /// An API that pauses for longer than a window refuses whatever tries, though nothing else was sent in a window.
    #[test]
    fn what_a_pause_refuses_teaches_nothing_once_it_has_outlasted_a_window() {
        let mut margin = Margin::new(MarginSpec::Auto);
        let before = margin.of(SECOND);
        margin.refused(at(2000), at(1990), SECOND, false);
        margin.refused(at(2500), at(2490), SECOND, true);
        assert!(margin.of(SECOND) > before * 2, "the first may still meet what was sent before");
        margin.refused(at(3200), at(3190), SECOND, true);
        assert_eq!(margin.of(SECOND), before);
    }

    #[test]
    fn a_later_pause_takes_back_nothing_that_was_learned_before_it() {
        let mut margin = Margin::new(MarginSpec::Auto);
        margin.refused(at(2000), at(1990), SECOND, false);
        let learned = margin.of(SECOND);
        margin.served(at(1995));
        assert!(margin.pause.is_some(), "it was under way when the pause began");
        margin.served(at(3000));
        // A pause of which the margin is not told, as it began with something else.
        margin.refused(at(100_000), at(99_990), SECOND, true);
        margin.refused(at(102_000), at(101_990), SECOND, true);
        assert_eq!(margin.of(SECOND), learned);
    }
}
