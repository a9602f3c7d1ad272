//! Recognizes refusals in JSON that their providers document: a code, a number or a sentence, each at its place.
//!
//! Only these refusals say that nothing was done. Anyone may have written words elsewhere.

use serde_json::Value;

use super::{codes::Code, words};

/// Numbers of refusals in WeChat's `errcode`, and in Lark's `code`.
const WECHAT: [i64; 2] = [45_009, 45_011];
const LARK: i64 = 99_991_400;
/// Marketo: rate limit, daily quota, concurrent access limit.
const MARKETO: [&str; 3] = ["606", "607", "615"];
/// Baidu: request limits of a cluster, a day, a second and in total.
const BAIDU: [i64; 4] = [4, 17, 18, 19];
/// Beginning of Baidu's messages. Other APIs have such numbers, too.
const BAIDU_MESSAGE: &str = "open api ";
/// Bybit: the limits of an account and of an address.
const BYBIT: [i64; 2] = [10_006, 10_018];
/// VK: "Too many requests per second", "Rate limit reached".
const VK: [i64; 2] = [6, 29];
/// JSON-RPC (EIP-1474): "limit exceeded", which Infura also sends for results that are too long.
const LIMIT_EXCEEDED: i64 = -32_005;
/// Beginnings of sentences in the `result` of Etherscan.
const ETHERSCAN: [&str; 3] =
    ["max rate limit reached", "max calls per sec rate limit reached", "max daily rate limit reached"];
/// Beginnings of sentences in Alpha Vantage's notes; some notes first say thanks.
const ALPHA_VANTAGE: [&str; 4] = [
    "our standard api call frequency is",
    "our standard api rate limit is",
    "we have detected your api key as",
    "please consider spreading out your free api requests",
];
const ALPHA_VANTAGE_THANKS: &str = "thank you for using alpha vantage!";
/// Beginnings of refusals without a code: GitHub, Azure API Management.
const REFUSALS: [&str; 4] = [
    "api rate limit exceeded for ",
    "you have exceeded a secondary rate limit",
    "you have triggered an abuse detection mechanism",
    "out of call volume quota",
];
/// Beginnings of sentences in a 503 of Gemini and OpenAI.
const OVERLOADS: [&str; 6] = [
    "the model is overloaded",
    "this model is currently overloaded",
    "that model is currently overloaded",
    "the engine is currently overloaded",
    "the server is currently overloaded",
    "our servers are currently overloaded",
];

/// Returns whether a body of status 200 is a documented refusal, judging by its codes.
pub(super) fn is_refusal(json: &Value) -> bool {
    let text = |name: &str| json.get(name).and_then(Value::as_str);
    let number = |name: &str| json.get(name).and_then(Value::as_i64);
    let is_429 = |name: &str| number(name) == Some(429);
    let of_errors = match (json.get("errors"), json.get("error")) {
        (Some(Value::Array(errors)), _) if !errors.is_empty() => errors.iter().all(|error| is_error(error, json)),
        (_, Some(Value::Array(errors))) => !errors.is_empty() && errors.iter().all(is_kraken),
        (_, Some(Value::String(code))) => Code::of(code).is_some(),
        // Last.fm
        (_, Some(Value::Number(number))) => {
            number.as_i64() == Some(29) && text("message").is_some_and(words::complains)
        }
        (_, Some(error)) => is_error(error, json),
        _ => false,
    };
    of_errors
        // monday.com, Twelve Data, Telegram
        || is_429("status_code") && text("error_code").is_some()
        || is_429("code") && text("status") == Some("error")
        || is_429("error_code") && json.get("ok") == Some(&false.into())
        || number("code") == Some(LARK)
        || number("errcode").is_some_and(|code| WECHAT.contains(&code))
        || number("retCode").is_some_and(|code| BYBIT.contains(&code))
        || number("error_code").is_some_and(|code| BAIDU.contains(&code))
            && text("error_msg").is_some_and(|said| begins(said, &[BAIDU_MESSAGE]))
        || tencent_error(json).and_then(|error| error.get("Code")?.as_str()).and_then(Code::of).is_some()
        // Google Maps, Amap
        || text("status").and_then(Code::of).is_some()
        || text("status") == Some("0") && text("info").and_then(Code::of).is_some()
        || text("message") == Some("NOTOK") && text("result").is_some_and(|said| begins(said, &ETHERSCAN))
        || is_note(json)
}

/// The error of Tencent Cloud in `{"Response":{"Error":{"Code":"RequestLimitExceeded","Message":"…"},"RequestId":"…"}}`,
/// if the answer has nothing else.
pub(super) fn tencent_error(json: &Value) -> Option<&Value> {
    let response = json.as_object().filter(|members| members.len() == 1)?.get("Response")?.as_object()?;
    response.get("Error").filter(|_| response.keys().all(|name| matches!(name.as_str(), "Error" | "RequestId")))
}

/// Returns whether one of several errors is a refusal by a known code.
pub(super) fn refuses_a_part(json: &Value) -> bool {
    let errors = json.get("errors").and_then(Value::as_array);
    errors.is_some_and(|errors| errors.iter().any(|error| is_error(error, json)))
}

/// Returns whether one error of `json` has a known code: GraphQL, JSON-RPC, ArcGIS, MediaWiki, apilayer, VK, Deezer,
/// Marketo.
fn is_error(error: &Value, json: &Value) -> bool {
    let text = |path: &str| error.pointer(path).and_then(Value::as_str);
    let number = |path: &str| error.pointer(path).and_then(Value::as_i64);
    let codes = [
        "/code",
        "/type",
        "/status",
        "/error_code",
        "/errorCode",
        "/extensions/code",
        "/extensions/type",
        "/extensions/errorClass",
    ];
    let statuses = ["/code", "/status", "/extensions/http/status", "/extensions/status_code"];
    let said = || text("/message").unwrap_or_default();
    codes.into_iter().filter_map(text).any(|code| code == "429" || Code::of(code).is_some())
        || statuses.into_iter().any(|path| number(path) == Some(429))
        // Older answers of Shopify have only the message "Throttled".
        || Code::of(said()).is_some()
        || number("/error_code").is_some_and(|code| VK.contains(&code)) && text("/error_msg").is_some()
        || number("/code") == Some(4) && said() == "Quota limit exceeded"
        || number("/code") == Some(LIMIT_EXCEEDED) && words::complains(said())
        || json.get("success") == Some(&false.into()) && text("/code").is_some_and(|code| MARKETO.contains(&code))
}

/// Returns whether the error is a refusal of Kraken: `EAPI:Rate limit exceeded`, `EGeneral:Temporary lockout`,
/// `EService:Throttled: 1700000000`.
pub(super) fn is_kraken(error: &Value) -> bool {
    let Some((kind, said)) = error.as_str().and_then(|error| error.split_once(':')) else { return false };
    let said = said.trim().to_ascii_lowercase();
    kind.starts_with('E')
        && (matches!(&*said, "rate limit exceeded" | "temporary lockout") || said.starts_with("throttled"))
}

/// Returns whether a single sentence replaces all data (Alpha Vantage):
/// `{"Note":"… Our standard API call frequency is 5 calls per minute …"}`, or `{"Information":"We have detected your
/// API key … and our standard API rate limit is 25 requests per day …"}`.
pub(super) fn is_note(json: &Value) -> bool {
    let Some(members) = json.as_object().filter(|members| members.len() == 1) else { return false };
    let note = members.iter().find(|(name, _)| matches!(name.as_str(), "Note" | "Information"));
    note.and_then(|(_, said)| said.as_str()).is_some_and(|said| {
        let lower = said.to_ascii_lowercase();
        let said = lower.strip_prefix(ALPHA_VANTAGE_THANKS).unwrap_or(&lower).trim_start();
        begins(said, &ALPHA_VANTAGE)
    })
}

/// Returns whether a message is the documented sentence of a refusal.
pub(super) fn is_documented(said: &str) -> bool {
    begins(said, &REFUSALS)
}

/// Returns whether the message of a 503 says that the API lacks capacity. A message that only mentions an overload
/// elsewhere does not count.
pub(super) fn is_overloaded(said: &str) -> bool {
    said.eq_ignore_ascii_case("overloaded") || begins(said, &OVERLOADS)
}

/// Returns whether the `body` is that of a 503 from Envoy's overload manager.
pub(super) fn is_overloaded_envoy(body: &str) -> bool {
    body.eq_ignore_ascii_case("envoy overloaded")
}

/// Returns whether the body says that the request succeeded.
pub(super) fn says_done(json: &Value) -> bool {
    ["success", "ok"].iter().any(|name| json.get(*name) == Some(&true.into()))
}

fn begins(said: &str, sentences: &[&str]) -> bool {
    let begins = |sentence: &&str| said.get(..sentence.len()).is_some_and(|said| said.eq_ignore_ascii_case(sentence));
    sentences.iter().any(begins)
}
