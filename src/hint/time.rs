//! Parses times and durations in the forms that APIs use.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::count;

/// Longest time that an API can mean; longer values are cut to it.
pub(super) const CAP: Duration = Duration::from_secs(400 * 24 * 60 * 60);
/// Largest plausible difference between the server's clock and ours. Beyond it, either clock may have written a time.
const SANE_SKEW: Duration = Duration::from_secs(24 * 60 * 60);

/// Point in time, as an answer reports it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum When {
    /// Counted from now; `spelled` if the value names its units (`6m0s`).
    In { delay: Duration, spelled: bool },
    /// Time of day since 1970; `coarse` if it is in whole seconds.
    At { at: Duration, coarse: bool },
}

/// A wait that an answer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Wait {
    pub(super) told: Duration,
    /// Extra time until the wait is certainly over.
    pub(super) later: Duration,
}

/// Largest difference between `Date` and the arrival if the clocks agree: `Date` is rounded down, and the answer was in
/// transit.
const ROUNDED: Duration = Duration::from_millis(1900);

/// The smallest difference between two HTTP dates.
const SECOND: Duration = Duration::from_secs(1);

/// Present time by both clocks. The server's clock is preferred where it is known, since it also wrote the times in the
/// answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// Arrival of the answer, by our clock.
    pub(super) arrived: Duration,
    /// `Date` of the answer, by the server's clock.
    pub(super) date: Option<Duration>,
}

// === impl Now ===

impl Now {
    /// Time from now until `at`; `None` if `at` is past. Clocks and roundings differ, so a past time does not mean "at
    /// once".
    pub(super) fn until(self, at: Duration) -> Option<Duration> {
        let by = |now: Duration| at.checked_sub(now).filter(|left| !left.is_zero());
        let left = match self.date {
            // `Date` has whole seconds: if the clocks agree within that, ours is the more precise.
            Some(date) if date.abs_diff(self.arrived) <= ROUNDED => by(self.arrived),
            Some(date) if date.abs_diff(self.arrived) <= SANE_SKEW => by(date),
            // Either the server's clock is wrong, or its `Date` alone. The shorter wait costs one more refusal at
            // worst. The longer wait may be too long by as many days as the clock is ahead.
            Some(date) => {
                let plausible = [self.arrived, date].into_iter().filter_map(by).filter(|left| *left <= CAP);
                plausible.min().or_else(|| by(self.arrived))
            }
            None => by(self.arrived),
        };
        left.map(|left| left.min(CAP))
    }

    /// Time from now until `at` is certainly over, for a wait that must not end early. A time in whole seconds
    /// (`coarse`) may stand for any instant of its second. So does `Date`, since an HTTP date has no fractions (RFC
    /// 9110 §5.6.7). Their difference may therefore be up to a second too short. Our own clock cannot correct that: it
    /// is only known to be about right.
    pub(super) fn until_over(self, at: Duration, coarse: bool) -> Option<Duration> {
        let over = at + if coarse { SECOND } else { Duration::ZERO };
        let left = match self.date {
            Some(date) if date.abs_diff(self.arrived) <= SANE_SKEW => {
                over.checked_sub(date).filter(|left| !left.is_zero())
            }
            _ => self.until(over),
        };
        left.map(|left| left.min(CAP))
    }

    /// Returns whether `at` is plausible as a time of day: within [`CAP`] before or after the arrival.
    pub(super) fn is_near(self, at: Duration) -> bool {
        at + CAP >= self.arrived && at <= self.arrived + CAP
    }

    /// Time of day by the clock with which an API aligns its windows.
    pub(super) fn of_day(self) -> Duration {
        self.date.filter(|date| date.abs_diff(self.arrived) <= SANE_SKEW).unwrap_or(self.arrived)
    }
}

// === impl When ===

impl When {
    /// Time from now; zero only if the answer says zero.
    pub(super) fn from(self, now: Now) -> Option<Duration> {
        match self {
            Self::In { delay, .. } => Some(delay),
            Self::At { at, .. } => now.until(at),
        }
    }

    /// Wait from now: the reported time, and how much longer the wait may last.
    pub(super) fn wait(self, now: Now) -> Option<Wait> {
        let Self::At { at, coarse } = self else {
            return self.from(now).map(|told| Wait { told, later: Duration::ZERO });
        };
        let over = now.until_over(at, coarse)?;
        let told = now.until(at).unwrap_or(over);
        Some(Wait { told, later: over.saturating_sub(told) })
    }

    fn seconds(of: f64) -> Self {
        Self::In { delay: duration(of), spelled: false }
    }

    /// Time of day of a count since 1970; `unit` counts make a second.
    fn epoch(number: f64, unit: f64) -> Self {
        // An `f64` holds the microseconds of centuries exactly. No reset is later than the bound.
        let micros = (number * (1e6 / unit)).min(4e15) as u64;
        let at = Duration::from_micros(micros);
        Self::At { at, coarse: at.subsec_nanos() == 0 }
    }
}

/// Parses when a budget is reset: seconds from now or since 1970 (distinguished by their size), milliseconds, a Go
/// duration, or a date.
pub(super) fn reset(value: &str, milliseconds: bool) -> Option<When> {
    let value = bare(value);
    let Some(number) = count::decimal(value) else { return date(value) };
    Some(match number {
        // Sixteen and nineteen digits are microseconds and nanoseconds.
        1e17.. => When::epoch(number, 1e9),
        1e14.. => When::epoch(number, 1e6),
        1e11.. => When::epoch(number, 1e3),
        _ if milliseconds => When::seconds(number / 1e3),
        1e9.. => When::epoch(number, 1.0),
        _ => When::seconds(number),
    })
}

/// Parses how long to wait. A number always counts from now, whatever its size.
pub(super) fn delay(value: &str, milliseconds: bool) -> Option<When> {
    let value = bare(value);
    match count::decimal(value) {
        Some(number) => Some(When::seconds(if milliseconds { number / 1e3 } else { number })),
        None => date(value),
    }
}

/// Parses the length of a window; `None` if it is zero or malformed.
pub(super) fn length(value: &str, milliseconds: bool) -> Option<Duration> {
    let value = value.trim();
    let length = match count::decimal(value) {
        Some(number) => duration(if milliseconds { number / 1e3 } else { number }),
        // `24 hours`, `monthly`
        None => spelled(value).or_else(|| {
            let word = value.to_ascii_lowercase().replace(' ', "");
            count::window(&word).map(duration)
        })?,
    };
    Some(length).filter(|length| !length.is_zero())
}

/// `seconds`, cut to the cap.
pub(super) fn duration(seconds: f64) -> Duration {
    if seconds.is_nan() || seconds <= 0.0 {
        return Duration::ZERO;
    }
    Duration::from_secs_f64(seconds.min(CAP.as_secs_f64()))
}

/// Removes the quotes that some APIs put around numbers.
fn bare(value: &str) -> &str {
    let value = value.trim();
    value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value)
}

fn date(value: &str) -> Option<When> {
    let delay = spelled(value).map(|delay| When::In { delay, spelled: true });
    delay.or_else(|| {
        let at = instant(value)?;
        Some(When::At { at, coarse: at.subsec_nanos() == 0 })
    })
}

/// A Go or protobuf duration: `6m0s`, `2m59.56s`, `20ms`, `45.837906927s`.
pub(super) fn spelled(value: &str) -> Option<Duration> {
    const UNITS: [(&str, f64); 9] = [
        ("ns", 1e-9),
        ("us", 1e-6),
        ("µs", 1e-6),
        ("μs", 1e-6),
        // Must precede `m`, which is a prefix of `ms`.
        ("ms", 1e-3),
        ("s", 1.0),
        ("m", 60.0),
        ("h", 3600.0),
        ("d", 86_400.0),
    ];
    let (mut rest, mut seconds) = (value, 0.0);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|at| *at > 0)?;
        let number = count::decimal(&rest[..digits])?;
        let (unit, worth) = UNITS.iter().find(|(unit, _)| rest[digits..].starts_with(unit))?;
        seconds += number * worth;
        rest = &rest[digits + unit.len()..];
    }
    (!value.is_empty()).then(|| duration(seconds))
}

/// Parses RFC 3339 and similar forms, or an HTTP date, as time since 1970.
pub(super) fn instant(value: &str) -> Option<Duration> {
    usual_date(value).or_else(|| iso(value)).or_else(|| http_date(value))
}

/// Parses `Sun, 06 Nov 1994 08:49:37 GMT`, the form of nearly every `Date` (IMF-fixdate, RFC 9110 §5.6.7).
fn usual_date(value: &str) -> Option<Duration> {
    let written = value.as_bytes();
    if written.len() != 29 || [written[3], written[4], written[7], written[11], written[16]] != *b",    " {
        return None;
    }
    let (weekday, day, month) = (value.get(..3)?, value.get(5..7)?, value.get(8..11)?);
    let (year, clock) = (value.get(12..16)?, value.get(17..25)?);
    if !is_weekday(weekday) || &written[25..] != b" GMT" {
        return None;
    }
    let at = civil(digits(year, 4)?, month_of(month)?, digits(day, 2)?, clock)?;
    u64::try_from(at).ok().map(Duration::from_secs)
}

/// Parses `2025-01-20T00:00:00Z`: `T` or a space, up to nine decimals, `Z` or an offset. A time without a zone is UTC.
pub(super) fn iso(value: &str) -> Option<Duration> {
    let (date, rest) = (value.get(..10)?, value.get(10..)?);
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let mut parts = date.split('-');
    let (year, month, day) = (digits(parts.next()?, 4)?, digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    let zone = rest.find(|c: char| !c.is_ascii_digit() && c != ':' && c != '.').unwrap_or(rest.len());
    let (clock, zone) = rest.split_at(zone);
    let (clock, fraction) = match clock.split_once('.') {
        Some((clock, fraction)) if !fraction.is_empty() => (clock, nanos(fraction)?),
        Some(_) => return None,
        None => (clock, 0),
    };
    let at = civil(year, month, day, clock)? - offset(zone.trim_start())?;
    Some(Duration::new(u64::try_from(at).ok()?, fraction))
}

/// Parses the three date formats of RFC 9110 §5.6.7. Weekdays are not checked, since servers get them wrong. `UTC`,
/// `+0000` and the like count as `GMT`. JavaScript's `Mon Jun 01 2026 14:00:42 GMT+0200 (Central European Summer Time)`
/// has the same parts.
fn http_date(value: &str) -> Option<Duration> {
    let value = value.split_once(" (").map_or(value, |(value, _)| value);
    let (value, west) = value.split_once("GMT-").map_or((value, None), |(value, west)| (value, Some(west)));
    let zone = west.map_or(Some(0), |west| offset(&format!("-{west}")));
    let (mut day, mut month, mut year, mut clock, mut zone) = (None, None, None, None, zone?);
    for word in value.split([' ', ',', '-']).filter(|word| !word.is_empty()) {
        if word.contains(':') {
            // `12:01:00+0000`
            let (time, east) = word.find('+').map_or((word, ""), |plus| word.split_at(plus));
            (clock, zone) = (clock.xor(Some(time)), zone + offset(east)?);
        } else if word.bytes().all(|c| c.is_ascii_digit()) {
            match (day, word.len()) {
                (None, 1 | 2) => day = digits(word, word.len()),
                (_, 2) if year.is_none() => year = digits(word, 2).map(century),
                (_, 4) if year.is_none() => year = digits(word, 4),
                // The zone `-0000`, which has lost its sign in the split, is no offset.
                (_, 4) if word == "0000" => {}
                _ => return None,
            }
        } else if let Some(plus) = word.find('+').filter(|plus| matches!(&word[..*plus], "" | "GMT" | "UTC")) {
            zone = offset(&word[plus..])?;
        } else if let Some(found) = month_of(word) {
            month = month.xor(Some(found));
        } else if !["GMT", "UTC", "Z"].iter().any(|zone| zone.eq_ignore_ascii_case(word)) && !is_weekday(word) {
            return None;
        }
    }
    let at = civil(year?, month?, day?, clock?)? - zone;
    u64::try_from(at).ok().map(Duration::from_secs)
}

/// RFC 9110 §5.6.7: a two-digit year more than 50 years ahead, from 2026, belongs to the last century.
fn century(year: i64) -> i64 {
    if year >= 76 { 1900 + year } else { 2000 + year }
}

fn month_of(word: &str) -> Option<i64> {
    const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let start = word.get(..3)?;
    let month = MONTHS.iter().position(|month| month.eq_ignore_ascii_case(start))?;
    i64::try_from(month + 1).ok()
}

fn is_weekday(word: &str) -> bool {
    const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    word.get(..3).is_some_and(|start| DAYS.iter().any(|day| day.eq_ignore_ascii_case(start)))
}

/// Seconds since 1970 of a day and `hh:mm:ss` (or `hh:mm`).
fn civil(year: i64, month: i64, day: i64, clock: &str) -> Option<i64> {
    let mut parts = clock.split(':');
    let (hour, minute) = (digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    let second = parts.next().map_or(Some(0), |second| digits(second, 2))?;
    if parts.next().is_some() || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // A leap second has the number 60.
    if hour > 24 || minute > 59 || second > 60 || year < 1970 {
        return None;
    }
    // Years are counted from March, so that a leap day is the last day of its year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

/// Seconds east of Greenwich.
fn offset(zone: &str) -> Option<i64> {
    let sign = match zone.as_bytes().first() {
        None => return Some(0),
        Some(b'Z' | b'z') if zone.len() == 1 => return Some(0),
        Some(b'+') => 1,
        Some(b'-') => -1,
        _ => return matches!(zone, "UTC" | "GMT").then_some(0),
    };
    // `+02`, `+0200`, `+02:00`.
    let (hours, minutes) = zone[1..].split_at_checked(2)?;
    let minutes = minutes.strip_prefix(':').unwrap_or(minutes);
    let (hours, minutes) = (digits(hours, 2)?, if minutes.is_empty() { 0 } else { digits(minutes, 2)? });
    (hours < 24 && minutes < 60).then_some(sign * (hours * 60 + minutes) * 60)
}

fn nanos(fraction: &str) -> Option<u32> {
    if !fraction.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    // Digits beyond the ninth are below a nanosecond.
    let told = &fraction[..fraction.len().min(9)];
    told.parse::<u32>().ok().map(|number| number * 10_u32.pow(9 - told.len() as u32))
}

fn digits(text: &str, count: usize) -> Option<i64> {
    (text.len() == count && text.bytes().all(|c| c.is_ascii_digit())).then(|| text.parse().ok())?
}
