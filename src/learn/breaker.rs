//! Circuit breaker: leaves a failing upstream alone for a while, and probes it from time to time.

use std::time::Duration;

use andante_clock::Instant;

/// Outcomes of the last requests to an upstream.
#[derive(Clone, Debug, Default)]
pub(super) struct Breaker {
    /// Last requests, the newest in the lowest bit; 1 is a failure.
    last: u64,
    count: u32,
    newest: Instant,
    /// When the present outage was noticed; `None` without an outage.
    since: Option<Instant>,
}

/// Number of recent requests that the failure share is taken of.
const WINDOW: u32 = 50;
/// Minimum number of requests for a decision.
const LEAST: u32 = 10;
/// Failures older than this say nothing about now.
const STALE: Duration = Duration::from_secs(30);
/// First pause of an outage.
const FIRST: Duration = Duration::from_millis(500);
/// Longest pause.
const LONGEST: Duration = Duration::from_secs(30);

// === impl Breaker ===

impl Breaker {
    /// Records a failed request and returns how long to leave the upstream alone, if the breaker is open.
    ///
    /// The pause is a tenth of the outage so far: it grows, but adds little to the time that is lost anyway.
    pub(super) fn failed(&mut self, now: Instant, probe: bool) -> Option<Duration> {
        self.push(now, true);
        if !probe && !self.is_bad() {
            return None;
        }
        let since = *self.since.get_or_insert(now);
        Some((now.since(since) / 10).clamp(FIRST, LONGEST))
    }

    /// Records a served request. `probe`: the request was to find out whether the upstream has recovered.
    pub(super) fn served(&mut self, now: Instant, probe: bool) {
        if probe {
            *self = Self::default();
        }
        self.push(now, false);
        if !self.is_bad() {
            self.since = None;
        }
    }

    fn is_bad(&self) -> bool {
        self.count >= LEAST && self.last.count_ones() * 2 >= self.count
    }

    /// Failed requests, and all requests, among the last ones.
    pub(super) fn failures(&self) -> (u32, u32) {
        (self.last.count_ones(), self.count)
    }

    fn push(&mut self, now: Instant, failed: bool) {
        if now.since(self.newest) > STALE {
            (self.last, self.count) = (0, 0);
        }
        self.newest = now;
        self.last = (self.last << 1 | u64::from(failed)) & ((1 << WINDOW) - 1);
        self.count = (self.count + 1).min(WINDOW);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(of: u64) -> Instant {
        Instant::START + Duration::from_millis(of)
    }

    #[test]
    fn half_of_the_last_requests_trip_it_and_a_few_do_not() {
        let mut breaker = Breaker::default();
        for at in 0..9 {
            assert_eq!(breaker.failed(ms(at), false), None);
        }
        assert_eq!(breaker.failed(ms(9), false), Some(FIRST));

        let mut breaker = Breaker::default();
        for at in 0..300 {
            breaker.served(ms(at), false);
        }
        let trips_after = (300..).position(|at| breaker.failed(ms(at), false).is_some()).unwrap();
        assert_eq!(trips_after, 24);
    }

    #[test]
    fn one_failure_in_three_does_not() {
        let mut breaker = Breaker::default();
        for at in 0..3000 {
            if at % 3 == 0 {
                assert_eq!(breaker.failed(ms(at), false), None);
            } else {
                breaker.served(ms(at), false);
            }
        }
    }

    #[test]
    fn pauses_grow_with_the_outage_and_end_soon_after_it() {
        let mut breaker = Breaker::default();
        (0..10).for_each(|at| _ = breaker.failed(ms(at), false));
        assert_eq!(breaker.failed(ms(3_000), true), Some(FIRST));
        assert_eq!(breaker.failed(ms(19_999), true), Some(Duration::from_millis(1999)));
        assert_eq!(breaker.failed(ms(600_000), true), Some(LONGEST));
        breaker.served(ms(600_001), true);
        assert_eq!(breaker.failed(ms(600_002), false), None, "a new start");
    }

    #[test]
    fn old_failures_are_forgotten() {
        let mut breaker = Breaker::default();
        (0..9).for_each(|at| _ = breaker.failed(ms(at), false));
        assert_eq!(breaker.failed(ms(60_000), false), None);
        assert_eq!(breaker.failures(), (1, 1));
    }
}
