//! Announcements of a simulated API about its limits.

/// Report of an answer's fields about the limit that was asked last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Tells {
    Nothing,
    Truth,
    /// The truth, to a thousandth of a second (discord, openai).
    Exact,
    /// The truth, as a time of day in whole seconds (gitlab, anthropic).
    Date,
    /// A reset that is a second late.
    Late,
    /// A reset that is a second late, as a date with a fraction of a second.
    LateDate,
    /// A reset that is this many seconds late.
    FarLate(f64),
    /// Six times its window.
    WrongWindow,
    /// The numbers of another client.
    Others,
    /// Numbers that never change.
    Frozen,
    /// Negative numbers.
    Negative,
    /// A rest that is one too low.
    OneLess,
}

/// The `Retry-After` of a refusal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wait {
    /// The truth, on served answers as well.
    WithAll,
    Unsaid,
    Truth,
    Always(f64),
}
