//! Parser of one line of JSON. Errors name a member, and never quote its value, which may be a secret.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::{header, numbered};
use crate::batch::item::Id;

/// Line of JSON. Its members are parsed one by one, so that each error names its member.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InputLine<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    custom_id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<&'a RawValue>,
    #[serde(borrow, default)]
    url: Option<&'a RawValue>,
    #[serde(borrow, default)]
    headers: Option<&'a RawValue>,
    #[serde(borrow, default)]
    body: Option<&'a RawValue>,
    #[serde(borrow, default)]
    priority: Option<&'a RawValue>,
    #[serde(borrow, default)]
    cost: Option<&'a RawValue>,
    #[serde(borrow, default)]
    flow: Option<&'a RawValue>,
}

/// Text, or a number that is used as text.
#[derive(Deserialize)]
#[serde(untagged)]
enum TextOrNumber {
    Text(String),
    Number(serde_json::Number),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// Body that a line states.
pub(super) enum LineBody<'a> {
    Text(String),
    Json(&'a str),
}

const TEXT: &str = "a text";
const TEXT_OR_NUMBER: &str = "a text or a number";
/// Largest urgency, which is the least urgent (RFC 9218 §4.1).
const LEAST_URGENT: u64 = 7;

// === impl InputLine ===

impl<'a> InputLine<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self, String> {
        if !text.starts_with('{') {
            if text.starts_with('[') {
                return Err(
                    "this is a list of JSON, and each line has to be an object: jq -c '.[]' FILE > FILE.jsonl".into()
                );
            }
            return Err(format!("expected an object, as in {{\"url\": \"https://…\"}}, found {}", kind(text)));
        }
        serde_json::from_str(text).map_err(|error| {
            if error.is_eof() {
                return "the object does not end on this line: write each on one line, by jq -c . FILE > FILE.jsonl"
                    .into();
            }
            // Errors of serde_json state a position or the name of a member, and no value.
            error.to_string().replace("at line 1 column", "at column")
        })
    }

    /// Id of the request; if the line states none, the `number` of the line.
    pub(super) fn id(&self, number: u64) -> Result<Id, String> {
        let name = |member, said| read::<TextOrNumber>(member, said, TEXT_OR_NUMBER);
        match (name(Id::MEMBER, self.id)?, name(Id::CUSTOM, self.custom_id)?) {
            (Some(_), Some(_)) => Err("it has both `id` and `custom_id`: write one".into()),
            (Some(name), None) => Ok(Id { member: Id::MEMBER, name: name.into() }),
            (None, Some(name)) => Ok(Id { member: Id::CUSTOM, name: name.into() }),
            (None, None) => Ok(numbered(number)),
        }
    }

    pub(super) fn method(&self) -> Result<Option<String>, String> {
        read("method", self.method, TEXT)
    }

    pub(super) fn url(&self) -> Result<String, String> {
        read("url", self.url, TEXT)?.ok_or_else(|| "it has no `url`".to_owned())
    }

    /// Header fields of the request, including those for `priority`, `cost` and `flow`.
    pub(super) fn headers(&self) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        let fields = "an object of fields, as in {\"Accept\": \"text/csv\"}";
        let said: BTreeMap<String, &RawValue> = match self.headers {
            Some(said) => serde_json::from_str(said.get()).map_err(|_| unexpected("headers", fields, said))?,
            None => BTreeMap::new(),
        };
        for (name, values) in said {
            // Does not quote an invalid name: it may include the value.
            let known: HeaderName = name.trim().parse().map_err(|_| "`headers`: a name in it is no field name")?;
            let member = format!("headers.{known}");
            let values = match read_one(&member, values, "a text or a list of texts")? {
                OneOrMany::One(value) => vec![value],
                OneOrMany::Many(values) => values,
            };
            for value in values {
                let (name, value) = header(&name, &value).map_err(|what| format!("`headers`: {what}"))?;
                headers.append(name, value);
            }
        }
        let urgency = read::<serde_json::Number>("priority", self.priority, "a number")?;
        if let Some(other) = urgency.as_ref().filter(|said| said.as_u64().is_none_or(|said| said > LEAST_URGENT)) {
            return Err(format!("`priority`: expected an urgency from 0 to 7 (RFC 9218), found {other}"));
        }
        let cost = read::<TextOrNumber>("cost", self.cost, TEXT_OR_NUMBER)?.map(String::from);
        let flow = read::<String>("flow", self.flow, TEXT)?;
        let urgency = urgency.map(|urgency| format!("u={urgency}"));
        for (member, name, value) in
            [("priority", "priority", urgency), ("cost", "andante-cost", cost), ("flow", "andante-flow", flow)]
        {
            if let Some(value) = value {
                let (name, value) = header(name, &value).map_err(|what| format!("`{member}`: {what}"))?;
                headers.insert(name, value);
            }
        }
        Ok(headers)
    }

    /// Body of the request: a text as it is, and any other value as JSON, byte for byte.
    pub(super) fn body(&self) -> Result<Option<LineBody<'a>>, String> {
        match self.body {
            Some(text) if text.get().starts_with('"') => {
                let half = |_| "`body`: its text has half of a surrogate pair".to_owned();
                Ok(Some(LineBody::Text(serde_json::from_str(text.get()).map_err(half)?)))
            }
            other => Ok(other.map(|json| LineBody::Json(json.get()))),
        }
    }
}

/// Parses the value of `member`, if there is one.
fn read<T: DeserializeOwned>(member: &str, said: Option<&RawValue>, expected: &str) -> Result<Option<T>, String> {
    said.map(|said| read_one(member, said, expected)).transpose()
}

fn read_one<T: DeserializeOwned>(member: &str, said: &RawValue, expected: &str) -> Result<T, String> {
    serde_json::from_str(said.get()).map_err(|_| unexpected(member, expected, said))
}

fn unexpected(member: &str, expected: &str, found: &RawValue) -> String {
    format!("`{member}`: expected {expected}, found {}", kind(found.get()))
}

/// Type of the value `json`, by its first character.
fn kind(json: &str) -> &'static str {
    if json == "null" {
        return "null";
    }
    match json.bytes().next() {
        Some(b'"') => "a text",
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        Some(b't' | b'f') => "true or false",
        Some(b'-' | b'0'..=b'9') => "a number",
        _ => "something else",
    }
}

// === impl TextOrNumber ===

impl From<TextOrNumber> for String {
    fn from(name: TextOrNumber) -> Self {
        match name {
            TextOrNumber::Text(text) => text,
            TextOrNumber::Number(number) => number.to_string(),
        }
    }
}
