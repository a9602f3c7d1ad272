//! How an API's answers are used: whether its limits are believed, and what happens when it fails.

use std::num::NonZeroU32;

/// How andante spends an allowance that the API reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spend {
    /// Freely while more than a tenth is left, then evenly until the reset.
    #[default]
    Mostly,
    /// Evenly from the beginning.
    Even,
    /// As fast as requests come, to the last one.
    Greedy,
}

/// How far what an API tells about its limits is believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Only waits that it asks for; its numbers are looked at and not used.
    Waits,
    /// What is stricter than the limits of the rule.
    #[default]
    Stricter,
    /// It knows better than the rule, whose limits hold only until it has spoken.
    Api,
}

/// What is sent again if it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Request bodies up to this many bytes are kept, to be sent again.
    pub body: u64,
    /// How often a request is sent at most, whatever became of it; `None` leaves it to the reason.
    pub tries: Option<NonZeroU32>,
}

/// What is stored of an API's answers, to be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachePolicy {
    /// How many bytes of memory it takes.
    pub bytes: usize,
    /// Whether the API is asked each time whether an answer is still the same.
    pub always_revalidates: bool,
}

// === impl Spend ===

impl Spend {
    /// As it is written in a configuration.
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
    /// As it is written in a configuration.
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
    /// How many bytes of a body are kept by default.
    pub const BODY: u64 = 1024 * 1024;
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { body: Self::BODY, tries: None }
    }
}
