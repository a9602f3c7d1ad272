//! What the answers of a simulated API tell of its limits.

/// What the fields of an answer tell of the limit that was asked last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Tells {
    Nothing,
    Truth,
    /// The truth, to a thousandth of a second (discord, openai).
    Exact,
    /// The truth, as a time of day in whole seconds (gitlab, anthropic).
    Date,
    /// Its reset is a second late.
    Late,
    /// The same, as a date with a fraction of a second.
    LateDate,
    /// Its reset is so many seconds late.
    FarLate(f64),
    /// Six times its window.
    WrongWindow,
    /// The numbers of somebody else.
    Others,
    /// The same numbers for ever.
    Frozen,
    /// Numbers below nothing.
    Negative,
    /// One less is left than is true.
    OneLess,
}

/// What the `Retry-After` of a refusal says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wait {
    /// The truth, with what is served as well.
    WithAll,
    Unsaid,
    Truth,
    Always(f64),
}
