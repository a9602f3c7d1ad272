//! The state of a lane: its limits, its queue, and what it has learned. Pure: events go in with their time, and
//! [`Effects`] come out: after each event, or several at once, the driver asks for them and does what they say. The driver
//! has the lock, the timer and the log.

mod effects;
mod memory;
mod turn;
mod view;

use std::{sync::Arc, time::Duration};

use self::{
    effects::Grants,
    turn::{LineKey, Sorted, line_of},
};
pub(super) use self::{
    effects::{Decision, Effects, Grant, QueueOffer, Timer},
    memory::Memory,
};
use super::{
    request::{AdmitRequest, Refusal},
    snapshot::LaneStats,
};
use crate::{
    clock::Instant,
    lane::order::{Claim, Next, Part, Place, Queue, Taken, Turn},
    learn::{AnswerReport, Changes, Learned, Observation, RouteKey},
    limit::{Budget, Charge, Cost, Scope},
    policy::{Policy, Trust},
};

/// A lane, seen from the inside. `T` is how a waiting request is told that it has its slot.
pub(super) struct State<T> {
    policy: Arc<Policy>,
    budget: Budget,
    learned: Learned,
    queue: Queue<LineKey, Ticket<T>>,
    in_flight: u32,
    stats: LaneStats,
    /// When the timer rings; `None` if it is not set.
    next_wakeup: Option<Instant>,
    /// What was learned since the last effects.
    changes: Changes,
    sorted: Sorted,
    /// Something has happened that may have opened a line.
    rechecks: bool,
    /// How many tickets have been moved from line to line, one by one.
    #[cfg(test)]
    moved: usize,
}

struct Ticket<T> {
    grant: T,
    kind: RouteKey,
    since: Instant,
}

/// The right to send one request now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) charge: Charge,
    pub(super) kind: RouteKey,
    /// By what its request claimed its turn.
    pub(super) claim: Claim,
    /// How many were under way when it was given, itself included.
    crowd: u32,
}

/// A request that leaves now.
struct Leaving {
    cost: Cost,
    kind: RouteKey,
    claim: Claim,
    scope: Scope,
    /// Since when it has waited.
    since: Instant,
    /// When it could have left.
    due: Instant,
}

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It was never sent.
    Unsent,
    /// It was sent, and no answer will come.
    Unanswered,
    /// Its answer has been read.
    Answered,
}

/// So many slots are given in one go, and so many tickets moved from line to line. The rest follows when others had the
/// lock.
const BATCH: usize = 64;
/// Where nobody waits any more, a timer that rings within this time is left alone.
const DOZE: Duration = Duration::from_secs(1);

// === impl State ===

impl<T> State<T> {
    /// A lane in which nothing has happened yet. `epoch` is the time since 1970 at [`Instant::START`].
    pub(super) fn new(policy: Arc<Policy>, now: Instant, epoch: Duration) -> Self {
        let budget = Budget::new(&policy.limits, policy.margin, now).with_calendar(&policy.calendar, epoch);
        Self {
            budget: if policy.trust == Trust::Api { budget.yielding() } else { budget },
            learned: Learned::new(&policy),
            queue: Queue::new(),
            in_flight: 0,
            stats: LaneStats::default(),
            next_wakeup: None,
            changes: Changes::new(),
            sorted: Sorted::new(now),
            rechecks: false,
            #[cfg(test)]
            moved: 0,
            policy,
        }
    }

    /// `policy` holds from `now` on. Requests that wait keep their places, and all that was sent and learned stays. They
    /// were let in under the old `max-wait` and `max-waiting`, and are not sent away for new ones.
    pub(super) fn reconfigured(&mut self, now: Instant, policy: Arc<Policy>, epoch: Duration) {
        self.budget.reconfigure(&policy.limits, policy.margin, now);
        self.budget.reconfigure_calendar(&policy.calendar, epoch);
        self.budget.set_yielding(policy.trust == Trust::Api);
        self.learned.reconfigure(&policy);
        self.policy = policy;
    }

    /// From `now` on, requests that asked the lane of `other` ask this one.
    pub(super) fn absorbed(&mut self, now: Instant, other: &Budget) {
        self.budget.absorb(other, now);
    }

    pub(super) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// A request asks for a slot.
    pub(super) fn asked(&mut self, now: Instant, ask: &AdmitRequest) -> Decision {
        self.learned.asked(&ask.kind, now);
        let line = line_of(&self.learned, &ask.kind);
        if self.passes(now, ask.cost, line) {
            let AdmitRequest { cost, kind, claim, .. } = *ask;
            if !self.queue.is_empty() {
                self.queue.charge(&line, &claim, cost);
            }
            let leaving = Leaving { cost, kind, claim, scope: line.scope, since: now, due: now };
            return Decision::Send(self.take(now, &leaving));
        }
        let expected = self.expected(now, ask, line);
        if let Some(refusal) = self.refusal(now, expected, ask) {
            self.stats.refused += 1;
            return Decision::Refuse(refusal);
        }
        Decision::Wait(QueueOffer { line, expected })
    }

    /// The request that was made this `offer` takes it.
    pub(super) fn enqueued(&mut self, now: Instant, ask: &AdmitRequest, offer: &QueueOffer, ticket: T) -> Place {
        let ticket = Ticket { grant: ticket, kind: ask.kind, since: now };
        self.queue.enqueue(offer.line, ask.claim, ask.cost, ask.turn, ticket)
    }

    /// A waiting request goes away. Returns whether it was still waiting.
    pub(super) fn left(&mut self, place: Place) -> bool {
        self.queue.remove(place).is_some()
    }

    /// A request is being written.
    pub(super) fn sent(&mut self, now: Instant, charge: Charge) {
        self.budget.sent(charge, now);
        self.stats.sent += 1;
        self.stats.active = Some((self.stats.active.map_or(now, |(first, _)| first), now));
    }

    /// What was sent has not been written after all. Returns whether its slot still holds.
    pub(super) fn recalled(&mut self, charge: Charge) -> bool {
        self.stats.sent -= 1;
        self.rechecks = true;
        self.budget.recall(charge)
    }

    /// The answer of what left at `sent` is here.
    pub(super) fn answered(&mut self, now: Instant, slot: &Slot, sent: Instant, heard: &AnswerReport<'_>) {
        self.budget.answered(slot.charge, sent, now);
        self.budget.observe(now, now.since(sent));
        self.stats.answered += 1;
        self.stats.refused_by_api += u64::from(heard.hint.cause == crate::hint::Cause::Quota);
        let seen = Observation {
            heard: *heard,
            charge: slot.charge,
            kind: slot.kind,
            crowd: slot.crowd,
            sent,
            at: now,
            waiting: !self.queue.is_empty(),
        };
        self.rechecks = true;
        let changes = self.learned.heard(&seen, &mut self.budget);
        self.changes.extend(changes);
    }

    /// What was taken could not be sent, broke off, or was not answered in time.
    pub(super) fn broke(&mut self, now: Instant, charge: Charge) {
        self.rechecks = true;
        let changes = self.learned.broke(now, charge.seq);
        self.changes.extend(changes);
    }

    /// A request has ended.
    pub(super) fn settled(&mut self, now: Instant, slot: &Slot, end: End) {
        self.in_flight -= 1;
        self.rechecks = true;
        if end != End::Answered {
            self.learned.ended(now, slot.charge, &slot.kind, end != End::Unsent);
        }
        match end {
            End::Unsent => self.budget.give_back(slot.charge),
            End::Unanswered => self.budget.abandoned(slot.charge, now),
            End::Answered => {}
        }
    }

    /// The system's clock may have been set: by what it says now, [`Instant::START`] was at `epoch` since 1970.
    pub(super) fn clock_read(&mut self, epoch: Duration) {
        self.budget.set_epoch(epoch);
    }

    /// The timer has rung, which was to do so at `due`; or at `now`, if it was told to [ring](Timer::Ring).
    pub(super) fn woken(&mut self, now: Instant, due: Instant) -> Effects<T> {
        let mut grants = Grants::new();
        let next = self.give(now, due, &mut grants);
        self.next_wakeup = (!self.queue.is_empty()).then_some(next);
        let timer = self.next_wakeup.map_or(Timer::Keep, Timer::Set);
        Effects { grants, timer, changes: std::mem::take(&mut self.changes) }
    }

    /// Whether the events since the last effects may have led to any. Where nobody waits nearly none do.
    pub(super) fn has_effects(&self) -> bool {
        !self.queue.is_empty() || self.next_wakeup.is_some() || !self.changes.is_empty()
    }

    /// What follows from the events since the last effects: slots that have matured are given, and the timer is set for the
    /// next one.
    pub(super) fn effects(&mut self, now: Instant) -> Effects<T> {
        let (mut grants, mut timer) = (Grants::new(), Timer::Keep);
        if !self.queue.is_empty() {
            // A timer that rings late does not make a slot mature later.
            let due = self.next_wakeup.map_or(now, |wakeup| wakeup.min(now));
            let next = self.give(now, due, &mut grants);
            match self.next_wakeup {
                Some(wakeup) if next < wakeup => timer = Timer::Ring,
                None if !self.queue.is_empty() => {
                    self.next_wakeup = Some(next);
                    timer = Timer::Set(next);
                }
                _ => {}
            }
        }
        if self.queue.is_empty() && self.next_wakeup.is_some_and(|wakeup| wakeup > now + DOZE) {
            timer = Timer::Ring;
        }
        Effects { grants, timer, changes: std::mem::take(&mut self.changes) }
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

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Gives slots that have matured to those that are first in line *now*; they were due at `due`. Returns when the next
    /// one matures: `now` if there are more than are given in one go, [`Instant::FAR`] if an answer must come first.
    fn give(&mut self, now: Instant, due: Instant, grants: &mut Grants<T>) -> Instant {
        let mut moves = BATCH;
        for _ in 0..BATCH {
            let (place, key) = match self.next(now, &mut moves) {
                Next::Ticket { place, key } => (place, key),
                Next::At(at) => return at,
            };
            let Taken { claim, cost, ticket } = self.queue.serve(place).expect("the ticket is there whose turn it is");
            let leaving = Leaving { cost, kind: ticket.kind, claim, scope: key.scope, since: ticket.since, due };
            let slot = self.take(now, &leaving);
            grants.push(Grant { ticket: ticket.grant, slot, waited: now.since(ticket.since) });
        }
        now
    }

    /// Lets a request go.
    fn take(&mut self, now: Instant, leaving: &Leaving) -> Slot {
        let &Leaving { cost, kind, claim, scope, since, due } = leaving;
        let charge = self.budget.take(now, due, cost, scope);
        let changes = self.learned.take(now, charge, &kind, now > since, &mut self.budget);
        self.changes.extend(changes);
        self.in_flight += 1;
        let waited = now.since(since);
        self.stats.waited += waited;
        self.stats.waited_most = self.stats.waited_most.max(waited);
        Slot { charge, kind, claim, crowd: self.learned.unanswered() }
    }

    /// When a request that asks now will have its slot, if everything goes as it should.
    fn expected(&mut self, now: Instant, ask: &AdmitRequest, own: LineKey) -> Instant {
        // Those in lines that pause are not in the way of others, until their pause is over.
        let pauses =
            |line: &LineKey| line.paused.and_then(|kind| self.learned.pause(&kind)).is_some_and(|until| until > now);
        let before = |line: &LineKey, source| line.scope.includes(source) && (*line == own || !pauses(line));
        // What has been sent before goes in front.
        let first = ask.turn == Turn::Resent;
        let part = if first { Part::NONE } else { self.queue.ahead(&ask.claim, ask.cost).part() };
        let ahead = |source| part.of(self.queue.units(|line| before(line, source)));
        // A kind with a limit of its own leaves one by one.
        let alike = part.of(self.queue.units(|line| line.paused.is_some() && *line == own));
        let slots = self.learned.slot(&ask.kind).saturating_mul(u32::try_from(alike).unwrap_or(u32::MAX));
        let from = opens(&self.learned, now, own.scope, Some(&ask.kind)) + slots;
        self.budget.project(now, from, ahead, ask.cost, own.scope)
    }

    fn refusal(&mut self, now: Instant, expected: Instant, ask: &AdmitRequest) -> Option<Refusal> {
        let waiting = self.queue.len();
        // Nobody knows when a place in flight becomes free, but it is not now.
        let least = if self.has_room() { Duration::ZERO } else { Duration::from_millis(1) };
        let wait = expected.since(now).max(least);
        if waiting >= self.policy.max_waiting {
            let next = self.next_slot(now);
            let retry_after = if next == Instant::FAR { wait } else { next.since(now) };
            return Some(Refusal::Full { waiting, retry_after });
        }
        let patience = ask.deadline.since(now).min(self.policy.max_wait);
        (wait > patience).then(|| Refusal::TooLong { waiting, wait, patience, retry_after: wait - patience })
    }
}

/// When all pauses that hold requests of `scope`, and of `kind`, are over.
fn opens(learned: &Learned, now: Instant, scope: Scope, kind: Option<&RouteKey>) -> Instant {
    let closed = learned.closed(now, scope).map_or(now, |(until, _)| until);
    let paused = kind.and_then(|kind| learned.pause(kind)).unwrap_or(now);
    now.max(closed).max(paused)
}
