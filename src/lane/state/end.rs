//! How requests end.

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lane) enum End {
    /// It was never sent.
    Unsent,
    /// It was sent, and no answer will come.
    Unanswered,
    /// Its answer has been read.
    Answered,
}
