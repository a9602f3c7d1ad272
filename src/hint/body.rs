//! Reads bodies, since a head does not always say everything. No content is kept or logged: bodies echo addresses and
//! keys.

mod batch;
mod codes;
mod hopeless;
mod known;
mod refusal;
mod served;
mod stream;
mod text;
mod words;

use http::{HeaderMap, StatusCode, header::CONTENT_TYPE};
use serde_json::Value;

pub use self::stream::{StreamBeginning, StreamProgress};
use super::{
    Dialect, Strength,
    coding::{Coding, MAX_BODY_BYTES},
    evidence::Evidence,
    glance::Glance,
    retry_after, text as field_text,
    time::Now,
};

/// The media type of server-sent events.
const EVENT_STREAM: &str = "text/event-stream";
/// Parts of the media types of JSON sequences, which arrive bit by bit: `application/x-ndjson`, `application/json-seq`,
/// `application/jsonl`, `application/stream+json`.
const LISTS: [&str; 4] = ["ndjson", "json-seq", "jsonl", "stream"];

/// Reads the body of an answer that is known to be a refusal, whatever its status is.
pub(super) fn read_refusal(status: StatusCode, headers: &HeaderMap, body: &[u8], now: Now, evidence: &mut Evidence) {
    let status = if status.as_u16() < 400 { StatusCode::TOO_MANY_REQUESTS } else { status };
    read(status, headers, Some(body), now, evidence);
}

/// Reads `body`, and the error code that AWS sends in the head.
pub(super) fn read(status: StatusCode, headers: &HeaderMap, body: Option<&[u8]>, now: Now, evidence: &mut Evidence) {
    let refusing = status.as_u16() >= 400;
    if refusing && let Some(code) = headers.get("x-amzn-errortype").and_then(|code| code.to_str().ok()) {
        // Outside of SOAP, a 500 may follow work that was done in part.
        let strength = if status == StatusCode::INTERNAL_SERVER_ERROR { Strength::Words } else { Strength::Code };
        codes::judge(code, strength, evidence);
    }
    let Some(body) = body else { return };
    // The last character may be cut or broken; some bodies begin with a byte order mark.
    let body = String::from_utf8_lossy(body.get(..MAX_BODY_BYTES).unwrap_or(body));
    let body = body.trim_start_matches('\u{feff}').trim();
    if refusing {
        refuse(status, body, now, evidence);
    } else if status == StatusCode::OK && served::may_complain(body.as_bytes()) {
        if is_event_stream(field_text(headers, &CONTENT_TYPE).unwrap_or_default()) {
            stream::read(body, now, evidence);
        } else if body.starts_with(['{', '['])
            && let Ok(json) = serde_json::from_str::<Value>(body)
        {
            match json.as_array() {
                Some(answers) => batch::read(answers, now, evidence),
                None if batch::has_responses(&json) => batch::read_responses(&json, now, evidence),
                None => served::read(&json, now, evidence),
            }
        }
    }
    let said = evidence.refusal.is_some() || evidence.fatal.is_some() || evidence.cause.is_some();
    if said || !evidence.budgets.is_empty() {
        evidence.speaks(Dialect::BODY);
    }
}

/// Reads the body of an answer whose status may refuse.
fn refuse(status: StatusCode, body: &str, now: Now, evidence: &mut Evidence) {
    let json = serde_json::from_str::<Value>(body).ok();
    match &json {
        Some(json) => refusal::read(json, now, evidence),
        None => text::read(body, now, evidence),
    }
    text::payment(body, matches!(status.as_u16(), 402 | 429), evidence);
    let is_overloaded = || match &json {
        Some(json) => refusal::messages(json).any(known::is_overloaded),
        None => known::is_overloaded_envoy(body),
    };
    if status == StatusCode::SERVICE_UNAVAILABLE && evidence.cause.is_none() && is_overloaded() {
        codes::judge("overloaded", Strength::Code, evidence);
    }
    if status == StatusCode::INTERNAL_SERVER_ERROR && !text::is_soap(body) {
        // SOAP sends each fault with status 500 (SOAP 1.1 §6.2). In other APIs, a 500 may follow work that was done in
        // part.
        evidence.refusal = evidence.refusal.min(Some(Strength::Words));
    }
    if json.as_ref().is_some_and(known::says_done) {
        evidence.done = Some(true);
    }
}

/// Returns whether a `Content-Type` is that of server-sent events.
pub fn is_event_stream(content_type: &str) -> bool {
    content_type.get(..EVENT_STREAM.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(EVENT_STREAM))
}

/// Returns whether `body` may say something in an answer with this status. Does not parse the body.
pub(super) fn may_say(status: StatusCode, body: &[u8]) -> bool {
    match status.as_u16() {
        200 => served::may_complain(body),
        status => status >= 400,
    }
}

/// Returns whether the body is worth holding back until it is read: small, legible, and of an answer that may be a
/// refusal. A served answer must also be JSON, with a length that is known or cannot be known. A server that compresses
/// an answer while sending does not know the length.
pub(super) fn is_wanted(status: StatusCode, headers: &HeaderMap, glance: &Glance<'_>) -> bool {
    let kind = glance.kind();
    let of_kind = |word: &str| is_of_kind(glance, word);
    let legible = match status.as_u16() {
        200 => {
            let is_compressed = glance.coding != Coding::Identity;
            let may_be_short =
                || is_compressed && is_of_unknown_length(glance) && !LISTS.iter().any(|word| of_kind(word));
            return of_kind("json") && (is_small(glance) || may_be_short());
        }
        400 | 403 | 503 => of_kind("json") || of_kind("xml") || of_kind("text/plain"),
        401 | 402 | 418 | 420 | 429 | 509 => of_kind("json") || of_kind("text/plain") || kind.is_empty(),
        413 | 498 | 529 => of_kind("json"),
        500 => of_kind("json") || of_kind("xml"),
        _ => return false,
    };
    // Most refusals are short, even if their length is not declared.
    let says_more = status.is_client_error() || !retry_after::is_told(headers);
    legible && says_more && (is_small(glance) || is_of_unknown_length(glance))
}

/// Returns whether the answer is served JSON of unknown length, without a content coding. Excludes JSON sequences, which
/// arrive bit by bit.
pub(super) fn is_open_json(status: StatusCode, glance: &Glance<'_>) -> bool {
    status == StatusCode::OK
        && is_of_kind(glance, "json")
        && !LISTS.iter().any(|word| is_of_kind(glance, word))
        && glance.coding == Coding::Identity
        && is_of_unknown_length(glance)
}

/// Returns whether the answer is a readable stream of events, whose first event may be a refusal.
pub(super) fn is_readable_stream(status: StatusCode, glance: &Glance<'_>) -> bool {
    status == StatusCode::OK && glance.coding.is_readable() && is_event_stream(glance.kind())
}

/// Returns whether the answer is that to a query of GraphQL, and its length is unknown before its end. Most GraphQL
/// servers send such answers, refusals among them. A JSON sequence that arrives bit by bit is no answer to a query.
pub(super) fn is_graphql(status: StatusCode, path: &str, glance: &Glance<'_>) -> bool {
    let endpoint = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    status == StatusCode::OK
        && matches!(endpoint, "graphql" | "graphql.json")
        && is_of_kind(glance, "json")
        && is_of_unknown_length(glance)
}

/// Returns whether the media type has this `word`, in lower case.
fn is_of_kind(glance: &Glance<'_>, word: &str) -> bool {
    let (kind, word) = (glance.kind().as_bytes(), word.as_bytes());
    // The word is nearly always at the end.
    kind.ends_with(word) || kind.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
}

/// Returns whether the length is unknown before the end, as with chunks (RFC 9112 §7.1), and often with HTTP/2.
fn is_of_unknown_length(glance: &Glance<'_>) -> bool {
    glance.length.is_none() && glance.coding.is_readable()
}

fn is_small(glance: &Glance<'_>) -> bool {
    let digits = glance.length.map_or(&[][..], |length| length.as_bytes());
    // The longest readable length has five digits.
    let length = (digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit))
        .then(|| digits.iter().fold(0, |length, digit| length * 10 + usize::from(digit - b'0')));
    glance.coding.is_readable() && length.is_some_and(|length| (1..=MAX_BODY_BYTES).contains(&length))
}
