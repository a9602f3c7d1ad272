//! Usage that an answer reports for its request, and the model that it names, read as the answer passes. Only the value
//! that is being read is kept.

use http::{
    HeaderMap,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
};

use crate::{
    hint,
    lane::Usage,
    limit::Unit,
    policy::{UsagePlace, UsageSource},
};

/// Reads the reported usage from an answer.
#[derive(Debug)]
pub(crate) struct UsageReader {
    /// Amounts from header fields.
    fields: Vec<(Unit, u32)>,
    members: Vec<JsonMember>,
    /// Name of the model, if it is to be read.
    model: Option<Box<ModelName>>,
    /// Bytes of a stream that have come; `None` for other answers.
    streamed: Option<u64>,
    /// Length of the request's body in bytes, if stated.
    sent: Option<u64>,
}

/// Reads the first `"model": "name"`, at any depth.
#[derive(Debug)]
struct ModelName {
    member: JsonMember,
    name: Vec<u8>,
    state: Naming,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Naming {
    Searching,
    Reading,
    Ended,
}

/// Maximum bytes of a model's name. Longer values are ignored.
pub(crate) const MAX_MODEL_BYTES: usize = 128;

/// Searches for `"name": 123`. In JSON a quote inside a text has a backslash before it, so text cannot look like a
/// member.
#[derive(Debug)]
struct JsonMember {
    unit: Unit,
    name: Box<[u8]>,
    state: Seeking,
    /// Value of the last member found.
    last: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seeking {
    /// Within the name and its quotes, with the number of bytes that have matched.
    Name(usize),
    Colon,
    Value,
    Number(u32),
}

// === impl UsageReader ===

impl UsageReader {
    /// Reader of an answer with these fields, to a request that `sent` so many bytes, if stated. `None` if the answer
    /// has no readable usage.
    pub(crate) fn new(sources: &[UsageSource], fields: &HeaderMap, sent: Option<u64>) -> Option<Box<Self>> {
        if sources.is_empty() {
            return None;
        }
        let of = |name| fields.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let kind = of(CONTENT_TYPE).to_ascii_lowercase();
        let plain = matches!(of(CONTENT_ENCODING), "" | "identity");
        let streams = hint::is_event_stream(&kind);
        let readable = plain && (kind.contains("json") || streams);
        let (mut said, mut members) = (Vec::new(), Vec::new());
        for UsageSource { unit, place } in sources {
            match place {
                UsagePlace::Header(name) => {
                    let value = fields.get(&**name).and_then(|value| value.to_str().ok()?.trim().parse().ok());
                    said.extend(value.map(|used| (*unit, used)));
                }
                UsagePlace::Member(name) if readable => {
                    members.push(JsonMember::new(*unit, name));
                }
                UsagePlace::Member(_) => {}
            }
        }
        (!said.is_empty() || !members.is_empty())
            .then(|| Box::new(Self { fields: said, members, model: None, streamed: streams.then_some(0), sent }))
    }

    /// Also reads the name of the model, if the body is read.
    pub(crate) fn read_model(&mut self) {
        self.model = (!self.members.is_empty()).then(Box::default);
    }

    /// Name of the model, if the answer has stated it.
    pub(crate) fn model(&self) -> Option<&str> {
        self.model.as_ref()?.name()
    }

    /// Reads further bytes of the body.
    pub(crate) fn read(&mut self, bytes: &[u8]) {
        self.streamed.iter_mut().for_each(|streamed| *streamed += bytes.len() as u64);
        for member in &mut self.members {
            for byte in bytes {
                member.last = member.read(*byte).or(member.last);
            }
        }
        if let Some(model) = &mut self.model {
            model.read(bytes);
        }
    }

    /// Sum of the last values of each unit, over all its sources. The amounts are final if the body came `whole`.
    pub(crate) fn found(&self, whole: bool) -> Usage {
        let mut usage = Usage { streamed: self.streamed, sent: self.sent, ..Usage::default() };
        let open = |unit: Unit| !whole && self.members.iter().any(|member| member.unit == unit);
        let fields = self.fields.iter().map(|(unit, used)| (*unit, Some(*used)));
        for (unit, used) in fields.chain(self.members.iter().map(|member| (member.unit, member.last))) {
            let found = if open(unit) { &mut usage.at_least } else { &mut usage.said };
            // A complete answer without a value for the unit reports nothing about it.
            let Some(used) = used.or(open(unit).then_some(0)) else { continue };
            match found.iter_mut().find(|(other, _)| *other == unit) {
                Some((_, sum)) => *sum = sum.saturating_add(used),
                None => found.push((unit, used)),
            }
        }
        usage
    }
}

// === impl JsonMember ===

impl JsonMember {
    fn new(unit: Unit, name: &str) -> Self {
        Self { unit, name: format!("\"{name}\"").into_bytes().into(), state: Seeking::Name(0), last: None }
    }

    /// The number, once it has ended.
    fn read(&mut self, byte: u8) -> Option<u32> {
        let again = if byte == b'"' { Seeking::Name(1) } else { Seeking::Name(0) };
        let (state, found) = match self.state {
            Seeking::Name(come) if self.name[come] != byte => (again, None),
            Seeking::Name(come) if come + 1 == self.name.len() => (Seeking::Colon, None),
            Seeking::Name(come) => (Seeking::Name(come + 1), None),
            Seeking::Colon if byte == b':' => (Seeking::Value, None),
            Seeking::Value if byte.is_ascii_digit() => (Seeking::Number(u32::from(byte - b'0')), None),
            Seeking::Colon | Seeking::Value if byte.is_ascii_whitespace() => (self.state, None),
            Seeking::Colon | Seeking::Value => (again, None),
            Seeking::Number(number) if byte.is_ascii_digit() => {
                (Seeking::Number(number.saturating_mul(10).saturating_add(u32::from(byte - b'0'))), None)
            }
            Seeking::Number(number) => (again, Some(number)),
        };
        self.state = state;
        found
    }
}

// === impl ModelName ===

impl Default for ModelName {
    fn default() -> Self {
        Self { member: JsonMember::new(Unit::REQUESTS, "model"), name: Vec::new(), state: Naming::Searching }
    }
}

impl ModelName {
    fn read(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match (self.state, byte) {
                (Naming::Searching, b'"') if self.member.state == Seeking::Value => self.state = Naming::Reading,
                (Naming::Searching, byte) => _ = self.member.read(*byte),
                (Naming::Reading, b'"') => self.state = Naming::Ended,
                (Naming::Reading, byte) if *byte != b'\\' && self.name.len() < MAX_MODEL_BYTES => self.name.push(*byte),
                (Naming::Reading, _) => (self.state, self.name) = (Naming::Ended, Vec::new()),
                (Naming::Ended, _) => return,
            }
        }
    }

    fn name(&self) -> Option<&str> {
        let name = std::str::from_utf8(&self.name).ok()?;
        Some(name).filter(|name| self.state == Naming::Ended && !name.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::assert_linear;

    fn found(content: &str, sources: &[&str], body: &str) -> Vec<u32> {
        let sources: Vec<UsageSource> = sources.iter().map(|source| source.parse().unwrap()).collect();
        let mut fields = HeaderMap::new();
        fields.insert(CONTENT_TYPE, content.parse().unwrap());
        fields.insert("x-points", "7".parse().unwrap());
        let numbers = |piece: usize| {
            let Some(mut reader) = UsageReader::new(&sources, &fields, None) else { return Vec::new() };
            body.as_bytes().chunks(piece).for_each(|bytes| reader.read(bytes));
            reader.found(true).said.iter().map(|(_, used)| *used).collect::<Vec<_>>()
        };
        let whole = numbers(body.len());
        assert_eq!(numbers(1), whole, "however it is cut");
        whole
    }

    #[test]
    fn the_last_member_of_a_name_says_it_and_no_text_that_looks_like_one() {
        let json = r#"{"choices":[{"text":"\"completion_tokens\": 1, \\"}],"usage":{"prompt_tokens": 12,"completion_tokens" :345}}"#;
        let sources = ["usage-in=prompt_tokens", "usage-out=completion_tokens"];
        assert_eq!(found("application/json", &sources, json), [12, 345]);
        assert_eq!(found("text/html", &sources, json), [0; 0]);
        // https://docs.anthropic.com/en/docs/build-with-claude/streaming: counts of message_delta are cumulative.
        let events = "event: message_start\ndata: {\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}\n\n\
                      event: message_delta\ndata: {\"usage\":{\"output_tokens\": 15}}\n\n";
        let sources = ["usage-in=input_tokens", "usage-out=output_tokens"];
        assert_eq!(found("text/event-stream; charset=utf-8", &sources, events), [25, 15]);
        // https://platform.claude.com/docs/en/api/rate-limits: tokens written to a cache count as input, tokens read
        // from it do not.
        let json = r#"{"input_tokens":25,"cache_creation_input_tokens":100,"cache_read_input_tokens":9000}"#;
        let sources = ["usage-in=input_tokens", "usage-in=cache_creation_input_tokens"];
        assert_eq!(found("application/json", &sources, json), [125]);
        assert_eq!(found("application/json", &sources, r#"{"input_tokens":25}"#), [25]);
        assert_eq!(found("application/json", &["usage-out=n"], r#"{"n":null, "n" "n":"5", "n":[1]}"#), [0; 0]);
        assert_eq!(found("image/png", &["usage-in=header:X-Points"], "{}"), [7]);
    }

    #[test]
    fn first_model_is_the_answers_however_it_is_cut() {
        let long = format!(r#"{{"model":"{}"}}"#, "m".repeat(MAX_MODEL_BYTES + 1));
        for (body, found) in [
            (
                r#"{"id":"1","model":"gpt-4o-mini-2024-07-18","choices":[{"model":"other"}]}"#,
                Some("gpt-4o-mini-2024-07-18"),
            ),
            ("data: {\"type\":\"message_start\",\"message\":{\"model\" : \"claude\"}}\n\n", Some("claude")),
            (r#"{"text":"\"model\": \"no\"","model":null,"model":"m"}"#, Some("m")),
            (r#"{"model":"a\"b"}"#, None),
            (r#"{"model":"cut o"#, None),
            (r#"{"model":""}"#, None),
            (&long, None),
        ] {
            for piece in [1, body.len()] {
                let mut model = ModelName::default();
                body.as_bytes().chunks(piece).for_each(|bytes| model.read(bytes));
                assert_eq!(model.name(), found, "{body}");
            }
        }
    }

    #[test]
    fn what_a_stream_has_said_that_was_cut_short_is_the_least_that_was_used() {
        let sources: Vec<UsageSource> = ["usage-in=input_tokens", "usage-out=output_tokens", "usage-p=header:x-points"]
            .map(|s| s.parse().unwrap())
            .into();
        let mut fields = HeaderMap::new();
        fields.insert(CONTENT_TYPE, "text/event-stream".parse().unwrap());
        fields.insert("x-points", "7".parse().unwrap());
        let mut reader = UsageReader::new(&sources, &fields, None).unwrap();
        let begun = "data: {\"usage\":{\"input_tokens\":25}}\n\n";
        reader.read(begun.as_bytes());
        let [input, output, points] = ["usage-in", "usage-out", "usage-p"].map(|name| Unit::named(name).unwrap());
        let usage = reader.found(false);
        assert_eq!(usage.said, [(points, 7)], "a field has said all that there is");
        assert_eq!(usage.at_least, [(input, 25), (output, 0)]);
        assert_eq!(usage.streamed, Some(begun.len() as u64));
        assert_eq!(reader.found(true).said, [(points, 7), (input, 25)]);
    }

    /// Bodies have no bound, and an API may send each byte in a piece of its own.
    #[test]
    fn long_body_is_read_for_usage_in_linear_time_however_it_is_cut() {
        let sources: Vec<UsageSource> =
            ["usage-in=input_tokens", "usage-out=output_tokens"].map(|source| source.parse().unwrap()).into();
        let fields = HeaderMap::from_iter([(CONTENT_TYPE, "application/json".parse().unwrap())]);
        let pieces = ["\"", "\"input_tokens", "\"input_tokens\":1", "\"input_tokens\": ", "1", "\"input_tokens\":1,"];
        for text in pieces {
            for piece in [1, 1 << 20] {
                let body = |bytes: usize| text.repeat(bytes / text.len());
                assert_linear(&format!("{text} in pieces of {piece}"), 256 * 1024, body, |body| {
                    let mut reader = UsageReader::new(&sources, &fields, None).unwrap();
                    body.as_bytes().chunks(piece).for_each(|piece| reader.read(piece));
                    reader.found(true);
                });
            }
        }
    }
}
