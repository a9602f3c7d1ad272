//! Snapshots of a lane for display.

use std::{sync::Arc, time::Duration};

use andante_clock::Instant;
use andante_learn::{GradientEvidence, Grounds, OwnLimit, QuotaSnapshot, Reason};
use andante_limit::{CalendarUsage, LimitUsage, ShareUsage, Sum};
use andante_order::WaitingFlow;

use crate::send_rate::SendRate;

/// Counters of a lane.
#[derive(Clone, Debug, Default)]
pub struct LaneStats {
    /// Requests sent.
    pub sent: u64,
    /// Usage of these requests per unit, as reported by their answers; otherwise the reservations.
    pub used: Sum,
    /// Requests refused by andante.
    pub refused: u64,
    /// Heads of answers received.
    pub answered: u64,
    /// Requests that the API refused.
    pub refused_by_api: u64,
    /// Pauses that began, whoever asked for them.
    pub pauses: u64,
    /// Time that requests waited for their slots, together.
    pub waited: Duration,
    /// The longest of these waits.
    pub waited_most: Duration,
    /// When the first and the last request were sent.
    pub active: Option<(Instant, Instant)>,
    /// Recently sent requests.
    pub lately: SendRate,
}

/// State of the queue, for the decision to warm a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueStatus {
    /// Number of waiting requests.
    pub waiting: usize,
    /// When the next slot matures; [`Instant::FAR`] if an answer must come first.
    pub next_slot: Instant,
}

/// Counts and state of a lane that are sampled every few seconds: cheap to read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaneActivity {
    /// Requests that wait for a slot.
    pub waiting: usize,
    /// Requests sent so far.
    pub sent: u64,
    /// Requests refused by andante so far.
    pub refused: u64,
    /// Requests refused by the API so far.
    pub refused_by_api: u64,
    /// Pauses that began so far.
    pub pauses: u64,
    /// Whether nothing leaves at the moment.
    pub paused: bool,
    /// The longest wait of a request so far.
    pub waited_most: Duration,
    /// Requests per second that may leave at most, if that is limited.
    pub per_second: Option<f64>,
}

/// A lane at one instant, for people to look at.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The rule's name.
    pub rule: Arc<str>,
    /// The host, canonical.
    pub host: Arc<str>,
    /// Usage of the limits with windows.
    pub limits: Vec<LimitUsage>,
    /// Usage of the limits that a calendar renews.
    pub calendar: Vec<CalendarUsage>,
    /// Usage of the sub-limits, rule by rule.
    pub sub_limits: Vec<SubLimitUsage>,
    /// What the API's answers have shown.
    pub learned: LearnedSnapshot,
    /// Requests in flight.
    pub in_flight: InFlightUsage,
    /// The waiting requests, and when they leave.
    pub queue: QueueSnapshot,
    /// An operator's pause, if there is one.
    pub held: Option<OperatorPause>,
    /// Counters so far.
    pub stats: LaneStats,
}

/// Limits and failures that a lane has learned from answers.
#[derive(Clone, Debug)]
pub struct LearnedSnapshot {
    /// Evidence for each of the lane's limits with windows, in the same order; `None` if the limit is configured.
    pub grounds: Vec<Option<Grounds>>,
    /// Number of requests that the API was found to allow at once, and the evidence.
    pub at_once: Option<(u32, Grounds)>,
    /// Groups of requests that have limits of their own.
    pub own_limits: Vec<OwnLimit>,
    /// Quotas reported by the API.
    pub quotas: Vec<QuotaSnapshot>,
    /// Number of failures among the last requests, and the number of these; `None` without a breaker.
    pub failures: Option<(u32, u32)>,
}

/// The requests of a lane that were sent and not fully answered.
#[derive(Clone, Copy, Debug)]
pub struct InFlightUsage {
    /// Number of these requests.
    pub count: u32,
    /// Limit on their number.
    pub limit: Option<u32>,
    /// Evidence for the limit, if it was learned.
    pub evidence: Option<GradientEvidence>,
    /// This process' share of the limit, if a fleet shares it.
    pub share: Option<ShareUsage>,
}

/// The waiting requests of a lane, and when they leave.
#[derive(Clone, Debug)]
pub struct QueueSnapshot {
    /// Tickets in the queue.
    pub waiting: usize,
    /// The flows with the most waiting requests, the longest first.
    pub flows: Vec<WaitingFlow>,
    /// Waiting time of the oldest waiting request.
    pub oldest: Option<Duration>,
    /// Time until the next slot matures; `None` if that depends on an answer.
    pub next_slot: Option<Duration>,
    /// Time until all requests waiting now have been served.
    pub drain: Option<Duration>,
    /// Why nothing leaves at the moment, and for how long, if so.
    pub gate: Option<(Reason, Duration)>,
}

/// A pause that an operator has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperatorPause {
    /// Remaining time; `None` until an operator ends it.
    pub remaining: Option<Duration>,
}

/// Usage of the sub-limits of one narrower rule, for display.
#[derive(Clone, Debug)]
pub struct SubLimitUsage {
    /// The rule's name.
    pub rule: Arc<str>,
    /// Number of budgets.
    pub budgets: usize,
    /// Number of budgets with waiting requests.
    pub busy: usize,
    /// Number of waiting requests.
    pub waiting: u64,
    /// Number of requests in flight.
    pub in_flight: u64,
    /// Limit on requests in flight, for the budget with most waiting requests.
    pub in_flight_limit: Option<u32>,
    /// Amounts taken so far, including those from forgotten budgets.
    pub used: Sum,
    /// Usage of the limits of the budget with most waiting requests.
    pub limits: Vec<LimitUsage>,
    /// Usage of that budget's limits that a calendar renews.
    pub calendar: Vec<CalendarUsage>,
}

/// When a lane continues, in the view of each of its parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forecast {
    pub(super) now: Instant,
    /// End of the pause of the usual budgets, and its reason.
    pub(super) closed: Option<(Instant, Reason)>,
    /// True if a request in flight probes for the end of the pause.
    pub(super) tries: bool,
    /// When the next slot matures; [`Instant::FAR`] if an answer must come first.
    pub(super) next_slot: Instant,
    /// When all waiting requests will have left.
    pub(super) drained: Instant,
    pub(super) waits: bool,
}

/// When a lane continues, in consistent times: a pause lasts until the next slot, and no request leaves before that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Outlook {
    pub(super) gate: Option<(Reason, Duration)>,
    pub(super) next_slot: Option<Duration>,
    pub(super) drain: Option<Duration>,
}

// === impl SubLimitUsage ===

impl SubLimitUsage {
    /// The usage of a rule without budgets.
    pub(super) fn none(rule: Arc<str>) -> Self {
        Self {
            rule,
            budgets: 0,
            busy: 0,
            waiting: 0,
            in_flight: 0,
            in_flight_limit: None,
            used: Sum::default(),
            limits: Vec::new(),
            calendar: Vec::new(),
        }
    }
}

// === impl Outlook ===

impl Outlook {
    pub(super) fn new(forecast: Forecast) -> Self {
        let Forecast { now, closed, tries, drained, waits, .. } = forecast;
        // While a probe is in flight, its answer decides when the next request may leave.
        let waits_for_answer = tries && closed.is_some_and(|(until, _)| until <= now);
        let next = Some(forecast.next_slot).filter(|next| *next != Instant::FAR && !waits_for_answer);
        let gate = match (closed, next) {
            // Requests that draw on other budgets may leave: then the lane is not paused.
            (Some((until, _)), Some(next)) if next < until => None,
            // The next request to leave finds out whether the pause is over, whatever else it waits for.
            (Some((_, reason)), Some(next)) => Some((reason, next.since(now))),
            (Some((until, reason)), None) => Some((reason, until.since(now))),
            (None, _) => None,
        };
        let drained = next.filter(|_| waits).map_or(drained, |next| next.max(drained));
        let drain = (drained != Instant::FAR).then(|| drained.since(now));
        Self { gate, next_slot: next.map(|next| next.since(now)), drain }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::START + Duration::from_secs(seconds)
    }

    fn s(seconds: u64) -> Option<Duration> {
        Some(Duration::from_secs(seconds))
    }

    /// The outlook at 100 s: a pause until `until`.
    fn outlook(until: u64, tries: bool, next_slot: Instant) -> Outlook {
        let closed = Some((at(until), Reason::Refused));
        Outlook::new(Forecast { now: at(100), closed, tries, next_slot, drained: at(100), waits: true })
    }

    #[test]
    fn a_pause_whose_time_is_over_lasts_until_the_next_slot() {
        // The configured limits let nothing leave for 58 s: until then, whether the pause is over stays unknown.
        let Outlook { gate, next_slot, drain } = outlook(95, false, at(158));
        assert_eq!((gate.map(|(_, opens)| opens), next_slot, drain), (s(58), s(58), s(58)));
    }

    #[test]
    fn while_one_tries_its_answer_says_when_the_next_slot_is() {
        let Outlook { gate, next_slot, .. } = outlook(95, true, at(158));
        assert_eq!((gate.map(|(_, opens)| opens), next_slot), (s(0), None));
    }

    #[test]
    fn what_may_leave_now_does_not_pause() {
        let Outlook { gate, next_slot, .. } = outlook(130, false, at(100));
        assert_eq!((gate, next_slot), (None, s(0)));
    }

    #[test]
    fn a_pause_that_ends_by_an_answer_says_when_it_was_to_end() {
        let Outlook { gate, next_slot, .. } = outlook(130, false, Instant::FAR);
        assert_eq!((gate.map(|(_, opens)| opens), next_slot), (s(30), None));
    }

    proptest! {
        #[test]
        fn times_never_contradict_each_other(
            until in proptest::option::of(0u64..200),
            tries: bool,
            next in proptest::option::of(100u64..200),
            drained in 100u64..200,
            waits: bool,
        ) {
            let closed = until.map(|until| (at(until), Reason::Refused));
            let next_slot = next.map_or(Instant::FAR, at);
            let forecast = Forecast { now: at(100), closed, tries, next_slot, drained: at(drained), waits };
            let Outlook { gate, next_slot, drain } = Outlook::new(forecast);
            if let Some(((_, opens), next)) = gate.zip(next_slot) {
                prop_assert_eq!(opens, next, "the next one ends the pause");
            }
            if waits {
                prop_assert!(next_slot <= drain, "{:?} > {:?}", next_slot, drain);
            }
        }
    }
}
