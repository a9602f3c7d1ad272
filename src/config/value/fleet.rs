//! Grammars for the sharing between several andantes.

use std::{num::NonZeroU32, time::Duration};

use super::{grammar::ParseHint, length};
use crate::config::fleet::StoreUrl;

/// Configured behaviour while the store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum WhenDown {
    Wait,
    Floor,
    Open,
}

pub(super) fn store(text: &str) -> Result<Option<StoreUrl>, ParseHint> {
    if text == "off" {
        Ok(None)
    } else {
        text.parse().map(Some).map_err(|instead: &str| {
            // Does not repeat the text, which may hold a password.
            ParseHint::said("expected the URL of a Redis or Valkey, or \"off\", and found something else", instead)
        })
    }
}

pub(super) fn lease(text: &str) -> Result<Duration, ParseHint> {
    let lease = length(text)?;
    let bounds = Duration::from_secs(1)..=Duration::from_secs(600);
    if bounds.contains(&lease) { Ok(lease) } else { Err(ParseHint::default()) }
}

pub(super) fn in_flight_hold(text: &str) -> Result<Duration, ParseHint> {
    let bounds = Duration::from_secs(1)..=Duration::from_secs(86_400);
    // Suggests seconds for a bare number: `length` would offer milliseconds, too.
    if let Ok(number) = text.parse::<u64>() {
        let meant = bounds.contains(&Duration::from_secs(number));
        return Err(if meant { ParseHint::hint(format!("write \"{number}s\"")) } else { ParseHint::default() });
    }
    let hold = length(text)?;
    if bounds.contains(&hold) { Ok(hold) } else { Err(ParseHint::default()) }
}

pub(super) fn size(text: &str) -> Result<NonZeroU32, ParseHint> {
    text.parse().map_err(|_| ParseHint::default())
}

pub(super) fn store_down(text: &str) -> Result<WhenDown, ParseHint> {
    match text {
        "wait" => Ok(WhenDown::Wait),
        "floor" => Ok(WhenDown::Floor),
        "open" => Ok(WhenDown::Open),
        _ => Err(ParseHint::default()),
    }
}

pub(super) fn floor(text: &str) -> Result<u8, ParseHint> {
    let percent = text.strip_suffix('%').ok_or_else(ParseHint::default)?.trim_end();
    let percent = percent.parse().ok().filter(|percent| (1..=90).contains(percent));
    percent.ok_or_else(ParseHint::default)
}
