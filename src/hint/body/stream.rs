//! The beginning of a stream of events (server-sent events, WHATWG HTML §9.2), whose first event may be a refusal:
//! OpenAI's `response.failed`, Anthropic's `event: error`, `data: {"error":…}` of servers that speak like OpenAI.

use serde_json::Value;

use super::{codes::Code, refusal};
use crate::hint::{evidence::Evidence, time::Now};

/// How a stream begins.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::hint) enum StreamStart {
    /// No event has come yet, not even one that brings no output.
    #[default]
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

/// Reader of the beginning of a stream, piece by piece. Each byte is looked at once, however the stream is cut.
#[derive(Debug, Default)]
pub(in crate::hint) struct StreamReader {
    start: StreamStart,
    /// The part of the current line that has come.
    line: Vec<u8>,
    /// The last line ended with CR: an LF behind it belongs to its end.
    ended_by_cr: bool,
    /// A line has ended: a byte order mark is not looked for any more.
    has_line: bool,
    /// Name of the current event.
    kind: Option<String>,
    /// Data of the current event, each line with an LF behind it.
    data: String,
}

// === impl StreamReader ===

impl StreamReader {
    /// How the stream begins, as far as complete events tell.
    pub(in crate::hint) fn start(&self) -> &StreamStart {
        &self.start
    }

    /// Reads `bytes`, which follow those of the last call.
    pub(in crate::hint) fn read(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.is_decided() {
            if std::mem::take(&mut self.ended_by_cr) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) else {
                return self.line.extend_from_slice(bytes);
            };
            self.line.extend_from_slice(&bytes[..end]);
            self.ended_by_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            self.end_line();
        }
    }

    fn is_decided(&self) -> bool {
        matches!(self.start, StreamStart::Output | StreamStart::Refused(_))
    }

    /// Interprets a line (WHATWG HTML §9.2.6): an empty one ends the event.
    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let line =
            if std::mem::replace(&mut self.has_line, true) { &line } else { line.trim_start_matches('\u{feff}') };
        if line.is_empty() {
            return self.end_event();
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" => self.data.extend([value, "\n"]),
            "event" => self.kind = Some(value.to_owned()),
            _ => {}
        }
    }

    fn end_event(&mut self) {
        let (data, named) = (std::mem::take(&mut self.data), self.kind.take());
        // An event without data is none.
        let Some(data) = data.strip_suffix('\n') else { return };
        let json: Option<Value> = serde_json::from_str(data).ok();
        let of_json = || Some(json.as_ref()?.get("type")?.as_str()?.to_owned());
        let kind = named.or_else(of_json).unwrap_or_default();
        if PREAMBLE.contains(&&*kind) {
            self.start = StreamStart::Preamble;
            return;
        }
        let errors = json.filter(|json| {
            matches!(&*kind, "error" | "response.failed") || json.get("error").is_some_and(|error| !error.is_null())
        });
        self.start = match errors.filter(refuses) {
            Some(json) => StreamStart::Refused(Box::new(json)),
            None => StreamStart::Output,
        };
    }
}

/// The refusal that a stream begins with, which has ended behind `bytes`, or is looked at no further.
pub(super) fn only_refusal(bytes: &[u8]) -> Option<Box<Value>> {
    let mut reader = StreamReader::default();
    reader.read(bytes);
    // The end of the stream ends its last event, too.
    reader.read(b"\n\n");
    match reader.start {
        StreamStart::Refused(json) => Some(json),
        _ => None,
    }
}

/// Reads a stream whose beginning is a refusal.
pub(super) fn read(body: &str, now: Now, evidence: &mut Evidence) {
    if let Some(json) = only_refusal(body.as_bytes()) {
        evidence.refused = true;
        refusal::read(&json, now, evidence);
    }
}

/// Whether the error of such an event has a code that names a refusal, or the number of one. Output that was generated
/// already is no matter here: none has come.
fn refuses(json: &Value) -> bool {
    let error = json.pointer("/response/error").or_else(|| json.get("error")).unwrap_or(json);
    let known = |code: &Value| match code {
        Value::String(code) => code == "429" || Code::of(code).is_some(),
        code => matches!(code.as_u64(), Some(429 | 529)),
    };
    let details = [error.pointer("/details/error_code"), error.pointer("/metadata/error_type")];
    let codes = ["code", "type", "status"].into_iter().map(|name| error.get(name)).chain(details);
    codes.flatten().any(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start_of(text: &str) -> StreamStart {
        let read = |piece: usize| {
            let mut reader = StreamReader::default();
            text.as_bytes().chunks(piece).for_each(|piece| reader.read(piece));
            reader.start
        };
        let whole = read(text.len().max(1));
        for piece in [1, 2, 7] {
            assert_eq!(read(piece), whole, "in pieces of {piece} bytes: {text}");
        }
        whole
    }

    #[test]
    fn a_refusal_is_the_first_event_that_is_no_preamble() {
        for text in [
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n",
            "data: {\"error\":{\"message\":\"x\",\"code\":429}}\n\n",
            "data: {\"error\":{\"message\":\"x\",\"code\":\"rate_limit_exceeded\"}}\r\n\r\n",
            ": OPENROUTER PROCESSING\n\ndata: {\"error\":{\"message\":\"x\",\"code\":429}}\n\n",
            "\u{feff}data: {\"error\":\rdata: {\"message\":\"x\",\"code\":429}}\r\r",
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
