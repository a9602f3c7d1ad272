//! Complaints in words: XML, plain text, and the messages in JSON.

use std::time::Duration;

use super::codes;
use crate::hint::{
    Cause, count,
    finding::Findings,
    time::{self, Now, When},
};

/// What a complaint about a limit contains, in lower case.
const COMPLAINTS: [&str; 8] = [
    "rate limit exceeded",
    "rate limit reached",
    "ratelimit exceeded",
    "rate limit has been exceeded",
    "exceeded the rate limit",
    "too many requests",
    "request limit reached",
    "too many calls",
];
/// Where GitHub's other limits begin; they have no numbers.
const SECONDARY: [&str; 2] = ["secondary rate limit", "abuse detection mechanism"];
/// "If no `retry-after` is sent and something remains, wait for at least one minute."
const SECONDARY_WAIT: Duration = Duration::from_secs(60);
/// What stands before the time to wait.
const LEADS: [&str; 8] = [
    "try again in",
    "try again after",
    "retry again in",
    "retry after",
    "retry in",
    "available in",
    "wait for",
    "please wait",
];

/// Reads a body that is no JSON.
pub(super) fn read(body: &str, now: Now, findings: &mut Findings) {
    // `<Error><Code>SlowDown</Code>…`
    if let Some(code) =
        body.split_once("<Code>").and_then(|(_, rest)| rest.split_once('<')).map(|(code, _)| code.trim())
    {
        codes::judge(code, findings);
    }
    message(body, now, findings);
}

/// Reads a sentence.
pub(super) fn message(text: &str, now: Now, findings: &mut Findings) {
    let lower = text.to_ascii_lowercase();
    if SECONDARY.iter().any(|secondary| lower.contains(secondary)) {
        findings.refused = true;
        findings.at_least = Some(SECONDARY_WAIT);
        findings.concerns("secondary");
    }
    if COMPLAINTS.iter().any(|complaint| lower.contains(complaint)) {
        findings.refused = true;
    }
    if lower.contains("concurren") && lower.contains("limit") {
        findings.cause.get_or_insert(Cause::Concurrency);
    }
    if findings.retry_after.is_none() {
        let told = LEADS.iter().filter_map(|lead| wait(text, &lower, lead)).find_map(|when| when.from(now));
        findings.retry_after = told.filter(|told| !told.is_zero());
    }
}

/// The time behind `lead`: `17`, `1.2s`, `6m0s`, `5 minutes`, `Mon, 25 Aug 2025 07:00:31 UTC`.
fn wait(text: &str, lower: &str, lead: &str) -> Option<When> {
    // Lower case in ASCII keeps every place.
    let at = lower.find(lead)? + lead.len();
    let rest = text[at..].trim_start_matches([' ', ':', '\n']);
    if let Some(zone) = rest.find("UTC").or_else(|| rest.find("GMT")).filter(|zone| *zone < 40)
        && let Some(at) = time::instant(&rest[..zone + 3])
    {
        return Some(When::At { at, coarse: true });
    }
    let mut words = rest.split_whitespace().map(|word| {
        word.trim_matches(|c: char| matches!(c, ',' | ';' | '!' | '"' | '\'' | '(' | ')' | '<')).trim_end_matches('.')
    });
    let first = words.next()?;
    if let Some(at) = time::iso(first) {
        return Some(When::At { at, coarse: at.subsec_nanos() == 0 });
    }
    let delay = match count::decimal(first) {
        None => time::spelled(first)?,
        Some(number) => match words.next().unwrap_or_default().to_ascii_lowercase().as_str() {
            "ms" | "msec" | "millisecond" | "milliseconds" => time::duration(number / 1e3),
            unit => time::duration(number * count::window(unit).unwrap_or(1.0)),
        },
    };
    Some(When::In { delay, spelled: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Option<f64> {
        let arrived = Duration::from_secs(1_756_105_200);
        let mut findings = Findings::default();
        message(text, Now { arrived, date: None }, &mut findings);
        findings.retry_after.map(|wait| wait.as_secs_f64())
    }

    #[test]
    fn waits_are_found_in_sentences() {
        for (text, seconds) in [
            ("Too Many Requests: retry after 17", 17.0),
            ("Rate limit reached for requests. Please try again in 1.2s. Visit https://x", 1.2),
            ("Please try again in 20ms.", 0.02),
            ("Please try again in 6m0s", 360.0),
            ("Please retry after 6 seconds.", 6.0),
            ("try again in 5 minutes", 300.0),
            ("more requests available in 48500 seconds", 48_500.0),
            ("Domain is not allowed to send: try again after Mon, 25 Aug 2025 07:00:31 UTC", 31.0),
            ("Retry after 2025-08-25T07:00:10Z", 10.0),
        ] {
            assert_eq!(told(text), Some(seconds), "{text}");
        }
        for text in [
            "",
            "Please wait a few minutes before you try again.",
            "try again in",
            "retry after -1",
            "retry after 0",
            "Please wait and try again",
        ] {
            assert_eq!(told(text), None, "{text}");
        }
    }
}
