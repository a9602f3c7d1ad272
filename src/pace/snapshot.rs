//! A lane as people see it.

use std::{sync::Arc, time::Duration};

use crate::{
    clock::Instant,
    learn::{Left, Reason},
    limit::Usage,
};

/// What a lane has done so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Requests sent.
    pub sent: u64,
    /// Requests refused by us.
    pub refused: u64,
    /// Answers' heads that came.
    pub answered: u64,
    /// Requests that the API refused.
    pub refused_by_api: u64,
    /// Time that requests waited for their slots, together.
    pub waited: Duration,
    /// The longest of these waits.
    pub waited_most: Duration,
    /// When the first and the last request were sent.
    pub active: Option<(Instant, Instant)>,
}

/// A lane at one instant, for people to look at.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The rule's name.
    pub rule: Arc<str>,
    /// The host, canonical.
    pub host: Arc<str>,
    /// How far the limits are used.
    pub limits: Vec<Usage>,
    /// Requests on their way or being answered.
    pub in_flight: u32,
    /// How many of them there may be at once.
    pub in_flight_limit: Option<u32>,
    /// Tickets in the queue.
    pub waiting: usize,
    /// How long the oldest of them has been waiting.
    pub oldest: Option<Duration>,
    /// Time until the next slot matures; `None` if that depends on an answer.
    pub next_slot: Option<Duration>,
    /// Time until everybody who waits now has been served.
    pub drain: Option<Duration>,
    /// Why nothing leaves at the moment, and for how long, if so.
    pub gate: Option<(Reason, Duration)>,
    /// What the API says is left.
    pub budgets: Vec<Left>,
    /// How many of the last requests failed, and of how many; `None` without a breaker.
    pub failures: Option<(u32, u32)>,
    /// What was done so far.
    pub tally: Tally,
}
