//! A lane as people see it.

use std::{sync::Arc, time::Duration};

use crate::{
    clock::Instant,
    lane::{order::WaitingFlow, send_rate::SendRate},
    learn::{GradientGrounds, Grounds, OwnLimit, QuotaSnapshot, Reason},
    limit::{CalendarUsage, LimitUsage, ShareUsage, Sum},
};

/// What a lane has done so far.
#[derive(Clone, Debug, Default)]
pub struct LaneStats {
    /// Requests sent.
    pub sent: u64,
    /// What these took of each unit, as far as their answers have said it; what was reserved otherwise.
    pub used: Sum,
    /// Requests refused by us.
    pub refused: u64,
    /// Answers' heads that came.
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
    /// How many were sent lately.
    pub lately: SendRate,
}

/// What warming a connection needs to know of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueStatus {
    /// How many wait.
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
    /// How far the limits are used.
    pub limits: Vec<LimitUsage>,
    /// How far the limits are used that a calendar renews.
    pub calendar: Vec<CalendarUsage>,
    /// What each of them rests on, in the same order; `None` if it is configured.
    pub grounds: Vec<Option<Grounds>>,
    /// How many requests the API was found to allow at once, and what that rests on.
    pub at_once: Option<(u32, Grounds)>,
    /// The groups of requests that have limits of their own.
    pub own_limits: Vec<OwnLimit>,
    /// The budgets of rules for some of its requests, rule by rule.
    pub narrow: Vec<NarrowUsage>,
    /// Requests on their way or being answered.
    pub in_flight: u32,
    /// How many of them there may be at once.
    pub in_flight_limit: Option<u32>,
    /// What that rests on, if it was found out.
    pub in_flight_grounds: Option<GradientGrounds>,
    /// This process' share of that, if a fleet shares it.
    pub in_flight_share: Option<ShareUsage>,
    /// Tickets in the queue.
    pub waiting: usize,
    /// The flows with the most waiting requests, the longest first.
    pub flows: Vec<WaitingFlow>,
    /// How long the oldest of them has been waiting.
    pub oldest: Option<Duration>,
    /// Time until the next slot matures; `None` if that depends on an answer.
    pub next_slot: Option<Duration>,
    /// Time until all that wait now have been served.
    pub drain: Option<Duration>,
    /// Why nothing leaves at the moment, and for how long, if so.
    pub gate: Option<(Reason, Duration)>,
    /// Whether an operator has paused it.
    pub held: Option<OperatorPause>,
    /// What the API says is left.
    pub budgets: Vec<QuotaSnapshot>,
    /// How many of the last requests failed, and of how many; `None` without a breaker.
    pub failures: Option<(u32, u32)>,
    /// What was done so far.
    pub stats: LaneStats,
}

/// A pause that an operator has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperatorPause {
    /// For how long yet; `None` until an operator ends it.
    pub remaining: Option<Duration>,
}

/// The budgets of a rule for some of a lane's requests, for people to look at.
#[derive(Clone, Debug)]
pub struct NarrowUsage {
    /// The rule's name.
    pub rule: Arc<str>,
    /// How many there are.
    pub budgets: usize,
    /// For how many of them requests wait.
    pub busy: usize,
    /// How many requests wait for them.
    pub waiting: u64,
    /// How many are on their way.
    pub in_flight: u64,
    /// How many may be, for the budget that most wait for.
    pub in_flight_limit: Option<u32>,
    /// What requests have taken of them so far, and of those that are forgotten.
    pub used: Sum,
    /// How far the limits of the one are used that most wait for.
    pub limits: Vec<LimitUsage>,
    /// The same of limits that a calendar renews.
    pub calendar: Vec<CalendarUsage>,
}

/// When a lane goes on, as its parts see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forecast {
    pub(super) now: Instant,
    /// Until when nothing leaves that draws on the usual budgets, and why.
    pub(super) closed: Option<(Instant, Reason)>,
    /// A request is under way that tries whether that is over.
    pub(super) tries: bool,
    /// When the next slot matures; [`Instant::FAR`] if an answer must come first.
    pub(super) next_slot: Instant,
    /// When all that wait will have left.
    pub(super) drained: Instant,
    pub(super) waits: bool,
}

/// When a lane goes on, in times that agree: a pause lasts until the next slot, and no request leaves before that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Outlook {
    pub(super) gate: Option<(Reason, Duration)>,
    pub(super) next_slot: Option<Duration>,
    pub(super) drain: Option<Duration>,
}

// === impl NarrowUsage ===

impl NarrowUsage {
    /// Of a rule without budgets.
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
        // While one tries, its answer says when the next may leave.
        let waits_for_answer = tries && closed.is_some_and(|(until, _)| until <= now);
        let next = Some(forecast.next_slot).filter(|next| *next != Instant::FAR && !waits_for_answer);
        let gate = match (closed, next) {
            // What draws on other budgets may leave: that is no pause of the lane.
            (Some((until, _)), Some(next)) if next < until => None,
            // The next one to leave finds out whether the pause is over, whatever else it waits for.
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

    /// Seen after 100 s: a pause until `until`.
    fn outlook(until: u64, tries: bool, next_slot: Instant) -> Outlook {
        let closed = Some((at(until), Reason::Refused));
        Outlook::new(Forecast { now: at(100), closed, tries, next_slot, drained: at(100), waits: true })
    }

    #[test]
    fn a_pause_whose_time_is_over_lasts_until_the_next_slot() {
        // What is configured lets nothing leave for 58 s: until then nobody finds out whether the pause is over.
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
