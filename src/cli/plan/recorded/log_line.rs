//! Parses lines of an access log about requests that wanted a slot.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use serde::Deserialize;

use super::RecordedRequest;
use crate::{
    lane::order::{Claim, ClientId, FlowId, Urgency},
    policy::ClientIdentity,
};

/// The relevant members of a line.
#[derive(Deserialize)]
pub(super) struct LogLine {
    timestamp: String,
    target: Option<String>,
    client: Option<String>,
    host: Option<String>,
    flow: Option<String>,
    urgency: Option<u8>,
    outcome: Option<String>,
    waited_s: Option<f64>,
    upstream_s: Option<f64>,
    took_s: Option<f64>,
    attempts: Option<u32>,
}

// === impl LogLine ===

impl LogLine {
    /// Parses a line of the access log, in text or JSON. `None` if it is another line.
    pub(super) fn read(line: &str) -> Option<Self> {
        if line.starts_with('{') {
            return serde_json::from_str::<Self>(line).ok().filter(|line| line.target.as_deref() == Some("access"));
        }
        let (start, members) = line.split_once(" access: request ")?;
        let mut said = BTreeMap::new();
        for member in members_of(members) {
            let (name, value) = member.split_once('=')?;
            said.insert(name, value.trim_matches('"'));
        }
        let text = |name: &str| said.get(name).map(|value| (*value).to_owned());
        let number = |name: &str| said.get(name).and_then(|value| value.parse().ok());
        Some(Self {
            timestamp: start.split(' ').next()?.to_owned(),
            target: None,
            client: text("client"),
            host: text("host"),
            flow: text("flow"),
            urgency: said.get("urgency").and_then(|value| value.parse().ok()),
            outcome: text("outcome"),
            waited_s: number("waited_s"),
            upstream_s: number("upstream_s"),
            took_s: number("took_s"),
            attempts: said.get("attempts").and_then(|value| value.parse().ok()),
        })
    }

    /// Host and request of the line; `None` if the request wanted no slot.
    pub(super) fn request(self) -> Option<(String, RecordedRequest)> {
        let wanted_one = match self.outcome.as_deref() {
            // A request that was never sent shares the answer of another one: from the cache, of a shared call, or kept
            // for its key.
            Some("answered") => self.attempts != Some(0),
            // A client that left, or a refused request, may have waited for a slot.
            Some(outcome) => outcome != "rejected",
            None => false,
        };
        let written = humantime::parse_rfc3339(&self.timestamp).ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let seconds = |of: Option<f64>| of.and_then(|of| Duration::try_from_secs_f64(of).ok());
        let request = RecordedRequest {
            arrived: written.checked_sub(seconds(self.took_s)?)?,
            waited: seconds(self.waited_s)?,
            upstream: seconds(self.upstream_s)?,
            claim: Claim {
                urgency: self.urgency.and_then(Urgency::new).unwrap_or_default(),
                client: self
                    .client
                    .and_then(|client| client.parse().ok())
                    .map_or(ClientId::NONE, |client| ClientId::of(ClientIdentity::default().of(client))),
                flow: FlowId(self.flow.and_then(|flow| u64::from_str_radix(&flow, 16).ok()).unwrap_or_default()),
                ..Claim::USUAL
            },
        };
        wanted_one.then_some((self.host?, request))
    }
}

/// Splits a line at blanks outside of quotes.
fn members_of(text: &str) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |letter| {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ => {}
        }
        letter == ' ' && !quoted
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"2026-11-23T17:38:52.500000Z  INFO access: request client=127.0.0.1 method="GET" host="127.0.0.1" path="/a" status=200 outcome="answered" rule="a \" rule" flow="0000abcd" urgency=5 waited_s=0.25 upstream_s=0.125 took_s=0.5 attempts=1 request_id=5ea4fe0b-2"#;
    const JSON: &str = r#"{"timestamp":"2026-11-23T17:38:52.500000Z","level":"INFO","message":"request","client":"127.0.0.1","method":"GET","host":"127.0.0.1","path":"/a","status":200,"outcome":"answered","rule":"a","flow":"0000abcd","urgency":5,"waited_s":0.25,"upstream_s":0.125,"took_s":0.5,"attempts":1,"request_id":"691086ff-1","target":"access"}"#;

    #[test]
    fn lines_of_both_formats_say_the_same() {
        // `date -u -d 2026-11-23T17:38:52 +%s`, less the half second that it took.
        let arrived = Duration::from_millis(1_795_455_532_000);
        let (waited, upstream) = (Duration::from_millis(250), Duration::from_millis(125));
        let client = ClientId::of([127, 0, 0, 1].into());
        let claim = Claim { urgency: Urgency::new(5).unwrap(), client, flow: FlowId(0xabcd), ..Claim::USUAL };
        let expected = ("127.0.0.1".to_owned(), RecordedRequest { arrived, waited, upstream, claim });
        for line in [TEXT, JSON] {
            assert_eq!(LogLine::read(line).unwrap().request().unwrap(), expected, "{line}");
        }
    }

    #[test]
    fn other_lines_are_no_requests() {
        for line in
            ["", "{}", "2026-11-23T17:38:52Z  INFO andante: ready", "{\"timestamp\":\"x\",\"target\":\"andante\"}"]
        {
            assert!(LogLine::read(line).is_none(), "{line}");
        }
        assert!(LogLine::read(&TEXT.replace("answered", "rejected")).unwrap().request().is_none());
    }

    #[test]
    fn what_had_the_answer_to_another_request_took_no_slot() {
        let took_one = |line: &str| LogLine::read(line).unwrap().request().is_some();
        for [line, sent, unsent] in [[TEXT, "attempts=1", "attempts=0"], [JSON, "\"attempts\":1", "\"attempts\":0"]] {
            let line = line.replace(sent, unsent);
            assert!(!took_one(&line), "{line}");
            for outcome in ["left", "refused", "failed"] {
                assert!(took_one(&line.replace("answered", outcome)), "{outcome}: it was in the queue");
            }
        }
        assert!(took_one(&TEXT.replace(" attempts=1", "")), "logs from before have no such member");
    }
}
