//! Dialects of rate limiting: the ways in which real APIs report one and the same decision. Pure.
//!
//! A dialect is a row of a table ([`DialectRow`]), whose values are templates that [`Facts`] fills in. Each family of
//! APIs has a file. Rows were recorded from real answers, or taken from the providers' pages. Rows of APIs that are
//! known for how they count also set the counting window or the layout of limits.

mod clouds;
mod facts;
mod gateways;
mod ietf;
mod limiters;
mod models;
mod services;
mod words;

use std::{fmt, str::FromStr, sync::LazyLock};

use andante_limit::Rate;
use clap::builder::PossibleValue;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

pub use self::facts::Facts;
use self::words::DialectRow;
use super::{counter::CountingWindow, limiter::Limiter};

/// Provider-specific way to report a limit: status, header fields and bodies.
#[derive(Clone, Copy)]
pub struct MockDialect(&'static DialectRow);

static ALL: LazyLock<Vec<MockDialect>> = LazyLock::new(|| {
    let families = [ietf::ROWS, limiters::ROWS, services::ROWS, models::ROWS, clouds::ROWS, gateways::ROWS];
    families.into_iter().flatten().map(MockDialect).collect()
});

// === impl MockDialect ===

impl MockDialect {
    /// Counting window of the dialect's API by default.
    pub fn window(self) -> CountingWindow {
        self.0.window
    }

    /// Creates the limits of the dialect's API, derived from `rate` and counted by `window`.
    pub fn limiter(self, rate: Rate, window: CountingWindow) -> Limiter {
        Limiter::new(rate, window, self.0.layout)
    }

    /// Status of a refusal; some APIs refuse with 200 or 400 instead of 429.
    pub fn refusal(self) -> StatusCode {
        StatusCode::from_u16(self.0.status).expect("the tables hold statuses")
    }

    /// Body of a refusal.
    pub fn complaint(self, facts: &Facts) -> String {
        facts.fill(self.0.complaint).unwrap_or_default()
    }

    /// Further members of an accepted request's JSON object: empty, or `,"name":…`.
    pub fn members(self, facts: &Facts) -> String {
        facts.fill(self.0.members).unwrap_or_default()
    }

    /// Adds the dialect's header fields. A field whose value cannot be expressed is left out, such as a window of half
    /// a second in whole seconds.
    pub fn describe(self, facts: &Facts, headers: &mut HeaderMap) {
        let refused = if facts.refused() { self.0.refused } else { &[] };
        for (name, value) in self.0.always.iter().chain(refused) {
            let (Some(name), Some(value)) = (facts.fill(name), facts.fill(value)) else { continue };
            let name = HeaderName::try_from(name).expect("the tables hold names of fields");
            headers.append(name, HeaderValue::try_from(value).expect("the tables hold values of fields"));
        }
    }
}

impl Default for MockDialect {
    fn default() -> Self {
        Self(&ietf::ROWS[0])
    }
}

impl PartialEq for MockDialect {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for MockDialect {}

impl FromStr for MockDialect {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        ALL.iter().find(|dialect| dialect.0.name == text).copied().ok_or_else(|| {
            let names: Vec<_> = ALL.iter().map(|dialect| dialect.0.name).collect();
            format!("expected the name of a dialect, found {text:?}; there are {}", names.join(", "))
        })
    }
}

impl clap::ValueEnum for MockDialect {
    fn value_variants<'a>() -> &'a [Self] {
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.name).help(self.0.help))
    }
}

impl fmt::Display for MockDialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

impl fmt::Debug for MockDialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

#[cfg(test)]
mod tests;
