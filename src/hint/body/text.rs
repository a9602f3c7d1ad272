//! Reads complaints in words: XML, plain text, and the messages in JSON.

use std::time::Duration;

use super::{
    codes, hopeless, known,
    words::{complains, is_too_many_at_once},
};
use crate::{
    Cause, Hopeless, Strength, count,
    evidence::Evidence,
    time::{self, Now, When},
};

/// Words of GitHub's secondary limits, which have no numbers.
const SECONDARY: [&str; 2] = ["secondary rate limit", "abuse detection mechanism"];
/// GitHub: "If no `retry-after` is sent and something remains, wait for at least one minute."
const SECONDARY_WAIT: Duration = Duration::from_secs(60);
/// Words before the time to wait.
const LEADS: [&str; 17] = [
    "try again in",
    "try again after",
    "try again on",
    "try after",
    "retry again in",
    "retry after",
    "retry in",
    "available in",
    "wait for",
    "please wait",
    "limit resets in",
    "resets in",
    "reset in",
    "be replenished in",
    "request this after",
    "the request after",
    "banned until",
];
/// Largest number of XML elements that are read.
const MAX_ELEMENTS: usize = 200;
/// Words that may precede the time, and characters around a word.
const ASIDE: [&str; 6] = ["at", "least", "about", "another", "for", "and"];
const AROUND: [char; 14] = [',', ';', ':', '!', '"', '\'', '(', ')', '<', '{', '}', '[', ']', '~'];
/// Words that mean "pay first" if the status asks for payment, and words that mean it with any status.
const UNPAID: [&str; 3] = ["insufficient balance", "insufficient credit", "requires more credits"];
const UNPAID_ANYWHERE: &str = "credit balance is too low";

/// Reads a body that is no JSON.
pub(super) fn read(body: &str, now: Now, evidence: &mut Evidence) {
    elements(body, evidence);
    message(body, Strength::Code, now, evidence);
    if known::is_documented(body) {
        evidence.refuse(Strength::Code);
    }
}

/// Returns whether the body is an envelope of SOAP.
pub(super) fn is_soap(body: &str) -> bool {
    body.starts_with('<') && tags(body).next().is_some_and(|(tag, _)| local_name(tag) == "Envelope")
}

/// Reads the codes of XML. Elements outside of [`is_place`] may be about work that was done.
fn elements(body: &str, evidence: &mut Evidence) {
    if !body.starts_with('<') {
        // The body is prose that quotes markup.
        return;
    }
    let mut open: Vec<&str> = Vec::new();
    for (tag, text) in tags(body).take(MAX_ELEMENTS) {
        if tag.starts_with('/') {
            open.pop();
        } else {
            let name = local_name(tag);
            let strength = if is_place(name, &open) { Strength::Code } else { Strength::Words };
            if name == "Value" || name.to_ascii_lowercase().ends_with("code") {
                codes::judge(text.trim().rsplit(':').next().unwrap_or_default(), strength, evidence);
            } else if let Some(fault) = name.strip_suffix("Fault") {
                codes::judge(fault, strength, evidence);
            }
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
        if open.is_empty() {
            // A document has one root (XML 1.0 §2.1).
            return;
        }
    }
}

/// Returns whether the element `name` within the elements `open` has the code of a refusal. AWS has
/// `<Error><Code>SlowDown</Code>…`, also within `<ErrorResponse>` or `<Response><Errors>`. SOAP has
/// `<faultcode>sf:REQUEST_LIMIT_EXCEEDED</faultcode>`, in version 1.2 `<Subcode><Value>…`. In `<detail>`, NetSuite has
/// `<platformFaults:exceededConcurrentRequestLimitFault>` around `<platformFaults:code>`.
fn is_place(name: &str, open: &[&str]) -> bool {
    match open {
        ["Envelope", "Body", "Fault", within @ ..] => match within {
            [] => name == "faultcode",
            ["Code", ..] => name == "Value",
            ["detail" | "Detail"] => name.ends_with("Fault"),
            ["detail" | "Detail", fault] => matches!(name, "code" | "exceptionCode") && fault.ends_with("Fault"),
            _ => false,
        },
        [around @ .., "Error"] => {
            let is_of_error = |name: &&str| matches!(*name, "Errors" | "Response") || name.ends_with("ErrorResponse");
            name == "Code" && around.iter().all(is_of_error)
        }
        _ => false,
    }
}

/// Tags of XML without their brackets, each with the text after it. Comments and CDATA sections contain no tags.
fn tags(xml: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = xml;
    let markup = std::iter::from_fn(move || {
        let markup = &rest[rest.find('<')?..];
        let end = match markup {
            _ if markup.starts_with("<!--") => "-->",
            _ if markup.starts_with("<![CDATA[") => "]]>",
            _ => ">",
        };
        let (tag, behind) = markup.split_once(end)?;
        rest = behind;
        Some((&tag[1..], behind))
    });
    let tags = markup.filter(|(tag, _)| !tag.starts_with(['!', '?']));
    tags.map(|(tag, behind)| (tag, behind.split('<').next().unwrap_or_default()))
}

/// Name of the element that `tag` opens, without its namespace.
fn local_name(tag: &str) -> &str {
    let name = tag.split([' ', '/', '\n', '\t', '\r']).next().unwrap_or_default();
    name.rsplit(':').next().unwrap_or_default()
}

/// Reads whether a body asks for payment. "Insufficient balance" is also why a transfer fails.
pub(super) fn payment(body: &str, is_asked_for: bool, evidence: &mut Evidence) {
    let lower = body.to_ascii_lowercase();
    let unpaid = is_asked_for && UNPAID.iter().any(|unpaid| lower.contains(unpaid));
    if unpaid || lower.contains(UNPAID_ANYWHERE) {
        evidence.fatal.get_or_insert(Hopeless::Unpaid);
    }
}

/// Reads a sentence. `strength` says how sure its place is.
pub(super) fn message(text: &str, strength: Strength, now: Now, evidence: &mut Evidence) {
    let lower = text.to_ascii_lowercase();
    if SECONDARY.iter().any(|secondary| lower.contains(secondary)) {
        evidence.refuse(Strength::Words);
        evidence.at_least = Some(SECONDARY_WAIT);
        evidence.concerns("secondary");
    }
    if complains(&lower) {
        evidence.refuse(Strength::Words);
    }
    hopeless::read(&lower, strength, now, evidence);
    if is_too_many_at_once(&lower) {
        evidence.refuse(Strength::Words);
        evidence.cause.get_or_insert(Cause::Concurrency);
    } else if lower.contains("concurren") && lower.contains("limit") || lower.contains("too many concurren") {
        evidence.cause.get_or_insert(Cause::Concurrency);
    }
    if evidence.said.is_none() {
        let told = LEADS.iter().filter_map(|lead| wait(text, &lower, lead)).find_map(|when| when.from(now));
        evidence.said = told.filter(|told| !told.is_zero());
    }
}

/// Time after `lead`: `17`, `1.2s`, `6m0s`, `5 minutes`, `Mon, 25 Aug 2025 07:00:31 UTC`.
fn wait(text: &str, lower: &str, lead: &str) -> Option<When> {
    // ASCII lower-casing keeps all positions.
    let at = lower.find(lead)? + lead.len();
    let rest = text[at..].trim_start_matches([' ', ':', '\n']);
    if let Some(zone) = rest.find("UTC").or_else(|| rest.find("GMT")).filter(|zone| *zone < 40)
        && let Some(at) = time::instant(&rest[..zone + 3])
    {
        return Some(When::At { at, coarse: true });
    }
    let words =
        rest.split_whitespace().map(|word| word.trim_matches(AROUND).trim_end_matches('.').trim_matches(AROUND));
    let mut words = words.filter(|word| !ASIDE.contains(word));
    let first = words.next()?;
    if let Some(at) = time::iso(first) {
        return Some(When::At { at, coarse: at.subsec_nanos() == 0 });
    }
    let Some(number) = count::decimal(first) else {
        let delay = time::spelled(first).or_else(|| clock(first))?;
        return Some(When::In { delay, spelled: false });
    };
    let unit = words.next().unwrap_or_default();
    let Some(mut delay) = times(number, unit) else { return time::reset(first, false) };
    // `59 minutes and 59 seconds`
    while let Some(more) = words.next().and_then(count::decimal)
        && let Some(more) = words.next().and_then(|unit| times(more, unit))
    {
        delay = (delay + more).min(time::CAP);
    }
    Some(When::In { delay, spelled: false })
}

fn times(number: f64, unit: &str) -> Option<Duration> {
    match unit.to_ascii_lowercase().as_str() {
        "ms" | "msec" | "millisecond" | "milliseconds" => Some(time::duration(number / 1e3)),
        // The unit may be `minute(s)`; after a number, one letter is enough.
        unit => {
            let unit = unit.split('(').next().unwrap_or_default();
            count::window(&format!("1{unit}")).map(|unit| time::duration(number * unit))
        }
    }
}

/// Parses `01:30:00`.
fn clock(text: &str) -> Option<Duration> {
    let parts: Vec<f64> = text.split(':').map(count::decimal).collect::<Option<_>>()?;
    let [hours, minutes, seconds] = parts[..] else { return None };
    Some(time::duration((hours * 60.0 + minutes) * 60.0 + seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_concurrent_requests_are_a_matter_of_how_many_there_are() {
        let cause = |text: &str| {
            let mut evidence = Evidence::default();
            message(
                text,
                Strength::Words,
                Now { arrived: Duration::from_secs(1_756_105_200), date: None },
                &mut evidence,
            );
            evidence.cause
        };
        for said in ["Too many concurrent requests", "concurrency limit exceeded", "too many concurrent connections"] {
            assert_eq!(cause(said), Some(Cause::Concurrency), "{said}");
        }
        for said in ["too many requests", "Too many requests. Send ten a minute, and avoid concurrent calls."] {
            assert_eq!(cause(said), None, "{said}");
        }
    }

    fn told(text: &str) -> Option<f64> {
        let arrived = Duration::from_secs(1_756_105_200);
        let mut evidence = Evidence::default();
        message(text, Strength::Words, Now { arrived, date: None }, &mut evidence);
        evidence.said.map(|wait| wait.as_secs_f64())
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
            ("try again in 5 minute(s).", 300.0),
            ("Please wait for 2 h", 7200.0),
            ("more requests available in 48500 seconds", 48_500.0),
            ("Domain is not allowed to send: try again after Mon, 25 Aug 2025 07:00:31 UTC", 31.0),
            ("Retry after 2025-08-25T07:00:10Z", 10.0),
            ("Retry after 2025-08-25T07:00:10Z: see https://x", 10.0),
            ("Please wait for 59 minutes and 59 seconds.", 3599.0),
            ("wait for 400 days and 400 days", time::CAP.as_secs_f64()),
            ("Please wait at least 30 seconds to receive your code", 30.0),
            ("Quota will be replenished in 01:30:00.", 5400.0),
            ("IP banned until 1756105260000. Please use the websocket", 60.0),
            ("Please retry in 36.5s.\"}}", 36.5),
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
