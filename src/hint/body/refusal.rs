//! Reads JSON of an answer that may be a refusal: codes, messages and waits, at any place.

use std::time::Duration;

use serde_json::Value;

use super::{codes, known, text};
use crate::{
    Hopeless, Strength, count,
    evidence::{self, Evidence, ReportedBudget},
    time::{self, Now},
};

/// Deepest nesting of a complaint.
const DEEPEST: usize = 8;
/// Members that describe the error. Other members may be about something else, or an echo.
const PLACES: [&str; 12] = [
    "detail",
    "details",
    "error",
    "errors",
    "extensions",
    "fault",
    "headers",
    "innererror",
    "metadata",
    "parameters",
    "rate",
    "violations",
];
/// Member that holds a result, unless it is part of an error.
const DATA: &str = "data";

/// Reads `json`.
pub(super) fn read(json: &Value, now: Now, evidence: &mut Evidence) {
    look("", json, 0, Strength::Code, now, evidence);
    // Named members take precedence over sentences.
    sentences("", json, 0, Strength::Code, now, evidence);
}

/// Messages of an error, at the places where most APIs have them. Gemini's streams without events are arrays.
pub(super) fn messages(json: &Value) -> impl Iterator<Item = &str> {
    let json = match json.as_array().map(Vec::as_slice) {
        Some([only]) => only,
        _ => json,
    };
    ["/message", "/error", "/error/message"].into_iter().filter_map(|path| json.pointer(path)?.as_str())
}

/// Strength of the members of `key`, which itself is at this `depth`.
fn within(key: &str, depth: usize, strength: Strength) -> Strength {
    let is_place =
        key.is_empty() || PLACES.iter().any(|place| place.eq_ignore_ascii_case(key)) || key == DATA && depth > 1;
    if is_place { strength } else { Strength::Words }
}

fn look(key: &str, json: &Value, depth: usize, strength: Strength, now: Now, evidence: &mut Evidence) {
    match json {
        Value::Object(fields) if depth < DEEPEST => {
            let strength = within(key, depth, strength);
            violation(json, evidence);
            youtube(json, evidence);
            meta(json, strength, evidence);
            fields.iter().for_each(|(key, value)| look(key, value, depth + 1, strength, now, evidence));
        }
        Value::Array(members) if depth < DEEPEST => {
            let strength = within(key, depth, strength);
            members.iter().for_each(|member| look(key, member, depth + 1, strength, now, evidence))
        }
        _ => {
            let key: String = key.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
            word(&key, json, strength, now, evidence);
        }
    }
}

/// Reads one `key` (letters and digits alone) and its value.
fn word(key: &str, value: &Value, strength: Strength, now: Now, evidence: &mut Evidence) {
    let text = match value {
        Value::String(text) => text.clone(),
        // `Display` writes no exponents, which `count::decimal` would reject.
        Value::Number(number) => number.as_f64().unwrap_or_default().to_string(),
        Value::Bool(true) if key == "global" => return evidence.concerns("global"),
        _ => return,
    };
    let when = match key {
        "retryafter" | "retryafterseconds" | "retryaftersecs" | "retryaftersec" | "retrydelay" | "retryin"
        | "retryinseconds" | "backoffseconds" | "waitseconds" | "resetsinseconds" | "resetinseconds" | "resetsin"
        | "resetin" => time::delay(&text, false),
        "retryafterms" | "retryaftermilliseconds" | "retryinms" => time::delay(&text, true),
        "resetsat" | "resetat" | "ratelimitreset" | "xratelimitreset" | "ratelimitnext" | "nextaccesstime" => {
            time::reset(&text, false)
        }
        "policyname" => return policy(&text, evidence),
        "violatedpolicies" => return evidence.concerns(&text),
        "code" | "type" | "error" | "errors" | "status" | "statuscode" | "httpstatus" | "reason" | "errorname"
        | "errortype" | "errorcode" | "tag" => {
            if text == "429" {
                evidence.refuse(strength);
            }
            return if value.is_string() {
                codes::judge(&text, strength, evidence)
            };
        }
        _ => return,
    };
    let delay = when.and_then(|when| when.from(now)).filter(|delay| !delay.is_zero());
    if strength != Strength::Words && delay.is_some() {
        // The answer refuses, but possibly only a part of the request, while the rest was done.
        evidence.refuse(Strength::Words);
    }
    // The longest of several waits counts.
    evidence.said = evidence.said.max(delay);
}

fn sentences(key: &str, json: &Value, depth: usize, strength: Strength, now: Now, evidence: &mut Evidence) {
    match json {
        Value::Object(fields) if depth < DEEPEST => {
            let strength = within(key, depth, strength);
            fields.iter().for_each(|(key, value)| sentences(key, value, depth + 1, strength, now, evidence))
        }
        Value::Array(members) if depth < DEEPEST => {
            let strength = within(key, depth, strength);
            members.iter().for_each(|member| sentences(key, member, depth + 1, strength, now, evidence))
        }
        Value::String(said) => {
            if matches!(
                key,
                "message"
                    | "Message"
                    | "error"
                    | "errors"
                    | "error_message"
                    | "errorMessage"
                    | "description"
                    | "error_description"
                    | "detail"
                    | "details"
                    | "title"
                    | "msg"
                    | "reason"
            ) {
                text::message(said, strength, now, evidence);
                if key.eq_ignore_ascii_case("message") && known::is_documented(said) {
                    evidence.refuse(strength);
                }
            }
        }
        _ => {}
    }
}

/// Reads Google's `{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "quotaValue": "20"}`.
fn violation(json: &Value, evidence: &mut Evidence) {
    let Some(id) = json.get("quotaId").and_then(Value::as_str) else { return };
    let mut budget = ReportedBudget::new(Some(id));
    let value = json.get("quotaValue");
    budget.bucket.limit = value
        .and_then(|value| value.as_str().map_or_else(|| value.as_f64(), count::count))
        .filter(|limit| *limit >= 0.0);
    budget.bucket.requests = id.contains("Request");
    let windows = [("PerDay", 86_400.0), ("PerHour", 3600.0), ("PerMinute", 60.0), ("PerSecond", 1.0)];
    let window = windows.into_iter().find(|(word, _)| id.contains(word));
    budget.bucket.window = window.map(|(_, seconds)| time::duration(seconds));
    // This budget refused the request, but its reset is not reported.
    budget.binds = false;
    evidence.concerns(id);
    evidence.push(budget);
}

/// Reads YouTube's `{"domain": "youtube.quota", "reason": "quotaExceeded"}`: the quota of a day.
fn youtube(json: &Value, evidence: &mut Evidence) {
    let text = |name: &str| json.get(name).and_then(Value::as_str);
    if text("domain") == Some("youtube.quota") && text("reason") == Some("quotaExceeded") {
        evidence.in_words.get_or_insert(Hopeless::Cap);
    }
}

/// Reads HubSpot's `TEN_SECONDLY_ROLLING`, `SECONDLY`, `DAILY`. A short window is waited for; a day ends by the time
/// zone of the account.
fn policy(name: &str, evidence: &mut Evidence) {
    let lower = name.to_ascii_lowercase();
    let tens = if lower.starts_with("ten_") { 10 } else { 1 };
    let Some(window) = evidence::window_in(&lower).map(|window| window * tens) else { return };
    let mut budget = ReportedBudget::new(Some(&lower));
    budget.bucket.window = Some(window);
    budget.probe = Some(window).filter(|window| *window <= Duration::from_secs(60));
    // This wait holds whatever the head reports of another budget.
    evidence.at_least = evidence.at_least.or(budget.probe);
    evidence.concerns(name);
    evidence.push(budget);
}

/// Reads Meta's `{"type": "OAuthException", "code": 4}`.
fn meta(json: &Value, strength: Strength, evidence: &mut Evidence) {
    let code = json
        .get("code")
        .and_then(Value::as_u64)
        .filter(|_| json.get("type").and_then(Value::as_str) == Some("OAuthException"));
    if matches!(code, Some(4 | 17 | 32 | 341 | 613 | 80_000..=80_014 | 130_429 | 131_048 | 131_056)) {
        codes::judge("rate_limit", strength, evidence);
    }
}
