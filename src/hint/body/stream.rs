//! The beginning of a stream of events (server-sent events, WHATWG HTML §9.2), whose first event may be a refusal:
//! OpenAI's `response.failed`, Anthropic's `event: error`, `data: {"error":…}` of servers that speak like OpenAI.

use serde_json::Value;

use super::{codes::Code, refusal};
use crate::hint::{Strength, evidence::Evidence, time::Now};

/// How a stream begins.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::hint) enum StreamStart {
    /// No event has come yet, not even one that brings no output.
    Nothing,
    /// Only events that bring no output, such as `response.created`.
    Preamble,
    /// Output.
    Output,
    /// A refusal, and no output before it.
    Refused(Box<Value>),
}

/// Events before any output.
const PREAMBLE: [&str; 4] = ["response.created", "response.in_progress", "response.queued", "ping"];

/// How the stream begins, of which `bytes` have come.
pub(in crate::hint) fn start(bytes: &[u8]) -> StreamStart {
    let mut start = StreamStart::Nothing;
    let text = String::from_utf8_lossy(bytes).replace("\r\n", "\n").replace('\r', "\n");
    // An event ends with an empty line: behind the last of these it is not complete.
    let Some((complete, _)) = text.rsplit_once("\n\n") else { return start };
    for event in complete.trim_start_matches('\u{feff}').split("\n\n") {
        let data: Vec<&str> = event.lines().filter_map(|line| field(line, "data")).collect();
        if data.is_empty() {
            continue;
        }
        let json: Option<Value> = serde_json::from_str(&data.join("\n")).ok();
        let of_json = json.as_ref().and_then(|json| json.get("type")?.as_str()).map(str::to_owned);
        let named = event.lines().find_map(|line| field(line, "event")).map(str::to_owned);
        let kind = named.or(of_json).unwrap_or_default();
        if PREAMBLE.contains(&&*kind) {
            start = StreamStart::Preamble;
            continue;
        }
        let errors = json.filter(|json| {
            matches!(&*kind, "error" | "response.failed") || json.get("error").is_some_and(|error| !error.is_null())
        });
        return match errors.filter(refuses) {
            Some(json) => StreamStart::Refused(Box::new(json)),
            None => StreamStart::Output,
        };
    }
    start
}

/// The refusal that a stream begins with, which has ended behind `bytes`, or is looked at no further.
pub(super) fn only_refusal(bytes: &[u8]) -> Option<Box<Value>> {
    match start(&[bytes, b"\n\n"].concat()) {
        StreamStart::Refused(json) => Some(json),
        _ => None,
    }
}

/// Reads a stream whose beginning is a refusal.
pub(super) fn read(body: &str, now: Now, evidence: &mut Evidence) {
    if let Some(json) = only_refusal(body.as_bytes()) {
        evidence.refuse(Strength::Code);
        evidence.done = Some(false);
        refusal::read(&json, now, evidence);
    }
}

/// Whether the error of such an event has a code that names a refusal, or the number of one. Output that was generated
/// already is no matter here: none has come. The error of a JSON-RPC call (MCP) is a tool's, which may have done its work.
fn refuses(json: &Value) -> bool {
    if json.get("jsonrpc").is_some() {
        return false;
    }
    let error = json.pointer("/response/error").or_else(|| json.get("error")).unwrap_or(json);
    let known = |code: &Value| match code {
        Value::String(code) => code == "429" || Code::of(code).is_some(),
        code => matches!(code.as_u64(), Some(429 | 529)),
    };
    let details = [error.pointer("/details/error_code"), error.pointer("/metadata/error_type")];
    let codes = ["code", "type", "status"].into_iter().map(|name| error.get(name)).chain(details);
    codes.flatten().any(known)
}

/// The value of a line of an event, if the line has this `name`.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let value = line.strip_prefix(name)?.strip_prefix(':')?;
    Some(value.strip_prefix(' ').unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start_of(text: &str) -> StreamStart {
        start(text.as_bytes())
    }

    #[test]
    fn a_refusal_is_the_first_event_that_is_no_preamble() {
        for text in [
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n",
            "data: {\"error\":{\"message\":\"x\",\"code\":429}}\n\n",
            "data: {\"error\":{\"message\":\"x\",\"code\":\"rate_limit_exceeded\"}}\r\n\r\n",
            ": OPENROUTER PROCESSING\n\ndata: {\"error\":{\"message\":\"x\",\"code\":429}}\n\n",
            "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"error\":null}}\n\nevent: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"rate_limit_exceeded\",\"message\":\"x\"}}}\n\n",
        ] {
            assert!(matches!(start_of(text), StreamStart::Refused(_)), "{text}");
        }
    }

    #[test]
    fn output_is_never_a_refusal() {
        for text in [
            "data: {\"choices\":[{\"delta\":{\"content\":\"rate_limit_exceeded\"}}]}\n\n",
            "data: {\"choices\":[],\"error\":null}\n\n",
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{}}\n\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n",
            "data: {\"error\":{\"code\":\"invalid_prompt\",\"message\":\"says: rate limit exceeded\"}}\n\n",
            "data: rate limit exceeded\n\n",
            "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":429,\"message\":\"mail API limited\"}}\n\n",
            "data: [DONE]\n\n",
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"x\"}}\n\n",
        ] {
            assert_eq!(start_of(text), StreamStart::Output, "{text}");
        }
    }

    #[test]
    fn an_event_counts_when_it_is_complete() {
        for text in ["", "data: {\"error\":{\"code\":429}}", "data: {\"error\":{\"code\":429}}\n", ": comment\n\n"] {
            assert_eq!(start_of(text), StreamStart::Nothing, "{text:?}");
        }
        assert_eq!(start_of("data: {\"type\":\"response.created\"}\n\ndata: {"), StreamStart::Preamble);
    }
}
