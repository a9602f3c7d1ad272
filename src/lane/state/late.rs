//! Deadline sweep: refuses waiting requests whose pauses end after their deadlines, or that cannot leave before the
//! process ends. The refusal comes at once, not when the deadline passes.

use std::time::Duration;

use andante_clock::Instant;
use andante_learn::RouteKey;
use andante_limit::Unit;
use andante_order::{QueuePlace, Taken, Turn, WaitingFlowQueue};

use super::{
    State, WaitingRequest,
    eta::{Asking, opens},
    full::Evicted,
    turn::line_of,
};
use crate::request::{AdmitRequest, PreviewDecision, Refusal};

/// State of the deadline sweep.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeadlineSweep {
    delayed: bool,
    looked: Option<Instant>,
    /// When the process ends, if it drains.
    ends: Option<Instant>,
}

/// The least time between two sweeps.
const LOOKS: Duration = Duration::from_secs(1);
/// The least `Retry-After`: a request that asks in the same instant may find the same.
const AT_LEAST: Duration = Duration::from_millis(1);

impl<T> State<T> {
    /// Records that waiting requests may have to wait longer than they were told.
    pub(super) fn delayed(&mut self) {
        self.deadline_sweep.delayed = true;
    }

    /// The known end of all pauses that stop requests of `kind`.
    pub(super) fn closed_until(&self, now: Instant, kind: &RouteKey) -> Instant {
        self.learned.closed(now, self.learned.scope(kind)).map_or(now, |(until, _)| until)
    }

    /// Records that the pause of `kind`, known to last until `before`, may last longer now. A budget that is used up
    /// until its reset is not a logged change, but waiting requests have to be checked.
    pub(super) fn may_be_closed_for_longer(&mut self, now: Instant, kind: &RouteKey, before: Instant) {
        if self.closed_until(now, kind) > before {
            self.delayed();
        }
    }

    /// When the queue has to be swept again; [`Instant::FAR`] if nothing has delayed it.
    pub(super) fn next_look(&self) -> Instant {
        let DeadlineSweep { delayed, looked, .. } = self.deadline_sweep;
        if delayed { looked.map_or(Instant::START, |looked| looked + LOOKS) } else { Instant::FAR }
    }

    /// Refuses waiting requests that will certainly miss their deadlines. O(waiting), and only after a
    /// [delay](Self::delayed).
    pub(super) fn refuse_late(&mut self, now: Instant) {
        let DeadlineSweep { delayed, looked, ends } = self.deadline_sweep;
        if !delayed || looked.is_some_and(|looked| looked + LOOKS > now) {
            return;
        }
        // While the lane probes for a higher limit, no request is certainly late.
        let unknown = self.learned.may_allow_more(now);
        self.deadline_sweep = DeadlineSweep { delayed: unknown, looked: Some(now), ends };
        if unknown {
            return;
        }
        let waiting = self.queue.len();
        let late = self.late(now).into_iter().filter_map(|place| Some((place.turn(), self.take_out(place)?)));
        let mut late: Vec<_> = late.collect();
        late.sort_by_key(|(_, taken)| taken.ticket.since);
        for (turn, taken) in late {
            let retry_after = self.asks_again(now, turn, &taken).max(AT_LEAST);
            let WaitingRequest { grant, since, deadline, .. } = taken.ticket;
            let patience = deadline.since(since);
            let wait = now.since(since) + patience + retry_after;
            self.stats.refused += 1;
            let refusal = Refusal::TooLong { waiting, rule: None, wait, patience, cap: None, retry_after };
            self.evicted.push(Evicted { ticket: grant, refusal });
        }
    }

    /// The late requests: a pause ends after their deadlines, or the process ends before their flows' earlier requests
    /// have left.
    fn late(&mut self, now: Instant) -> Vec<QueuePlace> {
        let held = self.known_hold_end(now);
        // While the rate is a guess, or others may soon leave more to this lane, only the ends of pauses are certain.
        let has_others = self.fleet.as_ref().is_some_and(|fleet| fleet.has_others());
        let ends = self.deadline_sweep.ends.filter(|_| !self.learned.guesses() && !has_others);
        let Self { queue, budget, learned, .. } = self;
        let mut late = Vec::new();
        for WaitingFlowQueue { tickets, .. } in queue.flow_queues() {
            let mut before = 0;
            for (place, cost, ticket) in tickets {
                let line = line_of(learned, &ticket.kind, ticket.metered, ticket.drawn.as_deref());
                let mut at = opens(learned, now, line.scope, line.paused.as_ref()).max(held);
                if ends.is_some() {
                    let ahead = |_, unit| if unit == Unit::REQUESTS { before } else { 0 };
                    at = budget.project(now, at, ahead, cost.unmetered(), line.scope);
                }
                if at > ticket.deadline.min(self.deadline_sweep.ends.unwrap_or(Instant::FAR)) {
                    late.push(place);
                } else {
                    before += u64::from(cost.requests());
                }
            }
        }
        late
    }

    /// The process ends at this instant: requests that certainly leave later are refused now.
    pub(crate) fn ends_at(&mut self, now: Instant, at: Instant) {
        self.deadline_sweep = DeadlineSweep { delayed: true, looked: None, ends: Some(at) };
        self.refuse_late(now);
    }

    /// Returns whether the process has ended. A request that left now would be cut off, and would still count at the API.
    pub(super) fn has_ended(&self, now: Instant) -> bool {
        self.deadline_sweep.ends.is_some_and(|end| end <= now)
    }

    /// Removes a request whose deadline has passed, and says when a request like it would be allowed to wait. `None` if
    /// it no longer waits.
    pub(crate) fn gave_up(&mut self, now: Instant, place: QueuePlace) -> Option<Refusal> {
        let place = self.place_of(place);
        let taken = self.take_out(place)?;
        Some(Refusal::Late { retry_after: self.asks_again(now, place.turn(), &taken) })
    }

    /// The time after which a request like this one would be allowed to wait.
    fn asks_again(&mut self, now: Instant, turn: Turn, taken: &Taken<WaitingRequest<T>>) -> Duration {
        let Taken { claim, cost, ticket } = taken;
        let deadline = now + ticket.deadline.since(ticket.since);
        let ask = AdmitRequest { deadline, turn, ..ticket.ask(*claim, *cost) };
        let (drawn, cost, line) = &self.consider(now, &ask);
        match self.decide(now, Asking { ask: &ask, cost, line, drawn: drawn.as_deref() }) {
            PreviewDecision::Refuse(refusal) => refusal.retry_after(),
            PreviewDecision::Send | PreviewDecision::Wait { .. } => Duration::ZERO,
        }
    }
}
