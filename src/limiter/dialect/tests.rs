//! Comparison of every dialect with recordings of the real API, or with its provider's pages.

use std::time::{Duration, UNIX_EPOCH};

use clap::ValueEnum as _;

use self::recorded::RECORDED;
use super::*;
use crate::counter::CounterDecision;

mod recorded;

/// Text of recorded refusal bodies that the dialect's body must contain for a wait of 1.4001 s.
const BODIES: &[(&str, &str)] = &[
    ("github", r#"{"message":"API rate limit exceeded for user ID"#),
    ("github-secondary", "exceeded a secondary rate limit"),
    ("graphql", r#"{"errors":[{"type":"RATE_LIMITED""#),
    ("discord", r#""retry_after":1.401,"global":false}"#),
    ("linear", r#""code":"RATELIMITED""#),
    ("mailgun", "try again after Tue, 14 Nov 2023 22:13:22 UTC"),
    ("hubspot", r#""policyName":"TEN_SECONDLY_ROLLING""#),
    ("shopify-graphql", r#""code":"THROTTLED""#),
    ("shopify-graphql", r#""throttleStatus":{"maximumAvailable":10.0,"currentlyAvailable":0.0,"restoreRate":0.1667}}"#),
    ("slack", r#"{"ok":false,"error":"ratelimited"}"#),
    ("telegram", r#""parameters":{"retry_after":2}}"#),
    ("salesforce", r#""errorCode":"REQUEST_LIMIT_EXCEEDED"}]"#),
    ("kraken", r#"{"error":["EAPI:Rate limit exceeded"]}"#),
    ("openai", r#""code":"rate_limit_exceeded""#),
    ("anthropic", r#""type":"rate_limit_error""#),
    ("together", "dynamic_request_limited"),
    ("gcp", r#""@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"1.400100000s"}"#),
    ("aws", r#"{"__type":"ThrottlingException","message":"Rate exceeded"}"#),
    ("aws-s3", "<Error><Code>SlowDown</Code>"),
    ("amazon-sp", r#"{"errors":[{"code":"QuotaExceeded""#),
];

fn facts(decision: CounterDecision) -> Facts {
    let wall = UNIX_EPOCH + Duration::from_millis(1_700_000_000_250);
    Facts { decision, limit: "10/min".parse().unwrap(), wall }
}

fn accepted() -> Facts {
    facts(CounterDecision::Accept { remaining: 4, reset: Duration::from_millis(1500) })
}

fn refused() -> Facts {
    facts(CounterDecision::Refuse {
        retry_after: Duration::from_micros(1_400_100),
        reset: Duration::from_millis(61_500),
    })
}

fn said(dialect: MockDialect, facts: &Facts) -> Vec<(String, String)> {
    let mut headers = HeaderMap::new();
    dialect.describe(facts, &mut headers);
    headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect()
}

/// Returns the syntax of a value: a number becomes `9`, and a word of several letters becomes `a`. The number of
/// decimals, and of digits from ten on (times since 1970), are kept. A Go duration becomes `go`.
fn shape(value: &str) -> String {
    // A Go duration may lack any of its units.
    let go = value.len() > 1 && value.split(|c: char| c.is_ascii_digit() || c == '.').all(|unit| "hms".contains(unit));
    if go && value.ends_with('s') {
        return "go".to_owned();
    }
    let mut shape = String::new();
    let mut rest = value;
    while let Some(first) = rest.chars().next() {
        let alike = |c: char| {
            if first.is_ascii_digit() { c.is_ascii_digit() } else { first.is_alphabetic() && c.is_alphabetic() }
        };
        let run = rest.find(|c| !alike(c)).unwrap_or(rest.len()).max(first.len_utf8());
        match (first.is_ascii_digit(), first.is_alphabetic()) {
            (true, _) if run >= 10 => shape.push_str(&format!("[{run} digits]")),
            (true, _) if shape.ends_with("9.") => shape.push_str(&format!("{run}")),
            (true, _) => shape.push('9'),
            (_, true) if run == 1 => shape.push(first),
            (_, true) => shape.push('a'),
            _ => shape.push(first),
        }
        rest = &rest[run..];
    }
    shape
}

#[test]
fn every_dialect_is_recorded() {
    let all: Vec<&str> = MockDialect::value_variants().iter().map(|dialect| dialect.0.name).collect();
    let mut recorded: Vec<&str> = RECORDED.iter().map(|(name, ..)| *name).collect();
    let mut known = all.clone();
    known.sort_unstable();
    recorded.sort_unstable();
    assert_eq!(known, recorded);
    known.dedup();
    assert_eq!(known.len(), all.len(), "two have the same name");
}

#[test]
fn every_dialect_has_the_fields_and_the_syntax_of_the_real_one() {
    for (name, status, recorded) in RECORDED {
        let dialect: MockDialect = name.parse().unwrap();
        assert_eq!(dialect.refusal().as_u16(), *status, "{name}");
        let shapes = |of_refusal: bool| -> Vec<(String, String)> {
            let fields = recorded.iter().filter(|(field, _)| of_refusal || !field.starts_with('*'));
            fields.map(|(field, value)| (field.trim_start_matches('*').to_owned(), shape(value))).collect()
        };
        for (facts, of_refusal) in [(accepted(), false), (refused(), true)] {
            let told: Vec<_> = said(dialect, &facts).into_iter().map(|(field, value)| (field, shape(&value))).collect();
            let sorted = |mut fields: Vec<(String, String)>| {
                fields.sort();
                fields
            };
            assert_eq!(sorted(told), sorted(shapes(of_refusal)), "{name}: {:?}", said(dialect, &facts));
        }
    }
}

#[test]
fn bodies_are_those_of_the_real_ones() {
    for (name, part) in BODIES {
        let body = name.parse::<MockDialect>().unwrap().complaint(&refused());
        assert!(body.contains(part), "{name}: {body}");
    }
    for dialect in MockDialect::value_variants() {
        for json in [dialect.complaint(&refused()), format!(r#"{{"number":1{}}}"#, dialect.members(&accepted()))] {
            let text = json.is_empty() || json.starts_with('<') || json == "Retry later\n";
            assert!(text || serde_json::from_str::<serde_json::Value>(&json).is_ok(), "{dialect}: {json}");
        }
    }
}

#[test]
fn counts_and_resets_are_the_verdicts() {
    let value = |name: &str, field: &str, facts: &Facts| -> String {
        let fields = said(name.parse().unwrap(), facts);
        fields.into_iter().find(|(told, _)| told == field).map(|(_, value)| value).unwrap_or_default()
    };
    for (name, field, accept, refuse) in [
        ("github", "x-ratelimit-reset", "1700000002", "1700000062"),
        ("github", "x-ratelimit-used", "6", "10"),
        ("twitter", "x-rate-limit-reset", "1700000001", "1700000061"),
        ("openai", "x-ratelimit-reset-requests", "1.5s", "1m1.5s"),
        ("discord", "x-ratelimit-reset-after", "1.500", "61.500"),
        ("mastodon", "x-ratelimit-reset", "2023-11-14T22:13:21.750000Z", "2023-11-14T22:14:21.750000Z"),
        ("gravitee", "x-rate-limit-reset", "1700000001750", "1700000061750"),
        ("ietf", "ratelimit", "\"default\";r=4;t=2", "\"default\";r=0;t=62"),
        ("ietf", "retry-after", "", "2"),
        ("reddit", "x-ratelimit-remaining", "4.0", "0.0"),
        ("shopify", "x-shopify-shop-api-call-limit", "6/10", "10/10"),
        ("klaviyo", "ratelimit-limit", "1, 1;w=1, 10;w=60", "1, 1;w=1, 10;w=60"),
        ("spotify", "retry-after", "", "1"),
        // Sum of the arrival at 1700000000.25, the reset after 1.5 or 61.5 s, and slowapi's extra second.
        ("late-reset", "x-ratelimit-reset", "1700000002.750000", "1700000062.750000"),
        ("late-reset", "retry-after", "2", "62"),
        ("503-retry-after", "retry-after", "", "1"),
    ] {
        assert_eq!(value(name, field, &accepted()), accept, "{name}: {field}");
        assert_eq!(value(name, field, &refused()), refuse, "{name}: {field}");
    }
}

#[test]
fn templates_name_facts_that_there_are() {
    // Every fact can be expressed for ten per minute, so that a failure means a misspelt word in a template.
    for dialect in MockDialect::value_variants() {
        let DialectRow { always, refused: besides, complaint, members, .. } = dialect.0;
        for template in
            always.iter().chain(*besides).flat_map(|(name, value)| [name, value]).chain([complaint, members])
        {
            assert!(refused().fill(template).is_some(), "{dialect}: {template}");
        }
    }
}

#[test]
fn an_unknown_name_is_told_the_names() {
    let said = "klingon".parse::<MockDialect>().unwrap_err();
    let missing = MockDialect::value_variants().iter().find(|dialect| !said.contains(dialect.0.name));
    assert!(missing.is_none(), "{missing:?}: {said}");
    assert_eq!(MockDialect::default().to_string(), "retry-after");
}
