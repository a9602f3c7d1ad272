//! What a request asks of a lane, and why it may be refused.

use std::time::Duration;

use super::order::{Claim, Turn};
use crate::{clock::Instant, learn::RouteKey, limit::Cost};

/// What a request asks of a lane.
#[derive(Clone, Copy, Debug)]
pub struct AdmitRequest {
    /// What the request costs.
    pub cost: Cost,
    /// Its kind, by which the budgets are known that it draws on.
    pub kind: RouteKey,
    /// By what it claims its turn.
    pub claim: Claim,
    /// Until when it is willing to wait.
    pub deadline: Instant,
    /// Which requests it goes in front of.
    pub turn: Turn,
}

/// Why a request may not even wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// As many wait as may wait.
    #[error("{waiting} requests wait already, which is as many as may")]
    Full {
        /// How many wait.
        waiting: usize,
        /// When the next place becomes free, at the latest.
        retry_after: Duration,
    },
    /// It would have to wait longer than it may.
    #[error("it would wait {wait:.1?} behind {waiting} others, longer than the {} it may", in_milliseconds(*patience))]
    TooLong {
        /// How many wait.
        waiting: usize,
        /// How long it would wait.
        wait: Duration,
        /// How long it may wait.
        patience: Duration,
        /// When a request like this one would be accepted.
        retry_after: Duration,
    },
}

// === impl Refusal ===

impl Refusal {
    /// When to try again.
    pub fn retry_after(&self) -> Duration {
        match self {
            Self::Full { retry_after, .. } | Self::TooLong { retry_after, .. } => *retry_after,
        }
    }
}

/// A time that has run for some microseconds already is shown as what it was.
fn in_milliseconds(time: Duration) -> String {
    let millis = u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    format!("{:?}", Duration::from_millis(millis))
}
