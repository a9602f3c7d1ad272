//! A grammar: parses one kind of value, and describes texts that are invalid.

use std::borrow::Cow;

/// Grammar of one kind of value.
pub(in crate::config) struct Grammar<T> {
    /// Name of the kind with its article: "an address".
    pub(in crate::config) expected: &'static str,
    /// Example in the form of a file.
    pub(in crate::config) example: &'static str,
    pub(super) read: fn(&str) -> Result<T, ParseHint>,
}

/// Problem with a value.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::config) struct Wrong {
    pub(in crate::config) what: String,
    pub(in crate::config) hint: String,
}

/// Details about an invalid text: a better hint than the grammar's example, and a more exact description, where there
/// is one.
#[derive(Default)]
pub(super) struct ParseHint {
    pub(super) what: Option<String>,
    pub(super) hint: Option<String>,
}

// === impl Grammar ===

impl<T> Grammar<T> {
    /// Reads `text`.
    pub(in crate::config) fn read(&self, text: &str) -> Result<T, Wrong> {
        (self.read)(text.trim()).map_err(|instead| Wrong {
            what: instead.what.unwrap_or_else(|| self.unexpected(text)),
            hint: instead.hint.unwrap_or_else(|| format!("write {}", self.example)),
        })
    }

    /// Description of an invalid `text`.
    pub(in crate::config) fn unexpected(&self, text: &str) -> String {
        format!("expected {}, found {:?}", self.expected, shown(text))
    }
}

// === impl ParseHint ===

impl ParseHint {
    pub(super) fn hint(hint: impl Into<String>) -> Self {
        Self { what: None, hint: Some(hint.into()) }
    }

    pub(super) fn said(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { what: Some(what.into()), hint: Some(hint.into()) }
    }
}

/// `text` without a user name and password, if it is a URL with them: problems end up in logs.
pub(in crate::config) fn shown(text: &str) -> Cow<'_, str> {
    let Some((_, after)) = text.rsplit_once('@') else { return text.into() };
    format!("…@{after}").into()
}

impl From<Wrong> for ParseHint {
    fn from(wrong: Wrong) -> Self {
        Self { what: Some(wrong.what), hint: Some(wrong.hint) }
    }
}
