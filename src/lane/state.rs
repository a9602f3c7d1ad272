//! The state of a lane: its limits, its queue, and what it has learned.
//!
//! Pure: the driver passes events in with their times. After one or several events it asks for the [`Effects`] and
//! carries them out. The lock, the timer and the log belong to the driver.

mod arrival;
mod blocked;
mod bottleneck;
mod effects;
mod end;
mod eta;
mod full;
mod handover;
mod hold;
mod in_flight;
mod late;
mod memory;
mod merge;
mod places;
mod predict;
mod record;
mod reserving;
mod returns;
mod room;
mod sharing;
mod slot;
mod steer;
mod sub_limits;
mod turn;
mod under_way;
mod usage;
mod usual;
mod view;

use std::{sync::Arc, time::Duration};

use andante_clock::Instant;
use andante_hint::{Cause, Signal};
use andante_learn::{AnswerReport, Changes, Learned, Observation, RouteKey};
use andante_limit::{Budget, Cost, PendingUsage};
use andante_order::{Claim, Next, Queue, QueuePlace, Taken, Turn};
use andante_policy::{Policy, Trust};

pub use self::{bottleneck::Bottleneck, record::Past, usual::Usage};
use self::{
    effects::Grants,
    handover::Handover,
    in_flight::InFlight,
    late::DeadlineSweep,
    places::Places,
    returns::ReturnSchedule,
    sharing::SharedMemory,
    slot::Leaving,
    steer::LetFirst,
    sub_limits::{Drawn, SubLimits},
    turn::{LineKey, Sorted},
    usual::{Usual, set_outstanding},
};
pub(super) use self::{
    effects::{Decision, Effects, Grant, QueueOffer, Timer},
    end::End,
    full::Evicted,
    memory::Memory,
    merge::{Moving, Parting},
    record::{LaneRecord, OriginRecord},
    sharing::SharedNames,
    slot::Slot,
    sub_limits::SubLimitRules,
};
use super::snapshot::LaneStats;
use crate::{capacity::Capacity, request::AdmitRequest};

/// A lane's state. `T` is the handle through which a waiting request receives its slot.
pub(super) struct State<T> {
    policy: Arc<Policy>,
    budget: Budget,
    learned: Learned,
    /// Sub-limits: budgets that narrower rules set for some of the requests.
    sub_limits: SubLimits,
    queue: Queue<LineKey, WaitingRequest<T>>,
    /// Usage estimates from recent answers, per unit and rule.
    usual: Vec<Usual>,
    /// In-flight requests that draw on the limits configured for the whole lane.
    in_flight: InFlight,
    /// The clients of these requests, if their number is limited.
    places: Places,
    /// In-flight requests that are exempt from the lane's own limits.
    apart: u32,
    /// In-flight requests, among those of `in_flight`, whose usage is known only from the answer.
    pending_usage: PendingUsage,
    /// The time since 1970 at [`Instant::START`].
    epoch: Duration,
    stats: LaneStats,
    /// When the timer fires; `None` if it is not set.
    next_wakeup: Option<Instant>,
    /// Changes learned since the last effects.
    changes: Changes,
    /// Requests evicted since the last effects.
    evicted: Vec<Evicted<T>>,
    /// Waiting requests that an operator has moved to the front.
    let_first: Vec<LetFirst>,
    sorted: Sorted,
    /// End of an operator's pause; [`Instant::FAR`] if only an operator ends it.
    held: Option<Instant>,
    /// Which process sends the lane's requests, while one process takes over from another.
    handover: Handover,
    /// True if an event may have opened a class, so that blocked classes have to be checked again.
    rechecks: bool,
    deadline_sweep: DeadlineSweep,
    returns: ReturnSchedule,
    parted: Option<Parting>,
    /// State shared with other andantes, if the lane's limits are shared.
    fleet: Option<Box<SharedMemory>>,
    /// True if a store persists this lane.
    kept: bool,
    /// True if an event has happened that the store does not have yet.
    unwritten: bool,
    /// Number of tickets moved from class to class one by one.
    #[cfg(test)]
    moved: usize,
}

struct WaitingRequest<T> {
    grant: T,
    kind: RouteKey,
    metered: bool,
    since: Instant,
    /// The latest instant at which the request may leave the queue with a slot.
    deadline: Instant,
    drawn: Option<Box<Drawn>>,
    port: u16,
}

/// The most slots granted, and tickets moved between classes, in one go. The rest follows once others had the lock.
const BATCH: usize = 64;

// === impl WaitingRequest ===

impl<T> WaitingRequest<T> {
    /// The request as it would ask again, never sent.
    fn ask(&self, claim: Claim, cost: Cost) -> AdmitRequest {
        let draws = self.drawn.as_ref().map(|drawn| drawn.draws.clone());
        AdmitRequest { cost, kind: self.kind, claim, deadline: self.deadline, turn: Turn::New, draws, port: self.port }
    }
}

// === impl State ===

impl<T> State<T> {
    /// A lane in which nothing has happened yet. `epoch` is the time since 1970 at [`Instant::START`].
    pub(super) fn new(policy: Arc<Policy>, now: Instant, epoch: Duration) -> Self {
        let budget = Budget::new(&policy.limits, policy.margin, now).with_calendar(&policy.calendar, epoch);
        Self {
            budget: if policy.trust == Trust::Api { budget.yielding() } else { budget },
            learned: Learned::new(&policy),
            sub_limits: SubLimits::new(Arc::default()),
            queue: Queue::new(),
            usual: Vec::new(),
            in_flight: InFlight::new(policy.in_flight),
            places: Places::default(),
            apart: 0,
            pending_usage: PendingUsage::default(),
            epoch,
            stats: LaneStats::default(),
            next_wakeup: None,
            changes: Changes::new(),
            evicted: Vec::new(),
            let_first: Vec::new(),
            sorted: Sorted::new(now),
            held: None,
            handover: Handover::Ours,
            rechecks: false,
            deadline_sweep: DeadlineSweep::default(),
            returns: ReturnSchedule::default(),
            parted: None,
            fleet: None,
            kept: false,
            unwritten: false,
            #[cfg(test)]
            moved: 0,
            policy,
        }
    }

    /// Applies `policy` from `now` on. Waiting requests keep their places, and everything sent and learned stays. A
    /// request admitted under the old `max-wait` and `max-waiting` is not refused because of the new ones.
    pub(super) fn reconfigured(&mut self, now: Instant, policy: Arc<Policy>, epoch: Duration) {
        self.budget.reconfigure(&policy.limits, policy.margin, now);
        self.budget.reconfigure_calendar(&policy.calendar, epoch);
        self.budget.set_yielding(policy.trust == Trust::Api);
        self.budget.set_kept(self.kept);
        self.learned.reconfigure(&policy);
        self.in_flight.reconfigure(policy.in_flight);
        self.budget.share_in_flight(now, policy.shared_in_flight());
        self.budget.under_way(now, self.in_flight.count());
        self.unwritten = true;
        self.policy = policy;
        self.rechecks = true;
    }

    /// Counts this lane's sub-limits together with those of all lanes from now on.
    pub(super) fn set_capacity(&mut self, capacity: Arc<Capacity>) {
        self.sub_limits.set_capacity(capacity);
    }

    /// Replaces the narrower rules from `now` on.
    pub(super) fn sub_limit_rules(&mut self, now: Instant, rules: SubLimitRules) {
        for budget in self.sub_limits.reconfigured(now, self.epoch, &self.budget, rules) {
            self.queue.recheck_budget(budget);
        }
        self.forget_usual_of_gone_rules();
        self.rechecks = true;
    }

    /// Upper bound of the sub-limits' numbers: how many [`forget_idle`](Self::forget_idle) has to look at.
    pub(super) fn sub_limits(&self) -> u32 {
        self.sub_limits.end()
    }

    #[cfg(test)]
    pub(super) fn remembered_returns(&self) -> usize {
        self.returns.len()
    }

    /// Forgets returns that are over, and those of the next `looks` sub-limits that remember nothing.
    pub(super) fn forget_idle(&mut self, now: Instant, looks: u32) {
        self.returns.forget_past(now);
        self.sub_limits.forget_idle(looks, now, |_| false);
    }

    /// Removes a waiting request whose client has gone away. Returns whether it was still waiting.
    pub(super) fn left(&mut self, place: QueuePlace) -> bool {
        let place = self.place_of(place);
        self.take_out(place).is_some()
    }

    fn take_out(&mut self, place: QueuePlace) -> Option<Taken<WaitingRequest<T>>> {
        let taken = self.queue.remove(place)?;
        if let Some(drawn) = &taken.ticket.drawn {
            self.sub_limits.dequeued(drawn, &taken.claim, taken.cost, place.turn());
        }
        Some(taken)
    }

    /// Records that a request is being written.
    pub(super) fn sent(&mut self, now: Instant, slot: &Slot) {
        self.budget.sent(slot.charge, now);
        if let Some(drawn) = &slot.drawn {
            self.sub_limits.sent(drawn, now);
        }
        // Until now the lane did not know when the API would count this request.
        self.queue.recheck_endless();
        self.stats.sent += 1;
        self.stats.lately.on_send(now);
        self.stats.used.add(&slot.charge.cost);
        self.stats.active = Some((self.stats.active.map_or(now, |(first, _)| first), now));
    }

    /// Takes back a send: the request was not written after all. Returns whether its slot is still valid.
    pub(super) fn recalled(&mut self, slot: &Slot) -> bool {
        self.stats.sent -= 1;
        self.stats.lately.on_recall();
        self.stats.used.subtract(&slot.charge.cost);
        self.changed(slot);
        let sub_limits = slot.drawn.as_ref().is_none_or(|drawn| self.sub_limits.recalled(drawn));
        self.budget.recall(slot.charge) && sub_limits
    }

    /// Records the answer to the request that left at `sent`.
    pub(super) fn answered(&mut self, now: Instant, slot: &Slot, sent: Instant, heard: &AnswerReport<'_>) {
        self.budget.answered(slot.charge, sent, now);
        self.budget.observe(now, now.since(sent));
        if heard.hint.cause == Cause::None && !heard.failed && !slot.charge.scope.is_apart() {
            self.budget.served(sent);
        }
        if let Some(drawn) = &slot.drawn {
            self.sub_limits.answered(drawn, sent, now, heard);
            if heard.hint.cause == Cause::Quota && heard.hint.signal != Signal::FatalQuota {
                self.sub_limits.refused(drawn, sent, now);
            }
        }
        if !slot.charge.scope.is_apart() {
            self.in_flight.answered(slot.charge.seq, now.since(sent), heard);
        }
        self.stats.answered += 1;
        self.stats.refused_by_api += u64::from(heard.hint.cause == Cause::Quota);
        let seen = Observation {
            heard: *heard,
            charge: slot.charge,
            kind: slot.kind,
            rule: slot.drawn.as_ref().and_then(|drawn| drawn.rule_of(slot.kind.budget())),
            crowd: slot.crowd,
            sent,
            at: now,
            waiting: !self.queue.is_empty(),
        };
        self.changed(slot);
        // A longer pause only matters to waiting requests.
        let closed = (!self.queue.is_empty()).then(|| self.closed_until(now, &slot.kind));
        let changes = self.learned.heard(&seen, &mut self.budget);
        self.note(changes);
        if let Some(before) = closed {
            self.may_be_closed_for_longer(now, &slot.kind, before);
        }
        self.share_pauses(now);
    }

    /// The system's clock may have been set: by what it says now, [`Instant::START`] was at `epoch` since 1970.
    pub(super) fn clock_read(&mut self, epoch: Duration) {
        self.epoch = epoch;
        self.budget.set_epoch(epoch);
        self.sub_limits.set_epoch(epoch);
        self.rechecks = true;
    }

    pub(super) fn learned(&mut self) -> &mut Learned {
        &mut self.learned
    }

    pub(super) fn stats(&self) -> &LaneStats {
        &self.stats
    }

    #[cfg(test)]
    pub(super) fn moved(&self) -> usize {
        self.moved
    }

    /// Number of waiting requests.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Grants matured slots, due at `due`, to the requests that are first in the queue *now*. Returns when the next
    /// slot matures: `now` if more have matured than are granted in one go, [`Instant::FAR`] if an answer must come
    /// first.
    fn give(&mut self, now: Instant, due: Instant, grants: &mut Grants<T>) -> Instant {
        let mut moves = BATCH;
        if !self.queue.is_empty() {
            set_outstanding(&mut self.budget, &self.pending_usage, &self.usual, now);
        }
        for _ in 0..BATCH {
            let (place, key) = match self.next(now, &mut moves) {
                Next::Ticket { place, key } => (place, key),
                Next::At(at) => return at,
            };
            let Taken { claim, cost, ticket } = self.queue.serve(place).expect("the ticket is there whose turn it is");
            let WaitingRequest { grant, kind, since, drawn, port, .. } = ticket;
            if let Some(drawn) = &drawn {
                self.sub_limits.dequeued(drawn, &claim, cost, place.turn());
            }
            let (cost, kind, claim) = (&self.reserve(now, cost, drawn.as_deref()), &kind, &claim);
            let slot = self.take(now, Leaving { cost, kind, claim, scope: key.scope, since, due, drawn, port });
            grants.push(Grant { ticket: grant, slot, waited: now.since(since) });
        }
        now
    }

    /// Charges a request that leaves now, and returns its slot.
    fn take(&mut self, now: Instant, leaving: Leaving<'_>) -> Box<Slot> {
        let Leaving { cost, kind, claim, scope, since, due, mut drawn, port } = leaving;
        if let Some(drawn) = &mut drawn {
            self.sub_limits.take(drawn, now, since, self.budget.spacing(), *cost);
        }
        let charge = self.budget.take(now, due, *cost, scope);
        let mut slot =
            Box::new(Slot { charge, kind: *kind, claim: *claim, crowd: 0, port, leased: false, placed: false, drawn });
        let changes = self.learned.take(now, &slot.charge, kind, now > since, &mut self.budget);
        self.note(changes);
        slot.placed = self.leaves(now, &slot.charge, claim, numbers(&slot.drawn));
        self.share_taken(now, now > since);
        self.unwritten = true;
        if now > since {
            let waited = now.since(since);
            self.stats.waited += waited;
            self.stats.waited_most = self.stats.waited_most.max(waited);
        }
        (slot.crowd, slot.leased) = (self.learned.unanswered(), self.budget.is_leased(now));
        slot
    }

    /// Keeps `changes` for the next effects. Usually there are none.
    fn note(&mut self, changes: Changes) {
        if !changes.is_empty() {
            self.stats.pauses += changes.iter().filter(|change| change.is_pause()).count() as u64;
            self.changes.extend(changes);
            self.delayed();
        }
    }

    /// Marks the budgets that this slot draws on as changed.
    fn changed(&mut self, slot: &Slot) {
        (self.rechecks, self.unwritten) = (true, true);
        for budget in numbers(&slot.drawn) {
            self.queue.recheck_budget(*budget);
        }
    }
}

/// The numbers of the sub-limits drawn on.
fn numbers(drawn: &Option<Box<Drawn>>) -> &[u32] {
    drawn.as_deref().map_or(&[], Drawn::numbers)
}
