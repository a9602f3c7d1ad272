//! Error of a plan that cannot be computed.

use std::fmt;

use crate::limit::Limits;

/// Mistake in the description of a plan, and the text to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    what: String,
    hint: String,
}

// === impl PlanError ===

impl PlanError {
    pub(super) fn new(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { what: what.into(), hint: hint.into() }
    }

    /// Error for `what`, which would take centuries to leave under `limits`.
    pub fn too_slow(what: impl fmt::Display, limits: &Limits) -> Self {
        Self::new(
            format!("{what} would leave at {limits} for centuries"),
            "check the window of the limits, or allow a burst, as in \"100/d burst 100\"",
        )
    }

    /// Text to write instead.
    pub fn hint(&self) -> &str {
        &self.hint
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for PlanError {}
