//! How fast a lane begins of which nothing is known: so that the first refusal comes before a crowd is under way.

use std::time::Duration;

use crate::clock::Instant;

/// A rate that doubles until it is no bound any more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ramp {
    /// When the first request left.
    since: Option<Instant>,
    /// How many may leave at once.
    level: f64,
    at: Instant,
}

/// So many leave at once.
const BURST: f64 = 32.0;
/// Requests per second at first.
const FIRST: f64 = 1000.0;
/// How long the rate takes to double.
const DOUBLING: Duration = Duration::from_millis(250);
/// How long it is a bound: at its end it is 64,000 per second.
const LENGTH: Duration = Duration::from_millis(1500);

// === impl Ramp ===

impl Ramp {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: None, level: BURST, at: now }
    }

    /// Whether it is no bound any more.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.since.is_some_and(|since| now.since(since) >= LENGTH)
    }

    /// When the next request may leave.
    pub(super) fn earliest(&self, now: Instant) -> Instant {
        let lacking = 1.0 - self.level(now);
        if lacking <= 0.0 { now } else { now + Duration::from_secs_f64(lacking / self.rate(now)) }
    }

    /// A request leaves.
    pub(super) fn take(&mut self, now: Instant) {
        (self.level, self.at) = (self.level(now) - 1.0, now);
        self.since.get_or_insert(now);
    }

    fn level(&self, now: Instant) -> f64 {
        (self.level + now.since(self.at).as_secs_f64() * self.rate(now)).min(BURST)
    }

    fn rate(&self, now: Instant) -> f64 {
        let doublings = now.since(self.since.unwrap_or(now)).as_secs_f64() / DOUBLING.as_secs_f64();
        FIRST * doublings.exp2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_leave_at_once_and_then_ever_more() {
        let (mut ramp, mut now, mut sent) = (Ramp::new(Instant::START), Instant::START, Vec::new());
        while !ramp.is_over(now) {
            now = ramp.earliest(now);
            ramp.take(now);
            sent.push(now);
        }
        let until = |ms| sent.iter().filter(|at| at.since(Instant::START) < Duration::from_millis(ms)).count();
        assert_eq!(until(1), 32);
        assert!((70..110).contains(&until(50)), "{}", until(50));
        assert!(until(1500) > 20_000, "{}", until(1500));
    }
}
