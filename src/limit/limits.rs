//! The grammar of a list of limits: `10/s, 500/min, 100000/month in UTC, in-flight 20`.

use std::{fmt, num::NonZeroU32, str::FromStr};

use super::{
    calendar::CalendarLimit,
    cost::Cost,
    in_flight::InFlightLimit,
    spec::{LimitSpec, SpecError, suggest, suggest_in_flight},
    unit::Unit,
};

/// Everything that one list of limits contains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Limits with rolling windows; all must hold.
    pub limits: Vec<LimitSpec>,
    /// Limits that a calendar renews; all must hold as well.
    pub calendar: Vec<CalendarLimit>,
    /// Limit on requests in flight.
    pub in_flight: Option<InFlightLimit>,
}

// === impl Limits ===

impl Limits {
    /// The configured number of requests in flight, if it is fixed.
    pub fn fixed_in_flight(&self) -> Option<NonZeroU32> {
        self.in_flight.and_then(InFlightLimit::fixed)
    }

    /// Units that the limits count, once for each limit.
    pub fn units(&self) -> impl Iterator<Item = Unit> + Clone {
        self.limits.iter().map(|limit| limit.unit).chain(self.calendar.iter().map(|limit| limit.unit))
    }

    /// Returns `cost`, or, if `cost` states none of the counted units, `cost` with 1 of each.
    pub fn counting(&self, cost: Cost) -> Cost {
        if self.units().any(|unit| cost.says(unit)) {
            cost
        } else {
            self.units().fold(cost, |cost, unit| cost.with(unit, 1))
        }
    }

    /// The first limit, as configured, that never has room for a request of this `cost`.
    pub fn too_small_for(&self, cost: &Cost) -> Option<String> {
        let over = |unit, count| cost.of(unit).is_some_and(|amount| amount > count);
        let limit = self.limits.iter().find(|limit| over(limit.unit, limit.rate.count)).map(ToString::to_string);
        limit.or_else(|| self.calendar.iter().find(|limit| over(limit.unit, limit.count)).map(ToString::to_string))
    }

    /// All limits as configured, without `in-flight`.
    pub fn written(&self) -> Vec<String> {
        let limits = self.limits.iter().map(LimitSpec::to_string);
        limits.chain(self.calendar.iter().map(CalendarLimit::to_string)).collect()
    }
}

impl FromStr for Limits {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut limits = Self::default();
        let mut parts = text.split(',').map(str::trim).peekable();
        while let Some(part) = parts.next() {
            if let Some(hint) = suggest_in_flight(part) {
                return Err(SpecError::new(part, hint));
            }
            match part.strip_prefix("in-flight") {
                Some(count) => {
                    let wrong = |error: SpecError| SpecError::new(part, error.hint().to_owned());
                    limits.in_flight = Some(count.parse().map_err(wrong)?);
                }
                None if CalendarLimit::is_meant(part) => limits.calendar.push(part.parse()?),
                None => limits.limits.push(part.parse().map_err(|error| {
                    // The comma may have been meant to make a number readable: "90,000/min".
                    let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
                    let whole = parts.peek().filter(|rest| is_number && has_thousands(rest));
                    whole.map_or(error, |rest| part_of_a_number(&format!("{part},{rest}")))
                })?),
            }
        }
        Ok(limits)
    }
}

/// Returns true if the text begins with exactly three digits.
fn has_thousands(text: &str) -> bool {
    text.bytes().take_while(u8::is_ascii_digit).count() == 3
}

fn part_of_a_number(text: &str) -> SpecError {
    SpecError::new(text, suggest(text))
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = self.written();
        parts.extend(self.in_flight.map(|count| format!("in-flight {count}")));
        f.write_str(&parts.join(", "))
    }
}
