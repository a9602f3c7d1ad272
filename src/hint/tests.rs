//! Reads real answers, and checks the conclusions.

mod cases;
mod largest_answers;
mod misleading_headers;
mod properties;
mod strength;
mod variations;

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::{Answer, Hint, read};

/// 2026-06-01 12:00:00 UTC.
const NOON: Duration = Duration::from_secs(1_780_315_200);

/// Hint at [`NOON`] of an answer such as `429 | retry-after: 5 | {"a body": 1}`.
fn hint(answer: &str) -> Hint {
    let (status, headers, body) = parts(answer);
    read(&Answer { status, headers: &headers, body, arrived: NOON })
}

/// Status, fields and body of an answer in that form.
fn parts(answer: &str) -> (StatusCode, HeaderMap, Option<&[u8]>) {
    let mut parts = answer.split(" | ");
    let status = StatusCode::from_bytes(parts.next().unwrap().trim().as_bytes()).unwrap();
    let (mut headers, mut body) = (HeaderMap::new(), None);
    for part in parts {
        match part.split_once(": ").filter(|(name, _)| name.parse::<HeaderName>().is_ok()) {
            Some((name, value)) => {
                headers.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_bytes(value.as_bytes()).unwrap());
            }
            None => body = Some(part.as_bytes()),
        }
    }
    (status, headers, body)
}

/// Wait in seconds.
fn wait(answer: &str) -> Option<f64> {
    hint(answer).wait.map(|wait| wait.as_secs_f64())
}
