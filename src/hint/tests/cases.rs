//! Checks every case of `dialects.jsonl`: answers that real APIs sent or document.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde_json::Value;

use crate::{Answer, Hint, Signal, read, time_of_day};

const CASES: &str = include_str!("dialects.jsonl");

/// Facts that these answers do not report, although documentation elsewhere does; docs/hints.md argues each.
const UNKNOWABLE: &[(&str, &[&str])] = &[
    (
        "window_s",
        &[
            "Atlassian Cloud/429-quota",
            "Cloudflare API/reset-rfc1123-date",
            "DigitalOcean/ok",
            "GitHub REST/not-modified-304",
            "GitLab/redirect-301-carries-limits",
            "GitLab/throttled-429",
            "Gravitee gateway/epoch-milliseconds",
            "Intercom/ok",
            "MailHops/401-rate-limit",
            "NCBI E-utilities/429",
            "Okta/429-rate",
            "Okta/ok",
            "OpenStreetMap Nominatim/429-no-headers",
            "Reddit/exhausted-on-success",
            "Reddit/ok",
            "Resend/429",
            "SharePoint Online/ok-80-percent",
            "Vimeo/reset-iso8601",
            "X (Twitter)/429",
            "X (Twitter)/ok-v1.1",
            "X (Twitter)/ok-v2",
            "Zendesk/live-endpoint-bucket-tighter",
        ],
    ),
    ("limit", &["MailHops/401-rate-limit", "OpenStreetMap Nominatim/429-no-headers"]),
    ("reset_in_s", &["Tiendanube/Nuvemshop/delta-milliseconds"]),
];

fn hint_of(case: &Value) -> Hint {
    let mut headers = HeaderMap::new();
    for (name, value) in case["headers"].as_object().unwrap() {
        let name: HeaderName = name.parse().unwrap();
        let lines = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
        for line in lines {
            headers.append(&name, HeaderValue::from_str(line.as_str().unwrap()).unwrap());
        }
    }
    let status = StatusCode::from_u16(case["status"].as_u64().unwrap().try_into().unwrap()).unwrap();
    let arrived = time_of_day(case["now"].as_str().unwrap_or("2026-06-01T12:00:00Z")).unwrap();
    let body = case["body_hint"].as_str().map(str::as_bytes);
    read(&Answer { status, headers: &headers, body, arrived })
}

fn complaints(case: &Value) -> Vec<String> {
    let hint = hint_of(case);
    let (provider, name) = (case["provider"].as_str().unwrap(), case["case"].as_str().unwrap());
    let mut wrong = Vec::new();
    let signal = serde_json::to_value(hint.signal).unwrap();
    if signal != case["expect"]["signal"] {
        wrong.push(format!("signal {signal} for {}", case["expect"]["signal"]));
    }
    let wait = hint.wait.map(|wait| wait.as_secs_f64());
    let agree = |found: Option<f64>, expected: Option<f64>| match (found, expected) {
        (Some(found), Some(expected)) => (found - expected).abs() <= 1.0,
        (found, expected) => found == expected,
    };
    if !agree(wait, case["expect"]["wait_s"].as_f64()) {
        wrong.push(format!("wait {wait:?} for {}", case["expect"]["wait_s"]));
    }
    let first = hint.buckets.first();
    let retry_after = hint.retry_after.or(Some(std::time::Duration::ZERO)).map(|wait| wait.as_secs_f64());
    for (what, found, slack) in [
        ("limit", first.and_then(|first| first.limit), 0.0),
        ("remaining", first.and_then(|first| first.remaining), 0.0),
        ("reset_in_s", first.and_then(|first| first.reset).map(|reset| reset.as_secs_f64()), 1.0),
        ("window_s", first.and_then(|first| first.window).map(|window| window.as_secs_f64()), 0.0),
        ("retry_after_s", retry_after, 0.0),
    ] {
        let Some(expected) = case["means"][what].as_f64() else { continue };
        let full = format!("{provider}/{name}");
        let unknowable = UNKNOWABLE.iter().any(|(of, cases)| *of == what && cases.contains(&full.as_str()));
        let right = found.is_some_and(|found| (found - expected).abs() <= slack + 1e-9);
        if right == unknowable {
            wrong.push(format!("{what} {found:?} for {expected}"));
        }
    }
    wrong.iter().map(|wrong| format!("{provider}/{name}: {wrong}\n    {hint:?}")).collect()
}

#[test]
fn every_case_is_understood() {
    let cases: Vec<Value> = CASES.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(cases.len(), 163);
    let wrong: Vec<String> = cases.iter().flat_map(complaints).collect();
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
    assert!(cases.iter().any(|case| hint_of(case).signal == Signal::Informational));
}
