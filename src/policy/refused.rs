//! Answers that a rule declares to be refusals: `refused = ["body.error.code = TOO_MANY", "status = 498"]`.

#[cfg(test)]
mod tests;

use std::{cell::OnceCell, fmt, str::FromStr};

use http::{HeaderMap, HeaderName, StatusCode};
use serde_json::{Number, Value};

/// A declaration: an answer that passes all tests is a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedAnswer {
    tests: Vec<AnswerTest>,
}

/// A body, which is parsed once at most, whatever is declared.
struct AnswerBody<'a> {
    text: Option<&'a [u8]>,
    json: OnceCell<Option<Value>>,
}

/// A test of a value at a place of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AnswerTest {
    place: AnswerPlace,
    operator: Operator,
    value: Box<str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum AnswerPlace {
    Status,
    Header(HeaderName),
    /// The body as text.
    Body,
    /// The member of a JSON body at the end of these names; in a list, the member of any item.
    Member(Box<[Box<str>]>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    /// `=`: equal, letter by letter.
    Is,
    /// `~`: contains the value, in capital or small letters.
    Contains,
}

const EXAMPLE: &str = "write \"body.error.code = TOO_MANY\", \"status = 498\", \"header.x-reason = quota\" or \"body ~ 'daily \
                       limit'\", several of them with \" and \" between";

// === impl RefusedAnswer ===

impl RefusedAnswer {
    /// Returns whether the decision needs the body of an answer with this status and these fields.
    pub fn asks_for_body(&self, status: StatusCode, headers: &HeaderMap) -> bool {
        let (of_body, of_head): (Vec<_>, Vec<_>) = self.tests.iter().partition(|test| test.is_of_body());
        !of_body.is_empty() && of_head.iter().all(|test| test.holds(status, headers, &AnswerBody::of(None)))
    }

    /// Returns whether the declaration matches every answer with some success status.
    pub fn takes_success(&self) -> bool {
        let is_success = |test: &AnswerTest| test.place == AnswerPlace::Status && test.value.starts_with('2');
        self.tests.iter().all(is_success)
    }

    /// Returns whether the declaration tests bodies.
    pub fn is_in_body(&self) -> bool {
        self.tests.iter().any(AnswerTest::is_of_body)
    }

    /// Returns whether one of the `declared` matches this answer. `body` is complete; `None` if it was not read.
    pub fn matches_any(declared: &[Self], status: StatusCode, headers: &HeaderMap, body: Option<&[u8]>) -> bool {
        let body = AnswerBody::of(body);
        declared.iter().any(|of| of.matches(status, headers, &body))
    }

    fn matches(&self, status: StatusCode, headers: &HeaderMap, body: &AnswerBody<'_>) -> bool {
        // The head is tested first, because its tests need no JSON.
        let holds = |of_body: bool| {
            let mut tests = self.tests.iter().filter(move |test| test.is_of_body() == of_body);
            tests.all(|test| test.holds(status, headers, body))
        };
        holds(false) && holds(true)
    }
}

impl FromStr for RefusedAnswer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut tests, mut rest) = (Vec::new(), Some(text));
        while let Some(text) = rest {
            let (test, behind) = AnswerTest::parse(text)?;
            tests.push(test);
            rest = behind;
        }
        Ok(Self { tests })
    }
}

impl fmt::Display for RefusedAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, test) in self.tests.iter().enumerate() {
            write!(f, "{}{test}", if at > 0 { " and " } else { "" })?;
        }
        Ok(())
    }
}

/// Splits the value off `text`, and the test behind the ` and ` that follows it. A quote opens at the start of a value only.
fn split_value(text: &str) -> Result<(&str, Option<&str>), String> {
    let quote = text.get(..1).filter(|first| matches!(*first, "'" | "\""));
    let (quoted, rest) = match quote {
        None => (None, text),
        Some(quote) => {
            let closed = text[1..].split_once(quote);
            let (value, rest) = closed.ok_or_else(|| format!("close the quote that begins with {text}"))?;
            (Some(value), rest)
        }
    };
    let (value, conjunction) = split_conjunction(rest);
    if conjunction.is_some_and(|(word, _)| word.eq_ignore_ascii_case("or")) {
        return Err(
            "write each alternative as a declaration of its own: [\"status = 498\", \"body.code = 17\"]; a value \
                    that contains \" or \" stands in quotes"
                .to_owned(),
        );
    }
    if quoted.is_some() && !value.is_empty() {
        return Err(format!(
            "nothing but \" and \" follows a closing quote, found {value:?}; write a value with ' in it in double quotes"
        ));
    }
    Ok((quoted.unwrap_or(value), conjunction.map(|(_, behind)| behind)))
}

/// Splits `text` at its first word that is `and` or `or`.
fn split_conjunction(text: &str) -> (&str, Option<(&str, &str)>) {
    for (at, space) in text.match_indices(char::is_whitespace) {
        let rest = &text[at + space.len()..];
        let word = rest.split(char::is_whitespace).next().unwrap_or_default();
        if word.eq_ignore_ascii_case("and") || word.eq_ignore_ascii_case("or") {
            return (text[..at].trim(), Some((word, &rest[word.len()..])));
        }
    }
    (text.trim(), None)
}

// === impl AnswerBody ===

impl<'a> AnswerBody<'a> {
    fn of(text: Option<&'a [u8]>) -> Self {
        Self { text, json: OnceCell::new() }
    }

    fn json(&self) -> Option<&Value> {
        self.json.get_or_init(|| serde_json::from_slice(self.text?).ok()).as_ref()
    }
}

// === impl AnswerTest ===

impl AnswerTest {
    /// Parses the first test of `text`, and returns the rest of it behind an ` and `.
    fn parse(text: &str) -> Result<(Self, Option<&str>), String> {
        let wrong = || EXAMPLE.to_owned();
        let at = text.find(['=', '~']).ok_or_else(wrong)?;
        let operator = if text.as_bytes()[at] == b'=' { Operator::Is } else { Operator::Contains };
        let (place, value) = (text[..at].trim(), text[at + 1..].trim());
        if value.starts_with(['=', '~']) || place.ends_with(['!', '<', '>']) {
            return Err("write one = for \"is\", or ~ for \"contains\"; there are no other operators".to_owned());
        }
        let (value, rest) = split_value(value)?;
        if value.is_empty() {
            return Err(wrong());
        }
        if place.contains('[') {
            let plain = without_brackets(place);
            return Err(format!(
                "write \"{plain} {} {value}\": of a list any item counts",
                if operator == Operator::Is { '=' } else { '~' }
            ));
        }
        let place = AnswerPlace::parse(place)?;
        if place == AnswerPlace::Status && (operator == Operator::Contains || !is_status(value)) {
            return Err(format!("write a status of three digits: \"status = 498\", not {value:?}"));
        }
        if place == AnswerPlace::Body && operator == Operator::Is {
            return Err(format!("a whole body is hardly this; write \"body ~ '{value}'\" for one that contains it"));
        }
        Ok((Self { place, operator, value: value.into() }, rest))
    }

    fn is_of_body(&self) -> bool {
        matches!(self.place, AnswerPlace::Body | AnswerPlace::Member(_))
    }

    fn holds(&self, status: StatusCode, headers: &HeaderMap, body: &AnswerBody<'_>) -> bool {
        match &self.place {
            AnswerPlace::Status => status.as_str() == &*self.value,
            AnswerPlace::Header(name) => {
                headers.get_all(name).iter().any(|value| value.to_str().is_ok_and(|value| self.fits(value.trim())))
            }
            AnswerPlace::Body => body.text.is_some_and(|text| self.fits(&String::from_utf8_lossy(text))),
            AnswerPlace::Member(path) => body.json().is_some_and(|json| self.fits_member(json, path)),
        }
    }

    fn fits_member(&self, json: &Value, path: &[Box<str>]) -> bool {
        match (json, path) {
            (Value::Array(items), _) => items.iter().any(|item| self.fits_member(item, path)),
            (_, [name, rest @ ..]) => json.get(&**name).is_some_and(|member| self.fits_member(member, rest)),
            (Value::String(text), []) => self.fits(text),
            (Value::Number(number), []) if self.operator == Operator::Is => self.is_number(number),
            (Value::Number(_) | Value::Bool(_) | Value::Null, []) => self.fits(&json.to_string()),
            (Value::Object(_), []) => self.operator == Operator::Contains && self.fits(&json.to_string()),
        }
    }

    /// Returns whether the value equals this number, however either is written: 17 is 17.0.
    fn is_number(&self, number: &Number) -> bool {
        match (self.value.parse::<i128>(), number.as_i128()) {
            (Ok(value), Some(number)) => value == number,
            _ => self.value.parse().is_ok_and(|value: f64| number.as_f64() == Some(value)),
        }
    }

    fn fits(&self, text: &str) -> bool {
        match self.operator {
            Operator::Is => *text == *self.value,
            Operator::Contains => text.to_lowercase().contains(&self.value.to_lowercase()),
        }
    }
}

impl fmt::Display for AnswerTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match &self.place {
            AnswerPlace::Status => "status".to_owned(),
            AnswerPlace::Header(name) => format!("header.{name}"),
            AnswerPlace::Body => "body".to_owned(),
            AnswerPlace::Member(path) => format!("body.{}", path.join(".")),
        };
        let operator = if self.operator == Operator::Is { '=' } else { '~' };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
        let quote = match &*self.value {
            value if value.chars().all(plain) => "",
            value if !value.contains('\'') => "'",
            value if !value.contains('"') => "\"",
            // Only a value without quotes around it may contain both.
            _ => "",
        };
        write!(f, "{place} {operator} {quote}{}{quote}", self.value)
    }
}

// === impl AnswerPlace ===

impl AnswerPlace {
    fn parse(text: &str) -> Result<Self, String> {
        if let Some(name) = text.strip_prefix("header.").or_else(|| text.strip_prefix("header:")) {
            return HeaderName::from_bytes(name.as_bytes()).map(Self::Header).map_err(|_| EXAMPLE.to_owned());
        }
        if let Some(path) = text.strip_prefix("body.").or_else(|| text.strip_prefix("body:")) {
            return Ok(Self::Member(path.split('.').map(member).collect::<Result<_, _>>()?));
        }
        match text {
            "status" => Ok(Self::Status),
            "body" => Ok(Self::Body),
            _ => Err(EXAMPLE.to_owned()),
        }
    }
}

/// Parses a name of a member of a JSON body. Refuses characters of other path languages.
fn member(name: &str) -> Result<Box<str>, String> {
    let is_index = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    if is_index || name.contains([']', '*']) {
        return Err(format!(
            "write no index, found {name:?}: of a list, any item counts, as in \"body.errors.code = TOO_MANY\""
        ));
    }
    let is_name = !name.is_empty() && name.trim() == name && !name.contains(['!', '<', '>', '\\', '\'', '"']);
    if is_name { Ok(name.into()) } else { Err(EXAMPLE.to_owned()) }
}

/// `body.errors[0].code` as `body.errors.code`, and `body['error']` as `body.error`.
fn without_brackets(place: &str) -> String {
    let mut pieces = place.split('[');
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (index, rest) = piece.split_once(']').unwrap_or((piece, ""));
        let name = index.trim_matches(['\'', '"']);
        if !name.is_empty() && name != "*" && name.parse::<i64>().is_err() {
            plain.push('.');
            plain.push_str(name);
        }
        plain.push_str(rest);
    }
    plain
}

fn is_status(value: &str) -> bool {
    value.len() == 3 && value.parse().is_ok_and(|status: u16| (200..=599).contains(&status))
}
