//! Reads `Retry-After` and similar fields: the wait that an answer asks for explicitly.

use http::StatusCode;

use super::{
    Dialect,
    classify::always_refuses,
    evidence::Evidence,
    fields::Fields,
    structured,
    time::{self, Now, Wait, When},
};

/// Names of the fields, the most exact first, and whether their unit is the millisecond.
const NAMES: [(&str, bool); 6] = [
    ("retry-after-ms", true),
    ("x-ms-retry-after-ms", true),
    ("x-retry-after-ms", true),
    ("retry-after", false),
    ("x-retry-after", false),
    ("grpc-retry-pushback-ms", true),
];
/// Parts of other names: `X-RateLimit-Retry-After-Seconds`, `Retry-After-Short`, `X-RateLimit-RetryAfter`.
const MARKS: [&str; 2] = ["retry-after", "retryafter"];
/// Ends of other names: `X-Retry-In`, `X-Rate-Limited-For`, `X-RateLimit-After`.
const ENDS: [&str; 3] = ["retry-in", "rate-limited-for", "ratelimit-after"];

/// Takes the first field with a usable wait. A wait of zero or in the past is no reason to come back at once.
pub(super) fn read(fields: &Fields<'_>, status: StatusCode, now: Now, evidence: &mut Evidence) {
    let named = NAMES.into_iter().find_map(|(name, milliseconds)| longest(fields.value(name)?, milliseconds, now));
    let found = named.or_else(|| {
        // On served answers, these fields mean the reset, or when to ask for more.
        let others = fields.iter().filter(|field| status.as_u16() >= 400 && is_other(field.name));
        let is_in_ms = |name: &str| name.ends_with("-ms") || name.ends_with("-milliseconds");
        others.filter_map(|field| longest(&field.value, is_in_ms(field.name), now)).max()
    });
    // A refused request must not come again before the second of a date is over. If the status alone is no refusal, a
    // date that is not after the answer's own does not make it one.
    let found = found.filter(|(wait, dated)| !dated || !wait.later.is_zero() || always_refuses(status));
    let Some((wait, dated)) = found else { return };
    (evidence.retry_after, evidence.later) = (Some(wait.told), wait.later);
    evidence.dated = dated;
    evidence.speaks(if dated { Dialect::RETRY_AFTER_DATE } else { Dialect::RETRY_AFTER });
}

/// Returns whether a head asks for a wait, as far as that shows without the time of day.
pub(super) fn is_told(headers: &http::HeaderMap) -> bool {
    let told = |value: &http::HeaderValue| value.to_str().is_ok_and(|value| !value.trim().starts_with(['0', '-']));
    let is_one = |name: &str| NAMES.iter().any(|(known, _)| *known == name) || is_other(name);
    headers.iter().any(|(name, value)| is_one(name.as_str()) && told(value))
}

fn is_other(name: &str) -> bool {
    MARKS.iter().any(|mark| name.contains(mark)) || ENDS.iter().any(|end| name.ends_with(end))
}

/// Longest of several waits, if the field was sent more than once.
fn longest(value: &str, milliseconds: bool, now: Now) -> Option<(Wait, bool)> {
    let read = |value: &str| {
        let mut when = time::delay(value, milliseconds)?;
        // Cloud Foundry, Docker Hub and CrowdStrike send the time of day in seconds since 1970.
        if matches!(when, When::In { spelled: false, .. })
            && let Some(at @ When::At { at: since, .. }) = time::reset(value, false)
            && now.is_near(since)
        {
            when = at;
        }
        let wait = when.wait(now).filter(|wait| !wait.told.is_zero())?;
        Some((wait, matches!(when, When::At { .. })))
    };
    // A date contains a comma, so the whole value is tried first.
    read(value).or_else(|| structured::split(value, b',').filter_map(read).max())
}
