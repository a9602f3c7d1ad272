//! Templates with places for the columns of a table: `https://api.example.com/v1/{id}?q={name}`.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Characters to encode: all but the unreserved ones, which have no special meaning in a URL (RFC 3986 §2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Address or body with places for values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template {
    parts: Vec<TemplatePart>,
    encoding: Encoding,
}

/// Encoding of the values in a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// Percent-encoding.
    Url,
    /// Escapes of a JSON string.
    Json,
    /// No encoding.
    Plain,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Text(String),
    /// Name of a column.
    Column(String),
}

// === impl Template ===

impl Template {
    /// Parses the address `text`. An opening brace without a closing one is an error.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((column, further)) = after.split_once('}') else {
                // Does not quote the address, which may contain a key.
                return Err("the address of --url has a \"{\" without a \"}\"".into());
            };
            parts.push(TemplatePart::Text(before.to_owned()));
            parts.push(TemplatePart::Column(column.trim().to_owned()));
            rest = further;
        }
        parts.push(TemplatePart::Text(rest.to_owned()));
        // A column that is the whole address keeps its slashes and its query.
        let is_blank = |part: &TemplatePart| matches!(part, TemplatePart::Text(text) if text.trim().is_empty());
        let encoding = match parts.as_slice() {
            [before, TemplatePart::Column(_), after] if is_blank(before) && is_blank(after) => Encoding::Plain,
            _ => Encoding::Url,
        };
        Ok(Self { parts, encoding })
    }

    /// Parses the body `text`, whose values get this `encoding`. Only braces around the name of a `known` column are
    /// places; other braces are text, as in JSON.
    pub(super) fn of_body(text: &str, encoding: Encoding, known: impl Fn(&str) -> bool) -> Self {
        let (mut parts, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some((before, after)) = rest.split_once('{') {
            plain.push_str(before);
            match after.split_once('}').filter(|(column, _)| known(column.trim())) {
                Some((column, further)) => {
                    parts.push(TemplatePart::Text(std::mem::take(&mut plain)));
                    parts.push(TemplatePart::Column(column.trim().to_owned()));
                    rest = further;
                }
                None => {
                    plain.push('{');
                    rest = after;
                }
            }
        }
        plain.push_str(rest);
        parts.push(TemplatePart::Text(plain));
        Self { parts, encoding }
    }

    /// Encoding of the values.
    pub(super) fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Names of the columns, in the order of their places.
    pub(super) fn columns(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Column(name) => Some(name.as_str()),
            TemplatePart::Text(_) => None,
        })
    }

    /// Returns the text with each place filled by the column's value from `value_of`.
    pub(super) fn fill<'a>(&self, value_of: impl Fn(&str) -> Option<&'a str>) -> String {
        let part = |part: &TemplatePart| match part {
            TemplatePart::Text(text) => text.clone(),
            TemplatePart::Column(name) => self.encoding.write(value_of(name).unwrap_or_default()),
        };
        self.parts.iter().map(part).collect()
    }
}

// === impl Encoding ===

impl Encoding {
    fn write(self, value: &str) -> String {
        match self {
            Self::Url => utf8_percent_encode(value, RESERVED).to_string(),
            Self::Plain => value.to_owned(),
            Self::Json => {
                let quoted = serde_json::to_string(value).expect("a text can be written");
                quoted[1..quoted.len() - 1].to_owned()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_in_json_keeps_its_own_braces_and_escapes_values() {
        let known = |name: &str| ["q", "n"].contains(&name);
        let text = r#"{"q": "{q}", "page": {"size": {n}}, "o": {}}"#;
        let template = Template::of_body(text, Encoding::Json, known);
        assert_eq!(template.columns().collect::<Vec<_>>(), ["q", "n"]);
        let value = |name: &str| Some(if name == "q" { "say \"ü\"\n" } else { "5" });
        assert_eq!(template.fill(value), r#"{"q": "say \"ü\"\n", "page": {"size": 5}, "o": {}}"#);
        let form = Template::of_body("q={q}", Encoding::Url, known);
        assert_eq!(form.fill(|_| Some("a&b")), "q=a%26b");
    }

    #[test]
    fn values_are_encoded_and_stay_in_their_part() {
        let template = Template::parse("https://a.example/v1/{id}?q={ name }").unwrap();
        assert_eq!(template.columns().collect::<Vec<_>>(), ["id", "name"]);
        let value = |name: &str| Some(if name == "id" { "a/b c" } else { "x&y=ü" });
        // RFC 3986 §2.1: "/" is %2F, " " is %20, "&" is %26, "=" is %3D; ü is C3 BC in UTF-8.
        assert_eq!(template.fill(value), "https://a.example/v1/a%2Fb%20c?q=x%26y%3D%C3%BC");
    }

    #[test]
    fn half_a_place_is_a_mistake() {
        assert!(Template::parse("https://a.example/{id").unwrap_err().contains("without"));
        assert_eq!(Template::parse("https://a.example/").unwrap().columns().count(), 0);
    }
}
