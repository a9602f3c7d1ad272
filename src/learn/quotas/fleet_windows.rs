//! Window lengths that the members of a fleet tell each other. A member that joins after much use by others cannot
//! measure a window. The member sees no start of a window, and its own share of the reported usage says nothing yet.

use std::{fmt::Write as _, str::FromStr, time::Duration};

use andante_fleet::LONGEST_WORD;
use andante_limit::Budget;

use super::{Quotas, quota::Quota};
use crate::{Learned, window_estimator::Return};

/// A member's finding about one quota of requests.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FleetWindow {
    /// Name that the API gives the quota.
    name: Option<Box<str>>,
    limit: f64,
    window: Duration,
    returns: Return,
}

/// Longest window that an API is expected to have.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

impl Quotas {
    /// Windows that were measured here, one per line, for the other members of a fleet.
    pub(super) fn found_windows(&self) -> Box<str> {
        let mut word = String::new();
        for one in self.budgets.iter().filter(|one| one.is_counted()) {
            let (Some(limit), Some((window, returns))) = (one.left.limit, one.window_estimator.seen_here()) else {
                continue;
            };
            let name = one.left.name.as_deref();
            let line = FleetWindow { name: name.map(Into::into), limit, window, returns }.line();
            if name.is_none_or(|name| !name.is_empty() && !name.contains('\n'))
                && word.len() + line.len() <= LONGEST_WORD
            {
                word += &line;
            }
        }
        word.into()
    }

    /// Drops limits whose window contradicts the fleet's windows, until the next answer. A wrong limit could block all
    /// requests for so long that no answer arrives.
    fn let_go_of_others(&mut self, budget: &mut Budget) {
        for one in self.budgets.iter_mut().filter(|one| one.kept) {
            let told = Self::of_fleet(&self.of_fleet, one.left.name.as_deref(), one.left.limit);
            if told.is_some_and(|(window, returns)| one.window_estimator.is_contradicted_by(window, returns)) {
                one.dismiss(budget);
                one.left.overruled = false;
            }
        }
    }

    /// Returns true if the API reports any quota of requests with limit and reset.
    pub(super) fn is_counted(&self) -> bool {
        self.budgets.iter().any(|one| one.is_counted())
    }

    /// Entry of `windows` for the quota with this name and limit.
    pub(super) fn of_fleet(
        windows: &[FleetWindow],
        name: Option<&str>,
        limit: Option<f64>,
    ) -> Option<(Duration, Return)> {
        let found = windows.iter().find(|found| found.name.as_deref() == name && Some(found.limit) == limit)?;
        Some((found.window, found.returns))
    }
}

impl Quota {
    /// Returns true if the quota counts requests, and reports its limit and its reset.
    fn is_counted(&self) -> bool {
        let left = &self.left;
        left.requests && left.limit.is_some() && left.reset.is_some() && self.is_believed()
    }
}

impl Learned {
    /// Windows that were measured here, for the other members of a fleet.
    pub fn found_windows(&self) -> Box<str> {
        self.told.found_windows()
    }

    /// Returns true if the API reports a limit of requests and its reset.
    pub fn is_counted(&self) -> bool {
        self.told.is_counted()
    }

    /// Applies windows that other members of the fleet have seen, and removes limits from `budget` that contradict
    /// them.
    pub fn told_of_windows(&mut self, word: &str, budget: &mut Budget) {
        // Lines in the format of a later version are skipped.
        self.told.of_fleet = word.lines().filter_map(|line| line.parse().ok()).collect();
        self.told.let_go_of_others(budget);
    }
}

// === impl FleetWindow ===

impl FleetWindow {
    fn line(&self) -> String {
        let returns = match self.returns {
            Return::AtReset => "at-reset",
            Return::InParts => "in-parts",
            Return::Refill => "refill",
        };
        let mut line = format!("{} {} {returns}", self.limit, self.window.as_micros());
        // Writing to a string never fails.
        self.name.iter().for_each(|name| write!(line, " {name}").unwrap_or_default());
        line.push('\n');
        line
    }
}

impl FromStr for FleetWindow {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let mut words = line.splitn(4, ' ');
        let mut next = || words.next().ok_or(());
        let limit = next()?.parse().ok().filter(|limit: &f64| limit.is_finite() && *limit >= 1.0).ok_or(())?;
        let window = Duration::from_micros(next()?.parse().map_err(|_| ())?);
        let returns = match next()? {
            "at-reset" => Return::AtReset,
            "in-parts" => Return::InParts,
            "refill" => Return::Refill,
            _ => return Err(()),
        };
        let sound = !window.is_zero() && window <= LONGEST;
        sound.then(|| Self { name: words.next().map(Into::into), limit, window, returns }).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let window = |name: Option<&str>, returns| FleetWindow {
            name: name.map(Into::into),
            limit: 200.0,
            window: Duration::from_millis(60_001),
            returns,
        };
        for found in [
            window(None, Return::AtReset),
            window(Some("requests"), Return::InParts),
            window(Some("per minute"), Return::Refill),
        ] {
            assert_eq!(found.line().trim_end().parse(), Ok(found));
        }
    }

    #[test]
    fn what_makes_no_sense_is_passed_over() {
        for line in [
            "",
            "200",
            "200 60000000",
            "200 60000000 later",
            "0 60000000 refill",
            "nan 1 refill",
            "5 0 refill",
            "5 -1 refill",
            "5 99999999999999999999 refill",
            "5 999999999999999 at-reset",
        ] {
            assert_eq!(line.parse::<FleetWindow>(), Err(()), "{line}");
        }
    }
}
