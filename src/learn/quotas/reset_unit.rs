//! In which unit an API tells of its resets.

use std::{borrow::Cow, time::Duration};

use crate::{clock::Instant, hint::Bucket};

/// Seconds, or thousandths of them. Some APIs say thousandths and do not say so (Tiendanube): a reset that comes a thousand
/// times faster than time passes is one of these.
#[derive(Clone, Debug, Default)]
pub(super) struct ResetUnit {
    /// What was said to be left until the reset, and when.
    said: Option<(Duration, Instant)>,
    thousandths: bool,
}

// === impl ResetUnit ===

impl ResetUnit {
    /// `bucket` with a reset in seconds. Says whether the unit turns out to be another one.
    pub(super) fn in_seconds<'a>(&mut self, bucket: &'a Bucket, now: Instant) -> (Cow<'a, Bucket>, bool) {
        let Some(left) = bucket.reset else { return (Cow::Borrowed(bucket), false) };
        let mut turned = false;
        if let Some((before, at)) = self.said
            && !self.thousandths
            && before > left + Duration::from_secs(2)
            && left > Duration::from_secs(30)
        {
            let speed = (before - left).as_secs_f64() / now.since(at).as_secs_f64().max(1e-4);
            turned = (400.0..2500.0).contains(&speed);
            self.thousandths = turned;
        }
        if self.said.is_none_or(|(_, at)| now.since(at) > Duration::from_millis(5)) {
            self.said = Some((left, now));
        }
        if self.thousandths {
            return (Cow::Owned(Bucket { reset: Some(left / 1000), ..bucket.clone() }), turned);
        }
        (Cow::Borrowed(bucket), turned)
    }
}
