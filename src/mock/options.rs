//! Options of the API, as the command line sets them.

use std::{fmt, str::FromStr, time::Duration};

use super::{CountingWindow, Limiter, MockDialect};
use crate::limit::Rate;

/// Behaviour of an [`Api`](super::Api).
#[derive(Clone, Debug)]
pub struct Options {
    /// Rate that the API enforces; `None` accepts everything.
    pub limit: Option<Rate>,
    /// Counting window; `None` leaves the choice to the dialect.
    pub window: Option<CountingWindow>,
    /// Dialect that reports the limit. Also decides which limits are derived from the rate.
    pub dialect: MockDialect,
    /// Shortest time from the arrival of a request until its answer.
    pub latency: Duration,
    /// Largest random addition to the latency, distributed uniformly. Delays the answer, never the counting.
    pub jitter: Duration,
    /// Share of accepted requests that are answered with 500. Failed requests count against the limit too.
    pub fail: Percent,
    /// Seed of the random numbers, so that jitter and failures are repeatable.
    pub seed: u64,
}

/// Percentage from 0 to 100, written `1%`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Percent(f64);

impl Default for Options {
    fn default() -> Self {
        Self {
            limit: None,
            window: None,
            dialect: MockDialect::default(),
            latency: Duration::ZERO,
            jitter: Duration::ZERO,
            fail: Percent::default(),
            seed: 1,
        }
    }
}

// === impl Options ===

impl Options {
    /// Counting window in use: the configured one, else the dialect's.
    pub fn counting(&self) -> CountingWindow {
        self.window.unwrap_or(self.dialect.window())
    }

    /// Creates a limiter that enforces `rate`.
    pub(super) fn limiter(&self, rate: Rate) -> Limiter {
        self.dialect.limiter(rate, self.counting())
    }
}

// === impl Percent ===

impl Percent {
    /// Percentage as a fraction of one.
    pub fn fraction(self) -> f64 {
        self.0 / 100.0
    }
}

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.trim().trim_end_matches('%').trim_end();
        match number.parse::<f64>() {
            Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(Self(percent)),
            _ => Err(format!("expected a percentage from 0% to 100%, found {text:?}; write \"1%\"")),
        }
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_between_nothing_and_all() {
        assert_eq!("1%".parse::<Percent>().map(Percent::fraction), Ok(0.01));
        assert_eq!("0.5 %".parse::<Percent>().map(|percent| percent.to_string()), Ok("0.5%".to_owned()));
        for text in ["", "%", "-1%", "101%", "NaN", "inf", "a lot"] {
            assert!(text.parse::<Percent>().unwrap_err().contains("write \"1%\""), "{text}");
        }
    }
}
