//! Deadline sweep: refuses waiting requests that can no longer get their slots by their deadlines, because a pause has
//! begun or a limit has fallen. The refusal comes at once, not when the deadline passes.

mod turns;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound::{Excluded, Unbounded},
    time::Duration,
};

use andante_clock::Instant;
use andante_learn::{Learned, RouteKey};
use andante_limit::{Budget, Cost, Sum, Unit};
use andante_order::{Bands, CREDIT, InTurn, Map, QueuePlace, Taken, TurnOf, WaitingFlowQueue};

use self::turns::{LateRequest, in_turn};
use super::{
    State, WaitingRequest,
    full::Evicted,
    predict::{Asking, opens},
    sub_limits::{Drawn, SubLimits},
    turn::{LineKey, line_of},
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

/// The latest projected departure for a flow in a class.
#[derive(Debug)]
struct Look {
    before: Sum,
    cost: u32,
    at: Instant,
}

/// Inputs of the projection of departures.
struct Projection<'a> {
    now: Instant,
    held: Instant,
    budget: &'a mut Budget,
    learned: &'a Learned,
    sub_limits: &'a mut SubLimits,
    /// True if the same limits block all waiting requests.
    alone: bool,
    /// True if only the ends of pauses count, and no limit.
    pauses_alone: bool,
    /// True if answers report usage. The reported usage may be far below the declared amount, so no request is
    /// certainly late because of declared amounts.
    settles: bool,
    /// End of the process: no request leaves after this instant.
    ends: Instant,
}

/// Requests that leave before those of lower urgencies.
#[derive(Debug, Default)]
struct Urgent {
    /// Least number of requests, by the kind that pauses alone.
    requests: Map<Option<RouteKey>, u64>,
    /// Number of lower urgencies with waiting requests; each of them has its turns.
    lower: u64,
}

/// The least time between two sweeps.
const LOOKS: Duration = Duration::from_secs(1);

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
        looked.filter(|_| delayed).map_or(Instant::FAR, |looked| looked + LOOKS)
    }

    /// Refuses waiting requests that will certainly miss their deadlines. The estimate is optimistic: it counts only
    /// the limits that block a request, and the requests ahead of it that the same limits block. O(waiting), and only
    /// after a [delay](Self::delayed).
    pub(super) fn refuse_late(&mut self, now: Instant) {
        let DeadlineSweep { delayed, looked, ends } = self.deadline_sweep;
        if !delayed || looked.is_some_and(|looked| looked + LOOKS > now) {
            return;
        }
        // While the lane probes for a higher limit, no request is certainly late.
        let unknown = self.learned.may_allow_more(now);
        // While the rate is a guess, or others may soon leave more to this one, only the ends of pauses are certain.
        let pauses_alone = self.learned.guesses() || self.fleet.as_ref().is_some_and(|fleet| fleet.has_others());
        self.deadline_sweep = DeadlineSweep { delayed: unknown, looked: Some(now), ends };
        if unknown {
            return;
        }
        let waiting = self.queue.len();
        let mut late = self.late(now, pauses_alone);
        // A scope that has just been reported may block some requests and not others.
        if !late.is_empty() && self.sort_lines(now) {
            late = self.late(now, pauses_alone);
        }
        if late.is_empty() {
            return;
        }
        let late = late.into_iter().filter_map(|place| self.take_out(place)).collect();
        for LateRequest { ticket, turn } in self.turns_of(now, in_turn(late)) {
            let turn = turn.max(ticket.deadline);
            let (wait, patience) = (turn.since(ticket.since), ticket.deadline.since(ticket.since));
            // A client that asks again then gets its slot when it would have had it here.
            let retry_after = turn.since(now).saturating_sub(patience).max(Duration::from_millis(1));
            self.stats.refused += 1;
            let refusal = Refusal::TooLong { waiting, rule: None, wait, patience, cap: None, retry_after };
            self.evicted.push(Evicted { ticket: ticket.grant, refusal });
        }
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
        let turn = place.turn();
        let Taken { claim, cost, ticket } = self.take_out(place)?;
        let WaitingRequest { kind, since, deadline, drawn, port, .. } = ticket;
        let patience = deadline.since(since);
        let draws = drawn.as_ref().map(|drawn| drawn.draws.clone());
        let ask = AdmitRequest { cost, kind, claim, deadline: now + patience, turn, draws, port };
        let (drawn, cost, line) = &self.consider(now, &ask);
        let retry_after = match self.decide(now, Asking { ask: &ask, cost, line, drawn: drawn.as_deref() }) {
            PreviewDecision::Refuse(refusal) => refusal.retry_after(),
            PreviewDecision::Send | PreviewDecision::Wait { .. } => Duration::ZERO,
        };
        Some(Refusal::Late { retry_after })
    }

    /// The late requests. With `pauses_alone`, only requests whose deadlines come before the end of a pause.
    fn late(&mut self, now: Instant, pauses_alone: bool) -> Vec<QueuePlace> {
        let held = self.held_for_now(now);
        let settles = !self.policy.usage.is_empty();
        let ends = self.deadline_sweep.ends.unwrap_or(Instant::FAR);
        let Self { queue, budget, learned, sub_limits, .. } = self;
        let (mut groups, mut all_urgencies) = (Map::<_, BTreeMap<_, Vec<_>>>::default(), BTreeSet::new());
        for WaitingFlowQueue { alike, claim, tickets } in queue.flow_queues() {
            all_urgencies.insert(claim.urgency);
            groups.entry(alike).or_default().entry(claim.urgency).or_default().push((claim, tickets));
        }
        // A flow that waited for something else returns to the common budget with credit for missed turns.
        let alone = groups.len() < 2;
        let owed = if alone { 0.0 } else { f64::from(CREDIT) };
        let mut late = Vec::new();
        let mut projection = Projection { now, held, budget, learned, sub_limits, alone, pauses_alone, settles, ends };
        for urgencies in groups.into_values() {
            let mut urgent = Urgent::default();
            for (urgency, flow_queues) in urgencies {
                urgent.lower = all_urgencies.range((Excluded(urgency), Unbounded)).count() as u64;
                projection.find_late(InTurn::new(flow_queues, owed), &mut urgent, &mut late);
            }
        }
        late
    }

    /// End of the pause by an operator or a handover. A pause of unknown length refuses nothing.
    fn held_for_now(&self, now: Instant) -> Instant {
        self.held_until(now).filter(|until| *until != Instant::FAR).unwrap_or(now)
    }
}

impl Projection<'_> {
    /// Adds to `late` the late requests of one urgency that the same limits block. More `urgent` requests leave first.
    /// Adds to `urgent` the requests that certainly leave.
    fn find_late<'t, T: 't>(
        &mut self,
        mut in_turn: InTurn<impl Iterator<Item = (QueuePlace, &'t Cost, &'t WaitingRequest<T>)>>,
        urgent: &mut Urgent,
        late: &mut Vec<QueuePlace>,
    ) {
        // A kind that pauses alone blocks no other request until its pause is over.
        let (mut of_all, mut of_flows) = (Map::<_, u64>::default(), Map::<_, Sum>::default());
        let (mut looks, mut largest, mut most_leeway) = (Map::<(LineKey, u32), Look>::default(), 0, 0.0_f64);
        while let Some(TurnOf { item: (place, cost, ticket), flow, leeway }) = in_turn.next_turn() {
            // The request may still stand in a class that predates a newly reported budget.
            let line = line_of(self.learned, &ticket.kind, ticket.metered, ticket.drawn.as_deref());
            let settles = self.settles || ticket.drawn.as_deref().is_some_and(Drawn::settles);
            let (requests, takes) = (cost.requests(), if settles { cost.unmetered() } else { *cost });
            (largest, most_leeway) = (largest.max(requests), most_leeway.max(leeway));
            let (of_all, of_flow) =
                (of_all.entry(line.paused).or_default(), of_flows.entry((flow, line.paused)).or_default());
            // A request may overtake others that wait for units it does not take, or takes less of.
            let before = match !line.metered && !self.sub_limits.apart {
                true => Sum::of_requests({
                    let of_all = of_all.saturating_sub((leeway * f64::from(largest)) as u64);
                    // A limit of its own does not count what others have of the slots that all share.
                    let shares = self.alone || line.scope.is_empty() && ticket.drawn.is_none();
                    let urgent = urgent.requests.get(&line.paused).copied().filter(|_| shares).unwrap_or_default();
                    Bands::least_ahead(of_all.max(of_flow.of(Unit::REQUESTS)), urgent)
                }),
                false => of_flow.clone(),
            };
            // A request that costs more, or has more before it, is not earlier. With an eighth more before it, it is
            // not much later.
            let known =
                looks.get(&(line, flow)).filter(|look| is_as_much(&before, 0, &look.before) && requests >= look.cost);
            let known = known.filter(|look| {
                let (wait, patience) = (look.at.since(self.now), ticket.deadline.min(self.ends).since(self.now));
                wait > patience || is_as_much(&look.before, 1, &before) && wait + wait / 8 <= patience
            });
            let at = known.map(|look| look.at).unwrap_or_else(|| {
                let at = self.earliest(&line, &takes, ticket.drawn.as_deref(), &before);
                looks.insert((line, flow), Look { before, cost: requests, at });
                at
            });
            if at > ticket.deadline.min(self.ends) {
                late.push(place);
            } else {
                in_turn.served(requests.into());
                *of_all += u64::from(requests);
                of_flow.add(&takes);
            }
        }
        // The requests that are not certainly late outnumber those that will leave.
        let doubtful = (most_leeway * f64::from(largest)) as u64;
        for (paused, requests) in of_all {
            let certain = Bands::least_served(requests.saturating_sub(doubtful), urgent.lower, largest.into());
            *urgent.requests.entry(paused).or_default() += certain;
        }
    }

    /// The earliest departure of a request with this much `before` it.
    fn earliest(&mut self, line: &LineKey, cost: &Cost, drawn: Option<&Drawn>, before: &Sum) -> Instant {
        let Self { now, held, .. } = *self;
        let from = opens(self.learned, now, line.scope, line.paused.as_ref()).max(held);
        if self.pauses_alone {
            return from;
        }
        // A request behind it that takes less of another unit must not be projected too late.
        let least = cost.others().fold(cost.unmetered(), |least, (unit, _)| least.with(unit, 1));
        let at = self.budget.project(now, from, |_, unit| before.of(unit), least, line.scope);
        drawn.map_or(at, |drawn| {
            at.max(self.sub_limits.project_least(drawn, now, from, least, |_, _, unit| before.of(unit)))
        })
    }
}

/// Returns whether `sum`, increased by `eighths_more` eighths, reaches `other` in every unit.
fn is_as_much(sum: &Sum, eighths_more: u64, other: &Sum) -> bool {
    let has = |unit| sum.of(unit) + sum.of(unit) * eighths_more / 8;
    has(Unit::REQUESTS) >= other.of(Unit::REQUESTS) && other.others().all(|(unit, amount)| has(unit) >= amount)
}
