//! Causes of an error: errors of libraries and of the system.

use std::{error::Error, fmt::Write as _, io};

/// Error of a library, as the source of another error.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Length in bytes at which an error text is cut: it may quote what a client has sent.
const MOST: usize = 1000;

/// Returns `error` with its causes, in one line.
pub fn in_one_line(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let _ = write!(text, ": {cause}");
        next = cause.source();
    }
    if text.len() > MOST { format!("{}…", beginning(&text, MOST)) } else { text }
}

/// Returns the longest beginning of `text` that has at most `max_bytes` and splits no character.
pub(crate) fn beginning(text: &str, max_bytes: usize) -> &str {
    let end = (0..=max_bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or_default()]
}

/// Returns whether a lack of file descriptors caused `error`.
pub fn is_exhaustion(error: &(dyn Error + 'static)) -> bool {
    // ENFILE (23) and EMFILE (24): the standard library has no kind for them.
    matches!(io_error(error).and_then(io::Error::raw_os_error), Some(23 | 24))
}

/// Returns the first system error among `error` and its causes.
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

#[cfg(test)]
mod tests {
    #[test]
    fn what_a_client_has_written_makes_no_text_of_any_length() {
        let error = crate::error::Error::BadCost { found: "\u{e9}".repeat(30_000) };
        let text = super::in_one_line(&error);
        assert!((900..1100).contains(&text.len()) && text.ends_with('\u{2026}'), "{}", text.len());
    }
}
