//! Reads answers to several requests in one: JSON-RPC's arrays, Microsoft Graph's `$batch`.
//!
//! A batch counts as refused, and may be sent again, only if all of it was refused. If some of it was done, the refused
//! part still holds for the requests that follow.

use serde_json::Value;

use super::{known, refusal, served};
use crate::{
    Strength,
    evidence::Evidence,
    time::{self, Now},
};

/// Reads the answers of a batch of JSON-RPC: `[{"jsonrpc":"2.0","id":1,"error":{"code":429,…}}, …]`.
pub(super) fn read(answers: &[Value], now: Now, evidence: &mut Evidence) {
    for answer in answers.iter().filter(|answer| answer.get("jsonrpc").is_some() && answer.get("error").is_some()) {
        served::read(answer, now, evidence);
    }
    if evidence.refusal.is_some() {
        evidence.done = Some(!answers.iter().all(is_refused));
    }
}

/// Returns whether `json` is the answer to a batch with `responses`.
pub(super) fn has_responses(json: &Value) -> bool {
    responses(json).next().is_some()
}

/// Reads `{"responses":[{"id":"1","status":429,"headers":{"Retry-After":"10"},"body":{…}}, …]}`.
pub(super) fn read_responses(json: &Value, now: Now, evidence: &mut Evidence) {
    let done = !is_all_refused(json);
    for response in responses(json).filter(|response| is_throttled(response)) {
        evidence.refuse(Strength::Code);
        evidence.done = Some(done);
        response.get("body").into_iter().for_each(|body| refusal::read(body, now, evidence));
        let fields = response.get("headers").and_then(Value::as_object).into_iter().flatten();
        let asked = fields.filter(|(name, _)| name.eq_ignore_ascii_case("retry-after")).filter_map(|(_, value)| {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            time::delay(&value, false)?.from(now).filter(|wait| !wait.is_zero())
        });
        evidence.said = evidence.said.max(asked.max());
    }
}

/// Returns whether an answer of a JSON-RPC batch is a refusal by a known code, and nothing else.
fn is_refused(answer: &Value) -> bool {
    answer.get("jsonrpc").is_some() && served::only_complains(answer) && known::is_refusal(answer)
}

/// Returns whether each of the `responses` was refused, and `json` has no other result.
fn is_all_refused(json: &Value) -> bool {
    let is_aside = |name: &String| name == "responses" || name.starts_with('@');
    json.as_object().is_some_and(|members| members.keys().all(is_aside)) && responses(json).all(is_throttled)
}

fn responses(json: &Value) -> impl Iterator<Item = &Value> {
    json.get("responses").and_then(Value::as_array).into_iter().flatten()
}

fn is_throttled(response: &Value) -> bool {
    response.get("status").and_then(Value::as_u64) == Some(429) && response.get("id").is_some()
}
