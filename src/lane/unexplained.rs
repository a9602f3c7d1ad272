//! Refusals that recur although the limits are kept: another sender uses the same quota, or the quota is smaller than
//! configured.
//!
//! A few refusals, one or two, are no sign of that: requests may arrive closer together than they left, and the margin
//! learns from them.

use std::time::Duration;

use andante_clock::Instant;
use parking_lot::Mutex;

/// Refusals of one lane that its limits do not explain.
#[derive(Debug)]
pub(super) struct UnexpectedRefusals {
    /// When the lane began: requests sent before that are unknown.
    since: Instant,
    episodes: Mutex<Episodes>,
}

/// A series of refusals; requests refused while in flight together count once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Episodes {
    /// Number of refusals.
    pub(super) count: u32,
    first: Option<Instant>,
    last: Option<Instant>,
}

/// Number of refusals in a row that are reported.
const REPEATED: u32 = 3;
/// After this long without a refusal, counting starts again.
const QUIET: Duration = Duration::from_secs(600);

// === impl UnexpectedRefusals ===

impl UnexpectedRefusals {
    /// An empty record of a lane that begins at `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, episodes: Mutex::default() }
    }

    /// Records that a request sent at `sent` was refused at `now`; `window` is that of the shortest limit. Returns the
    /// episodes to be logged, once per series.
    pub(super) fn record(&self, sent: Instant, now: Instant, window: Duration) -> Option<Episodes> {
        // In the first window the API may still count what another process sent before this one began.
        if sent.since(self.since) < window {
            return None;
        }
        let mut episodes = self.episodes.lock();
        if episodes.last.is_some_and(|last| sent < last) {
            return None;
        }
        if episodes.last.is_some_and(|last| now.since(last) >= QUIET) {
            *episodes = Episodes::default();
        }
        episodes.count += 1;
        episodes.first.get_or_insert(now);
        episodes.last = Some(now);
        (episodes.count == REPEATED).then_some(*episodes)
    }
}

impl Episodes {
    /// Time from the first to the last of them.
    pub(super) fn within(&self) -> Duration {
        self.first.zip(self.last).map_or(Duration::ZERO, |(first, last)| last.since(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(1);

    fn at(millis: u64) -> Instant {
        Instant::START + Duration::from_millis(millis)
    }

    /// Returns whether refusals of requests sent at `sent`, each answered 10 ms later, are reported in the end.
    fn told(sent: impl IntoIterator<Item = u64>) -> bool {
        let refusals = UnexpectedRefusals::new(at(0));
        sent.into_iter().any(|sent| refusals.record(at(sent), at(sent + 10), WINDOW).is_some())
    }

    #[test]
    fn what_is_refused_again_and_again_is_told_once() {
        let refusals = UnexpectedRefusals::new(at(0));
        for second in 1..=2 {
            assert_eq!(refusals.record(at(second * 1000), at(second * 1000 + 10), WINDOW), None);
        }
        let episodes = refusals.record(at(3000), at(3010), WINDOW).unwrap();
        assert_eq!((episodes.count, episodes.within()), (3, Duration::from_secs(2)));
        for second in 4..200 {
            assert_eq!(refusals.record(at(second * 1000), at(second * 1000 + 10), WINDOW), None);
        }
    }

    #[test]
    fn requests_that_were_under_way_together_are_one_refusal() {
        assert!(!told((0..50).map(|n| 2000 + n / 10)));
    }

    #[test]
    fn the_first_window_and_long_ago_do_not_count() {
        assert!(!told([0, 200, 400, 600, 800, 990]));
        assert!(!told((1..20).map(|n| n * 700_000)));
        assert!(told((0..3).map(|n| 3_600_000 + n * 500_000)));
    }
}
