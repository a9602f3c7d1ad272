//! Addresses with places for the columns of a table: `https://api.example.com/v1/{id}?q={name}`.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What stands for itself in every part of a URL (RFC 3986 §2.3) is not encoded.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// An address with places for values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template {
    parts: Vec<TemplatePart>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Text(String),
    /// The name of a column.
    Column(String),
}

// === impl Template ===

impl Template {
    /// Reads `text`. On a brace without its other half, says so.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((column, further)) = after.split_once('}') else {
                // Not the address itself: a key may be in it.
                return Err("the address of --url has a \"{\" without a \"}\"".into());
            };
            parts.push(TemplatePart::Text(before.to_owned()));
            parts.push(TemplatePart::Column(column.trim().to_owned()));
            rest = further;
        }
        parts.push(TemplatePart::Text(rest.to_owned()));
        Ok(Self { parts })
    }

    /// The columns that it names.
    pub(super) fn columns(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Column(name) => Some(name.as_str()),
            TemplatePart::Text(_) => None,
        })
    }

    /// The address with the values that `value_of` gives for columns, percent-encoded.
    pub(super) fn fill<'a>(&self, value_of: impl Fn(&str) -> Option<&'a str>) -> String {
        let part = |part: &TemplatePart| match part {
            TemplatePart::Text(text) => text.clone(),
            TemplatePart::Column(name) => utf8_percent_encode(value_of(name).unwrap_or_default(), RESERVED).to_string(),
        };
        self.parts.iter().map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
