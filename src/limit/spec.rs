//! The grammar of one limit: `500/min`, `1/120s burst 3`, `10/s strict`.

mod suggest;

use std::{borrow::Cow, fmt, num::NonZeroU32, str::FromStr, time::Duration};

use andante_clock as clock;

use self::suggest::suggest_rate;
pub(super) use self::suggest::{hint as suggest, suggest_in_flight, suggest_same};
use super::Unit;

/// A rate of at most `count` units per `per`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Cost units per window.
    pub count: NonZeroU32,
    /// Length of the window.
    pub per: Duration,
}

/// A single limit as configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LimitSpec {
    /// Unit that the limit counts.
    pub unit: Unit,
    /// The rate that must never be exceeded, in any window.
    pub rate: Rate,
    /// Configured number of units that may leave back to back after a pause; [`settle`] fills in `None`.
    pub burst: Option<NonZeroU32>,
    /// Counts each request until its response's head plus the window: holds for any jitter on the way.
    pub strict: bool,
}

/// An invalid limit or cost, with a hint on how to write it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found {found:?}")]
pub struct SpecError {
    expected: &'static str,
    found: String,
    hint: String,
}

/// Units of a window's length. Printed limits use the first name of each row.
const UNITS: &[(&[&str], Duration)] = &[
    (&["ms", "millisecond", "milliseconds"], Duration::from_millis(1)),
    (&["s", "sec", "secs", "second", "seconds"], Duration::from_secs(1)),
    (&["min", "m", "mins", "minute", "minutes"], Duration::from_secs(60)),
    (&["h", "hr", "hour", "hours"], Duration::from_secs(3600)),
    (&["d", "day", "days"], Duration::from_secs(86_400)),
    (&["week", "w", "weeks"], Duration::from_secs(7 * 86_400)),
    // A rolling month is as long as the longest month, to be safe however the API counts.
    (&["month", "months"], Duration::from_secs(31 * 86_400)),
];

/// Allowed lengths of windows.
const LENGTHS: &str = "windows reach from nanoseconds per request to ten years";

// === impl Rate ===

impl Rate {
    /// The even distance between two requests, rounded down to nanoseconds.
    pub fn interval(&self) -> Duration {
        Duration::from_nanos((clock::nanos(self.per) / u64::from(self.count.get())).max(1))
    }

    /// Units per second.
    pub fn per_second(&self) -> f64 {
        f64::from(self.count.get()) / self.per.as_secs_f64()
    }

    /// The rate that a bucket of `burst` units, filled at this rate, guarantees: `burst` units in any window as long as
    /// filling takes, in whole milliseconds. `None` if that window is too long.
    fn with_room_for(self, burst: NonZeroU32) -> Option<Self> {
        if burst <= self.count {
            return Some(self);
        }
        let millis = (self.per.as_nanos() * u128::from(burst.get())).div_ceil(u128::from(self.count.get()) * 1_000_000);
        let rate = Self { count: burst, per: Duration::from_millis(u64::try_from(millis).ok()?) };
        rate.is_possible().then_some(rate)
    }

    fn is_possible(&self) -> bool {
        clock::nanos(self.per) >= u64::from(self.count.get()) && self.per <= Duration::from_secs(10 * 366 * 86_400)
    }

    fn write(&self, unit: Unit, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.count)?;
        if unit != Unit::REQUESTS {
            write!(f, " {unit}")?;
        }
        match UNITS.iter().find(|(_, length)| *length == self.per) {
            Some((names, _)) => write!(f, "/{}", names[0]),
            None if self.per.subsec_nanos() == 0 => write!(f, "/{}s", self.per.as_secs()),
            None => write!(f, "/{}ms", self.per.as_millis()),
        }
    }
}

impl FromStr for Rate {
    type Err = SpecError;

    /// Parses a rate of requests; other units are refused.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let text = text.trim();
        let (unit, rate) = split_unit(text)?;
        if unit != Unit::REQUESTS {
            return Err(SpecError::new(text, format!("requests alone are counted here, and not {unit}")));
        }
        let wrong = |hint: Option<String>| SpecError::new(text, hint.unwrap_or_else(|| suggest_rate(text)));
        read_rate(&closed_up(&rate)).map_err(wrong)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(Unit::REQUESTS, f)
    }
}

// === impl LimitSpec ===

impl LimitSpec {
    /// Units that may leave back to back after a pause; 1 is even spacing.
    pub fn burst(&self) -> NonZeroU32 {
        self.burst.unwrap_or(NonZeroU32::MIN)
    }

    /// Returns true if the burst is the one that [`settle`] gives to amounts. Such a burst makes up for time lost while
    /// an amount does not fit.
    pub fn has_slack(&self) -> bool {
        self.unit != Unit::REQUESTS && self.burst == Some(slack(self.rate))
    }
}

fn slack(rate: Rate) -> NonZeroU32 {
    NonZeroU32::new(rate.count.get() / 10).unwrap_or(NonZeroU32::MIN)
}

/// Fills in missing bursts, for limits that hold together.
///
/// For each unit the shortest window sets the pace, evenly. Longer windows, and all beyond an hour, are quotas that
/// requests may use as fast as the other limits allow. Evenly spaced, `100000/month` would reduce `500/min` to one
/// request in 27 s.
///
/// Amounts of other units than requests differ, and do not always fit into the rest of a window. A burst of a tenth
/// makes up for the time lost by that.
pub fn settle(limits: &mut [LimitSpec]) {
    let windows: Vec<(Unit, Duration)> = limits.iter().map(|limit| (limit.unit, limit.rate.per)).collect();
    for limit in limits {
        let shortest = windows.iter().filter(|(unit, _)| *unit == limit.unit).map(|(_, per)| *per).min();
        let paces = shortest == Some(limit.rate.per) && limit.rate.per <= LONGEST_PACE;
        let burst = match (paces, limit.unit) {
            (false, _) => limit.rate.count,
            (true, Unit::REQUESTS) => NonZeroU32::MIN,
            (true, _) => slack(limit.rate),
        };
        limit.burst.get_or_insert(burst);
    }
}

/// Longest window that sets a pace if no shorter window does.
pub const LONGEST_PACE: Duration = Duration::from_secs(3600);

impl From<Rate> for LimitSpec {
    fn from(rate: Rate) -> Self {
        Self { unit: Unit::REQUESTS, rate, burst: None, strict: false }
    }
}

impl FromStr for LimitSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let text = text.trim();
        let (unit, rate) = split_unit(text)?;
        let rate = closed_up(&rate);
        let mut words = rate.split_whitespace();
        let mut spec: Self = read_rate(words.next().unwrap_or_default())
            // Blame the whole limit instead of its first word: people write "500 a min".
            .map_err(|hint| SpecError::new(text, hint.unwrap_or_else(|| suggest(text))))?
            .into();
        spec.unit = unit;
        let wrong = |hint: String| SpecError::new(text, hint);
        while let Some(word) = words.next() {
            match word {
                "strict" => spec.strict = true,
                "burst" if spec.burst.is_some() => {
                    return Err(wrong("write one burst, as in \"10/s burst 20\"".into()));
                }
                "burst" => {
                    let burst = parse_count(words.next().unwrap_or_default())
                        .map_err(|_| wrong(format!("write how many, as in \"{} burst 20\"", spec.rate)))?;
                    spec.rate = spec.rate.with_room_for(burst).ok_or_else(|| wrong(LENGTHS.into()))?;
                    spec.burst = Some(burst);
                }
                _ => return Err(wrong(suggest(text))),
            }
        }
        Ok(spec)
    }
}

impl fmt::Display for LimitSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rate.write(self.unit, f)?;
        if let Some(burst) = self.burst.filter(|burst| burst.get() > 1) {
            write!(f, " burst {burst}")?;
        }
        if self.strict {
            f.write_str(" strict")?;
        }
        Ok(())
    }
}

// === impl SpecError ===

impl SpecError {
    pub(super) fn new(found: &str, hint: String) -> Self {
        Self { expected: "a limit", found: found.to_owned(), hint }
    }

    pub(super) fn of_cost(found: &str, hint: String) -> Self {
        Self { expected: "a cost", ..Self::new(found, hint) }
    }

    /// Suggests what to write instead.
    pub fn hint(&self) -> &str {
        &self.hint
    }
}

/// Splits off the unit: `90000 input-tokens/min burst 5` is `input-tokens` and `90000/min burst 5`.
pub(super) fn split_unit(text: &str) -> Result<(Unit, Cow<'_, str>), SpecError> {
    let split = text.split_once('/').and_then(|(before, after)| {
        let (count, unit) = before.trim().split_once(char::is_whitespace)?;
        let counts = count.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
        counts.then(|| (unit.trim(), format!("{count}/{}", after.trim_start())))
    });
    match split {
        None => Ok((Unit::REQUESTS, text.into())),
        Some((unit, rest)) => {
            let wrong = |hint| SpecError::new(text, suggest_same(text).unwrap_or(hint));
            Ok((Unit::named(unit).map_err(wrong)?, rest.into()))
        }
    }
}

/// Parses `500/min`. The error suggests what to write instead, if the mistake is clear.
fn read_rate(text: &str) -> Result<Rate, Option<String>> {
    let (count, per) = text.split_once('/').ok_or(None)?;
    let is_number = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let count = parse_count(count).map_err(|hint| is_number.then_some(hint))?;
    let per = parse_window(per.trim()).ok_or(None)?;
    if per.is_zero() {
        return Err(Some("a window must be longer than nothing, as in \"10/s\"".into()));
    }
    let rate = Rate { count, per };
    if rate.is_possible() { Ok(rate) } else { Err(Some(LENGTHS.into())) }
}

/// Removes the spaces within the rate of a text such as `600 / 15 min`.
fn closed_up(rate: &str) -> String {
    let Some((count, rest)) = rate.split_once('/') else { return rate.to_owned() };
    let rest = rest.trim_start();
    let (number, after) = rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count());
    let word = after.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
    let is_window = !number.is_empty() && UNITS.iter().any(|(names, _)| names.contains(&word.as_str()));
    format!("{}/{number}{}", count.trim_end(), if is_window { after.trim_start() } else { after })
}

pub(super) fn parse_count(text: &str) -> Result<NonZeroU32, String> {
    let text = text.trim().replace('_', "");
    match text.parse::<u32>() {
        Ok(count) => NonZeroU32::new(count)
            .ok_or_else(|| "a limit of 0 lets nothing through; leave the rule out, or write at least 1".to_owned()),
        Err(_) if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) => {
            Err(format!("counts go up to {}", u32::MAX))
        }
        Err(_) => Err("write a whole number, then the window, as in \"500/min\"".to_owned()),
    }
}

/// Parses `min`, `120s` or `15 min`: an optional count and a unit.
fn parse_window(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = text.split_at(digits);
    let count: u32 = if count.is_empty() { 1 } else { count.parse().ok()? };
    let unit = unit.trim();
    // `M` may mean a minute or a month.
    if unit == "M" {
        return None;
    }
    let unit = unit.to_ascii_lowercase();
    let (_, length) = UNITS.iter().find(|(names, _)| names.contains(&unit.as_str()))?;
    length.checked_mul(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;

    #[test]
    fn every_form_of_the_contract_is_read() {
        for (text, count, secs) in [
            ("500/min", 500, 60),
            ("10/s", 10, 1),
            ("5000/h", 5000, 3600),
            ("100000/month", 100_000, 31 * 86_400),
            ("1/120s", 1, 120),
            ("600/15 min", 600, 900),
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!((rate.count.get(), rate.per.as_secs()), (count, secs), "{text}");
        }
        for (text, limit) in [
            ("600/15 min", "600/900s"),
            ("100 / 10 s burst 5 strict", "100/10s burst 5 strict"),
            ("10 req/s", "10/s"),
            ("500 calls/min burst 5", "500/min burst 5"),
        ] {
            assert_eq!(text.parse::<LimitSpec>().unwrap().to_string(), limit, "{text}");
        }
        let list: Limits = "10/s burst 3,500/min strict, in-flight 20".parse().unwrap();
        assert_eq!(list.to_string(), "10/s burst 3, 500/min strict, in-flight 20");
    }

    /// A bucket of 20 that is filled at 10/s allows 20 in any 2 s, and is full again after 2 s.
    #[test]
    fn a_burst_of_more_than_the_window_allows_is_a_bucket_and_holds_for_a_longer_window() {
        for (text, understood) in [
            ("10/s burst 20", "20/2s burst 20"),
            ("10/s burst 25 strict", "25/2500ms burst 25 strict"),
            ("3/s burst 4", "4/1334ms burst 4"),
            ("100/min burst 100", "100/min burst 100"),
        ] {
            assert_eq!(text.parse::<LimitSpec>().unwrap().to_string(), understood, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_comes_with_what_to_write() {
        let hint = |text: &str| text.parse::<Limits>().unwrap_err().hint().to_owned();
        assert_eq!(hint("500 a min"), "write \"500/min\"");
        assert_eq!(hint("500 per minute"), "write \"500/min\"");
        assert!(hint("500").contains("\"500/s\""));
        assert!(hint("0/s").contains("lets nothing through"));
        assert_eq!(hint("10/s, 90,000 tokens/min"), "write \"90000 tokens/min\"");
        assert_eq!(hint("90k tokens/min"), "write \"90000 tokens/min\"");
        assert_eq!("10/s burst 3,500/min".parse::<Limits>().unwrap().limits.len(), 2);
        assert!(hint("10/s burst").contains("burst 20"));
        assert!(hint("10/s burst 20 burst 5").contains("one burst"));
        assert_eq!(hint("10/s, burst 20"), "write it behind its limit, as in \"10/s burst 20\"");
        assert!(hint("5000000000/s").contains("4294967295"));
        assert!(hint("in-flight many").contains("in-flight 20"));
        assert_eq!(hint("in-flight: 5"), "write \"in-flight 5\"");
        assert_eq!(hint("10/s, in-flight AUTO"), "write \"in-flight auto\"");
        assert_eq!(hint("5 in flight, 10/s"), "write \"in-flight 5\"");
        assert_eq!(hint("10/fortnight"), "write \"10/14d\"");
        assert_eq!("500 a min".parse::<Limits>().unwrap_err().to_string(), "expected a limit, found \"500 a min\"");
    }

    #[test]
    fn only_the_shortest_window_sets_a_pace() {
        let settled = |text: &str| {
            let mut limits: Limits = text.parse().unwrap();
            settle(&mut limits.limits);
            limits.to_string()
        };
        assert_eq!(settled("500/min"), "500/min");
        assert_eq!(settled("500/min, 100000/month"), "500/min, 100000/month burst 100000");
        assert_eq!(settled("500/min, 10/s, 5000/h burst 1"), "500/min burst 500, 10/s, 5000/h");
        assert_eq!(settled("1000/d"), "1000/d burst 1000");
        assert_eq!(settled("1000/d burst 1"), "1000/d");
        assert_eq!(settled("10/s burst 3"), "10/s burst 3");
        assert_eq!(
            settled("500/min, 90000 input-tokens/min, 20000 output-tokens/h burst 1"),
            "500/min, 90000 input-tokens/min burst 9000, 20000 output-tokens/h"
        );
    }

    #[test]
    fn what_is_printed_reads_back_the_same() {
        for text in
            ["500/min", "90000 input-tokens/min burst 9 strict", "1/120s", "7/250ms", "10/s burst 4 strict", "9/week"]
        {
            let spec: LimitSpec = text.parse().unwrap();
            assert_eq!(spec.to_string().parse::<LimitSpec>().unwrap(), spec);
        }
    }
}
