//! Unit of the resets that an API reports.

use std::{borrow::Cow, time::Duration};

use andante_clock::Instant;
use andante_hint::Bucket;

/// Seconds or milliseconds. Some APIs use milliseconds without saying so (Tiendanube): their reset comes nearer a
/// thousand times faster than time passes.
#[derive(Clone, Debug, Default)]
pub(super) struct ResetUnit {
    /// Last reported time until the reset, and when it was reported.
    said: Option<(Duration, Instant)>,
    thousandths: bool,
}

/// Smallest decrease that is a reliable sign.
const FALLEN: Duration = Duration::from_secs(2);
/// Smallest reset that is taken for milliseconds.
const LONG: Duration = Duration::from_secs(30);

// === impl ResetUnit ===

impl ResetUnit {
    /// Returns `bucket` with a reset in seconds. The answer arrived at `now`, for a request that left at `sent`. The
    /// flag is true if the unit turns out to be another one.
    pub(super) fn in_seconds<'a>(
        &mut self,
        bucket: &'a Bucket,
        sent: Instant,
        now: Instant,
    ) -> (Cow<'a, Bucket>, bool) {
        let Some(left) = bucket.reset else { return (Cow::Borrowed(bucket), false) };
        let mut turned = false;
        // Ignores answers that overtake each other: while a bucket is drained, each of them reports a later reset.
        if self.said.is_none_or(|(_, at)| at <= sent) {
            let said = self.said.replace((left, now));
            let fallen = said.filter(|(before, _)| *before > left + FALLEN && left > LONG && !self.thousandths);
            if let Some((before, at)) = fallen {
                let speed = (before - left).as_secs_f64() / now.since(at).as_secs_f64().max(1e-4);
                turned = (400.0..2500.0).contains(&speed);
                self.thousandths = turned;
            }
        }
        if self.thousandths {
            return (Cow::Owned(Bucket { reset: Some(left / 1000), ..bucket.clone() }), turned);
        }
        (Cow::Borrowed(bucket), turned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reset in seconds that the unit makes of `seconds`. `sent` and `now` are in milliseconds.
    fn reads(unit: &mut ResetUnit, seconds: f64, sent: u64, now: u64) -> Duration {
        let at = |ms| Instant::START + Duration::from_millis(ms);
        let bucket = Bucket::of_requests(200.0, 20.0, Duration::from_secs_f64(seconds));
        unit.in_seconds(&bucket, at(sent), at(now)).0.reset.unwrap()
    }

    #[test]
    fn a_reset_that_comes_a_thousand_times_faster_than_time_passes_is_in_thousandths() {
        let mut unit = ResetUnit::default();
        assert_eq!(reads(&mut unit, 60_000.0, 0, 100), Duration::from_secs(60_000));
        assert_eq!(reads(&mut unit, 59_000.0, 1000, 1100), Duration::from_secs(59));
        assert_eq!(reads(&mut unit, 58_990.0, 1001, 1110), Duration::from_millis(58_990));
    }

    /// 200 a minute: of twenty sent at once, the last is counted first, and its answer arrives 6 ms before the first
    /// one's.
    #[test]
    fn answers_that_overtake_each_other_say_nothing_of_the_unit() {
        let mut unit = ResetUnit::default();
        assert_eq!(reads(&mut unit, 54.3, 0, 100), Duration::from_secs_f64(54.3));
        assert_eq!(reads(&mut unit, 48.6, 0, 106), Duration::from_secs_f64(48.6));
        assert_eq!(reads(&mut unit, 54.2, 106, 206), Duration::from_secs_f64(54.2));
    }
}
