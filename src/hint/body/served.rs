//! Reads JSON of an answer with status 200. Such an answer may be a refusal (GraphQL, Kraken, Slack, Telegram), or
//! report a budget (the cost of GraphQL, Stack Exchange).

use std::time::Duration;

use serde_json::Value;

use super::{
    codes::{self, Code},
    known, refusal, text, words,
};
use crate::{
    Dialect, Strength,
    evidence::{Evidence, ReportedBudget},
    time::{self, Now},
};

/// Members that a complaint may have. Any other member is a result.
const ASIDE: [&str; 47] = [
    "account_id",
    "backoff",
    "code",
    "debug",
    "description",
    "detail",
    "details",
    // From MediaWiki.
    "docref",
    "documentation_url",
    "errcode",
    "errmsg",
    "error_code",
    "error_data",
    "error_id",
    "error_message",
    "error_msg",
    "error_name",
    "error_type",
    "errorcode",
    "errormessage",
    "errors",
    "extensions",
    "hint",
    "info",
    "infocode",
    "jsonrpc",
    "log_id",
    "message",
    "msg",
    "name",
    "quota_max",
    "quota_remaining",
    "reason",
    "request_id",
    "requestid",
    "retcode",
    "retmsg",
    "retry_after",
    "servedby",
    "status_code",
    "statuscode",
    "success",
    "time",
    "timestamp",
    "title",
    "trace_id",
    "type",
];

/// Returns whether the answer has errors and no result: nothing was done.
pub(super) fn only_complains(json: &Value) -> bool {
    let Some(members) = json.as_object() else { return false };
    if known::says_done(json) || has_executed(json) {
        return false;
    }
    if known::tencent_error(json).is_some() {
        return true;
    }
    let fails = ["errors", "error"].iter().any(|name| members.get(*name).is_some_and(is_full))
        || members.get("ok") == Some(&false.into())
        || members.get("status").and_then(Value::as_str).and_then(Code::of).is_some();
    if !fails && !is_failure(json) {
        return known::is_note(json);
    }
    // Etherscan describes the error in `result`.
    let says_in_result = json.get("message").and_then(Value::as_str) == Some("NOTOK");
    let is_aside = |name: &str, value: &Value| {
        let name = name.to_ascii_lowercase();
        name == "error"
            || name == "ok"
            || name == "id" && members.contains_key("jsonrpc")
            || name == "result" && says_in_result
            || name == "status" && is_failed(value)
            || ASIDE.contains(&name.as_str())
    };
    members.iter().all(|(name, value)| is_aside(name, value) || !is_full(value))
}

/// Returns whether a query of GraphQL was executed, at least in part. An error before the execution has no path, and
/// comes without `data` (<https://spec.graphql.org/draft/#sec-Errors>).
fn has_executed(json: &Value) -> bool {
    let errors = json.get("errors").and_then(Value::as_array);
    let has_path = |error: &Value| error.get("path").and_then(Value::as_array).is_some_and(|path| !path.is_empty());
    errors.is_some_and(|errors| json.get("data").is_some() || errors.iter().any(has_path))
}

/// Returns whether a `status` reports the failure of this request. Other values are states of a resource.
fn is_failed(status: &Value) -> bool {
    let Some(status) = status.as_str() else { return true };
    matches!(status, "0" | "error" | "ERROR" | "fail") || status.parse::<u16>().is_ok() || Code::of(status).is_some()
}

/// Returns whether the answer reports a failure without an `error`: `{"status":"0","message":"NOTOK"}` (Etherscan),
/// `{"success":false}` (Marketo), `{"errcode":45009}` (WeChat), `{"code":99991400}` (Lark), `{"infocode":"10021"}`
/// (Amap), `{"retCode":10006}` (Bybit).
fn is_failure(json: &Value) -> bool {
    let text = |name: &str| json.get(name).and_then(Value::as_str);
    let number = |name: &str| json.get(name).and_then(Value::as_i64);
    json.get("success") == Some(&false.into())
        || text("message") == Some("NOTOK")
        || text("status").is_some_and(|status| matches!(status, "0" | "error" | "ERROR" | "fail"))
        || ["code", "errcode", "error_code", "retCode"]
            .iter()
            .any(|name| number(name).is_some_and(|code| !matches!(code, 0 | 200..=299)))
        || number("status_code").is_some_and(|status| status >= 400)
}

/// Returns whether `value` has content.
fn is_full(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Object(members) => members.values().any(|value| !value.is_null()),
        Value::Array(items) => !items.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::Bool(true) => true,
    }
}

/// Words to search for: each complaint and each report has one of them, so other bodies are not parsed.
const WORDS: [&[u8]; 17] = [
    b"\"error\"",
    b"\"errors\"",
    b"\"Error\":",
    b"\"error_msg\"",
    b"\"retMsg\"",
    b"\"NOTOK\"",
    b"\"Note\":",
    b"\"Note\" ",
    b"\"Information\"",
    b"\"errcode\"",
    b"\"infocode\"",
    b"\"msg\":\"",
    b"\"msg\": ",
    b"\"throttleStatus\"",
    b"\"backoff\"",
    b"\"quota_remaining\"",
    b"\"OVER_QUERY_LIMIT\"",
];

/// Length of the shortest word.
const SHORTEST: usize = WORDS[0].len();

/// Distance by which the search window, which is as long as the shortest word, may move for its last byte. No word
/// begins before the new place (R. N. Horspool, "Practical fast searching in strings", 1980, for several words).
const SHIFTS: [u8; 256] = {
    let mut shifts = [SHORTEST as u8; 256];
    let mut word = 0;
    while word < WORDS.len() {
        let mut at = 0;
        while at < SHORTEST {
            let (byte, shift) = (WORDS[word][at] as usize, (SHORTEST - 1 - at) as u8);
            if shift < shifts[byte] {
                shifts[byte] = shift;
            }
            at += 1;
        }
        word += 1;
    }
    shifts
};

/// Returns whether one of the [`WORDS`] stands in `body`.
pub(super) fn may_complain(body: &[u8]) -> bool {
    let mut last = SHORTEST - 1;
    while let Some(byte) = body.get(last) {
        let shift = usize::from(SHIFTS[usize::from(*byte)]);
        if shift == 0 && is_word(&body[last + 1 - SHORTEST..]) {
            return true;
        }
        last += shift.max(1);
    }
    false
}

/// Returns whether `text` begins with one of the [`WORDS`].
fn is_word(text: &[u8]) -> bool {
    text.starts_with(b"\"") && WORDS.iter().any(|word| text.starts_with(word))
}

/// Reads one object. Notes how sure its refusal is, and whether anything was done.
pub(super) fn read(json: &Value, now: Now, evidence: &mut Evidence) {
    let of_head = evidence.refusal.take();
    graphql(json, now, evidence);
    cost(json, evidence);
    kraken(json, now, evidence);
    failure(json, now, evidence);
    if evidence.refusal.is_some() {
        let done = !only_complains(json);
        let is_known = known::is_refusal(json) || done && known::refuses_a_part(json);
        evidence.refusal = Some(if is_known { Strength::Code } else { Strength::Words });
        evidence.done = Some(done);
    }
    stack_exchange(json, evidence);
    evidence.refusal = evidence.refusal.max(of_head);
}

/// Reads `{"errors":[{"type":"RATE_LIMITED"}]}`, `{"errors":[{"extensions":{"code":"THROTTLED"}}]}`. Reads words if
/// nothing was done (graphql-rate-limit: "You are trying to access 'items' too often"; graphql-rate-limit-directive:
/// "Too many requests, please try again in 10 seconds.").
fn graphql(json: &Value, now: Now, evidence: &mut Evidence) {
    if json.get("data").is_none() && !only_complains(json) {
        // A part of the query was refused, and the rest was done.
        return;
    }
    // A failed part of a query is null.
    let nothing_done = !json.get("data").is_some_and(is_full);
    for error in json.get("errors").and_then(Value::as_array).into_iter().flatten() {
        let extensions = error.get("extensions");
        let codes = [
            error.get("type"),
            error.get("code"),
            extensions.and_then(|more| more.get("code")),
            extensions.and_then(|more| more.get("type")),
            extensions.and_then(|more| more.get("errorClass")),
            // Older answers of Shopify have only the message "Throttled".
            error.get("message").filter(|said| said.as_str().is_some_and(|said| !said.contains(' '))),
        ];
        let throttled = codes.into_iter().flatten().filter_map(Value::as_str).filter(|code| Code::of(code).is_some());
        throttled.for_each(|code| codes::judge(code, Strength::Code, evidence));
        let said = error.get("message").and_then(Value::as_str).unwrap_or_default();
        let in_words = nothing_done && (words::complains(said) || said.contains(" too often"));
        if in_words || said.contains("secondary rate limit") {
            text::message(said, Strength::Words, now, evidence);
        }
        // Apollo Server puts the status here.
        let status = extensions.and_then(|more| more.pointer("/http/status")).and_then(Value::as_u64);
        if in_words || nothing_done && status == Some(429) {
            evidence.refuse(Strength::Words);
        }
        if evidence.refusal.is_some() {
            refusal::read(error, now, evidence);
        }
    }
}

/// Reads the cost of a query (Shopify, Jobber): the maximum, the remainder and the refill rate.
fn cost(json: &Value, evidence: &mut Evidence) {
    let Some(cost) = json.pointer("/extensions/cost") else { return };
    let number = |path: &str| cost.pointer(path).and_then(Value::as_f64).filter(|number| *number >= 0.0);
    let (Some(most), Some(left)) =
        (number("/throttleStatus/maximumAvailable"), number("/throttleStatus/currentlyAvailable"))
    else {
        return;
    };
    let mut budget = ReportedBudget::new(Some("cost"));
    (budget.bucket.limit, budget.bucket.remaining, budget.bucket.refills) = (Some(most), Some(left), true);
    if let Some(rate) = number("/throttleStatus/restoreRate").filter(|rate| *rate > 0.0) {
        budget.bucket.reset = Some(time::duration((most - left) / rate));
        budget.bucket.window = Some(time::duration(most / rate)).filter(|window| !window.is_zero());
        let missing = number("/requestedQueryCost").map(|requested| time::duration((requested - left) / rate));
        if evidence.refusal.is_some() {
            evidence.said = evidence.said.max(missing);
        }
    }
    evidence.speaks(Dialect::SHOPIFY);
    evidence.push(budget);
}

/// Reads `{"items":[], "quota_max":300, "quota_remaining":294, "backoff":10}`; the quota is per day.
fn stack_exchange(json: &Value, evidence: &mut Evidence) {
    let number = |key: &str| json.get(key).and_then(Value::as_f64).filter(|number| *number >= 0.0);
    let (Some(left), Some(most)) = (number("quota_remaining"), number("quota_max")) else { return };
    if !["items", "error_id", "has_more"].iter().any(|name| json.get(name).is_some()) {
        return;
    }
    let mut budget = ReportedBudget::new(None);
    (budget.bucket.limit, budget.bucket.remaining) = (Some(most), Some(left));
    budget.bucket.window = Some(Duration::from_secs(24 * 60 * 60));
    evidence.push(budget);
    if let Some(backoff) = number("backoff").filter(|backoff| *backoff > 0.0) {
        evidence.refuse(Strength::Code);
        evidence.said = evidence.said.max(Some(time::duration(backoff)));
    }
}

/// Reads errors with a known code, or with a sentence that complains about a limit, in an answer without a result.
fn failure(json: &Value, now: Now, evidence: &mut Evidence) {
    if !only_complains(json) {
        return;
    }
    let lists = ["error", "errors"].into_iter().filter_map(|name| json.get(name));
    let errors: Vec<&Value> =
        lists.flat_map(|errors| errors.as_array().map_or(std::slice::from_ref(errors), Vec::as_slice)).collect();
    // An error about something else may follow work that was done.
    let is_complaint =
        is_about_a_limit(json) || !errors.is_empty() && errors.iter().all(|error| is_about_a_limit(error));
    if !known::is_refusal(json) && !is_complaint {
        return;
    }
    evidence.refuse(Strength::Words);
    refusal::read(json, now, evidence);
    let names = ["Note", "Information", "result", "errmsg", "error_msg", "retMsg", "info"];
    let complaints = std::iter::once(json).chain(errors);
    let said = complaints.flat_map(|complaint| names.iter().filter_map(|name| complaint.get(*name)?.as_str()));
    said.for_each(|said| text::message(said, Strength::Words, now, evidence));
}

/// Returns whether this complaint, or this sentence, is about a limit.
fn is_about_a_limit(complaint: &Value) -> bool {
    if let Value::String(said) = complaint {
        return complains_of_limit(said);
    }
    let member = |name: &str| complaint.get(name);
    let codes = ["code", "type", "error_code", "errorCode", "status", "info"];
    let is_known = |code: &str| matches!(Code::of(code), Some(Code::Throttle | Code::Concurrency | Code::Overload));
    let numbers = ["code", "status", "status_code", "statusCode", "error_code"];
    let is_429 = |number: &Value| number.as_u64() == Some(429) || number.as_str() == Some("429");
    let texts = ["message", "msg", "errmsg", "error_msg", "error_message", "info", "result"];
    let details = member("details").and_then(Value::as_array).into_iter().flatten();
    codes.iter().filter_map(|name| member(name)?.as_str()).any(is_known)
        || numbers.iter().filter_map(|name| member(name)).any(is_429)
        || texts.iter().filter_map(|name| member(name)).chain(details).filter_map(Value::as_str).any(complains_of_limit)
}

/// Returns whether a sentence complains about a limit. The sentence must mention a rate or a quota, since it may stand
/// in an answer about something else.
fn complains_of_limit(said: &str) -> bool {
    let lower = said.to_ascii_lowercase();
    let speaks = ["rate limit", "ratelimit", "too many requests", "frequency limit", "quota", "per sec", "per minute"];
    let quota = ["quota reached", "quota exceeded", "quota limit", "quota reach limit", "quota has been"];
    speaks.iter().any(|word| lower.contains(word)) && words::complains(said)
        || quota.iter().any(|word| lower.contains(word))
        || words::is_too_many_at_once(&lower)
}

/// Reads `{"error":["EService:Throttled: 1700000000"]}` and other refusals of Kraken.
fn kraken(json: &Value, now: Now, evidence: &mut Evidence) {
    let errors = json.get("error").and_then(Value::as_array).into_iter().flatten();
    for error in errors.filter(|error| known::is_kraken(error)).filter_map(Value::as_str) {
        evidence.refuse(Strength::Code);
        if let Some((_, until)) = error.split_once("hrottled") {
            let until = time::reset(until.trim_start_matches([':', ' ']), false).and_then(|until| until.from(now));
            evidence.said = evidence.said.max(until);
        }
    }
}
