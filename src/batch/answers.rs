//! File of answers: one line per request, appended once its outcome is known, and never changed.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header::CONTENT_TYPE};
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::SerializeMap as _};
use serde_json::value::{RawValue, to_raw_value};

use super::{
    item::Id,
    line_file::{LineFile, LineFileError, WholeLine},
};

/// File of answers.
#[derive(Debug)]
pub struct AnswerFile {
    lines: LineFile,
}

/// Outcome of an item.
#[derive(Debug)]
pub enum ItemOutcome {
    /// The API has answered.
    Answered(Received),
    /// There is no answer. `code` is an error type of [RFC 9209] if andante reports the failure.
    ///
    /// [RFC 9209]: https://www.rfc-editor.org/rfc/rfc9209
    Failed {
        /// Error code.
        code: String,
        /// Description of the failure.
        message: String,
    },
}

/// Complete answer.
#[derive(Debug)]
pub struct Received {
    /// Status code.
    pub status: StatusCode,
    /// Header fields.
    pub headers: HeaderMap,
    /// Content of the answer.
    pub body: Bytes,
}

/// Failure to open or write the answer file.
#[derive(Debug, thiserror::Error)]
pub enum AnswersError {
    /// The file cannot be read or written.
    #[error(transparent)]
    File(#[from] LineFileError),
    /// The file contains a line that is no answer of a batch.
    #[error("{}, line {line}: this is no answer of a batch", path.display())]
    Foreign {
        /// Path of the file.
        path: PathBuf,
        /// Number of the first line that is no answer, from 1.
        line: u64,
    },
}

/// Line of an earlier run. Lines of twins copy `response` and `error` unchanged.
#[derive(Deserialize)]
struct AnswerLine<'a> {
    id: Option<String>,
    custom_id: Option<String>,
    #[serde(default, deserialize_with = "line_number")]
    line: Option<String>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// Reads the number of a line. Earlier versions wrote it as a string.
fn line_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Number(u64),
        Text(String),
    }
    Ok(Option::<Written>::deserialize(deserializer)?.map(|written| match written {
        Written::Number(number) => number.to_string(),
        Written::Text(text) => text,
    }))
}

#[derive(Deserialize)]
struct AnswerStatus {
    status_code: u16,
}

/// Line of the answer file. Equal items share `response` and `error`, and differ in `id`.
struct WrittenAnswer<'a> {
    id: &'a Id,
    response: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct WrittenResponse<'a> {
    status_code: u16,
    headers: BTreeMap<&'a str, String>,
    #[serde(flatten)]
    body: WrittenBody,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum WrittenBody {
    Body(Box<RawValue>),
    BodyBase64(String),
}

/// Outcome that a line of an earlier run states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownOutcome {
    /// An answer with a status below 400.
    Succeeded,
    /// An answer with a status of 400 or above.
    Failed,
    /// An error instead of an answer.
    Unanswered,
}

/// Returns whether an answer with this status is a success. Redirects are one.
pub(super) fn is_success(status: u16) -> bool {
    status < 400
}

// === impl AnswerFile ===

impl AnswerFile {
    /// Opens `path`, and returns the names of the items that have a line there, with their outcomes. Removes a partial
    /// last line, which a crash has left. Adds the missing lines of `twins`: items that equal the named one and share
    /// its answer.
    pub fn open(
        path: &Path,
        twins: &dyn Fn(&str) -> Vec<Id>,
    ) -> Result<(Self, HashMap<String, KnownOutcome>), AnswersError> {
        let mut lines = LineFile::open(path)?;
        let (mut whole, mut answered, mut missing) = (0, HashMap::new(), Vec::new());
        for line in lines.read()? {
            let WholeLine { number, end, text } = line?;
            let foreign = || AnswersError::Foreign { path: path.to_owned(), line: number };
            let line: AnswerLine<'_> = serde_json::from_slice(&text).map_err(|_| foreign())?;
            let name = line.id.or(line.custom_id).or(line.line).ok_or_else(foreign)?;
            let status = line.response.and_then(|response| serde_json::from_str::<AnswerStatus>(response.get()).ok());
            let known = match status {
                Some(status) if is_success(status.status_code) => KnownOutcome::Succeeded,
                Some(_) => KnownOutcome::Failed,
                None => KnownOutcome::Unanswered,
            };
            for id in twins(&name) {
                let written = WrittenAnswer { id: &id, response: line.response, error: line.error };
                missing.push((id.name.clone(), known, written.line()));
            }
            answered.insert(name, known);
            whole = end;
        }
        lines.shorten(whole)?;
        lines.sync_name()?;
        for (name, known, line) in missing {
            if answered.insert(name, known).is_none() {
                lines.append(&line)?;
            }
        }
        Ok((Self { lines }, answered))
    }

    /// Writes a line with `outcome` for each of `ids`, which name equal items.
    pub fn write(&mut self, ids: &[&Id], outcome: &ItemOutcome) -> Result<(), AnswersError> {
        let (response, error) = match outcome {
            ItemOutcome::Answered(received) => (Some(to_raw_value(&received.written())), None),
            ItemOutcome::Failed { code, message } => {
                (None, Some(to_raw_value(&BTreeMap::from([("code", code), ("message", message)]))))
            }
        };
        let [response, error] = [response, error].map(|part| part.map(|part| part.expect("all of it can be written")));
        let lines: Vec<u8> = ids
            .iter()
            .flat_map(|id| WrittenAnswer { id, response: response.as_deref(), error: error.as_deref() }.line())
            .collect();
        Ok(self.lines.append(&lines)?)
    }

    /// Returns a function that makes all lines written so far survive a loss of power. The function blocks its thread,
    /// and others may write meanwhile.
    pub fn sync(&self) -> impl FnOnce() -> Result<(), AnswersError> + Send + 'static {
        let sync = self.lines.sync();
        move || Ok(sync()?)
    }
}

// === impl Received ===

impl Received {
    fn written(&self) -> WrittenResponse<'_> {
        let mut headers = BTreeMap::<&str, String>::new();
        for (name, value) in &self.headers {
            let value = String::from_utf8_lossy(value.as_bytes());
            match headers.get_mut(name.as_str()) {
                // Commas join the values of a field (RFC 9110 §5.3), except Set-Cookie: line feeds separate its values.
                Some(before) => before.extend([if name == "set-cookie" { "\n" } else { ", " }, &value]),
                None => drop(headers.insert(name.as_str(), value.into_owned())),
            }
        }
        WrittenResponse { status_code: self.status.as_u16(), headers, body: self.written_body() }
    }

    /// Returns JSON as it came but on one line, other text as a string, and any other content in base64.
    fn written_body(&self) -> WrittenBody {
        let Ok(text) = std::str::from_utf8(&self.body) else {
            return WrittenBody::BodyBase64(BASE64_STANDARD.encode(&self.body));
        };
        let kind = self.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.contains("json") {
            // Valid JSON has line ends only between tokens. Spaces replace them, because an answer is one line.
            if let Ok(json) = RawValue::from_string(text.trim().replace(['\n', '\r'], " ")) {
                return WrittenBody::Body(json);
            }
        }
        WrittenBody::Body(to_raw_value(text).expect("text can be written"))
    }
}

// === impl WrittenAnswer ===

impl WrittenAnswer<'_> {
    fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("all of it can be written");
        line.push(b'\n');
        line
    }
}

impl Serialize for WrittenAnswer<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3))?;
        match self.id.name.parse::<u64>() {
            Ok(number) if self.id.member == Id::LINE => map.serialize_entry(self.id.member, &number)?,
            _ => map.serialize_entry(self.id.member, &self.id.name)?,
        }
        map.serialize_entry("response", &self.response)?;
        map.serialize_entry("error", &self.error)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> Id {
        Id { member: Id::CUSTOM, name: name.into() }
    }

    fn received(kind: &'static str, body: &'static [u8]) -> ItemOutcome {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, http::HeaderValue::from_static(kind))]);
        ItemOutcome::Answered(Received { status: StatusCode::OK, headers, body: Bytes::from_static(body) })
    }

    fn nobody(_: &str) -> Vec<Id> {
        Vec::new()
    }

    #[test]
    fn a_line_is_as_openai_writes_it_and_json_stays_as_it_came() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (mut answers, _) = AnswerFile::open(file.path(), &nobody).unwrap();
        answers
            .write(&[&id("a")], &received("application/json", b"{\"z\": 1,\n \"a\": 12345678901234567890}"))
            .unwrap();
        answers.write(&[&id("b")], &received("text/plain", b"two\nlines")).unwrap();
        answers.write(&[&id("c")], &received("image/png", &[0xff, 0x00])).unwrap();
        answers.write(&[&id("d")], &ItemOutcome::Failed { code: "dns_error".into(), message: "no".into() }).unwrap();
        let text = std::fs::read_to_string(file.path()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let head =
            |kind: &str| format!("\"response\":{{\"status_code\":200,\"headers\":{{\"content-type\":\"{kind}\"}}");
        assert_eq!(
            lines[0],
            format!(
                "{{\"custom_id\":\"a\",{},\"body\":{{\"z\": 1,  \"a\": 12345678901234567890}}}},\"error\":null}}",
                head("application/json")
            )
        );
        assert!(lines[1].contains(r#""body":"two\nlines""#), "{}", lines[1]);
        // RFC 4648 §4: FF 00 is "/wA=".
        assert!(lines[2].contains(r#""body_base64":"/wA=""#), "{}", lines[2]);
        assert_eq!(lines[3], r#"{"custom_id":"d","response":null,"error":{"code":"dns_error","message":"no"}}"#);
    }

    #[test]
    fn what_was_cut_off_within_a_character_is_removed_too() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let whole = "{\"id\":\"a\",\"response\":null,\"error\":{}}\n".as_bytes();
        std::fs::write(file.path(), [whole, b"{\"id\":\"caf\xc3"].concat()).unwrap();
        let (_, known) = AnswerFile::open(file.path(), &nobody).unwrap();
        assert_eq!(known, HashMap::from([("a".to_owned(), KnownOutcome::Unanswered)]));
        assert_eq!(std::fs::read(file.path()).unwrap(), whole);
    }

    #[test]
    fn what_was_cut_off_is_removed_and_the_rest_is_known() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let whole = "{\"id\":\"a\",\"response\":null,\"error\":{}}\n";
        std::fs::write(file.path(), format!("{whole}{{\"id\":\"b\",\"resp")).unwrap();
        let (mut answers, known) = AnswerFile::open(file.path(), &nobody).unwrap();
        assert_eq!(known, HashMap::from([("a".to_owned(), KnownOutcome::Unanswered)]), "it has failed");
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), whole);
        answers.write(&[&id("b")], &received("text/plain", b"")).unwrap();
        assert_eq!(AnswerFile::open(file.path(), &nobody).unwrap().1.len(), 2);
    }

    #[test]
    fn a_twin_without_its_line_gets_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "{\"id\":\"a\",\"response\":{\"status_code\": 200},\"error\":null}\n").unwrap();
        let twins = |name: &str| if name == "a" { vec![id("b")] } else { Vec::new() };
        let (_, known) = AnswerFile::open(file.path(), &twins).unwrap();
        assert_eq!(known.len(), 2);
        let text = std::fs::read_to_string(file.path()).unwrap();
        assert!(text.ends_with("{\"custom_id\":\"b\",\"response\":{\"status_code\": 200},\"error\":null}\n"), "{text}");
        assert_eq!(AnswerFile::open(file.path(), &twins).unwrap().1.len(), 2);
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), text, "once is enough");
    }

    #[test]
    fn a_file_of_something_else_is_left_alone() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "my notes\nhalf").unwrap();
        assert!(matches!(AnswerFile::open(file.path(), &nobody), Err(AnswersError::Foreign { line: 1, .. })));
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "my notes\nhalf");
    }
}
