//! Age of a stored answer, and the time for which it is fresh (RFC 9111 §4.2). Pure.

use std::time::{Duration, UNIX_EPOCH};

use http::{
    HeaderMap,
    header::{AGE, DATE, EXPIRES, HeaderName},
};

use crate::{
    clock::Instant,
    proxy::message::cache_control::{AnswerDirectives, FOREVER, seconds},
};

/// Arrival of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    pub(crate) at: Instant,
    /// Time of day at the arrival, since 1970.
    pub(crate) time_of_day: Duration,
    /// Time since the request was sent.
    pub(crate) delay: Duration,
}

/// The age of an answer, and its lifetime.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Freshness {
    /// Freshness lifetime; `None` if the answer states none.
    lifetime: Option<Duration>,
    /// Age of the answer at its arrival.
    initial_age: Duration,
    received: Instant,
}

// === impl Freshness ===

impl Freshness {
    /// Freshness of an answer with these `fields` and `directives`.
    pub(crate) fn of(fields: &HeaderMap, directives: &AnswerDirectives, received: &Received) -> Self {
        let date = date(fields, &DATE).unwrap_or(received.time_of_day);
        // §4.2.3.
        let apparent = received.time_of_day.saturating_sub(date);
        let initial_age = apparent.max(age_field(fields) + received.delay).min(FOREVER);
        Self { lifetime: lifetime(fields, directives, date), initial_age, received: received.at }
    }

    /// Age of the answer at `now`.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        (self.initial_age + now.since(self.received)).min(FOREVER)
    }

    /// Remaining time of freshness; `Err` is the time for which the answer has been stale.
    pub(crate) fn left(&self, now: Instant) -> Result<Duration, Duration> {
        let (age, lifetime) = (self.age(now), self.lifetime.unwrap_or_default());
        if lifetime > age { Ok(lifetime - age) } else { Err(age - lifetime) }
    }

    /// Returns whether the answer states its freshness lifetime.
    pub(crate) fn is_explicit(&self) -> bool {
        self.lifetime.is_some()
    }

    /// Returns whether the answer was fresh at its arrival.
    pub(crate) fn was_fresh(&self) -> bool {
        self.left(self.received).is_ok()
    }
}

/// §4.2.1, for a private cache. There is no heuristic lifetime: an answer without an explicit one is validated each
/// time.
fn lifetime(fields: &HeaderMap, directives: &AnswerDirectives, date: Duration) -> Option<Duration> {
    let expires = || {
        let mut lines = fields.get_all(EXPIRES).iter();
        let first = lines.next()?;
        // §5.3: an invalid date is one in the past. Two different dates are invalid freshness information.
        let one = lines.all(|line| line == first);
        Some(parsed(first.as_bytes()).filter(|_| one).map_or(Duration::ZERO, |at| at.saturating_sub(date).min(FOREVER)))
    };
    directives.max_age.or_else(expires)
}

/// Age that earlier caches state. A field that is not a single number makes the answer old: the answer was in a cache
/// of which nothing else is known. (§5.1 would have a cache ignore the field.)
fn age_field(fields: &HeaderMap) -> Duration {
    let mut lines = fields.get_all(AGE).iter();
    let Some(first) = lines.next() else { return Duration::ZERO };
    let one = lines.next().is_none();
    seconds(first.as_bytes()).filter(|_| one).unwrap_or(FOREVER)
}

/// The date of the field `name`, since 1970.
pub(crate) fn date(fields: &HeaderMap, name: &HeaderName) -> Option<Duration> {
    parsed(fields.get(name)?.as_bytes())
}

fn parsed(value: &[u8]) -> Option<Duration> {
    httpdate::parse_http_date(str::from_utf8(value).ok()?).ok()?.duration_since(UNIX_EPOCH).ok()
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header::CACHE_CONTROL};

    use super::*;

    /// 1994-11-06 08:49:37, the example of RFC 9110 §5.6.7.
    const NOON: u64 = 784_111_777;
    const DAY: &str = "Sun, 06 Nov 1994";

    fn freshness(lines: &[(HeaderName, &str)], delay: u64) -> Freshness {
        let fields: HeaderMap =
            lines.iter().map(|(name, value)| (name.clone(), HeaderValue::try_from(*value).unwrap())).collect();
        let received =
            Received { at: Instant::START, time_of_day: Duration::from_secs(NOON), delay: Duration::from_secs(delay) };
        Freshness::of(&fields, &AnswerDirectives::of(&fields), &received)
    }

    /// Number of seconds for which the answer is fresh.
    fn left(lines: &[(HeaderName, &str)]) -> Option<u64> {
        freshness(lines, 0).left(Instant::START).ok().map(|left| left.as_secs())
    }

    #[test]
    fn max_age_goes_before_expires_and_expires_counts_from_the_date() {
        let (date, later) = (format!("{DAY} 08:49:37 GMT"), format!("{DAY} 08:50:37 GMT"));
        let (date, later) = (date.as_str(), later.as_str());
        assert_eq!(left(&[(DATE, date), (EXPIRES, later)]), Some(60));
        assert_eq!(left(&[(DATE, date), (EXPIRES, later), (CACHE_CONTROL, "max-age=7")]), Some(7));
        assert_eq!(left(&[(DATE, date), (EXPIRES, later), (CACHE_CONTROL, "max-age=0")]), None);
        // Without a valid date, `Expires` counts from the arrival of the answer (RFC 9110 §6.6.1).
        assert_eq!(left(&[(DATE, "today"), (EXPIRES, later)]), Some(60));
        assert_eq!(left(&[(DATE, date), (EXPIRES, date)]), None);
    }

    /// RFC 9110 §5.6.7 and RFC 9111 §5.3.
    #[test]
    fn expires_is_read_in_three_forms_and_anything_else_is_in_the_past() {
        for later in ["Sun, 06 Nov 1994 08:50:37 GMT", "Sunday, 06-Nov-94 08:50:37 GMT", "Sun Nov  6 08:50:37 1994"] {
            assert_eq!(left(&[(EXPIRES, later)]), Some(60), "{later}");
        }
        assert_eq!(left(&[(EXPIRES, "0")]), None);
        assert_eq!(
            left(&[(EXPIRES, "Sun, 06 Nov 1994 08:50:37 GMT"), (EXPIRES, "Sun, 06 Nov 1994 09:00:00 GMT")]),
            None
        );
        assert!(freshness(&[(EXPIRES, "0")], 0).is_explicit());
    }

    /// RFC 9111 §4.2.3, with numbers: 60 - max(10 by its date, 5 in caches + 3 on the way).
    #[test]
    fn the_age_is_the_larger_one_of_what_the_date_and_what_the_age_field_says() {
        let (date, cc) = ((DATE, "Sun, 06 Nov 1994 08:49:27 GMT"), (CACHE_CONTROL, "max-age=60"));
        assert_eq!(freshness(&[date.clone(), cc.clone(), (AGE, "5")], 3).age(Instant::START).as_secs(), 10);
        assert_eq!(freshness(&[date.clone(), cc.clone(), (AGE, "9")], 3).age(Instant::START).as_secs(), 12);
        let later = Instant::START + Duration::from_secs(49);
        assert_eq!(freshness(&[date.clone(), cc.clone()], 0).left(later), Ok(Duration::from_secs(1)));
        let later = Instant::START + Duration::from_secs(53);
        assert_eq!(freshness(&[date, cc], 0).left(later), Err(Duration::from_secs(3)));
    }

    #[test]
    fn an_age_that_is_no_single_number_makes_an_answer_stale() {
        for age in ["abc", "-1", "7200.0", "0, 0", "0;a=1", ""] {
            assert_eq!(left(&[(CACHE_CONTROL, "max-age=60"), (AGE, age)]), None, "{age}");
        }
        assert_eq!(left(&[(CACHE_CONTROL, "max-age=60"), (AGE, "0"), (AGE, "0")]), None);
        assert_eq!(left(&[(CACHE_CONTROL, "max-age=60"), (AGE, "10")]), Some(50));
    }

    #[test]
    fn what_says_nothing_is_never_fresh() {
        let silent = freshness(&[(DATE, "Sun, 06 Nov 1994 08:49:37 GMT")], 0);
        assert!(!silent.is_explicit() && !silent.was_fresh());
    }
}
