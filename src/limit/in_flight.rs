//! Limit on requests in flight, as configured: `20` or `auto`.

use std::{fmt, num::NonZeroU32, str::FromStr};

use super::spec::{SpecError, parse_count};

/// A limit on requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InFlightLimit {
    /// A fixed number.
    Fixed(NonZeroU32),
    /// A learned number: requests that the API serves without noticeable queueing, as its responses show.
    Auto,
}

// === impl InFlightLimit ===

impl InFlightLimit {
    /// The configured number, if it is fixed.
    pub fn fixed(self) -> Option<NonZeroU32> {
        match self {
            Self::Fixed(count) => Some(count),
            Self::Auto => None,
        }
    }
}

impl FromStr for InFlightLimit {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let text = text.trim();
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let hint = match text.trim_start_matches([':', '=']).trim() {
            word if word.eq_ignore_ascii_case("auto") => "write \"in-flight auto\"".to_owned(),
            number if parse_count(number).is_ok() => format!("write \"in-flight {number}\""),
            _ => "write how many at once, as in \"in-flight 20\", or \"in-flight auto\"".to_owned(),
        };
        let wrong = |_| SpecError::new(text, hint);
        parse_count(text).map(Self::Fixed).map_err(wrong)
    }
}

impl fmt::Display for InFlightLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(count) => count.fmt(f),
            Self::Auto => f.write_str("auto"),
        }
    }
}
