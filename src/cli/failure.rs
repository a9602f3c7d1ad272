//! Failure of a command, in the three lines that a terminal shows.

use std::{error::Error, fmt, io};

/// A failed action with its object, the cause (`source`), and advice.
#[derive(Debug)]
pub struct Failure {
    what: String,
    hint: Option<String>,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    /// A failure without a further cause.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), hint: None, cause: None }
    }

    /// Adds the cause.
    #[must_use]
    pub fn because(self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { cause: Some(cause.into()), ..self }
    }

    /// Adds advice.
    #[must_use]
    pub fn hinting(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Advice on the next step.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Returns whether the reader of the output has gone.
    pub(super) fn is_broken_pipe(&self) -> bool {
        self.is_caused_by(io::ErrorKind::BrokenPipe)
    }

    /// Returns whether this user lacks a permission.
    pub(super) fn is_denied(&self) -> bool {
        self.is_caused_by(io::ErrorKind::PermissionDenied)
    }

    fn is_caused_by(&self, kind: io::ErrorKind) -> bool {
        let cause = self.source().and_then(|cause| cause.downcast_ref::<io::Error>());
        cause.is_some_and(|cause| cause.kind() == kind)
    }

    /// A failure to write the output.
    pub(super) fn writing(cause: io::Error) -> Self {
        Self::new("could not write to standard output").because(cause).hinting("check where the output is piped to")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_tells_what_why_and_what_next_apart() {
        let failure = Failure::new("could not listen on 127.0.0.1:1")
            .because(io::Error::from(io::ErrorKind::PermissionDenied))
            .hinting("choose another with --listen");
        assert_eq!(failure.to_string(), "could not listen on 127.0.0.1:1");
        assert_eq!(failure.source().unwrap().to_string(), "permission denied");
        assert_eq!(failure.hint(), Some("choose another with --listen"));
    }
}
