//! Behaviour that the control pages can request: scripted answers, and an outage of the API. Pure.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde::Deserialize;

use crate::{clock::Instant, config::duration};

/// Answer that the next requests receive, regardless of their contents.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Script {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Number of further requests that receive the answer.
    pub(super) count: u32,
}

/// Outage of the API.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Down {
    pub(super) how: How,
    /// End of the outage; [`Instant::FAR`] if only a request to the control page ends it.
    pub(super) until: Instant,
}

/// Kind of outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum How {
    /// Simulates a stopped process: new connections are refused, and open ones are cut.
    Refuse,
    /// Every request is answered 502.
    #[serde(rename = "502")]
    BadGateway,
    /// Every request is answered 503.
    #[serde(rename = "503")]
    Unavailable,
    /// Every connection is reset as soon as a request arrives.
    Reset,
    /// Requests get no answer; their connections are cut when the outage ends.
    Hang,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenScript {
    status: u16,
    #[serde(default)]
    headers: BTreeMap<String, OneOrSeveral>,
    #[serde(default)]
    body: String,
    #[serde(default = "once")]
    count: u32,
}

/// Lines of a header field: a string, or a list of strings.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrSeveral {
    One(String),
    Several(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenDown {
    how: How,
    #[serde(rename = "for")]
    lasts: Option<String>,
}

fn once() -> u32 {
    1
}

// === impl Script ===

impl Script {
    /// Parses `{"status":503,"headers":{"retry-after":"5"},"body":"…","count":1}`.
    pub(super) fn parse(json: &[u8]) -> Result<Self, String> {
        const LIKE: &str = r#"write {"status":503,"headers":{"retry-after":"5"},"body":"","count":1}"#;
        let written: WrittenScript = serde_json::from_slice(json).map_err(|error| format!("{error}; {LIKE}"))?;
        let status = StatusCode::from_u16(written.status).ok().filter(|status| (200..1000).contains(&status.as_u16()));
        let status = status.ok_or_else(|| format!("{} is no status of an answer; {LIKE}", written.status))?;
        let mut headers = HeaderMap::new();
        for (name, lines) in written.headers {
            let field = HeaderName::try_from(&name).map_err(|_| format!("{name:?} is no name of a field; {LIKE}"))?;
            if matches!(field, header::CONTENT_LENGTH | header::TRANSFER_ENCODING) {
                return Err(format!("{name} follows from the body; leave it out"));
            }
            let lines = match lines {
                OneOrSeveral::One(line) => vec![line],
                OneOrSeveral::Several(lines) => lines,
            };
            for line in lines {
                let value = HeaderValue::try_from(&line)
                    .map_err(|_| format!("{line:?} is no value of a field; leave control characters out"))?;
                headers.append(&field, value);
            }
        }
        Ok(Self { status, headers, body: written.body.into(), count: written.count })
    }
}

// === impl How ===

impl How {
    /// The outage as JSON names it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::BadGateway => "502",
            Self::Unavailable => "503",
            Self::Reset => "reset",
            Self::Hang => "hang",
        }
    }
}

// === impl Down ===

impl Down {
    /// Parses `{"how":"503","for":"30s"}`. The outage begins at `now`.
    pub(super) fn parse(json: &[u8], now: Instant) -> Result<Self, String> {
        const LIKE: &str = r#"write {"how":"503","for":"30s"}, how being refuse, 502, 503, reset or hang"#;
        let written: WrittenDown = serde_json::from_slice(json).map_err(|error| format!("{error}; {LIKE}"))?;
        let lasts: Option<Duration> = written.lasts.as_deref().map(duration::parse).transpose()?;
        if written.how == How::Refuse && lasts.is_none() {
            return Err(
                r#"nothing could end it, since nothing listens: give a length, as in {"how":"refuse","for":"30s"}"#
                    .to_owned(),
            );
        }
        Ok(Self { how: written.how, until: lasts.map_or(Instant::FAR, |lasts| now + lasts) })
    }

    /// Returns true if the outage lasts at `now`.
    pub(super) fn holds(&self, now: Instant) -> bool {
        now < self.until
    }

    /// Returns true if the API refuses connections at `now`.
    pub(super) fn refuses(&self, now: Instant) -> bool {
        self.how == How::Refuse && self.holds(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_an_answer_and_how_often() {
        let script =
            Script::parse(br#"{"status":503,"headers":{"retry-after":"5","a":["b","c"]},"body":"x","count":3}"#);
        let script = script.unwrap();
        assert_eq!((script.status.as_u16(), &script.body[..], script.count), (503, &b"x"[..], 3));
        assert_eq!(script.headers["retry-after"], "5");
        assert_eq!(script.headers.get_all("a").iter().collect::<Vec<_>>(), ["b", "c"]);
        let short = Script::parse(br#"{"status":429}"#).unwrap();
        assert_eq!((short.headers.len(), short.body.len(), short.count), (0, 0, 1));
    }

    #[test]
    fn a_script_that_is_no_answer_is_told_what_to_write() {
        for (json, word) in [
            ("", "write {"),
            (r#"{"status":"503"}"#, "write {"),
            (r#"{"status":100}"#, "100 is no status"),
            (r#"{"status":5030}"#, "5030 is no status"),
            (r#"{"status":503,"header":{}}"#, "unknown field `header`"),
            (r#"{"status":503,"headers":{"a b":"c"}}"#, "no name of a field"),
            (r#"{"status":503,"headers":{"a":"b\r\nc: d"}}"#, "control characters"),
            (r#"{"status":503,"headers":{"Content-Length":"7"}}"#, "leave it out"),
            (r#"{"status":503,"count":-1}"#, "write {"),
        ] {
            let error = Script::parse(json.as_bytes()).unwrap_err();
            assert!(error.contains(word), "{json}: {error}");
        }
    }

    #[test]
    fn trouble_ends_when_it_was_said_to() {
        let at = |secs| Instant::START + Duration::from_secs(secs);
        let down = Down::parse(br#"{"how":"refuse","for":"30s"}"#, at(10)).unwrap();
        assert_eq!(down, Down { how: How::Refuse, until: at(40) });
        assert!(down.refuses(at(39)) && !down.refuses(at(40)));
        let hang = Down::parse(br#"{"how":"hang"}"#, at(10)).unwrap();
        assert!(hang.holds(at(1_000_000)) && !hang.refuses(at(11)));
        for (json, word) in [
            (r#"{"how":"refuse"}"#, "give a length"),
            (r#"{"how":"503","for":"30"}"#, "30s"),
            (r#"{"how":"sulk"}"#, "refuse, 502, 503, reset or hang"),
            (r#"{"how":"503","until":"30s"}"#, "unknown field `until`"),
        ] {
            let error = Down::parse(json.as_bytes(), at(0)).unwrap_err();
            assert!(error.contains(word), "{json}: {error}");
        }
    }
}
