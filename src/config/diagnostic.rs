//! A problem of a configuration: its place, its description, and advice. Prints nothing.

use std::{borrow::Cow, fmt, sync::Arc};

use super::expiry::EXPIRED_HINT;

/// An error or a warning about a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Severity: andante starts nevertheless if it is a warning.
    pub severity: Severity,
    /// Place of the value.
    pub place: Place,
    /// The key, as a path within its table: `limits[0]`, `timeouts.connect`.
    pub key: Option<String>,
    /// Expected and actual value.
    pub what: String,
    /// Advice on the right value.
    pub hint: Option<String>,
}

/// Severity of a [`Diagnostic`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// andante does not start.
    Error,
    /// andante starts, but probably not with the intended settings.
    Warning,
}

/// Source of a value. Ordered as problems are shown: by line, then environment and flags.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The value is a default.
    Default,
    /// A configuration file.
    File {
        /// Name of the file as given.
        name: Arc<str>,
        /// Line and column, both counted from 1; `None` is the file as a whole.
        at: Option<(usize, usize)>,
    },
    /// An environment variable.
    Variable(Cow<'static, str>),
    /// A flag.
    Flag(&'static str),
}

/// A value with its source text and its place.
#[derive(Clone, Debug)]
pub(super) struct Spanned<T> {
    pub(super) value: T,
    /// Text in the source.
    pub(super) text: String,
    pub(super) key: Option<String>,
    pub(super) place: Place,
}

// === impl Diagnostic ===

impl Diagnostic {
    /// Returns whether andante cannot start because of it.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Returns whether the problem is about expired certificates.
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
    /// Returns whether both places are in one source, so that neither is stronger.
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
    /// A default value, which is in no source.
    pub(super) fn default(value: T) -> Self {
        Self { value, text: String::new(), key: None, place: Place::Default }
    }
}

impl<T> Spanned<Option<T>> {
    /// Moves the option outwards: `None` if there is no value.
    pub(super) fn transpose(self) -> Option<Spanned<T>> {
        let Self { value, text, key, place } = self;
        value.map(|value| Spanned { value, text, key, place })
    }
}

impl Spanned<()> {
    /// A value at this place.
    pub(super) fn with<T>(self, value: T) -> Spanned<T> {
        Spanned { value, text: self.text, key: self.key, place: self.place }
    }
}
