//! Limits that a calendar renews: `100000/month from 5th in Europe/Berlin`, `5000/day in America/Los_Angeles`.
//!
//! A rolling window of 31 days is safe for a monthly quota, and wastes what is left on its last day. A calendar limit
//! repeats the renewal date from the provider's page. Time zones and their clock changes come from the IANA database
//! that `jiff` bundles, since container images often have none.

mod count;
#[cfg(test)]
mod tests;

use std::{fmt, iter::successors, num::NonZeroU32, str::FromStr};

use jiff::{
    Timestamp, Zoned,
    civil::{Date, Time, Weekday},
    tz::TimeZone,
};

pub(super) use self::count::CalendarRecord;
pub use self::count::{CalendarCount, CalendarUsage};
use super::{
    Unit,
    spec::{SpecError, parse_count, split_unit, suggest_same},
};

/// A limit of `count` units from one renewal to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalendarLimit {
    /// Unit that the limit counts.
    pub unit: Unit,
    /// Units per period.
    pub count: NonZeroU32,
    renewal: Renewal,
    zone: TimeZone,
}

/// When a limit is renewed, by the clocks of its zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renewal {
    /// At each full minute of UTC.
    Minute,
    /// At each full hour of UTC.
    Hour,
    /// Every day at this time.
    Day(Time),
    /// At the midnight that begins this day of the week.
    Week(Weekday),
    /// At the midnight that begins this day of the month, or the last day of a month that is shorter.
    Month(i8),
}

/// From one renewal to the next, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Period {
    start: u64,
    end: u64,
}

/// More days than lie between two renewals, or between a renewal and the day after tomorrow.
const LONGEST_DAYS: usize = 40;

const WEEKDAYS: [(&str, Weekday); 7] = [
    ("monday", Weekday::Monday),
    ("tuesday", Weekday::Tuesday),
    ("wednesday", Weekday::Wednesday),
    ("thursday", Weekday::Thursday),
    ("friday", Weekday::Friday),
    ("saturday", Weekday::Saturday),
    ("sunday", Weekday::Sunday),
];

// === impl CalendarLimit ===

impl CalendarLimit {
    /// Returns true if `text` names a calendar, by a zone (`in`) or by its renewal (`from`). Other windows roll.
    pub fn is_meant(text: &str) -> bool {
        text.split_whitespace().any(|word| matches!(word, "in" | "from"))
    }

    /// The period that `at` is in, both in nanoseconds since 1970.
    fn period(&self, at: u64) -> Period {
        let now = Timestamp::from_nanosecond(at.into()).unwrap_or(Timestamp::MAX).to_zoned(self.zone.clone());
        self.renewal.around(&now).unwrap_or(Period { start: at, end: u64::MAX })
    }
}

impl FromStr for CalendarLimit {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let text = text.trim();
        let wrong = |hint: String| SpecError::new(text, hint);
        let example = || {
            let example = "write it as in \"5000/day in America/Los_Angeles\" or \"100000/month from 5th in UTC\"";
            // "5 in 10 minutes" names the window's length and no zone.
            wrong(suggest_same(text).unwrap_or_else(|| example.to_owned()))
        };
        let (counted, rate) = split_unit(text)?;
        let mut words = rate.split_whitespace();
        let (count, unit) = words.next().and_then(|rate| rate.split_once('/')).ok_or_else(example)?;
        let count = parse_count(count).map_err(wrong)?;
        let (mut from, mut zone) = (None, None);
        while let Some(word) = words.next() {
            let value = words.next().ok_or_else(example)?;
            let unset = match word {
                "from" => from.replace(value).is_none(),
                "in" => zone.replace(value).is_none(),
                "burst" => {
                    return Err(wrong(format!(
                        "what a calendar renews has no burst; write a pace beside it, as in \"10/s\", \"{count}/{unit} in UTC\""
                    )));
                }
                _ => false,
            };
            if !unset {
                return Err(example());
            }
        }
        let renewal = Renewal::parse(unit, from).map_err(wrong)?;
        let zone = zone.unwrap_or("UTC");
        let zone = TimeZone::get(zone).map_err(|_| {
            wrong(format!("no time zone is called {zone:?}; names look like \"Europe/Berlin\" or \"UTC\""))
        })?;
        if matches!(renewal, Renewal::Minute | Renewal::Hour) && zone != TimeZone::UTC {
            return Err(wrong(format!("full minutes and hours are those of UTC: write \"{count}/{unit} in UTC\"")));
        }
        Ok(Self { unit: counted, count, renewal, zone })
    }
}

impl fmt::Display for CalendarLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { unit, count, renewal, zone } = self;
        let unit = if *unit == Unit::REQUESTS { String::new() } else { format!(" {unit}") };
        write!(f, "{count}{unit}/{renewal} in {}", zone.iana_name().unwrap_or("UTC"))
    }
}

// === impl Renewal ===

impl Renewal {
    /// Parses a period such as `month` and its start such as `5th`.
    fn parse(unit: &str, from: Option<&str>) -> Result<Self, String> {
        match unit {
            "min" | "minute" | "h" | "hour" if from.is_some() => {
                Err(format!("a limit of one {unit} is renewed when it is full: leave \"from\" out"))
            }
            "min" | "minute" => Ok(Self::Minute),
            "h" | "hour" => Ok(Self::Hour),
            "d" | "day" => match from {
                None => Ok(Self::Day(Time::midnight())),
                Some(time) => Time::strptime("%H:%M", time)
                    .map(Self::Day)
                    .map_err(|_| format!("a day begins at a time, as in \"from 09:00\", not at {time:?}")),
            },
            "week" | "w" => match from {
                None => Ok(Self::Week(Weekday::Monday)),
                Some(day) => WEEKDAYS
                    .iter()
                    .find(|(name, _)| day.len() >= 3 && name.starts_with(&day.to_ascii_lowercase()))
                    .map(|(_, day)| Self::Week(*day))
                    .ok_or_else(|| format!("a week begins on a day, as in \"from monday\", not on {day:?}")),
            },
            "month" => match from {
                None => Ok(Self::Month(1)),
                Some(day) => day
                    .trim_end_matches(|c: char| c.is_ascii_alphabetic())
                    .parse()
                    .ok()
                    .filter(|day| (1..=31).contains(day))
                    .map(Self::Month)
                    .ok_or_else(|| format!("a month begins on a day, as in \"from 5th\", not on {day:?}")),
            },
            _ => Err(format!("a calendar renews each min, h, day, week or month, not each {unit:?}")),
        }
    }

    /// The period that `now` is in; `None` beyond the years that the calendar knows.
    fn around(self, now: &Zoned) -> Option<Period> {
        match self {
            Self::Minute => return Some(Period::of(now, 60)),
            Self::Hour => return Some(Period::of(now, 3600)),
            Self::Day(_) | Self::Week(_) | Self::Month(_) => {}
        }
        let renewal = |day: &Date| self.renews_on(*day).then(|| self.at(*day, now)).flatten().map(|at| (*day, at));
        // The clock may have been changed: the renewal on the date that the clock shows may lie before or after `now`.
        let backwards = successors(now.date().tomorrow().ok(), |day| day.yesterday().ok()).take(LONGEST_DAYS);
        let (day, start) = backwards.filter_map(|day| renewal(&day)).find(|(_, start)| start <= now)?;
        let mut forwards = successors(day.tomorrow().ok(), |day| day.tomorrow().ok()).take(LONGEST_DAYS);
        let (_, end) = forwards.find_map(|day| renewal(&day))?;
        let nanos = |at: &Zoned| u64::try_from(at.timestamp().as_nanosecond()).ok();
        Some(Period { start: nanos(&start)?, end: nanos(&end)? })
    }

    /// Returns true if the limit is renewed on `day`.
    fn renews_on(self, day: Date) -> bool {
        match self {
            Self::Minute | Self::Hour | Self::Day(_) => true,
            Self::Week(weekday) => day.weekday() == weekday,
            Self::Month(of) => day.day() == of.min(day.days_in_month()),
        }
    }

    /// The instant of the renewal on `day`. A time that a clock change skips is shifted by the length of the change. Of
    /// a time that occurs twice, the first counts (RFC 5545, 3.3.5).
    fn at(self, day: Date, now: &Zoned) -> Option<Zoned> {
        let time = if let Self::Day(time) = self { time } else { Time::midnight() };
        day.to_datetime(time).to_zoned(now.time_zone().clone()).ok()
    }
}

impl fmt::Display for Renewal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Minute => f.write_str("min"),
            Self::Hour => f.write_str("h"),
            Self::Day(time) if *time == Time::midnight() => f.write_str("day"),
            Self::Day(time) => write!(f, "day from {}", time.strftime("%H:%M")),
            Self::Week(Weekday::Monday) => f.write_str("week"),
            Self::Week(day) => {
                let name = WEEKDAYS.iter().find(|(_, weekday)| weekday == day).map_or("", |(name, _)| name);
                write!(f, "week from {name}")
            }
            Self::Month(1) => f.write_str("month"),
            Self::Month(day) => write!(f, "month from {day}{}", ordinal(*day)),
        }
    }
}

// === impl Period ===

impl Period {
    /// The period of this many seconds, aligned to UTC, that contains `now`.
    fn of(now: &Zoned, seconds: u64) -> Self {
        let second = u64::try_from(now.timestamp().as_second()).unwrap_or_default();
        let start = (second - second % seconds) * 1_000_000_000;
        Self { start, end: start + seconds * 1_000_000_000 }
    }

    fn covers(&self, at: u64) -> bool {
        (self.start..self.end).contains(&at)
    }
}

fn ordinal(day: i8) -> &'static str {
    match day {
        1 | 21 | 31 => "st",
        2 | 22 => "nd",
        3 | 23 => "rd",
        _ => "th",
    }
}
