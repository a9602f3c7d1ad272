//! The numbers of one rule, with resolved handles.

use std::{array, collections::BTreeMap, sync::OnceLock, time::Duration};

use http::StatusCode;
use prometheus::{Counter, GaugeVec, IntCounter, IntCounterVec, IntGauge};

use super::{durations::Durations, families::Families, in_flight::InFlight, turn_outcome::TurnOutcome};

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// The upstream answered, with any status.
    Answered,
    /// andante refused it: no slot in time, or the queue was full.
    Refused,
    /// The upstream could not be reached, or broke off before its answer's head.
    Failed,
    /// The worker went away first.
    ClientLeft,
    /// A `CONNECT` tunnel that was opened has ended.
    Tunnelled,
    /// A bad request, or a target that is denied.
    Rejected,
}

/// Content of an intercepted tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelContent {
    /// TLS, with a certificate of andante's that the worker accepted.
    Tls,
    /// HTTP in the clear.
    Plain,
    /// TLS, but the worker did not trust andante's certificate.
    Untrusted,
    /// TLS that failed for another reason.
    Failed,
    /// Neither TLS nor HTTP.
    NotHttp,
}

/// Reason for sending a request again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryReason {
    /// The API has refused the request, and the lane knows when to try again.
    Refused,
    /// Too many requests at once.
    Crowded,
    /// The API reports that it lacks capacity, and has not executed the request.
    Overloaded,
    /// The upstream reports trouble of its own, or of a server behind it.
    Failed,
    /// The connection broke off before the answer.
    Cut,
    /// No connection could be made.
    Unreached,
    /// The upstream reports that it has not processed the request.
    NotProcessed,
}

/// Reason why a request needed no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saving {
    /// The request shared the call of an identical one.
    Coalesced,
    /// The request got the answer that another one with its `Idempotency-Key` got.
    Replayed,
    /// The request got a stored answer, without asking the API.
    Cached,
    /// The API answered 304, which it does not count.
    NotModified,
}

/// The numbers of one rule, or of one host without a rule. Counting takes no lock and allocates nothing.
#[derive(Debug)]
pub struct RuleMetrics {
    name: Box<str>,
    outcomes: [IntCounter; CallOutcome::ALL.len()],
    answers: AnswerCounters,
    interceptions: [IntCounter; TunnelContent::ALL.len()],
    turns: [IntCounter; TurnOutcome::ALL.len()],
    http2_offers: IntCounter,
    retries: [IntCounter; RetryReason::ALL.len()],
    back_offs: [Counter; RetryReason::ALL.len()],
    /// Counted for added rules only.
    draws: OnceLock<IntCounter>,
    drawing: IntCounterVec,
    savings: [IntCounter; Saving::ALL.len()],
    /// Looked up at each use: the dialects of an API are not known in advance.
    hints: IntCounterVec,
    limit: GaugeVec,
    /// Requests that wait for a slot.
    pub waiting: IntGauge,
    /// Requests in flight to an upstream.
    pub in_flight: InFlight,
    /// Waits of requests for a slot, in seconds; 0 for requests that passed at once.
    pub wait_seconds: Durations,
    /// Time from sending a request to its answer's head, in seconds.
    pub upstream_seconds: Durations,
}

/// Counters by status code, each made when the code is first seen: a label for each of 500 codes would drown the few
/// that an API uses. The codes in [`USUAL`] have counters from the start.
#[derive(Debug)]
struct AnswerCounters {
    family: IntCounterVec,
    /// `1xx` to `5xx`.
    classes: [OnceLock<Box<Class>>; 5],
    other: OnceLock<IntCounter>,
}

/// Codes of dashboards and alerts, whose counters must not be missing before the first such answer.
const USUAL: [StatusCode; 6] = [
    StatusCode::OK,
    StatusCode::TOO_MANY_REQUESTS,
    StatusCode::INTERNAL_SERVER_ERROR,
    StatusCode::BAD_GATEWAY,
    StatusCode::SERVICE_UNAVAILABLE,
    StatusCode::GATEWAY_TIMEOUT,
];

type Class = [OnceLock<IntCounter>; 100];

// === impl CallOutcome ===

impl CallOutcome {
    const ALL: [Self; 6] =
        [Self::Answered, Self::Refused, Self::Failed, Self::ClientLeft, Self::Tunnelled, Self::Rejected];

    /// The value of the `outcome` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::ClientLeft => "left",
            Self::Tunnelled => "tunnelled",
            Self::Rejected => "rejected",
        }
    }
}

// === impl TunnelContent ===

impl TunnelContent {
    const ALL: [Self; 5] = [Self::Tls, Self::Plain, Self::Untrusted, Self::Failed, Self::NotHttp];

    /// The value of the `outcome` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tls => "tls",
            Self::Plain => "plain",
            Self::Untrusted => "untrusted",
            Self::Failed => "failed",
            Self::NotHttp => "stranger",
        }
    }
}

// === impl RetryReason ===

impl RetryReason {
    const ALL: [Self; 7] =
        [Self::Refused, Self::Crowded, Self::Overloaded, Self::Failed, Self::Cut, Self::Unreached, Self::NotProcessed];

    /// The value of the `reason` label, also in the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Crowded => "crowded",
            Self::Overloaded => "overloaded",
            Self::Failed => "failed",
            Self::Cut => "cut",
            Self::Unreached => "unreached",
            Self::NotProcessed => "unseen",
        }
    }
}

// === impl Saving ===

impl Saving {
    const ALL: [Self; 4] = [Self::Coalesced, Self::Replayed, Self::Cached, Self::NotModified];

    /// The value of the `by` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Coalesced => "coalesced",
            Self::Replayed => "replayed",
            Self::Cached => "cached",
            Self::NotModified => "not-modified",
        }
    }
}

// === impl RuleMetrics ===

impl RuleMetrics {
    pub(super) fn new(name: &str, families: &Families) -> Self {
        let metrics = Self {
            name: name.into(),
            outcomes: CallOutcome::ALL.map(|outcome| families.requests.with_label_values(&[name, outcome.as_str()])),
            answers: AnswerCounters {
                family: families.answers.clone(),
                classes: [const { OnceLock::new() }; 5],
                other: OnceLock::new(),
            },
            interceptions: TunnelContent::ALL
                .map(|outcome| families.tunnels.interceptions.with_label_values(&[name, outcome.as_str()])),
            turns: TurnOutcome::ALL.map(|outcome| families.tunnels.turns.with_label_values(&[name, outcome.as_str()])),
            http2_offers: families.tunnels.http2_offers.with_label_values(&[name]),
            retries: RetryReason::ALL.map(|reason| families.retries.count.with_label_values(&[name, reason.as_str()])),
            back_offs: RetryReason::ALL
                .map(|reason| families.retries.back_off.with_label_values(&[name, reason.as_str()])),
            draws: OnceLock::new(),
            drawing: families.draws.clone(),
            savings: Saving::ALL.map(|saving| families.savings.with_label_values(&[name, saving.as_str()])),
            hints: families.hints.clone(),
            limit: families.limit.clone(),
            waiting: families.waiting.with_label_values(&[name]),
            in_flight: families.in_flight.with_label_values(&[name]),
            wait_seconds: families.wait.with_label_values(&[name]),
            upstream_seconds: families.upstream.with_label_values(&[name]),
        };
        for code in USUAL {
            metrics.answers.of(name, code);
        }
        metrics
    }

    /// The value of the `rule` label.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Counts an intercepted tunnel.
    pub fn intercepted(&self, outcome: TunnelContent) {
        self.interceptions[outcome as usize].inc();
    }

    /// Counts a turn inside a tunnel.
    pub fn turned(&self, outcome: TurnOutcome) {
        self.turns[outcome as usize].inc();
    }

    /// Counts a client of a tunnel paced by turns that offered HTTP/2, whose requests turns cannot distinguish.
    pub fn offered_http2(&self) {
        self.http2_offers.inc();
    }

    /// Counts the end of a request.
    pub fn count(&self, outcome: CallOutcome) {
        self.outcomes[outcome as usize].inc();
    }

    /// Number of requests with this outcome so far.
    pub fn counted(&self, outcome: CallOutcome) -> u64 {
        self.outcomes[outcome as usize].get()
    }

    /// Returns whether no request has ended so far, and none has asked for a part of the rule's budget.
    pub fn is_unused(&self) -> bool {
        self.outcomes.iter().all(|outcome| outcome.get() == 0) && self.draws.get().is_none_or(|draws| draws.get() == 0)
    }

    /// The counter of requests that ask for a part of the rule's budget besides their host's. Shown from now on.
    pub fn draws(&self) -> IntCounter {
        self.draws.get_or_init(|| self.drawing.with_label_values(&[&self.name])).clone()
    }

    /// Counts the head of an answer. Codes past 599, which no standard defines, share the label `other`.
    pub fn answered(&self, status: StatusCode) {
        self.answers.of(&self.name, status).inc();
    }

    /// Answers so far, by status code.
    pub fn answers(&self) -> BTreeMap<String, u64> {
        self.answers.counted()
    }

    /// Upper bounds of waits in seconds with their counts, the shortest first. Each count excludes shorter waits. The
    /// last one, without a bound, has all longer waits.
    pub fn waits(&self) -> Vec<(Option<f64>, u64)> {
        self.wait_seconds.counts().collect()
    }

    /// Shows the configured pace, in requests per second; `None` shows none.
    pub fn set_limit_per_second(&self, pace: Option<f64>) {
        let labels = [&*self.name, "config"];
        match pace {
            Some(pace) => self.limit.with_label_values(&labels).set(pace),
            // The label may be missing.
            None => drop(self.limit.remove_label_values(&labels)),
        }
    }

    /// Counts an answer that reported limits in this `dialect`.
    pub fn hinted(&self, dialect: &str) {
        self.hints.with_label_values(&[self.name(), dialect]).inc();
    }

    /// Counts a request that needed no slot.
    pub fn saved(&self, saving: Saving) {
        self.savings[saving as usize].inc();
    }

    /// Counts a retry.
    pub fn retried(&self, reason: RetryReason) {
        self.retries[reason as usize].inc();
    }

    /// Counts the wait of a request before its retry.
    pub fn backed_off(&self, reason: RetryReason, time: Duration) {
        self.back_offs[reason as usize].inc_by(time.as_secs_f64());
    }
}

// === impl AnswerCounters ===

impl AnswerCounters {
    fn counted(&self) -> BTreeMap<String, u64> {
        let of_class = |(class, codes): (usize, &OnceLock<Box<Class>>)| {
            let codes = codes.get().into_iter().flat_map(|codes| codes.iter().enumerate());
            codes
                .filter_map(move |(code, count)| Some(((class * 100 + 100 + code).to_string(), count.get()?.get())))
                .collect::<Vec<_>>()
        };
        let other = self.other.get().map(|other| ("other".to_owned(), other.get()));
        self.classes.iter().enumerate().flat_map(of_class).chain(other).filter(|(_, count)| *count > 0).collect()
    }

    fn of(&self, rule: &str, status: StatusCode) -> &IntCounter {
        let (class, rest) = (usize::from(status.as_u16() / 100), usize::from(status.as_u16() % 100));
        match self.classes.get(class.wrapping_sub(1)) {
            Some(class) => class.get_or_init(|| Box::new(array::from_fn(|_| OnceLock::new())))[rest]
                .get_or_init(|| self.family.with_label_values(&[rule, status.as_str()])),
            None => self.other.get_or_init(|| self.family.with_label_values(&[rule, "other"])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_a_counter_of_its_own() {
        for (at, saving) in Saving::ALL.into_iter().enumerate() {
            assert_eq!(saving as usize, at);
        }
        for (at, reason) in RetryReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, at);
        }
        for (at, outcome) in TunnelContent::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, at);
        }
        for (at, outcome) in CallOutcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, at);
        }
        let metrics = crate::Metrics::new();
        let rule = metrics.rule("api");
        rule.count(CallOutcome::Rejected);
        assert_eq!(rule.counted(CallOutcome::Rejected), 1);
        assert_eq!(rule.counted(CallOutcome::Answered), 0);
    }

    #[test]
    fn answers_are_known_by_code_and_waits_by_length() {
        let metrics = crate::Metrics::new();
        let rule = metrics.rule("api");
        for code in [200, 200, 404, 999] {
            rule.answered(StatusCode::from_u16(code).unwrap());
        }
        assert_eq!(rule.answers(), [("200".into(), 2), ("404".into(), 1), ("other".into(), 1)].into());
        for ms in [0, 0, 300, 1_000_000_000_000] {
            rule.wait_seconds.observe(Duration::from_millis(ms));
        }
        let waits = rule.waits();
        assert_eq!(waits.iter().map(|(_, count)| count).sum::<u64>(), 4);
        assert_eq!((waits[0].1, *waits.last().unwrap()), (2, (None, 1)));
        let (bound, _) = waits.iter().copied().find(|(bound, count)| *count == 1 && bound.is_some()).unwrap();
        assert!(bound.unwrap() >= 0.3, "{bound:?}");
    }
}
