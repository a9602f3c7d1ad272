//! A request's inputs to a lane, and the reasons of a refusal.

use std::{
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
    sync::Arc,
    time::Duration,
};

use andante_clock::Instant;
use andante_learn::RouteKey;
use andante_limit::Cost;
use andante_policy::Policy;
use prometheus::IntCounter;

use super::{
    order::{Claim, Turn},
    snapshot::SubLimitUsage,
};

/// Inputs of a request that asks a lane for a slot.
#[derive(Clone, Debug)]
pub struct AdmitRequest {
    /// Cost of the request.
    pub cost: Cost,
    /// Kind of the request, which determines the API's budgets that it draws on.
    pub kind: RouteKey,
    /// Its identity.
    pub claim: Claim,
    /// Latest instant until which it may wait.
    pub deadline: Instant,
    /// The attempt: resent requests go in front of others.
    pub turn: Turn,
    /// The sub-limits it draws on.
    pub draws: Draws,
    /// The port that it goes to: a reload may give that port a rule of its own.
    pub port: u16,
}

/// The sub-limits that a request draws on. `None` for nearly all requests.
pub type Draws = Option<Arc<[Draw]>>;

/// A rule for some of the requests to a host.
#[derive(Clone, Debug)]
pub struct AddedRule {
    /// The rule.
    pub policy: Arc<Policy>,
    /// Counter of the requests that it applies to.
    pub draws: IntCounter,
}

/// A sub-limit: a budget of a narrower rule.
#[derive(Clone, Debug)]
pub struct Draw {
    /// Hash of the rule's name, and of the values of the rule's key in the request: identifies the budget.
    pub budget: u64,
    /// The rule.
    pub rule: Arc<Policy>,
    /// True if the rule says `only`, and no server reads the path as one of other rules: the lane's own budget is not
    /// drawn on.
    pub apart: bool,
}

/// The decision that a lane would make for a request now.
#[derive(Debug)]
pub struct Preview {
    /// The decision.
    pub decision: PreviewDecision,
    /// Usage of the sub-limits that it would draw on, in their order.
    pub budgets: Vec<SubLimitUsage>,
}

/// The decision for a request that came now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PreviewDecision {
    /// The request would leave at once.
    Send,
    /// The request would wait.
    Wait {
        /// When it would leave, if everything goes well; [`Instant::FAR`] if only an operator knows.
        expected: Instant,
        /// Number of requests that would leave before it.
        ahead: u32,
    },
    /// The request would be refused.
    Refuse(Refusal),
}

/// Why a request may not even wait.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// All places are taken, or the free ones are reserved for clients that are due.
    #[error("{} already, and no place is free", requests_wait(*waiting, rule.as_deref()))]
    Full {
        /// Number of waiting requests.
        waiting: usize,
        /// The narrower rule whose queue is full; `None` for the host's own queue.
        rule: Option<Arc<str>>,
        /// When a place becomes free for it, behind others that were told to return.
        retry_after: Duration,
    },
    /// All places are taken: it was evicted for another request.
    #[error(
        "{}, and the queue is full: this one made room for another request",
        requests_wait(*waiting, rule.as_deref())
    )]
    GaveWay {
        /// Number of waiting requests.
        waiting: usize,
        /// The narrower rule whose queue is full; `None` for the host's own queue.
        rule: Option<Arc<str>>,
        /// When a place becomes free for it, behind others that were told to return.
        retry_after: Duration,
    },
    /// The next process sends for its host from now on.
    #[error("another andante has taken over from this one, and sends for this host from now on")]
    HandedOver,
    /// An operator has dropped it.
    #[error("an operator dropped it while it waited")]
    DroppedByOperator,
    /// The expected wait is longer than the request may wait.
    #[error("it would wait {}{}{}, {}", tenths(*wait), behind(*waiting), of_rule(rule.as_deref()), longer_than(*patience))]
    TooLong {
        /// Number of waiting requests.
        waiting: usize,
        /// The narrower rule for which they wait; `None` for the host's own limits.
        rule: Option<Arc<str>>,
        /// The expected wait.
        wait: Duration,
        /// The longest wait that the request may have.
        patience: Duration,
        /// Time until the API renews the cap that the request waits for, if a cap is the reason.
        cap: Option<Duration>,
        /// When a request like this one would be accepted, behind others that were told to return.
        retry_after: Duration,
    },
    /// The request has waited until its deadline.
    #[error("no slot matured in the time it may wait")]
    Late {
        /// When a request like this one would be accepted, behind others that were told to return.
        retry_after: Duration,
    },
}

/// `Retry-After` of a request that the next process is to serve.
const AT_ONCE: Duration = Duration::from_secs(1);

// === impl Draw ===

impl Draw {
    /// A draw on the budget `budget` of `rule`.
    pub fn new(budget: u64, rule: Arc<Policy>) -> Self {
        let apart = rule.added.as_ref().is_some_and(|added| added.only);
        Self { budget, rule, apart }
    }

    /// Identifier of the budget of the rule with this name. `values` is a hash of the values of its key in a request,
    /// which clients cannot predict.
    pub fn budget_of(rule: &str, values: u64) -> u64 {
        values ^ hash(rule)
    }

    /// The budget's identifier after its rule `was` renamed to `is`.
    pub(super) fn renamed(budget: u64, was: &str, is: &str) -> u64 {
        if was == is { budget } else { budget ^ hash(was) ^ hash(is) }
    }
}

/// Equal in all processes: names of rules are no secrets, and no client chooses them.
fn hash(rule: &str) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(rule)
}

// === impl AddedRule ===

impl AddedRule {
    /// A rule whose requests are not counted, for questions.
    pub fn uncounted(policy: Arc<Policy>) -> Self {
        let draws = IntCounter::new("draws", "nobody sees it").expect("the name is valid");
        Self { policy, draws }
    }
}

// === impl Refusal ===

impl Refusal {
    /// The cause of a refusal by a cap.
    pub const CAPPED: &str = "a cap is reached, which the API renews later";

    /// The narrower rule that blocks the request; `None` if the host's own rule does.
    pub fn rule(&self) -> Option<&Arc<str>> {
        match self {
            Self::Full { rule, .. } | Self::GaveWay { rule, .. } | Self::TooLong { rule, .. } => rule.as_ref(),
            Self::HandedOver | Self::DroppedByOperator | Self::Late { .. } => None,
        }
    }

    /// The cap of the API that it would wait for, in words.
    pub fn cap(&self) -> Option<String> {
        let Self::TooLong { cap: Some(renewed), wait, .. } = self else { return None };
        let (renewed, tried) = (tenths(*renewed), tenths(*wait));
        Some(format!("a cap is reached, which the API renews in {renewed}; one request tries in {tried}"))
    }

    /// The cause without numbers that differ from request to request.
    pub fn cause(&self) -> &'static str {
        match self {
            Self::Full { .. } | Self::GaveWay { .. } => "as many requests wait as may (`max-waiting`)",
            Self::TooLong { cap: Some(_), .. } => Self::CAPPED,
            Self::TooLong { .. } | Self::Late { .. } => "no slot in the time that a request may wait",
            Self::HandedOver => "another andante has taken over",
            Self::DroppedByOperator => "an operator dropped it while it waited",
        }
    }

    /// The time after which to try again.
    pub fn retry_after(&self) -> Duration {
        match self {
            Self::Full { retry_after, .. }
            | Self::GaveWay { retry_after, .. }
            | Self::TooLong { retry_after, .. }
            | Self::Late { retry_after } => *retry_after,
            Self::HandedOver => AT_ONCE,
            Self::DroppedByOperator => Duration::ZERO,
        }
    }

    /// This refusal with another `Retry-After`.
    #[must_use]
    pub(super) fn with_retry_after(mut self, time: Duration) -> Self {
        if let Self::Full { retry_after, .. }
        | Self::GaveWay { retry_after, .. }
        | Self::TooLong { retry_after, .. }
        | Self::Late { retry_after } = &mut self
        {
            *retry_after = time;
        }
        self
    }
}

fn requests_wait(count: usize, rule: Option<&str>) -> String {
    let waits = if count == 1 { "1 request waits".to_owned() } else { format!("{count} requests wait") };
    waits + &of_rule(rule)
}

fn of_rule(rule: Option<&str>) -> String {
    rule.map_or_else(String::new, |rule| format!(" for rule \"{rule}\""))
}

fn behind(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => " behind 1 other".to_owned(),
        count => format!(" behind {count} others"),
    }
}

fn longer_than(patience: Duration) -> String {
    if patience.is_zero() {
        "and may not wait".to_owned()
    } else {
        format!("longer than the {} it may", in_milliseconds(patience))
    }
}

/// A wait, as `2.4s` or `2h 30m`.
fn tenths(wait: Duration) -> String {
    in_large_units(wait).unwrap_or_else(|| format!("{wait:.1?}"))
}

/// The two largest units of a time of two minutes or more.
fn in_large_units(time: Duration) -> Option<String> {
    let seconds = time.as_secs();
    match seconds {
        0..120 => None,
        120..3600 => Some(format!("{}m {}s", seconds / 60, seconds % 60)),
        3600..86_400 => Some(format!("{}h {}m", seconds / 3600, seconds % 3600 / 60)),
        _ => Some(format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3600)),
    }
}

/// A time rounded up to milliseconds, so that a time limit that has run for some microseconds is shown in full.
fn in_milliseconds(time: Duration) -> String {
    if let Some(text) = in_large_units(time) {
        return text;
    }
    let millis = u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    format!("{:?}", Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_behind_how_many_it_would_wait() {
        let said = |waiting, seconds| {
            let (wait, patience) = (Duration::from_secs(9), Duration::from_secs(seconds));
            Refusal::TooLong { waiting, rule: None, wait, patience, cap: None, retry_after: wait }.to_string()
        };
        assert_eq!(said(1, 5), "it would wait 9.0s behind 1 other, longer than the 5s it may");
        assert_eq!(said(0, 5), "it would wait 9.0s, longer than the 5s it may");
        let hours = Refusal::TooLong {
            waiting: 0,
            rule: None,
            wait: Duration::from_secs(8999),
            patience: Duration::from_secs(7200),
            cap: Some(Duration::from_secs(33 * 86_400 + 7200)),
            retry_after: Duration::ZERO,
        };
        let cap = hours.cap().unwrap();
        assert_eq!(cap, "a cap is reached, which the API renews in 33d 2h; one request tries in 2h 29m");
        assert_eq!(hours.to_string(), "it would wait 2h 29m, longer than the 2h 0m it may");
        assert_eq!(said(2, 0), "it would wait 9.0s behind 2 others, and may not wait");
        let full = Refusal::Full { waiting: 1, rule: None, retry_after: Duration::ZERO }.to_string();
        assert_eq!(full, "1 request waits already, and no place is free");
    }
}
