//! What a request asks of a lane, and why it may be refused.

use std::{
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
    sync::Arc,
    time::Duration,
};

use prometheus::IntCounter;

use super::{
    order::{Claim, Turn},
    snapshot::NarrowUsage,
};
use crate::{clock::Instant, learn::RouteKey, limit::Cost, policy::Policy};

/// What a request asks of a lane.
#[derive(Clone, Debug)]
pub struct AdmitRequest {
    /// What the request costs.
    pub cost: Cost,
    /// Its kind, which tells on which of the API's budgets it draws.
    pub kind: RouteKey,
    /// By what it claims its turn.
    pub claim: Claim,
    /// Until when it is willing to wait.
    pub deadline: Instant,
    /// Which requests it goes in front of.
    pub turn: Turn,
    /// The budgets it draws on beside the lane's own.
    pub draws: Draws,
    /// The port that it goes to: a reload may give that a rule of its own.
    pub port: u16,
}

/// The budgets of narrower rules that a request draws on. `None` is what nearly all requests have.
pub type Draws = Option<Arc<[Draw]>>;

/// A rule for some of the requests to a host.
#[derive(Clone, Debug)]
pub struct AddedRule {
    /// The rule.
    pub policy: Arc<Policy>,
    /// Where it is counted how many requests it is for.
    pub draws: IntCounter,
}

/// A budget of a narrower rule.
#[derive(Clone, Debug)]
pub struct Draw {
    /// What tells it from all others: a hash of the rule's name, and of what the rule's key says of the request.
    pub budget: u64,
    /// The rule.
    pub rule: Arc<Policy>,
    /// The rule says `only`, and no server reads the path as one of other rules: the lane's own budget is not drawn on.
    pub apart: bool,
}

/// What a lane would do with a request that came now.
#[derive(Debug)]
pub struct Preview {
    /// Whether it would leave.
    pub decision: PreviewDecision,
    /// The budgets of narrower rules that it would draw on, in their order.
    pub budgets: Vec<NarrowUsage>,
}

/// Whether, and when, a request that came now would leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PreviewDecision {
    /// At once.
    Send,
    /// It would wait.
    Wait {
        /// When it would leave, if everything goes as it should; [`Instant::FAR`] if only an operator knows.
        expected: Instant,
        /// How many would leave before it.
        ahead: u32,
    },
    /// It would be refused.
    Refuse(Refusal),
}

/// Why a request may not even wait.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// As many wait as may wait, or the other places are kept for those that were told to come back.
    #[error("{}", full(*waiting, *kept, rule.as_deref()))]
    Full {
        /// How many wait.
        waiting: usize,
        /// For which rule for some of the host's requests, if not for the host.
        rule: Option<Arc<str>>,
        /// How many places are kept.
        kept: usize,
        /// When a place becomes free for it, behind others that were told to come back.
        retry_after: Duration,
    },
    /// As many wait as may wait, most of them of its flow: it has given way to a request of another.
    #[error(
        "{}, which is as many as may: the newest of the longest flow, this one, made room for another flow",
        requests_wait(*waiting, rule.as_deref())
    )]
    GaveWay {
        /// How many wait.
        waiting: usize,
        /// For which rule for some of the host's requests, if not for the host.
        rule: Option<Arc<str>>,
        /// When a place becomes free for it, behind others that were told to come back.
        retry_after: Duration,
    },
    /// Another process sends for its host from now on.
    #[error("another andante has taken over from this one, and sends for this host from now on")]
    HandedOver,
    /// An operator has dropped it.
    #[error("an operator dropped it while it waited")]
    DroppedByOperator,
    /// It would have to wait longer than it may.
    #[error("it would wait {}{}{}, {}", tenths(*wait), behind(*waiting), of_rule(rule.as_deref()), longer_than(*patience))]
    TooLong {
        /// How many wait.
        waiting: usize,
        /// For which rule for some of the host's requests, if not for the host.
        rule: Option<Arc<str>>,
        /// How long it would wait.
        wait: Duration,
        /// How long it may wait.
        patience: Duration,
        /// How long until the API renews the cap that it waits for, if that is the reason.
        cap: Option<Duration>,
        /// When a request like this one would be accepted, behind others that were told to come back.
        retry_after: Duration,
    },
    /// It has waited for as long as it may.
    #[error("no slot matured in the time it may wait")]
    Late {
        /// When a request like this one would be accepted, behind others that were told to come back.
        retry_after: Duration,
    },
}

/// A request that the next process is to have may come again after this long.
const AT_ONCE: Duration = Duration::from_secs(1);

// === impl Draw ===

impl Draw {
    /// A draw on the budget `budget` of `rule`.
    pub fn new(budget: u64, rule: Arc<Policy>) -> Self {
        let apart = rule.added.as_ref().is_some_and(|added| added.only);
        Self { budget, rule, apart }
    }

    /// What tells the budget of the rule with this name from others: `values` is a hash of what its key says of a request, which
    /// clients cannot foresee.
    pub fn budget_of(rule: &str, values: u64) -> u64 {
        values ^ hash(rule)
    }

    /// The same of a rule that `was` called so, and `is` now.
    pub(super) fn renamed(budget: u64, was: &str, is: &str) -> u64 {
        if was == is { budget } else { budget ^ hash(was) ^ hash(is) }
    }
}

/// The same in each process: names of rules are no secrets, and nobody else chooses them.
fn hash(rule: &str) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(rule)
}

// === impl AddedRule ===

impl AddedRule {
    /// One whose requests are not counted, for questions.
    pub fn uncounted(policy: Arc<Policy>) -> Self {
        let draws = IntCounter::new("draws", "nobody sees it").expect("the name is valid");
        Self { policy, draws }
    }
}

// === impl Refusal ===

impl Refusal {
    /// The cause where requests wait for the end of a cap.
    pub const CAPPED: &str = "a cap is reached, which the API renews later";

    /// The rule for some of the host's requests that holds it up, if it is not the host's own.
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

    /// When to try again.
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

    /// The same, which says another time to try again.
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

fn full(waiting: usize, kept: usize, rule: Option<&str>) -> String {
    let waits = requests_wait(waiting, rule);
    match kept {
        0 => format!("{waits} already, which is as many as may"),
        1 => format!("{waits}, and the other place is kept for one that was told to come back"),
        _ => format!("{waits}, and the other {kept} places are kept for those that were told to come back"),
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

/// The two largest units of a time from two minutes on.
fn in_large_units(time: Duration) -> Option<String> {
    let seconds = time.as_secs();
    match seconds {
        0..120 => None,
        120..3600 => Some(format!("{}m {}s", seconds / 60, seconds % 60)),
        3600..86_400 => Some(format!("{}h {}m", seconds / 3600, seconds % 3600 / 60)),
        _ => Some(format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3600)),
    }
}

/// A time that has run for some microseconds already is shown as what it was.
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
        let full = |waiting, kept| Refusal::Full { waiting, rule: None, kept, retry_after: Duration::ZERO }.to_string();
        assert_eq!(full(1, 0), "1 request waits already, which is as many as may");
        assert_eq!(
            full(38, 2),
            "38 requests wait, and the other 2 places are kept for those that were told to come back"
        );
    }
}
