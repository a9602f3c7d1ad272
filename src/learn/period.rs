//! How long the window of a budget is, when answers do not say so.

use std::time::Duration;

use crate::{clock::Instant, hint::Bucket};

/// What is known about the length of one budget's window.
#[derive(Clone, Debug, Default)]
pub(super) struct Period {
    known: Option<Duration>,
    kind: Option<Kind>,
    /// When the present window ends, as its answers say.
    reset: Option<Instant>,
    /// What was used when this window was first heard of, and what was left of its time.
    first: Option<(f64, Duration)>,
    /// The first request that was sent after the end of the one before, and how many were sent since.
    began: Option<(Instant, u32)>,
    /// What was said of its length is not true.
    doubted: bool,
    /// The share of a bucket that must be used for its length to be measured again: what it was last, nearly.
    share: f64,
    /// A shorter length that was measured once.
    shorter: Option<Duration>,
}

/// How an allowance comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Each part of it a window after it was spent, or all at once: the reset is no later the more is used.
    Window,
    /// Little by little: the reset is when all of it is back, and the later the more is used.
    Bucket,
}

/// Windows that people choose, in seconds.
const USUAL: [u64; 22] = [
    1, 2, 5, 10, 15, 20, 30, 60, 120, 180, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 604_800,
    2_592_000,
];
/// A measurement with so much less used is as good as the last.
const NEARLY: f64 = 0.95;
/// And with each answer that is not measured so much less is enough: the API may have changed.
const FADING: f64 = 0.998;
/// Whole seconds hide up to this much.
const SECOND: Duration = Duration::from_millis(1050);

// === impl Period ===

impl Period {
    /// Of a budget that is heard of now, after `sent` requests since `began`.
    pub(super) fn since(began: Instant, sent: u32) -> Self {
        Self { began: Some((began, sent)), ..Self::default() }
    }

    /// How long the window is, after an answer has said this.
    pub(super) fn hear(&mut self, bucket: &Bucket, now: Instant) -> Option<Duration> {
        let told = bucket.window.filter(|told| !told.is_zero());
        let (Some(limit), Some(remaining), Some(left)) = (bucket.limit, bucket.remaining, bucket.reset) else {
            return self.known.or(told.filter(|_| !self.doubted));
        };
        if left.is_zero() || limit < 1.0 {
            return self.known.or(told.filter(|_| !self.doubted));
        }
        let used = limit - remaining;
        let whole = bucket.coarse || left.subsec_nanos() == 0;
        let blur = tolerance(left, whole);
        self.look_closer(used, left, blur);
        // All that is used is ours and was used just now: the window has only begun.
        let age = self.began.map_or(Duration::ZERO, |(began, _)| now.since(began));
        let fresh = self.began.is_some_and(|(_, sent)| used <= f64::from(sent) + 1.0) && age * 10 < left;
        if let Some(told) = told.filter(|_| !bucket.refills) {
            // A window that begins with so little left of it is not as long as somebody says who only knows the provider.
            self.doubted = left < told / 2 && (self.doubted || self.known.is_none() && fresh && left + blur < told / 2);
            if !self.doubted {
                self.known = Some(told);
                return self.known;
            }
        }
        match self.kind {
            // The more is used, the less the seconds are rounded.
            Some(Kind::Bucket) if used * 10.0 >= limit && used / limit >= self.share => {
                self.share = used / limit * NEARLY;
                let all = |left: Duration| Duration::try_from_secs_f64(left.as_secs_f64() * limit / used).ok();
                let (least, length) = (all(left.saturating_sub(blur)), all(left));
                let meant = usual().rfind(|usual| least <= Some(*usual) && Some(*usual) <= all(left + blur / 2));
                self.known = meant.or(length);
            }
            Some(Kind::Bucket) => self.share *= FADING,
            None if bucket.refills => {}
            _ => self.measure(fresh, left + if fresh { age } else { Duration::ZERO }, whole, now),
        }
        self.known
    }

    /// Whether the allowance comes back little by little.
    pub(super) fn refills(&self) -> bool {
        self.kind == Some(Kind::Bucket)
    }

    /// How many requests were sent since the present window began, as far as is known.
    pub(super) fn sent_since(&self) -> u32 {
        self.began.map_or(0, |(_, sent)| sent)
    }

    /// A request was sent.
    pub(super) fn sent(&mut self, now: Instant) {
        match &mut self.began {
            Some((began, sent)) if self.reset.is_none_or(|reset| reset > now || *began >= reset) => *sent += 1,
            began => *began = Some((now, 1)),
        }
    }

    /// Finds out how the allowance comes back, from whether the reset moves away as more is used.
    fn look_closer(&mut self, used: f64, left: Duration, blur: Duration) {
        match self.first {
            Some((before, first)) if used >= before => {
                if used < before * 2.0 || used < before + 4.0 {
                    return;
                }
                if left > first.mul_f64(1.5) + blur {
                    self.kind = Some(Kind::Bucket);
                } else if left <= first + blur {
                    self.kind = Some(Kind::Window);
                }
            }
            // Some of it has come back.
            _ if used >= 1.0 => self.first = Some((used, left)),
            _ => self.first = None,
        }
    }

    /// Learns the length of a window from its ends.
    fn measure(&mut self, fresh: bool, left: Duration, whole: bool, now: Instant) {
        let (reset, blur) = (now + left, tolerance(left, whole));
        if self.known.is_some_and(|known| left > known + blur) {
            // No more can be left of a window than all of it.
            self.known = Some(longer(left, whole));
        }
        let Some(last) = self.reset.replace(reset.max(self.reset.unwrap_or(reset))) else {
            if fresh {
                self.known = Some(longer(left, whole));
            }
            return;
        };
        if reset <= last + blur {
            return;
        }
        let Some(known) = self.known else {
            if fresh {
                self.known = Some(longer(left, whole));
            }
            return;
        };
        // One window after the other: what lies between their ends is its length, if that happens twice.
        let length = reset.since(last);
        let follows = fresh && self.began.is_some_and(|(began, _)| began.since(last) * 10 < length);
        if !follows || length >= known || length * 2 < known {
            self.shorter = None;
        } else if self.shorter.take().is_some_and(|before| before.abs_diff(length) <= blur) {
            self.known = Some(near(length, whole).unwrap_or(length));
        } else {
            self.shorter = Some(length);
        }
    }
}

/// How far apart two words about the same reset may be.
fn tolerance(left: Duration, whole: bool) -> Duration {
    if whole { SECOND } else { left / 20 + Duration::from_millis(5) }
}

/// The window that somebody will have meant who shows one of about `length`.
pub(super) fn near(length: Duration, whole: bool) -> Option<Duration> {
    let (below, above) = if whole { (SECOND, SECOND / 2) } else { (length / 20, length / 20) };
    usual().find(|usual| *usual + below >= length && *usual <= length + above)
}

/// The same if no more is known than what is left of it: a window may have begun before its first request.
fn longer(left: Duration, whole: bool) -> Duration {
    near(left, whole).or_else(|| usual().find(|usual| *usual >= left)).unwrap_or(left)
}

fn usual() -> impl DoubleEndedIterator<Item = Duration> {
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
            let mut period = Period::since(s(0.0), 5);
            let heard = period.hear(&bucket(99.0, reset), s(0.0));
            assert_eq!(heard, Some(Duration::from_secs(window)), "{reset}");
        }
    }

    #[test]
    fn a_window_that_has_begun_without_us_does_not_until_the_next() {
        let mut period = Period::since(s(0.0), 5);
        assert_eq!(period.hear(&bucket(40.0, 4.0), s(0.0)), None);
        period.sent(s(4.1));
        assert_eq!(period.hear(&bucket(99.0, 59.9), s(4.1)), Some(Duration::from_secs(60)));
    }

    #[test]
    fn an_unusual_window_is_measured_twice() {
        let mut period = Period::since(s(0.0), 5);
        assert_eq!(period.hear(&bucket(99.0, 37.0), s(0.0)), Some(Duration::from_secs(60)));
        for (at, known) in [(37.1, 60), (74.1, 37)] {
            period.sent(s(at));
            assert_eq!(period.hear(&bucket(99.0, 36.95), s(at)), Some(Duration::from_secs(known)));
        }
    }

    #[test]
    fn a_window_is_at_least_as_long_as_what_is_left_of_it() {
        let mut period = Period::since(s(0.0), 5);
        period.hear(&bucket(99.0, 20.0), s(0.0));
        assert_eq!(period.hear(&bucket(98.0, 58.9), s(21.0)), Some(Duration::from_secs(60)));
    }

    #[test]
    fn a_bucket_shows_itself_by_a_reset_that_moves_away() {
        let mut period = Period::since(s(0.0), 5);
        let refills = |remaining, reset| Bucket { refills: true, coarse: false, ..bucket(remaining, reset) };
        assert_eq!(period.hear(&refills(99.0, 0.1), s(0.0)), None);
        assert_eq!(period.hear(&refills(80.0, 2.0), s(0.0)), Some(Duration::from_secs(10)));
        // What says that it refills and does not is a window all the same.
        let mut period = Period::since(s(0.0), 5);
        assert_eq!(period.hear(&refills(99.0, 9.9), s(0.0)), None);
        assert_eq!(period.hear(&refills(94.0, 9.9), s(0.0)), Some(Duration::from_secs(10)));
    }

    #[test]
    fn what_is_not_true_is_not_believed_either_when_nothing_is_said_of_the_reset() {
        let hour = Some(Duration::from_secs(3600));
        let mut period = Period::since(s(0.0), 5);
        let seen = Some(Duration::from_secs(10));
        assert_eq!(period.hear(&Bucket { window: hour, ..bucket(99.0, 9.7) }, s(0.0)), seen);
        // An answer that was late: its reset is over, and unknown.
        assert_eq!(period.hear(&Bucket { window: hour, reset: None, ..bucket(40.0, 0.0) }, s(9.9)), seen);
    }

    #[test]
    fn what_is_told_is_taken() {
        let told = Bucket { window: Some(Duration::from_secs(42)), ..bucket(3.0, 1.0) };
        assert_eq!(Period::since(s(0.0), 5).hear(&told, s(0.0)), Some(Duration::from_secs(42)));
    }
}
