//! Detection of an API that reports one request too few as left.
//!
//! Some APIs count the next request as well (`max - hits - 1`). The first request of a window then seems to use two,
//! and no report ever shows a use of one. The last request of each window would never be sent, and a bucket (GCRA)
//! would never look full.

use std::{borrow::Cow, time::Duration};

use andante_clock::Instant;
use andante_hint::Bucket;

/// Evidence from nearly unused windows, on whether one more request is left than reported.
#[derive(Clone, Debug, Default)]
pub(super) struct OneLess {
    /// A use of one was reported, so the reports are right.
    is_true: bool,
    /// Number of reports with a use of two as the lowest use, and the time of the last one.
    twos: u32,
    last: Option<Instant>,
    /// Refusals although the correction had left one; each doubles the evidence that is needed again. `served` counts
    /// the requests served since the last one.
    in_vain: u32,
    served: u32,
    /// The last report said that nothing is left.
    empty: bool,
}

/// Reports with a use of two that are needed, and the time between them.
const TWOS: u32 = 3;
const APART: Duration = Duration::from_secs(1);
const MOST_IN_VAIN: u32 = 10;
/// A refusal after this many served requests does not count as a doubt.
const SELDOM: u32 = 200;

// === impl OneLess ===

impl OneLess {
    /// Returns `bucket` with the corrected remaining amount.
    pub(super) fn corrected<'a>(&mut self, bucket: Cow<'a, Bucket>, refused: bool, now: Instant) -> Cow<'a, Bucket> {
        let (Some(limit), Some(left), true) = (bucket.limit, bucket.remaining, bucket.requests) else { return bucket };
        if refused {
            // With something left, or before the last one was used, another limit has refused the request.
            if self.holds() && self.empty && left < 1.0 {
                let in_vain = if self.served < SELDOM { (self.in_vain + 1).min(MOST_IN_VAIN) } else { 0 };
                (self.twos, self.in_vain, self.served) = (0, in_vain, 0);
            }
            return bucket;
        }
        self.look(limit - left, now);
        // No API reports less than nothing, so only the first report of nothing means one.
        let empty = std::mem::replace(&mut self.empty, left < 1.0);
        if !self.holds() || empty && self.empty {
            return bucket;
        }
        self.served = self.served.saturating_add(1);
        Cow::Owned(Bucket { remaining: Some(left + 1.0), ..bucket.into_owned() })
    }

    fn look(&mut self, used: f64, now: Instant) {
        self.is_true |= used < 1.5;
        if (1.5..2.5).contains(&used) && self.last.is_none_or(|last| now.since(last) >= APART) {
            (self.twos, self.last) = (self.twos.saturating_add(1), Some(now));
        }
    }

    fn holds(&self) -> bool {
        !self.is_true && self.twos >= TWOS << self.in_vain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Corrected amount for a report of `said` out of ten, with one answer each second.
    fn left(one_less: &mut OneLess, second: &mut u64, said: f64, refused: bool) -> f64 {
        let bucket = Bucket::of_requests(10.0, said, Duration::from_secs(10));
        *second += 1;
        let now = Instant::START + Duration::from_secs(*second);
        one_less.corrected(Cow::Borrowed(&bucket), refused, now).remaining.unwrap()
    }

    /// Window of ten: the first answer reports eight left, and the last two answers report none.
    const WINDOW: [f64; 10] = [8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0, 0.0];

    #[test]
    fn where_the_first_of_each_window_uses_two_one_more_is_left() {
        let (mut one_less, mut second) = (OneLess::default(), 0);
        for _ in 0..2 {
            let said = WINDOW.map(|said| left(&mut one_less, &mut second, said, false));
            assert_eq!(said, WINDOW, "it may be somebody else's");
        }
        let truth = [9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0];
        assert_eq!(WINDOW.map(|said| left(&mut one_less, &mut second, said, false)), truth);
    }

    #[test]
    fn what_has_used_one_once_is_the_truth() {
        let (mut one_less, mut second) = (OneLess::default(), 0);
        left(&mut one_less, &mut second, 9.0, false);
        for _ in 0..10 {
            assert_eq!(left(&mut one_less, &mut second, 8.0, false), 8.0);
        }
    }

    #[test]
    fn what_is_refused_then_was_right() {
        let (mut one_less, mut second) = (OneLess::default(), 0);
        let said = [8.0; 3].map(|said| left(&mut one_less, &mut second, said, false));
        assert_eq!(said, [8.0, 8.0, 9.0]);
        assert_eq!(left(&mut one_less, &mut second, 0.0, false), 1.0);
        assert_eq!(left(&mut one_less, &mut second, 0.0, true), 0.0);
        let said = [8.0; 6].map(|said| left(&mut one_less, &mut second, said, false));
        assert_eq!(said, [8.0, 8.0, 8.0, 8.0, 8.0, 9.0], "twice as many are needed");
    }

    #[test]
    fn what_another_limit_refuses_says_nothing_of_it() {
        let (mut one_less, mut second) = (OneLess::default(), 0);
        let said = [8.0; 3].map(|said| left(&mut one_less, &mut second, said, false));
        assert_eq!(said, [8.0, 8.0, 9.0]);
        assert_eq!(left(&mut one_less, &mut second, 8.0, true), 8.0);
        assert_eq!(left(&mut one_less, &mut second, 7.0, false), 8.0);
    }

    /// One request in a thousand is refused for other reasons. Over hours, such refusals must not extend the time until
    /// the correction is applied again.
    #[test]
    fn a_refusal_now_and_then_is_forgotten() {
        let (mut one_less, mut second) = (OneLess::default(), 0);
        for _ in 0..20 {
            for said in WINDOW.iter().cycle().take(100 * WINDOW.len()) {
                left(&mut one_less, &mut second, *said, false);
            }
            left(&mut one_less, &mut second, 0.0, true);
        }
        let said = [8.0; 3].map(|said| left(&mut one_less, &mut second, said, false));
        assert_eq!(said, [8.0, 8.0, 9.0]);
    }
}
