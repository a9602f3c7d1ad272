//! Reads the beginning of a stream of events (server-sent events, WHATWG HTML §9.2), whose first event may be a
//! refusal: OpenAI's `response.failed`, Anthropic's `event: error`, `data: {"error":…}` of OpenAI-compatible servers.

use serde_json::Value;

use super::{codes::Code, refusal};
use crate::{Strength, coding::Decoder, evidence::Evidence, glance::Glance, time::Now};

/// Beginning of a stream.
#[derive(Clone, Debug, PartialEq)]
enum StreamStart {
    /// No event yet, not even one without output.
    Nothing,
    /// Only events without output, such as `response.created`.
    Preamble,
    /// Output.
    Output,
    /// A refusal before any output.
    Refused(Box<Value>),
}

/// Progress of a stream of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamProgress {
    /// No event yet.
    Nothing,
    /// Only events without output.
    Preamble,
    /// Output or a refusal, or the stream cannot be read.
    Decided,
}

/// Beginning of a stream, read piece by piece. Each event is parsed once, however small the pieces are.
pub struct StreamBeginning {
    decoder: Decoder,
    events: Events,
    progress: StreamProgress,
}

/// Finds the ends of events: empty lines, which end with CR, LF or both.
#[derive(Debug, Default)]
struct Events {
    /// Start of the incomplete event.
    begin: usize,
    /// End of the part that was searched for the end of that event.
    scanned: usize,
    is_line_empty: bool,
    is_after_cr: bool,
}

/// Events before any output.
const PREAMBLE: [&str; 4] = ["response.created", "response.in_progress", "response.queued", "ping"];

// === impl StreamBeginning ===

impl StreamBeginning {
    /// Begins to read a stream at whose head a `glance` was taken.
    pub fn new(glance: &Glance<'_>) -> Self {
        let decoder = Decoder::new(glance.coding);
        Self { decoder, events: Events::default(), progress: StreamProgress::Nothing }
    }

    /// Reads a further piece, and returns how far the stream has come.
    pub fn push(&mut self, piece: &[u8]) -> StreamProgress {
        self.decoder.push(piece);
        while self.progress != StreamProgress::Decided
            && let Some(event) = self.events.next(self.decoder.bytes())
        {
            match judge(event) {
                StreamStart::Nothing => {}
                StreamStart::Preamble => self.progress = StreamProgress::Preamble,
                StreamStart::Output | StreamStart::Refused(_) => self.progress = StreamProgress::Decided,
            }
        }
        if self.decoder.is_over() {
            self.progress = StreamProgress::Decided;
        }
        self.progress
    }

    /// Progress of the stream.
    pub fn progress(&self) -> StreamProgress {
        self.progress
    }

    /// Bytes received so far, without their content coding.
    pub fn into_bytes(self) -> Vec<u8> {
        self.decoder.into_bytes()
    }
}

// === impl Events ===

impl Events {
    /// Returns the next complete event of `text`.
    fn next<'a>(&mut self, text: &'a [u8]) -> Option<&'a [u8]> {
        while let Some(byte) = text.get(self.scanned) {
            self.scanned += 1;
            let is_second_half = *byte == b'\n' && self.is_after_cr;
            self.is_after_cr = *byte == b'\r';
            if is_second_half {
                continue;
            }
            let ends_line = matches!(byte, b'\r' | b'\n');
            if ends_line && self.is_line_empty {
                return Some(&text[std::mem::replace(&mut self.begin, self.scanned)..self.scanned]);
            }
            self.is_line_empty = ends_line;
        }
        None
    }
}

/// Judges the beginning of a stream that consists of `event`.
fn judge(event: &[u8]) -> StreamStart {
    let text = String::from_utf8_lossy(event);
    let lines = || text.trim_start_matches('\u{feff}').split(['\r', '\n']);
    let data: Vec<&str> = lines().filter_map(|line| field(line, "data")).collect();
    if data.is_empty() {
        return StreamStart::Nothing;
    }
    let json: Option<Value> = serde_json::from_str(&data.join("\n")).ok();
    let of_json = json.as_ref().and_then(|json| json.get("type")?.as_str()).map(str::to_owned);
    let kind =
        lines().filter_map(|line| field(line, "event")).next_back().map(str::to_owned).or(of_json).unwrap_or_default();
    if PREAMBLE.contains(&&*kind) {
        return StreamStart::Preamble;
    }
    let errors = json.filter(|json| {
        matches!(&*kind, "error" | "response.failed") || json.get("error").is_some_and(|error| !error.is_null())
    });
    match errors.filter(refuses) {
        Some(json) => StreamStart::Refused(Box::new(json)),
        None => StreamStart::Output,
    }
}

/// Judges the beginning of a stream from its first `bytes`.
fn start(bytes: &[u8]) -> StreamStart {
    let (mut events, mut start) = (Events::default(), StreamStart::Nothing);
    while let Some(event) = events.next(bytes) {
        match judge(event) {
            StreamStart::Nothing => {}
            StreamStart::Preamble => start = StreamStart::Preamble,
            decided => return decided,
        }
    }
    start
}

/// Refusal at the beginning of a stream that ends after `bytes`, or is read no further.
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

/// Returns whether the error of an event has a code or a number of a refusal. Output that the API generated already
/// does not matter here, since none was sent. The error of a JSON-RPC call (MCP) is that of a tool, which may have done
/// its work.
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

/// Value of a line of an event, if the line has this `name`.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(name)?;
    if rest.is_empty() {
        return Some("");
    }
    let value = rest.strip_prefix(':')?;
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

    #[test]
    fn progress_is_the_same_however_a_stream_is_cut() {
        let preamble = ": ping\r\n\r\nevent: response.created\r\ndata: {\"type\":\"response.created\"}\r\n\r\n";
        let refusal = "data: {\"error\":{\"code\":429}}\r\r";
        for piece in [1, 2, 3, 1000] {
            let mut stream = StreamBeginning::new(&Glance::default());
            preamble.as_bytes().chunks(piece).for_each(|piece| _ = stream.push(piece));
            assert_eq!(stream.progress(), StreamProgress::Preamble, "{piece}");
            refusal.as_bytes()[..refusal.len() - 1].chunks(piece).for_each(|piece| _ = stream.push(piece));
            assert_eq!(stream.progress(), StreamProgress::Preamble, "{piece}");
            assert_eq!(stream.push(b"\r"), StreamProgress::Decided, "{piece}");
            assert_eq!(stream.into_bytes(), [preamble, refusal].concat().as_bytes());
        }
    }

    #[test]
    fn an_event_in_single_bytes_is_read_in_linear_time() {
        // A body of 16 KiB comes one byte at a time; parsing it again at each byte would read 128 MiB.
        let text = format!("data: {{\"x\":\"{}\"}}\n\n", "y".repeat(16_000));
        let mut stream = StreamBeginning::new(&Glance::default());
        let mut scanned = 0;
        for byte in text.as_bytes() {
            let before = stream.events.scanned;
            stream.push(std::slice::from_ref(byte));
            scanned += stream.events.scanned - before;
        }
        assert_eq!((scanned, stream.progress()), (text.len(), StreamProgress::Decided));
    }
}
