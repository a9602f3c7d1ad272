//! The numbers of one rule, their handles resolved once.

use std::{array, sync::OnceLock};

use http::StatusCode;
use prometheus::{Gauge, GaugeVec, Histogram, IntCounter, IntCounterVec, IntGauge};

use super::Families;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The upstream answered, whatever it said.
    Answered,
    /// andante refused it: no slot in time, or the queue was full.
    Refused,
    /// The upstream could not be reached, or broke off before its answer's head.
    Failed,
    /// The worker went away first.
    Left,
    /// A `CONNECT` tunnel that was opened has ended.
    Tunnelled,
    /// A bad request, or a target that is denied.
    Rejected,
}

/// What came through a tunnel that was intercepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interception {
    /// TLS, with a certificate of ours that the worker took.
    Tls,
    /// HTTP in the clear.
    Plain,
    /// TLS, but the worker did not trust our certificate.
    Untrusted,
    /// TLS that failed for another reason.
    Failed,
    /// Neither TLS nor HTTP.
    Stranger,
}

/// The numbers of one rule, or of one host without a rule. Counting takes no lock and allocates nothing.
#[derive(Debug)]
pub struct RuleMetrics {
    name: Box<str>,
    outcomes: [IntCounter; Outcome::ALL.len()],
    answers: Answers,
    /// Looked up when it is counted, which is once per connection.
    interceptions: IntCounterVec,
    hints: IntCounterVec,
    retries: IntCounterVec,
    limit: LazyGauge,
    /// Requests that wait for a slot.
    pub waiting: IntGauge,
    /// Requests that are on their way to an upstream.
    pub in_flight: IntGauge,
    /// How long requests waited for a slot, in seconds; 0 for those that passed on the spot.
    pub wait_seconds: Histogram,
    /// From sending a request to its answer's head, in seconds.
    pub upstream_seconds: Histogram,
}

/// One counter per status code, made when the code is first seen: a label for each of 500 codes would drown the few
/// that an API uses.
#[derive(Debug)]
struct Answers {
    family: IntCounterVec,
    /// `1xx` to `5xx`.
    classes: [OnceLock<Box<Class>>; 5],
    other: OnceLock<IntCounter>,
}

type Class = [OnceLock<IntCounter>; 100];

/// A gauge that is not shown before it is set.
#[derive(Debug)]
struct LazyGauge {
    family: GaugeVec,
    gauge: OnceLock<Gauge>,
}

// === impl Outcome ===

impl Outcome {
    const ALL: [Self; 6] = [Self::Answered, Self::Refused, Self::Failed, Self::Left, Self::Tunnelled, Self::Rejected];

    /// The value of the `outcome` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Left => "left",
            Self::Tunnelled => "tunnelled",
            Self::Rejected => "rejected",
        }
    }
}

// === impl Interception ===

impl Interception {
    /// The value of the `outcome` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tls => "tls",
            Self::Plain => "plain",
            Self::Untrusted => "untrusted",
            Self::Failed => "failed",
            Self::Stranger => "stranger",
        }
    }
}

// === impl RuleMetrics ===

impl RuleMetrics {
    pub(super) fn new(name: &str, families: &Families) -> Self {
        Self {
            name: name.into(),
            outcomes: Outcome::ALL.map(|outcome| families.requests.with_label_values(&[name, outcome.as_str()])),
            answers: Answers {
                family: families.answers.clone(),
                classes: [const { OnceLock::new() }; 5],
                other: OnceLock::new(),
            },
            interceptions: families.interceptions.clone(),
            hints: families.hints.clone(),
            retries: families.retries.clone(),
            limit: LazyGauge { family: families.limit.clone(), gauge: OnceLock::new() },
            waiting: families.waiting.with_label_values(&[name]),
            in_flight: families.in_flight.with_label_values(&[name]),
            wait_seconds: families.wait.with_label_values(&[name]),
            upstream_seconds: families.upstream.with_label_values(&[name]),
        }
    }

    /// The value of the `rule` label.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One tunnel was intercepted.
    pub fn intercepted(&self, outcome: Interception) {
        self.interceptions.with_label_values(&[self.name(), outcome.as_str()]).inc();
    }

    /// One request ended.
    pub fn count(&self, outcome: Outcome) {
        self.outcomes[outcome as usize].inc();
    }

    /// How many requests ended this way so far.
    pub fn counted(&self, outcome: Outcome) -> u64 {
        self.outcomes[outcome as usize].get()
    }

    /// Whether no request has ended so far, in any way.
    pub fn is_unused(&self) -> bool {
        self.outcomes.iter().all(|outcome| outcome.get() == 0)
    }

    /// One answer's head arrived. Codes past 599, which no standard defines, share the label `other`.
    pub fn answered(&self, status: StatusCode) {
        self.answers.of(&self.name, status).inc();
    }

    /// The pace that the configuration asks for, in requests per second.
    pub fn set_limit_per_second(&self, pace: f64) {
        let resolve = || self.limit.family.with_label_values(&[&*self.name, "config"]);
        self.limit.gauge.get_or_init(resolve).set(pace);
    }

    /// One answer spoke of limits, in the words of `dialect`.
    pub fn hinted(&self, dialect: &str) {
        self.hints.with_label_values(&[self.name(), dialect]).inc();
    }

    /// One request is sent again.
    pub fn retried(&self, reason: &str) {
        self.retries.with_label_values(&[self.name(), reason]).inc();
    }
}

// === impl Answers ===

impl Answers {
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
        for (at, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, at);
        }
        let metrics = crate::metrics::Metrics::new();
        let rule = metrics.rule("api");
        rule.count(Outcome::Rejected);
        assert_eq!(rule.counted(Outcome::Rejected), 1);
        assert_eq!(rule.counted(Outcome::Answered), 0);
    }
}
