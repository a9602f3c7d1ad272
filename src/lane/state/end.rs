//! How requests end.

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The request was never sent.
    Unsent,
    /// The request was sent, and no answer will come.
    Unanswered,
    /// The answer has been read.
    Answered,
}
