//! Lateness of the machine's timers during the demo: on a busy machine it distorts the figures.

use std::{convert::Infallible, time::Duration};

use crate::clock::Clock;

/// Lateness of timers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stalls {
    /// Sum of all noticeable delays.
    pub(super) total: Duration,
    pub(super) longest: Duration,
}

/// Interval of reading the time.
const TICK: Duration = Duration::from_millis(5);
/// Lateness that does not change the table.
const USUAL: Duration = Duration::from_millis(10);
/// Lateness that distorts the figures: of a single timer, or of all timers as a share of the time.
const LONG: Duration = Duration::from_millis(100);
const SHARE: f64 = 0.02;

// === impl Stalls ===

impl Stalls {
    /// Measures the lateness until the future is dropped.
    pub(super) async fn watch(&mut self, clock: Clock) -> Infallible {
        loop {
            let due = clock.now() + TICK;
            clock.sleep_until(due).await;
            self.late(clock.now().since(due));
        }
    }

    pub(super) fn late(&mut self, by: Duration) {
        if by > USUAL {
            self.total += by;
            self.longest = self.longest.max(by);
        }
    }

    pub(super) fn show_in(&self, took: Duration) -> bool {
        self.longest >= LONG || self.total.as_secs_f64() > took.as_secs_f64() * SHARE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn where_time_stands_still_nothing_is_late() {
        let (clock, mut stalls) = (Clock::start(), Stalls::default());
        let second = clock.sleep_until(clock.now() + Duration::from_secs(1));
        tokio::select! {
            () = second => {}
            never = stalls.watch(clock) => match never {},
        }
        assert!(stalls.total.is_zero(), "{stalls:?}");
    }
}
