//! Use of an API's answers: trust in its limits, and reactions to its failures.

use std::num::NonZeroU32;

/// Way of spending a quota that the API reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spend {
    /// Freely while more than a tenth is left, then evenly until the reset.
    #[default]
    Mostly,
    /// Evenly from the beginning.
    Even,
    /// At the pace of the requests, to the last one.
    Greedy,
}

/// Trust in the limits that an API reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Obeys only waits that the API asks for; its numbers are shown and not used.
    Waits,
    /// Obeys whichever is stricter: the API's limits or the rule's.
    #[default]
    Stricter,
    /// Obeys the API: the rule's limits hold only until the API reports its own.
    Api,
}

/// Bounds on sending failed requests again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Request bodies up to this many bytes are kept, to be sent again.
    pub body: u64,
    /// Attempts per request at most, for any reason; `None` leaves the bound to the reason.
    pub tries: Option<NonZeroU32>,
}

/// Settings for storing and reusing an API's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachePolicy {
    /// Memory for stored answers, in bytes.
    pub bytes: usize,
    /// Asks the API before every reuse whether the answer still holds.
    pub always_revalidates: bool,
}

// === impl Spend ===

impl Spend {
    /// Value in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mostly => "mostly",
            Self::Even => "even",
            Self::Greedy => "greedy",
        }
    }
}

// === impl Trust ===

impl Trust {
    /// Value in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waits => "waits",
            Self::Stricter => "stricter",
            Self::Api => "api",
        }
    }
}

// === impl RetryPolicy ===

impl RetryPolicy {
    /// Default of `body`, in bytes.
    pub const BODY: u64 = 1024 * 1024;
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { body: Self::BODY, tries: None }
    }
}
