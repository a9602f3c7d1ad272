//! Requests sent in the last ten seconds: the pace shown to people.

use std::time::Duration;

use andante_clock::Instant;

/// Number of whole seconds that are remembered.
const SECONDS: usize = 10;

/// Requests sent, second by second, of the last ten seconds.
#[derive(Clone, Debug, Default)]
pub struct SendRate {
    /// When the first request was sent.
    first: Option<Instant>,
    /// The second in which the last request was sent, counted from the start.
    newest: u64,
    /// Requests per second; the index is the second modulo the length.
    sent: [u32; SECONDS + 1],
}

// === impl SendRate ===

impl SendRate {
    /// Records a sent request.
    pub(super) fn on_send(&mut self, now: Instant) {
        self.first.get_or_insert(now);
        let second = second(now);
        if second > self.newest {
            let passed = (second - self.newest).min(self.sent.len() as u64);
            for back in 0..passed {
                *self.at(second - back) = 0;
            }
            self.newest = second;
        }
        let counted = self.at(self.newest);
        *counted = counted.saturating_add(1);
    }

    /// Takes back the last sent request, which was not written after all.
    pub(super) fn on_recall(&mut self) {
        let counted = self.at(self.newest);
        *counted = counted.saturating_sub(1);
    }

    /// Requests per second over the last ten seconds, or since the first request if that is more recent.
    pub fn per_second(&self, now: Instant) -> f64 {
        let Some(first) = self.first else { return 0.0 };
        let current = second(now);
        // The current second is still running.
        let began = Instant::START + Duration::from_secs(current.saturating_sub(SECONDS as u64));
        let oldest = current.saturating_sub(SECONDS as u64);
        let back = self.newest.saturating_sub(self.sent.len() as u64 - 1);
        let sent: u64 = (back.max(oldest)..=self.newest)
            .map(|second| u64::from(self.sent[second as usize % self.sent.len()]))
            .sum();
        let length = now.since(began.max(first)).max(Duration::from_secs(1));
        sent as f64 / length.as_secs_f64()
    }

    fn at(&mut self, second: u64) -> &mut u32 {
        let place = second as usize % self.sent.len();
        &mut self.sent[place]
    }
}

fn second(at: Instant) -> u64 {
    at.since(Instant::START).as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::START + Duration::from_millis(millis)
    }

    #[test]
    fn the_pace_is_that_of_the_last_ten_seconds() {
        let mut rate = SendRate::default();
        assert_eq!(rate.per_second(at(5_000)), 0.0);
        // An hour of 5 a second, ten minutes of silence, then 50 a second.
        (0..5 * 3600).for_each(|n| rate.on_send(at(n * 200)));
        assert!((rate.per_second(at(3_600_000)) - 5.0).abs() < 0.3, "{}", rate.per_second(at(3_600_000)));
        assert_eq!(rate.per_second(at(3_700_000)), 0.0);
        (0..50 * 20).for_each(|n| rate.on_send(at(4_200_000 + n * 20)));
        assert!((rate.per_second(at(4_220_000)) - 50.0).abs() < 1.0, "{}", rate.per_second(at(4_220_000)));
        assert!((rate.per_second(at(4_225_500)) - 250.0 / 10.5).abs() < 0.1, "half of it is over");
    }

    #[test]
    fn a_lane_that_is_younger_is_judged_by_its_own_time() {
        let mut rate = SendRate::default();
        (0..150).for_each(|n| rate.on_send(at(60_000 + n * 20)));
        assert!((rate.per_second(at(63_000)) - 50.0).abs() < 0.1);
        rate.on_recall();
        assert!((rate.per_second(at(63_000)) - 149.0 / 3.0).abs() < 0.1);
        let mut one = SendRate::default();
        one.on_send(at(1));
        assert_eq!(one.per_second(at(2)), 1.0, "and not 1000 a second");
    }
}
