//! Parsers of the texts that describe a plan.

use std::num::NonZeroU32;

use super::MOST_BURST_REQUESTS;
use crate::limit::{Cost, InFlightLimit, Limits, SpecError};

/// Parses a cost: `5`, or `input-tokens=1200,output-tokens=500`.
///
/// # Errors
/// Returns what to write instead if `text` is no cost.
pub fn cost(text: &str) -> Result<Cost, String> {
    text.parse().map_err(|wrong: SpecError| format!("{wrong}; {}", wrong.hint()))
}

/// Parses limits, with or without a host before them.
///
/// # Errors
/// Returns what to write instead if `text` holds no limits, or an `in-flight auto`, whose value depends on the API.
pub fn limits(text: &str) -> Result<Limits, String> {
    // `serve` accepts a host before the limits. A plan ignores it, since the result is the same for every host.
    let text =
        text.split_once('=').filter(|(host, _)| !host.contains(['/', ',', ' '])).map_or(text, |(_, limits)| limits);
    let limits: Limits = text.parse().map_err(|error: SpecError| format!("{error}; {}", error.hint()))?;
    if limits.in_flight == Some(InFlightLimit::Auto) {
        return Err("cannot plan with \"in-flight auto\": its value is learned from the API; write a number, as in \
                    \"in-flight 20\""
            .into());
    }
    Ok(limits)
}

/// Parses a number of requests: `30000`, `30_000`, `30k`.
///
/// # Errors
/// Returns what to write instead if `text` is no number from 1 to [`MOST_BURST_REQUESTS`].
pub fn requests(text: &str) -> Result<NonZeroU32, String> {
    let digits: String = text.trim().chars().filter(|c| !matches!(c, '_' | ',' | ' ')).collect();
    match digits.replace(['k', 'K'], "000").parse::<NonZeroU32>() {
        Ok(requests) if requests.get() <= MOST_BURST_REQUESTS => Ok(requests),
        _ => Err(format!("expected a number of requests from 1 to 10,000,000, found {text:?}; write \"30000\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_comes_with_what_to_write() {
        assert_eq!(requests("30_000").map(NonZeroU32::get), Ok(30_000));
        for text in ["0", "-1", "many", "10000001", ""] {
            assert!(requests(text).unwrap_err().contains("write \"30000\""), "{text}");
        }
        assert!(limits("10 per s").unwrap_err().contains("write \"10/s\""));
    }

    #[test]
    fn limits_are_read_with_their_host_too_as_serve_takes_them() {
        for text in ["500/min, 10/s", "api.example.com=500/min, 10/s", "[::1]:8080=500/min,10/s"] {
            assert_eq!(limits(text), "500/min, 10/s".parse().map_err(|_| String::new()), "{text}");
        }
    }
}
