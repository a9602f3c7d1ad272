//! Places in answers that report what their requests used.

use std::{fmt, str::FromStr};

use andante_limit::Unit;

/// Place that reports the usage of a unit: `output-tokens=completion_tokens`, `points=header:x-points`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageSource {
    /// The unit.
    pub unit: Unit,
    /// Place of the report.
    pub place: UsagePlace,
}

/// Place in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsagePlace {
    /// In this header field.
    Header(Box<str>),
    /// In the last member of this name in a JSON body, or in those of the events of a stream.
    Member(Box<str>),
}

// === impl UsageSource ===

impl UsageSource {
    /// Returns whether the place is in the body.
    pub fn is_in_body(&self) -> bool {
        matches!(self.place, UsagePlace::Member(_))
    }
}

impl FromStr for UsageSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = || "write \"output-tokens=completion_tokens\" or \"points=header:x-points\"".to_owned();
        let (unit, place) = text.split_once('=').ok_or_else(example)?;
        let unit = Unit::named(unit.trim())?;
        if unit == Unit::REQUESTS {
            return Err("how many requests one is, no answer says".to_owned());
        }
        let place = match place.trim().strip_prefix("header:") {
            Some(name) => {
                let name = http::HeaderName::from_bytes(name.as_bytes()).map_err(|_| example())?;
                UsagePlace::Header(name.as_str().into())
            }
            None => {
                let member = place.trim();
                let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
                if member.is_empty() || !member.bytes().all(plain) {
                    // `usage.output_tokens`, `$.usage.output_tokens`, `body:output_tokens`.
                    let name = member.rsplit(['.', '/', ':']).next().filter(|name| !name.is_empty());
                    return Err(match name.filter(|name| name.bytes().all(plain)) {
                        Some(name) => format!("write \"{unit}={name}\": a member is found by its name, wherever it is"),
                        None => example(),
                    });
                }
                UsagePlace::Member(member.into())
            }
        };
        Ok(Self { unit, place })
    }
}

impl fmt::Display for UsageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            UsagePlace::Header(name) => write!(f, "{}=header:{name}", self.unit),
            UsagePlace::Member(name) => write!(f, "{}={name}", self.unit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_answered_with_the_name_that_suffices() {
        let hint = |text: &str| text.parse::<UsageSource>().unwrap_err();
        for path in ["usage.output_tokens", "$.usage.output_tokens", "body:output_tokens", "/usage/output_tokens"] {
            assert!(hint(&format!("out={path}")).starts_with("write \"out=output_tokens\""), "{path}");
        }
        for text in ["out", "out=", "out=a b", "out=usage.", "out=header:"] {
            assert!(hint(text).starts_with("write \"output-tokens="), "{text}");
        }
        assert!("out=output_tokens".parse::<UsageSource>().is_ok());
    }
}
