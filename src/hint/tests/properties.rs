//! No answer causes a panic, a wait beyond the cap, a negative value, or a value that is no number.
//!
//! `PROPTEST_CASES=10000000 cargo test --release -p andante-hint nothing_that_is_said` reads more answers than usual.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use proptest::prelude::*;
use serde_json::Value;

use super::NOON;
use crate::{Answer, Hint, Hopeless, Signal, read, time::CAP, wants_body};

/// Generated answer.
#[derive(Clone, Debug)]
struct Made {
    status: u16,
    fields: Vec<(String, Vec<u8>)>,
    body: Option<Vec<u8>>,
    arrived: u64,
}

fn recorded() -> Vec<Made> {
    let cases = include_str!("dialects.jsonl").lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let made = cases.map(|case| {
        let fields = case["headers"].as_object().unwrap().iter().flat_map(|(name, value)| {
            let lines = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
            lines.into_iter().map(|line| (name.clone(), line.as_str().unwrap().as_bytes().to_vec())).collect::<Vec<_>>()
        });
        Made {
            status: case["status"].as_u64().unwrap().try_into().unwrap(),
            fields: fields.collect(),
            body: case["body_hint"].as_str().map(|body| body.as_bytes().to_vec()),
            arrived: NOON.as_secs(),
        }
    });
    made.collect()
}

fn check(made: &Made) {
    let mut headers = HeaderMap::new();
    for (name, value) in &made.fields {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    let status = StatusCode::from_u16(made.status).unwrap();
    let arrived = Duration::from_secs(made.arrived);
    let hint = read(&Answer { status, headers: &headers, body: made.body.as_deref(), arrived });
    let _ = wants_body(status, &headers);
    assert_sound(&hint);
    // A second reading gives the same hint.
    assert_eq!(hint, read(&Answer { status, headers: &headers, body: made.body.as_deref(), arrived }));
}

fn assert_sound(hint: &Hint) {
    let sane = |number: Option<f64>| number.is_none_or(|number| number.is_finite() && (0.0..=1e15).contains(&number));
    let capped = |time: Option<Duration>| time.is_none_or(|time| time <= CAP);
    assert!(capped(hint.wait) && capped(hint.retry_after), "{hint:?}");
    assert!(hint.retry_after.is_none_or(|wait| !wait.is_zero()), "{hint:?}");
    for bucket in &hint.buckets {
        assert!(sane(bucket.limit) && sane(bucket.remaining), "{hint:?}");
        assert!(capped(bucket.reset) && capped(bucket.window), "{hint:?}");
        assert!(bucket.limit.zip(bucket.remaining).is_none_or(|(limit, left)| left <= limit), "{hint:?}");
    }
    match hint.signal {
        Signal::Ok | Signal::Slow | Signal::Informational => assert_eq!(hint.wait, Some(Duration::ZERO), "{hint:?}"),
        Signal::Throttled => assert!(hint.wait.is_some_and(|wait| !wait.is_zero()), "{hint:?}"),
        Signal::Exhausted | Signal::Banned => assert!(hint.wait.is_none_or(|wait| !wait.is_zero()), "{hint:?}"),
        Signal::Backoff => assert_eq!(hint.wait, None, "{hint:?}"),
        // Only a cap may have an end.
        Signal::FatalQuota => {
            assert!(hint.wait.is_none() || hint.hopeless == Some(Hopeless::Cap), "{hint:?}");
        }
    }
}

/// Values that trip parsers, and values of all supported kinds.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let traps = prop::sample::select(vec![
        "",
        "0",
        "-1",
        "NaN",
        "inf",
        "-inf",
        "1e999",
        "unlimited",
        "99999999999999999999999999",
        "0.0000000001",
        "1780315230",
        "1780315230000",
        "-1780315230",
        "2026-06-01T12:00:30Z",
        "9999-12-31T23:59:60.999999999Z",
        "Mon, 01 Jun 2026 12:00:30 GMT",
        "Thu, 01 Jan 1970 00:00:00 GMT",
        "6m0s",
        "999999999999h",
        "0ms",
        "10, 10;w=1, 0;w=0",
        "0;w=0",
        "\"a\";r=0;t=0",
        "\"a;r=1;t=",
        "limit=, remaining=-1, reset=1e9",
        "40/40",
        "1/0",
        "0:0,0:0",
        "1:1:1",
        "1,1",
        "{\"call_count\":-1e308}",
        "{\"a\":[{\"estimated_time_to_regain_access\":1e308}]}",
        "total=0; remaining=; resets=0",
        "true",
        "é",
        "µs",
        "5µs",
        "\"\\",
        ",,;;==::",
        "60:::",
        "a;1,b;2",
    ]);
    prop_oneof![
        4 => traps.prop_map(|value| value.as_bytes().to_vec()),
        2 => "[0-9.:;,=/\"a-z -]{0,40}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..40),
        1 => any::<f64>().prop_map(|number| number.to_string().into_bytes()),
    ]
}

fn name() -> impl Strategy<Value = String> {
    let names: Vec<String> = recorded().into_iter().flat_map(|made| made.fields).map(|(name, _)| name).collect();
    let made = prop::collection::vec(
        prop::sample::select(vec![
            "x",
            "ratelimit",
            "rate-limit",
            "limit",
            "remaining",
            "reset",
            "after",
            "ms",
            "tokens",
            "requests",
            "day",
            "10s",
            "used",
            "interval",
            "retry",
            "policy",
            "usage",
            "state",
            "count",
            "quota",
            "anthropic",
            "unified",
            "5h",
            "status",
            "beta",
            "mbx",
            "fillrate",
            "grpc",
        ]),
        1..6,
    );
    prop_oneof![3 => prop::sample::select(names), 2 => made.prop_map(|words| words.join("-")), 1 => "[a-z-]{1,20}"]
}

fn status() -> impl Strategy<Value = u16> {
    prop_oneof![
        prop::sample::select(vec![200, 202, 301, 304, 400, 401, 403, 404, 418, 420, 429, 500, 503, 529]),
        100_u16..1000
    ]
}

fn body() -> impl Strategy<Value = Option<Vec<u8>>> {
    let bodies: Vec<Vec<u8>> = recorded().into_iter().filter_map(|made| made.body).collect();
    let cut =
        (prop::sample::select(bodies), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut body, at, byte)| {
            let at = at.index(body.len());
            body[at] = byte;
            body
        });
    let keyed = ("retry_after|retryDelay|retry_after_ms|resets_at|backoff|quota_remaining|message|code", value()).prop_map(|(key, value)| {
        let value = String::from_utf8_lossy(&value).into_owned();
        serde_json::json!({ "errors": [{ key.clone(): value, "code": "RATE_LIMITED" }], key: value, "ok": false, "quota_max": 1 }).to_string().into_bytes()
    });
    let number = any::<f64>().prop_map(|number| format!("{{\"retry_after\":{number:e},\"quota_max\":{number:e},\"quota_remaining\":{number:e},\"backoff\":{number:e},\"extensions\":{{\"cost\":{{\"requestedQueryCost\":{number:e},\"throttleStatus\":{{\"maximumAvailable\":{number:e},\"currentlyAvailable\":1,\"restoreRate\":{number:e}}}}}}}}}").into_bytes());
    let sentence = value().prop_map(|value| [b"try again in ".as_slice(), &value].concat());
    prop::option::of(prop_oneof![cut, keyed, number, sentence, prop::collection::vec(any::<u8>(), 0..80)])
}

fn arrived() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(NOON.as_secs()), 1 => Just(0), 1 => any::<u32>().prop_map(u64::from), 1 => any::<u64>()]
}

fn random() -> impl Strategy<Value = Made> {
    let fields = prop::collection::vec((name(), value()), 0..12);
    (status(), fields, body(), arrived()).prop_map(|(status, fields, body, arrived)| Made {
        status,
        fields,
        body,
        arrived,
    })
}

/// Recorded answer with one change.
fn mutated() -> impl Strategy<Value = Made> {
    let change = (any::<prop::sample::Index>(), 0..5_u8, value(), name());
    (
        prop::sample::select(recorded()),
        prop::collection::vec(change, 1..5),
        prop::option::of(status()),
        body(),
        arrived(),
    )
        .prop_map(|(mut made, changes, status, body, arrived)| {
            for (at, kind, value, name) in changes {
                if made.fields.is_empty() || kind == 0 {
                    made.fields.push((name, value));
                    continue;
                }
                let at = at.index(made.fields.len());
                match kind {
                    1 => made.fields[at].1 = value,
                    2 => drop(made.fields.remove(at)),
                    3 => {
                        let (name, _) = made.fields[at].clone();
                        made.fields.push((name, value));
                    }
                    _ => {
                        let place = made.fields[at].1.len() / 2;
                        made.fields[at].1.splice(place..place, value);
                    }
                }
            }
            made.status = status.unwrap_or(made.status);
            made.body = body.or(made.body);
            made.arrived = arrived;
            made
        })
}

proptest! {
    #[test]
    fn nothing_that_is_said_gives_an_unsound_hint(made in prop_oneof![random(), mutated()]) {
        check(&made);
    }
}
