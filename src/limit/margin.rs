//! Margin for requests that take longer than usual to reach the API, so that the window's promise still holds.
//!
//! Only the time to the response is measurable, not the time to the API. The spread of response times (longest less
//! shortest) bounds the jitter on the way, so the margin follows it. A slow API spreads its responses too, so the
//! learned margin is capped at 4% of the window. Only a refusal by the API, although the window was kept, raises it
//! further.

use std::time::Duration;

use andante_clock::{Instant, nanos};
use serde::{Deserialize, Serialize};

/// Width of the margin for jitter on the way to the API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MarginSpec {
    /// Start small, then learn from the spread of response times and from refusals.
    #[default]
    Auto,
    /// A fixed margin.
    Fixed(Duration),
}

/// The margin of one lane.
#[derive(Clone, Debug)]
pub struct Margin {
    spec: MarginSpec,
    /// Response times of the running epoch and of the one before.
    epochs: [MarginEpoch; 2],
    /// Margin learned from refusals, as of the last refusal that counted.
    floor: Duration,
    floor_since: Instant,
    /// Start of the pause that may still last, and the floor before it: a pause that outlasts a window teaches nothing.
    pause: Option<(Instant, Duration)>,
}

#[derive(Clone, Copy, Debug)]
struct MarginEpoch {
    since: Instant,
    samples: u32,
    shortest: Duration,
    longest: Duration,
}

/// Length of an epoch. Response times are remembered for one to two epochs.
const EPOCH: Duration = Duration::from_secs(30);
/// With fewer responses than this the spread is unknown.
const SAMPLES: u32 = 8;
/// Initial margin, unless 2% of the window is less.
const INITIAL: Duration = Duration::from_millis(10);
/// Half of the margin learned from refusals is forgotten after each such time without another refusal.
const HALF_LIFE: Duration = Duration::from_secs(600);

/// A margin as it is stored. Durations are in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MarginRecord {
    floor: u64,
    floor_since: Instant,
    /// Start, samples, shortest and longest time of each epoch.
    epochs: Vec<(Instant, u32, u64, u64)>,
}

// === impl Margin ===

impl Margin {
    /// A margin that has learned nothing yet.
    pub fn new(spec: MarginSpec) -> Self {
        Self { spec, epochs: [MarginEpoch::NONE; 2], floor: Duration::ZERO, floor_since: Instant::START, pause: None }
    }

    /// The form to persist.
    pub fn record(&self) -> MarginRecord {
        let told = self.epochs.iter().filter(|epoch| epoch.samples > 0);
        let epochs = told.map(|epoch| (epoch.since, epoch.samples, nanos(epoch.shortest), nanos(epoch.longest)));
        MarginRecord { floor: nanos(self.floor), floor_since: self.floor_since, epochs: epochs.collect() }
    }

    /// Restores a persisted record.
    pub fn restored(spec: MarginSpec, record: &MarginRecord) -> Self {
        let mut epochs = [MarginEpoch::NONE; 2];
        for (epoch, &(since, samples, shortest, longest)) in epochs.iter_mut().zip(&record.epochs) {
            let [shortest, longest] = [shortest, longest].map(Duration::from_nanos);
            *epoch = MarginEpoch { since, samples, shortest, longest };
        }
        Self { spec, epochs, floor: Duration::from_nanos(record.floor), floor_since: record.floor_since, pause: None }
    }

    /// Changes the specification from here on; the learned margin is retained.
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

    /// Records that a response came `took` after its request was sent.
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

    /// Records that the API refused a request sent at `sent`, although the window (the shortest being `per`) was kept.
    /// If the request is a probe (`tries`) after a whole window without requests, no margin would have helped.
    pub fn refused(&mut self, now: Instant, sent: Instant, per: Duration, tries: bool) {
        match self.pause {
            Some((since, before)) if tries && sent.since(since) > per => {
                self.floor = before;
                return;
            }
            // The request was in flight when the pause began, or probes too soon to tell.
            Some((since, _)) if tries || sent < since => {}
            _ => self.pause = Some((now, self.floor)),
        }
        // Requests sent before the last lesson reveal nothing about the margin since.
        if self.spec == MarginSpec::Auto && (sent >= self.floor_since || self.floor.is_zero()) {
            self.floor = (self.of(per) * 2).max(Duration::from_millis(2)).min(per / 4);
            self.floor_since = now;
        }
    }

    /// Records that the API served a request sent at `sent`: a pause that began before is over, and its lesson is
    /// confirmed.
    pub fn served(&mut self, sent: Instant) {
        self.pause.take_if(|(since, _)| *since <= sent);
    }

    /// The shortest remembered response time, if any.
    pub fn shortest(&self) -> Option<Duration> {
        self.epochs.iter().filter(|epoch| epoch.samples > 0).map(|epoch| epoch.shortest).min()
    }

    /// The longest remembered response time, if any.
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

    /// An API that pauses for longer than a window refuses every probe, though nothing else was sent in a window.
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
        // The margin is not told of a pause that began for another reason.
        margin.refused(at(100_000), at(99_990), SECOND, true);
        margin.refused(at(102_000), at(101_990), SECOND, true);
        assert_eq!(margin.of(SECOND), learned);
    }
}
