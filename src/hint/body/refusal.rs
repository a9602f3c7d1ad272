//! JSON of an answer that may be a refusal: codes, messages and waits, wherever they are in it.

use std::time::Duration;

use serde_json::Value;

use super::{codes, known, text};
use crate::hint::{
    Strength, count,
    evidence::{self, Evidence, ReportedBudget},
    time::{self, Now},
};

/// Complaints are not nested deeper.
const DEEPEST: usize = 8;
/// Members that hold what is said of the error. What stands in others may be about something else, or an echo.
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
/// One that holds a result, unless it stands in an error.
const DATA: &str = "data";

/// Reads `json`.
pub(super) fn read(json: &Value, now: Now, evidence: &mut Evidence) {
    look("", json, 0, Strength::Code, now, evidence);
    // What is told under a name goes before what is found in a sentence.
    sentences("", json, 0, Strength::Code, now, evidence);
}

/// The messages of an error, at the places where most APIs have them. Streams of Gemini that are no events are arrays.
pub(super) fn messages(json: &Value) -> impl Iterator<Item = &str> {
    let json = match json.as_array().map(Vec::as_slice) {
        Some([only]) => only,
        _ => json,
    };
    ["/message", "/error", "/error/message"].into_iter().filter_map(|path| json.pointer(path)?.as_str())
}

/// How sure the members of the member `key` are, which is at this `depth` itself.
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

/// One `key` (letters and digits alone) and what it says.
fn word(key: &str, value: &Value, strength: Strength, now: Now, evidence: &mut Evidence) {
    let text = match value {
        Value::String(text) => text.clone(),
        // Display writes no exponents, which are no numbers to us.
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
        // It refuses, but may be about a part of what was asked, when the rest was done.
        evidence.refuse(Strength::Words);
    }
    // Of several the longest.
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

/// Google: `{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "quotaValue": "20"}`.
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
    // This refused it, and no reset is reported.
    budget.binds = false;
    evidence.concerns(id);
    evidence.push(budget);
}

/// HubSpot: `TEN_SECONDLY_ROLLING`, `SECONDLY`, `DAILY`. A short window is waited for; a day ends where the account is.
fn policy(name: &str, evidence: &mut Evidence) {
    let lower = name.to_ascii_lowercase();
    let tens = if lower.starts_with("ten_") { 10 } else { 1 };
    let Some(window) = evidence::window_in(&lower).map(|window| window * tens) else { return };
    let mut budget = ReportedBudget::new(Some(&lower));
    budget.bucket.window = Some(window);
    budget.probe = Some(window).filter(|window| *window <= Duration::from_secs(60));
    // Whatever the head shows of another one.
    evidence.at_least = evidence.at_least.or(budget.probe);
    evidence.concerns(name);
    evidence.push(budget);
}

/// Meta: `{"type": "OAuthException", "code": 4}`.
fn meta(json: &Value, strength: Strength, evidence: &mut Evidence) {
    let code = json
        .get("code")
        .and_then(Value::as_u64)
        .filter(|_| json.get("type").and_then(Value::as_str) == Some("OAuthException"));
    if matches!(code, Some(4 | 17 | 32 | 341 | 613 | 80_000..=80_014 | 130_429 | 131_048 | 131_056)) {
        codes::judge("rate_limit", strength, evidence);
    }
}
