//! How long the window of a budget is, when answers do not say so.

use std::time::Duration;

use crate::{clock::Instant, hint::Bucket};

/// What is known about the length of one budget's window.
#[derive(Clone, Debug, Default)]
pub(super) struct Period {
    known: Option<Duration>,
    /// When the present window ends, as its answers say.
    reset: Option<Instant>,
    /// The first request that was sent after that.
    next: Option<Instant>,
}

/// Windows that people choose, in seconds.
const USUAL: [u64; 22] = [
    1, 2, 5, 10, 15, 20, 30, 60, 120, 180, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 604_800,
    2_592_000,
];
/// Whole seconds hide up to this much.
const SECOND: Duration = Duration::from_millis(1050);

// === impl Period ===

impl Period {
    /// How long the window is, after an answer has said this, with `unanswered` requests under way of which it may
    /// know already.
    pub(super) fn hear(&mut self, bucket: &Bucket, unanswered: u32, now: Instant) -> Option<Duration> {
        if let Some(told) = bucket.window.filter(|told| !told.is_zero()) {
            self.known = Some(told);
            return self.known;
        }
        let (Some(limit), Some(remaining), Some(left)) = (bucket.limit, bucket.remaining, bucket.reset) else {
            return self.known;
        };
        if left.is_zero() || limit < 1.0 {
            return self.known;
        }
        if bucket.refills {
            // Full again in so long: a whole budget takes that much longer.
            let used = limit - remaining;
            if used > 0.0 {
                self.known = Duration::try_from_secs_f64(left.as_secs_f64() * limit / used).ok();
            }
            return self.known;
        }
        let reset = now + left;
        let whole = bucket.coarse || left.subsec_nanos() == 0;
        // All that is used is ours and was used just now: the window has only begun.
        let fresh = limit - remaining <= f64::from(unanswered) + 1.0;
        match self.reset {
            Some(last) if reset <= last + tolerance(left, whole) => {}
            last => {
                let (next, measured) = (self.next.take(), last.map(|last| reset.since(last)));
                self.reset = Some(reset);
                if fresh {
                    // One window after the other: what lies between their ends is its length.
                    let follows = |last: Instant, length: Duration| next.is_some_and(|next| next.since(last) * 10 < length);
                    let measured = measured.filter(|length| last.is_some_and(|last| follows(last, *length)));
                    self.known = Some(match measured {
                        Some(length) => near(length, whole).unwrap_or(length),
                        None => longer(left, whole),
                    });
                }
            }
        }
        self.known
    }

    /// A request was sent.
    pub(super) fn sent(&mut self, now: Instant) {
        if self.reset.is_some_and(|reset| reset <= now) {
            self.next.get_or_insert(now);
        }
    }
}

/// How far apart two words about the same reset may be.
fn tolerance(left: Duration, whole: bool) -> Duration {
    if whole { SECOND } else { left / 20 + Duration::from_millis(5) }
}

/// The window that somebody will have meant who shows one of about `length`.
fn near(length: Duration, whole: bool) -> Option<Duration> {
    let (below, above) = if whole { (SECOND, SECOND / 2) } else { (length / 20, length / 20) };
    usual().find(|usual| *usual + below >= length && *usual <= length + above)
}

/// The same if no more is known than what is left of it: a window may have begun before its first request.
fn longer(left: Duration, whole: bool) -> Duration {
    near(left, whole).or_else(|| usual().find(|usual| *usual >= left)).unwrap_or(left)
}

fn usual() -> impl Iterator<Item = Duration> {
    USUAL.iter().map(|seconds| Duration::from_secs(*seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(of: f64) -> Instant {
        Instant::START + Duration::from_secs_f64(of)
    }

    fn bucket(remaining: f64, reset: f64) -> Bucket {
        Bucket {
            name: None,
            requests: true,
            limit: Some(100.0),
            remaining: Some(remaining),
            reset: Some(Duration::from_secs_f64(reset)),
            window: None,
            coarse: true,
            refills: false,
        }
    }

    #[test]
    fn a_fresh_window_shows_its_length() {
        for (reset, window) in [(9.7, 10), (10.6, 10), (59.2, 60), (3599.5, 3600), (0.8, 1), (37.0, 60)] {
            let heard = Period::default().hear(&bucket(99.0, reset), 0, s(0.0));
            assert_eq!(heard, Some(Duration::from_secs(window)), "{reset}");
        }
    }

    #[test]
    fn a_window_that_has_begun_without_us_does_not_until_the_next() {
        let mut period = Period::default();
        assert_eq!(period.hear(&bucket(40.0, 4.0), 0, s(0.0)), None);
        period.sent(s(4.1));
        assert_eq!(period.hear(&bucket(99.0, 36.9), 0, s(4.1)), Some(Duration::from_secs(37)));
    }

    #[test]
    fn a_bucket_that_refills_shows_its_rate() {
        let refills = Bucket { refills: true, coarse: false, ..bucket(90.0, 1.0) };
        assert_eq!(Period::default().hear(&refills, 0, s(0.0)), Some(Duration::from_secs(10)));
    }

    #[test]
    fn what_is_told_is_taken() {
        let told = Bucket { window: Some(Duration::from_secs(42)), ..bucket(3.0, 1.0) };
        assert_eq!(Period::default().hear(&told, 0, s(0.0)), Some(Duration::from_secs(42)));
    }
}
