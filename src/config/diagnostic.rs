//! What is wrong with a configuration: where it stands, what was found, what to write instead. Prints nothing.

use std::{borrow::Cow, fmt, sync::Arc};

use super::expiry::EXPIRED_HINT;

/// An error or a warning about a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Whether andante starts nevertheless.
    pub severity: Severity,
    /// Where it was written.
    pub place: Place,
    /// The key, as a path within its table: `limits[0]`, `timeouts.connect`.
    pub key: Option<String>,
    /// What was expected and what was found.
    pub what: String,
    /// What to write instead.
    pub hint: Option<String>,
}

/// How bad a [`Diagnostic`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// andante does not start.
    Error,
    /// andante starts, though probably not with what was meant.
    Warning,
}

/// Where a value comes from. Ordered as problems are shown: by line, then environment and flags.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// It is a default.
    Default,
    /// A configuration file.
    File {
        /// Its name as it was given.
        name: Arc<str>,
        /// Line and column, both counted from 1; `None` is the file as a whole.
        at: Option<(usize, usize)>,
    },
    /// An environment variable.
    Variable(Cow<'static, str>),
    /// A flag.
    Flag(&'static str),
}

/// A value together with where and how it was written.
#[derive(Clone, Debug)]
pub(super) struct Spanned<T> {
    pub(super) value: T,
    /// As it was written.
    pub(super) text: String,
    pub(super) key: Option<String>,
    pub(super) place: Place,
}

// === impl Diagnostic ===

impl Diagnostic {
    /// Whether andante cannot start because of it.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Whether it is about certificates that have expired.
    pub(super) fn is_expiry(&self) -> bool {
        self.hint.as_deref() == Some(EXPIRED_HINT)
    }

    /// An error about a value.
    pub(super) fn error<T>(at: &Spanned<T>, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            place: at.place.clone(),
            key: at.key.clone(),
            what: what.into(),
            hint: Some(hint.into()),
        }
    }

    /// A warning about a value.
    pub(super) fn warning<T>(at: &Spanned<T>, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(at, what, hint) }
    }
}

/// ``config/api.toml:7: `limits[0]`: expected a limit, found "500 a min"``, without the hint.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if let Some(key) = &self.key {
            write!(f, "`{key}`: ")?;
        }
        f.write_str(&self.what)
    }
}

// === impl Place ===

impl Place {
    /// Whether both are in the same source: neither is stronger.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { name, at: None } => f.write_str(name),
            Self::File { name, at: Some((line, _)) } => write!(f, "{name}:{line}"),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

// === impl Spanned ===

impl<T> Spanned<T> {
    /// A default value, which stands in no source.
    pub(super) fn default(value: T) -> Self {
        Self { value, text: String::new(), key: None, place: Place::Default }
    }
}

impl<T> Spanned<Option<T>> {
    /// The same without the option, if there is a value.
    pub(super) fn transpose(self) -> Option<Spanned<T>> {
        let Self { value, text, key, place } = self;
        value.map(|value| Spanned { value, text, key, place })
    }
}
