//! `Retry-After` and its kin: the wait that an answer asks for in so many words.

use std::time::Duration;

use http::StatusCode;

use super::{
    Dialect,
    fields::Fields,
    finding::Findings,
    structured,
    time::{self, Now, When},
};

/// Those who say it more exactly first, and whether they say it in milliseconds.
const NAMES: [(&str, bool); 8] = [
    ("retry-after-ms", true),
    ("x-ms-retry-after-ms", true),
    ("x-retry-after-ms", true),
    ("retry-after", false),
    ("x-retry-after", false),
    ("grpc-retry-pushback-ms", true),
    ("x-ratelimit-retry-after", false),
    ("x-rate-limit-retry-after", false),
];

/// Takes the first of them that says something usable: neither nothing nor the past, which are no reason to come back
/// at once.
pub(super) fn read(fields: &Fields<'_>, status: StatusCode, now: Now, findings: &mut Findings) {
    for (name, milliseconds) in NAMES {
        let Some(value) = fields.value(name) else { continue };
        // On what was served these tell the reset, whatever their name.
        let of_limit = name.contains("limit");
        if of_limit && status.as_u16() < 400 {
            continue;
        }
        let Some((delay, dated)) = longest(value, milliseconds, of_limit, now) else { continue };
        findings.retry_after = Some(delay);
        findings.dated = dated;
        findings.speaks(if dated { Dialect::RETRY_AFTER_DATE } else { Dialect::RETRY_AFTER });
        return;
    }
}

/// Whether a head asks for a wait, as far as can be seen without knowing the time.
pub(super) fn is_told(headers: &http::HeaderMap) -> bool {
    let told = |name: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|value| !value.trim().starts_with(['0', '-']))
    };
    NAMES.iter().any(|(name, _)| told(name))
}

/// The longest of several, if the field was sent more than once.
fn longest(value: &str, milliseconds: bool, may_be_epoch: bool, now: Now) -> Option<(Duration, bool)> {
    let read = |value: &str| {
        // Some frameworks tell the reset under such a name, as a time of day.
        let when = if may_be_epoch { time::reset(value, milliseconds) } else { time::delay(value, milliseconds) }?;
        let delay = when.from(now).filter(|delay| !delay.is_zero())?;
        Some((delay, matches!(when, When::At { .. })))
    };
    // A date has a comma in it, so the whole comes first.
    read(value).or_else(|| structured::split(value, b',').filter_map(read).max())
}
