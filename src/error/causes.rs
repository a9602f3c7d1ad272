//! What is below an error: the errors of libraries and of the system that caused it.

use std::{error::Error, fmt::Write as _, io};

/// The source of an error that libraries hand over.
pub type Cause = Box<dyn Error + Send + Sync>;

/// `error` with its causes, in one line.
pub(super) fn in_one_line(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let _ = write!(text, ": {cause}");
        next = cause.source();
    }
    text
}

/// Whether `error` was caused by a lack of file descriptors.
pub fn is_exhaustion(error: &(dyn Error + 'static)) -> bool {
    // EMFILE and ENFILE, which the standard library has no kind for.
    matches!(io_error(error).and_then(io::Error::raw_os_error), Some(23 | 24))
}

/// The system's error somewhere below `error`.
pub fn io_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a io::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return Some(io);
        }
        next = error.source();
    }
    None
}
