//! How the API behaves: what a command line can say of it.

use std::{fmt, str::FromStr, time::Duration};

use super::{CountingWindow, Limiter, MockDialect};
use crate::limit::Rate;

/// How an [`Api`](super::Api) behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// What it enforces; `None` accepts everything.
    pub limit: Option<Rate>,
    /// How it counts; `None` leaves that to the dialect.
    pub window: Option<CountingWindow>,
    /// How it tells about its limit, and which limits it makes of it.
    pub dialect: MockDialect,
    /// How long every answer takes, counted from the arrival.
    pub latency: Duration,
    /// Uniformly up to this much comes on top of the latency. Delays the answer, never the counting.
    pub jitter: Duration,
    /// How many of the accepted requests are answered with 500; they count against the limit all the same.
    pub fail: Percent,
    /// Makes jitter and failures repeatable.
    pub seed: u64,
}

/// A share between nothing and all, written `1%`.
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
    /// How it counts.
    pub fn counting(&self) -> CountingWindow {
        self.window.unwrap_or(self.dialect.window())
    }

    /// What enforces `rate`.
    pub(super) fn limiter(&self, rate: Rate) -> Limiter {
        self.dialect.limiter(rate, self.counting())
    }
}

// === impl Percent ===

impl Percent {
    /// The share as a fraction of one.
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
