//! JSON of an answer with status 200, which may nevertheless be a refusal: GraphQL, Kraken, Slack, Telegram; or which
//! tells of a budget: the cost of GraphQL, Stack Exchange.

use std::time::Duration;

use serde_json::Value;

use super::{
    codes::{self, Code},
    refusal, text,
};
use crate::hint::{
    Dialect,
    evidence::{Evidence, ReportedBudget},
    time::{self, Now},
};

/// What may stand in a complaint. Whatever else there is, is a result.
const ASIDE: [&str; 43] = [
    "account_id",
    "backoff",
    "code",
    "count",
    "debug",
    "description",
    "detail",
    "details",
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
    "message",
    "msg",
    "name",
    "quota_max",
    "quota_remaining",
    "reason",
    "request_id",
    "requestid",
    "retry_after",
    "status",
    "status_code",
    "statuscode",
    "success",
    "timestamp",
    "title",
    "trace_id",
    "type",
];

/// Whether it has errors and brings nothing besides.
pub(super) fn only_complains(json: &Value) -> bool {
    let Some(members) = json.as_object() else { return false };
    let fails = ["errors", "error"].iter().any(|name| members.get(*name).is_some_and(is_full))
        || members.get("ok") == Some(&false.into())
        || members.get("status").and_then(Value::as_str).and_then(Code::of).is_some();
    if !fails && !is_failure(json) {
        return is_note(json);
    }
    // Etherscan tells in `result` what is wrong.
    let says_in_result = json.get("message").and_then(Value::as_str) == Some("NOTOK");
    let is_aside = |name: &str| {
        let name = name.to_ascii_lowercase();
        name == "error"
            || name == "ok"
            || name == "id" && members.contains_key("jsonrpc")
            || name == "result" && says_in_result
            || ASIDE.contains(&name.as_str())
    };
    members.iter().all(|(name, value)| is_aside(name) || !is_full(value))
}

/// Whether it says of itself that it failed, without an `error`: `{"status":"0","message":"NOTOK"}` (Etherscan),
/// `{"success":false}` (Marketo), `{"errcode":45009}` (WeChat), `{"code":99991400}` (Lark), `{"infocode":"10021"}` (Amap).
fn is_failure(json: &Value) -> bool {
    let text = |name: &str| json.get(name).and_then(Value::as_str);
    let number = |name: &str| json.get(name).and_then(Value::as_i64);
    json.get("success") == Some(&false.into())
        || text("message") == Some("NOTOK")
        || text("status").is_some_and(|status| matches!(status, "0" | "error" | "ERROR" | "fail" | "failed"))
        || ["code", "errcode", "error_code"]
            .iter()
            .any(|name| number(name).is_some_and(|code| code != 0 && code != 200))
        || number("status_code").is_some_and(|status| status >= 400)
}

/// `{"Note":"… Our standard API call frequency is 5 calls per minute …"}`, `{"Information":"… our standard API rate limit
/// is 25 requests per day …"}` (Alpha Vantage): one sentence in the place of all data.
fn is_note(json: &Value) -> bool {
    let Some(members) = json.as_object().filter(|members| members.len() == 1) else { return false };
    let Some((name, said)) = members.iter().next() else { return false };
    let said = said.as_str().unwrap_or_default().to_ascii_lowercase();
    matches!(name.as_str(), "Note" | "Information") && NOTES.iter().any(|note| said.contains(note))
}

/// Words of Alpha Vantage's notes.
const NOTES: [&str; 3] = ["api call frequency", "api rate limit", "spreading out your free api requests"];

/// Whether something stands in it.
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

/// Each complaint and each report has one of these, so that a body without any need not be parsed.
const WORDS: [&[u8]; 14] = [
    b"\"error\"",
    b"\"errors\"",
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

/// The length of the shortest word.
const SHORTEST: usize = WORDS[0].len();

/// How far a window of the shortest word's length may move on whose last byte is this one: no word begins before (R. N.
/// Horspool, "Practical fast searching in strings", 1980, for several words).
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

/// Whether one of the [`WORDS`] stands in `body`.
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

/// Whether one of the words begins `text`.
fn is_word(text: &[u8]) -> bool {
    text.starts_with(b"\"") && WORDS.iter().any(|word| text.starts_with(word))
}

pub(super) fn read(json: &Value, now: Now, evidence: &mut Evidence) {
    graphql(json, now, evidence);
    cost(json, evidence);
    stack_exchange(json, evidence);
    kraken(json, now, evidence);
    plain(json, now, evidence);
    failure(json, now, evidence);
    if json.get("ok") == Some(&Value::Bool(false)) {
        refusal::read(json, now, evidence);
    }
}

/// `{"errors":[{"type":"RATE_LIMITED"}]}`, `{"errors":[{"extensions":{"code":"THROTTLED"}}]}`; and in words where nothing was done
/// (graphql-rate-limit: "You are trying to access 'items' too often"; graphql-rate-limit-directive: "Too many requests, please try
/// again in 10 seconds.").
fn graphql(json: &Value, now: Now, evidence: &mut Evidence) {
    if json.get("data").is_none() && !only_complains(json) {
        // Some of many things was refused, and the others were done.
        return;
    }
    // What failed is null.
    let nothing_done = !json.get("data").is_some_and(is_full);
    for error in json.get("errors").and_then(Value::as_array).into_iter().flatten() {
        let extensions = error.get("extensions");
        let codes = [
            error.get("type"),
            error.get("code"),
            extensions.and_then(|more| more.get("code")),
            extensions.and_then(|more| more.get("type")),
            extensions.and_then(|more| more.get("errorClass")),
            // Older answers of Shopify say no more than "Throttled".
            error.get("message").filter(|said| said.as_str().is_some_and(|said| !said.contains(' '))),
        ];
        let throttled = codes.into_iter().flatten().filter_map(Value::as_str).filter(|code| Code::of(code).is_some());
        throttled.for_each(|code| codes::judge(code, evidence));
        let said = error.get("message").and_then(Value::as_str).unwrap_or_default();
        let in_words = nothing_done && (text::complains(said) || said.contains(" too often"));
        if in_words || said.contains("secondary rate limit") {
            text::message(said, now, evidence);
        }
        // As Apollo's server has it.
        let status = extensions.and_then(|more| more.pointer("/http/status")).and_then(Value::as_u64);
        evidence.refused |= in_words || nothing_done && status == Some(429);
        if evidence.refused {
            refusal::read(error, now, evidence);
        }
    }
}

/// Shopify, Jobber: what a query may cost, how much of it is there, and how fast it comes back.
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
        if evidence.refused {
            evidence.retry_after = evidence.retry_after.or(missing.filter(|missing| !missing.is_zero()));
        }
    }
    evidence.speaks(Dialect::SHOPIFY);
    evidence.push(budget);
}

/// `{"items":[], "quota_max":300, "quota_remaining":294, "backoff":10}`: the quota is per day.
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
        evidence.refused = true;
        evidence.retry_after = evidence.retry_after.or(Some(time::duration(backoff)));
    }
}

/// `{"error":{"error_code":6,"error_msg":"Too many requests per second"}}` (VK, MediaWiki, JSON-RPC),
/// `{"error":29,"message":"Rate limit exceeded"}` (Last.fm), `{"status":"OVER_QUERY_LIMIT"}` (Google Maps).
fn plain(json: &Value, now: Now, evidence: &mut Evidence) {
    let complaint = match json.get("error") {
        Some(error @ Value::Object(_)) => error,
        Some(Value::Number(_)) => json,
        _ if json.get("status").and_then(Value::as_str) == Some("OVER_QUERY_LIMIT") => json,
        _ => return,
    };
    let text =
        |names: [&str; 4]| names.into_iter().filter_map(|name| complaint.get(name)?.as_str()).collect::<Vec<_>>();
    let codes = text(["code", "type", "status", "error_code"]);
    let is_known = |code: &&str| matches!(Code::of(code), Some(Code::Throttle | Code::Concurrency | Code::Overload));
    let said = text(["message", "info", "error_msg", "msg"]);
    if only_complains(json) && (codes.iter().any(is_known) || said.into_iter().any(text::complains)) {
        evidence.refused = true;
        refusal::read(complaint, now, evidence);
    }
}

/// Errors that have a known code, the number 429, or a sentence that complains of a limit, in an answer that brings nothing
/// besides: monday.com, Marketo, ArcGIS, JSON-RPC, Etherscan, Alpha Vantage, Lark, WeChat, Amap.
fn failure(json: &Value, now: Now, evidence: &mut Evidence) {
    if !only_complains(json) {
        return;
    }
    let lists = ["error", "errors"].into_iter().filter_map(|name| json.get(name));
    let errors = lists.flat_map(|errors| errors.as_array().map_or(std::slice::from_ref(errors), Vec::as_slice));
    let complaints: Vec<&Value> = std::iter::once(json).chain(errors).collect();
    if !is_note(json) && !complaints.iter().any(|complaint| is_about_a_limit(complaint)) {
        return;
    }
    evidence.refused = true;
    refusal::read(json, now, evidence);
    let names = ["Note", "Information", "result", "errmsg", "info"];
    let said = complaints.iter().flat_map(|complaint| names.iter().filter_map(|name| complaint.get(*name)?.as_str()));
    said.for_each(|said| text::message(said, now, evidence));
}

/// Whether this complaint, or this sentence, is about a limit.
fn is_about_a_limit(complaint: &Value) -> bool {
    if let Value::String(said) = complaint {
        return complains_of_limit(said);
    }
    let member = |name: &str| complaint.get(name);
    let codes = ["code", "type", "error_code", "errorCode", "status", "info"];
    let is_known = |code: &str| matches!(Code::of(code), Some(Code::Throttle | Code::Concurrency | Code::Overload));
    let numbers = ["code", "status", "status_code", "statusCode", "error_code"];
    let is_429 = |number: &Value| number.as_u64() == Some(429) || number.as_str() == Some("429");
    let texts = ["message", "msg", "errmsg", "error_message", "info", "result"];
    let details = member("details").and_then(Value::as_array).into_iter().flatten();
    codes.iter().filter_map(|name| member(name)?.as_str()).any(is_known)
        || numbers.iter().filter_map(|name| member(name)).any(is_429)
        || texts.iter().filter_map(|name| member(name)).chain(details).filter_map(Value::as_str).any(complains_of_limit)
}

/// The same of a sentence, which may stand in an answer about something else: it has to speak of a rate or a quota.
fn complains_of_limit(said: &str) -> bool {
    let lower = said.to_ascii_lowercase();
    let speaks = ["rate limit", "ratelimit", "too many requests", "frequency limit", "quota", "per sec", "per minute"];
    let quota = ["quota reached", "quota exceeded", "quota limit", "quota reach limit", "quota has been"];
    speaks.iter().any(|word| lower.contains(word)) && text::complains(said)
        || quota.iter().any(|word| lower.contains(word))
        || text::is_too_many_at_once(&lower)
}

/// `{"error":["EAPI:Rate limit exceeded"]}`, `{"error":["EGeneral:Temporary lockout"]}`,
/// `{"error":["EService:Throttled: 1700000000"]}`.
fn kraken(json: &Value, now: Now, evidence: &mut Evidence) {
    let errors = json.get("error").and_then(Value::as_array).into_iter().flatten();
    for error in errors.filter_map(Value::as_str) {
        let Some((_, said)) = error.split_once(':').filter(|(kind, _)| kind.starts_with('E')) else { continue };
        let said = said.trim();
        if let Some((_, until)) = said.split_once("hrottled") {
            evidence.refused = true;
            let until = time::reset(until.trim_start_matches([':', ' ']), false).and_then(|until| until.from(now));
            evidence.retry_after = evidence.retry_after.or(until.filter(|until| !until.is_zero()));
        } else if ["rate limit exceeded", "temporary lockout"]
            .iter()
            .any(|code| said.to_ascii_lowercase().contains(code))
        {
            evidence.refused = true;
        }
    }
}
