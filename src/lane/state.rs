//! The state of a lane: its limits, its queue, and what it has learned. Pure: events go in with their time, and slots come
//! out. The lane has the lock, the timer and the log.

mod memory;
mod view;

use std::{sync::Arc, time::Duration};

pub(super) use self::memory::Memory;
use super::{
    request::{AdmitRequest, Refusal},
    snapshot::LaneStats,
};
use crate::{
    clock::Instant,
    lane::order::{Head, Place, Queue},
    learn::{Changes, Heard, Learned, Observation, RouteKey},
    limit::{Budget, Charge, Cost, Scope},
    policy::{Policy, Trust},
};

/// A lane, seen from the inside. `T` is how a waiting request is told that it has its slot.
pub(super) struct State<T> {
    policy: Arc<Policy>,
    budget: Budget,
    learned: Learned,
    queue: Queue<Line, Ticket<T>>,
    in_flight: u32,
    tally: LaneStats,
    /// What has changed and was not told yet.
    changes: Changes,
    sorted: Sorted,
    /// How many tickets have been moved from line to line, one by one.
    #[cfg(test)]
    moved: usize,
}

/// When all tickets were last put into the lines that they belong to, and as what was known of scopes then: `None` if more
/// stand in wrong lines than are moved one by one.
#[derive(Clone, Copy, Debug)]
struct Sorted {
    at: Instant,
    version: Option<u64>,
}

/// What holds a waiting request up beside what holds up all: requests alike stand in one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    scope: Scope,
    /// Its kind, if that kind alone pauses.
    paused: Option<RouteKey>,
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
    /// How many were under way when it was given, itself included.
    crowd: u32,
}

/// What becomes of a request that asks for a slot.
pub(super) enum Decision {
    Send(Slot),
    Wait { place: Place, expected: Instant },
    Refuse(Refusal),
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

/// Whose turn it is.
enum Next {
    /// That of the first ticket in this line, now.
    Line(usize, Line),
    /// Nobody's before this instant.
    At(Instant),
}

/// So many slots are given in one go, and so many tickets moved from line to line. The rest follows when others had the
/// lock.
const BATCH: usize = 64;
/// The lines are not sorted anew more often than this.
const SORTING: Duration = Duration::from_millis(100);

// === impl State ===

impl<T> State<T> {
    pub(super) fn new(policy: Arc<Policy>, now: Instant) -> Self {
        let budget = Budget::new(&policy.limits, policy.margin, now);
        Self {
            budget: if policy.trust == Trust::Api { budget.yielding() } else { budget },
            learned: Learned::new(&policy),
            queue: Queue::new(),
            in_flight: 0,
            tally: LaneStats::default(),
            changes: Changes::new(),
            sorted: Sorted { at: now, version: Some(0) },
            #[cfg(test)]
            moved: 0,
            policy,
        }
    }

    /// A request asks for a slot. `ticket` is called if it has to wait; then [`serve`](Self::serve) must be called.
    pub(super) fn admit(&mut self, now: Instant, ask: &AdmitRequest, ticket: impl FnOnce() -> T) -> Decision {
        self.learned.asked(&ask.kind, now);
        let line = self.line_of(&ask.kind);
        if self.passes(now, ask.cost, line) {
            return Decision::Send(self.take(now, now, now, ask.cost, ask.kind, line.scope).0);
        }
        let expected = self.expected(now, ask, line);
        if let Some(refusal) = self.refusal(now, expected, ask) {
            self.tally.refused += 1;
            return Decision::Refuse(refusal);
        }
        let ticket = Ticket { grant: ticket(), kind: ask.kind, since: now };
        Decision::Wait { place: self.queue.enqueue(line, ask.cost, ask.turn(), ticket), expected }
    }

    /// Gives slots that have matured to those that are first in line *now*; they were due at `due`. Says when the next one
    /// matures: `now` if there are more than can be given in one go, [`Instant::FAR`] if an answer must come first.
    pub(super) fn serve(&mut self, now: Instant, due: Instant, mut give: impl FnMut(T, Slot, Duration)) -> Instant {
        let mut moves = BATCH;
        for _ in 0..BATCH {
            let (index, line) = match self.next(now, &mut moves) {
                Next::Line(index, line) => (index, line),
                Next::At(at) => return at,
            };
            let (cost, ticket) = self.queue.pop(index).expect("the line has a first ticket");
            let (slot, waited) = self.take(now, due, ticket.since, cost, ticket.kind, line.scope);
            give(ticket.grant, slot, waited);
        }
        now
    }

    /// A waiting request goes away. Says whether it was still waiting.
    pub(super) fn leave(&mut self, place: Place) -> bool {
        self.queue.remove(place).is_some()
    }

    /// A request is being written.
    pub(super) fn sent(&mut self, now: Instant, charge: Charge) {
        self.budget.sent(charge, now);
        self.tally.sent += 1;
        self.tally.active = Some((self.tally.active.map_or(now, |(first, _)| first), now));
    }

    /// What was sent has not been written after all. Says whether its slot still holds.
    pub(super) fn recall(&mut self, charge: Charge) -> bool {
        self.tally.sent -= 1;
        self.budget.recall(charge)
    }

    /// The answer of what left at `sent` is here.
    pub(super) fn answered(&mut self, now: Instant, slot: &Slot, sent: Instant, heard: &Heard<'_>) {
        self.budget.answered(slot.charge, sent, now);
        self.budget.observe(now, now.since(sent));
        self.tally.answered += 1;
        self.tally.refused_by_api += u64::from(heard.hint.cause == crate::hint::Cause::Quota);
        let seen = Observation {
            heard: *heard,
            charge: slot.charge,
            kind: slot.kind,
            crowd: slot.crowd,
            sent,
            at: now,
            waiting: !self.queue.is_empty(),
        };
        let changes = self.learned.heard(&seen, &mut self.budget);
        self.changes.extend(changes);
    }

    /// What was taken could not be sent, broke off, or was not answered in time.
    pub(super) fn broke(&mut self, now: Instant, charge: Charge) {
        let changes = self.learned.broke(now, charge.seq);
        self.changes.extend(changes);
    }

    /// A request has ended.
    pub(super) fn settle(&mut self, now: Instant, slot: &Slot, end: End) {
        self.in_flight -= 1;
        if end != End::Answered {
            self.learned.ended(now, slot.charge, &slot.kind, end != End::Unsent);
        }
        match end {
            End::Unsent => self.budget.give_back(slot.charge),
            End::Unanswered => self.budget.abandoned(slot.charge, now),
            End::Answered => {}
        }
    }

    /// What has changed since this was asked last.
    pub(super) fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    pub(super) fn learned(&mut self) -> &mut Learned {
        &mut self.learned
    }

    pub(super) fn tally(&self) -> &LaneStats {
        &self.tally
    }

    #[cfg(test)]
    pub(super) fn moved(&self) -> usize {
        self.moved
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// When the next slot matures for those that wait, or for a request like most others if nobody does.
    pub(super) fn next_slot(&mut self, now: Instant) -> Instant {
        if self.queue.is_empty() {
            let usual = Line { scope: self.learned.usual_scope(), paused: None };
            return self.earliest(now, Cost::MIN, usual);
        }
        match self.next(now, &mut { BATCH }) {
            Next::Line(..) => now,
            Next::At(at) => at,
        }
    }

    /// Whether a request that comes now may leave at once: nobody is before it in its line, and whoever waits in another
    /// one could not use the slot.
    fn passes(&mut self, now: Instant, cost: Cost, line: Line) -> bool {
        let first = self.queue.is_empty()
            || !self.queue.heads().any(|head| *head.key == line)
                && matches!(self.next(now, &mut { BATCH }), Next::At(at) if at > now);
        first && self.earliest(now, cost, line) <= now
    }

    /// The line that a request of `kind` belongs to.
    fn line_of(&self, kind: &RouteKey) -> Line {
        line_of(&self.learned, kind)
    }

    fn has_room(&self) -> bool {
        self.policy.in_flight.is_none_or(|limit| self.in_flight < limit.get())
    }

    /// The first instant at which a request of `cost` and `line` may leave, as far as is known now.
    fn earliest(&mut self, now: Instant, cost: Cost, line: Line) -> Instant {
        if !self.has_room() {
            // An answer or a departure calls again: there is nothing to wait for.
            return Instant::FAR;
        }
        earliest(&mut self.budget, &mut self.learned, now, cost, line)
    }

    /// Whose turn it is, or will be. Late binding: only when a slot has matured is the ticket chosen that gets it. Moves up
    /// to `moves` tickets that have come to the front of a line in which they do not belong, and takes that off.
    fn next(&mut self, now: Instant, moves: &mut usize) -> Next {
        if self.queue.is_empty() || !self.has_room() {
            return Next::At(Instant::FAR);
        }
        let version = Some(self.learned.scopes_version());
        let mut soonest = Instant::FAR;
        if self.sorted.version != version {
            soonest = self.sorted.at + SORTING;
            if soonest <= now {
                self.queue.sort(|ticket| line_of(&self.learned, &ticket.kind));
                (self.sorted, soonest) = (Sorted { at: now, version }, Instant::FAR);
            }
        }
        while let Some((index, line)) = self.misplaced() {
            if *moves == 0 {
                // All together, and not for each answer: an API may tell of other budgets every time.
                self.sorted.version = None;
                soonest = (self.sorted.at + SORTING).max(now);
                break;
            }
            *moves -= 1;
            self.queue.move_head(index, line);
            #[cfg(test)]
            {
                self.moved += 1;
            }
        }
        let mut first: Option<(Place, usize, Line)> = None;
        for head in self.queue.heads() {
            // Wherever it stands, it leaves as what it is.
            let line = if *moves == 0 { head_line(&self.learned, &head) } else { *head.key };
            let at = earliest(&mut self.budget, &mut self.learned, now, head.cost, line);
            if at > now {
                soonest = soonest.min(at);
            } else if first.is_none_or(|(place, ..)| head.place < place) {
                first = Some((head.place, head.line, line));
            }
        }
        first.map_or(Next::At(soonest), |(_, index, line)| Next::Line(index, line))
    }

    /// A line whose first ticket belongs into another one, as is known now.
    fn misplaced(&self) -> Option<(usize, Line)> {
        self.queue.heads().find_map(|head| {
            let line = head_line(&self.learned, &head);
            (line != *head.key).then_some((head.line, line))
        })
    }

    /// Lets a request go `now` that has waited since `since`, and could have gone at `due`. Also says how long it waited.
    fn take(
        &mut self,
        now: Instant,
        due: Instant,
        since: Instant,
        cost: Cost,
        kind: RouteKey,
        scope: Scope,
    ) -> (Slot, Duration) {
        let charge = self.budget.take(now, due, cost, scope);
        let changes = self.learned.take(now, charge, &kind, now > since, &mut self.budget);
        self.changes.extend(changes);
        self.in_flight += 1;
        let waited = now.since(since);
        self.tally.waited += waited;
        self.tally.waited_most = self.tally.waited_most.max(waited);
        (Slot { charge, kind, crowd: self.learned.unanswered() }, waited)
    }

    /// When a request that asks now will have its slot, if everything goes as it should.
    fn expected(&mut self, now: Instant, ask: &AdmitRequest, own: Line) -> Instant {
        // Those in lines that pause are not in the way of others, until their pause is over.
        let pauses =
            |line: &Line| line.paused.and_then(|kind| self.learned.pause(&kind)).is_some_and(|until| until > now);
        let before = |line: &Line, source| line.scope.includes(source) && (*line == own || !pauses(line));
        // Who has been sent before goes in front.
        let ahead = |source| if ask.again { 0 } else { self.queue.units(|line| before(line, source)) };
        // A kind with a limit of its own leaves one by one.
        let alike = self.queue.units(|line| !ask.again && line.paused.is_some() && *line == own);
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

fn line_of(learned: &Learned, kind: &RouteKey) -> Line {
    Line { scope: learned.scope(kind), paused: learned.line(kind) }
}

/// The line into which the first ticket of one belongs. One whose kind pauses no more may stay where it is.
fn head_line<T>(learned: &Learned, head: &Head<'_, Line, Ticket<T>>) -> Line {
    let line = line_of(learned, &head.ticket.kind);
    Line { paused: line.paused.or(head.key.paused), ..line }
}

fn earliest(budget: &mut Budget, learned: &mut Learned, now: Instant, cost: Cost, line: Line) -> Instant {
    match line.paused.and_then(|kind| learned.pause(&kind)) {
        // No need to ask for more: it is looked at anew when the pause is over.
        Some(until) if until > now => until,
        _ => budget.earliest(now, cost, line.scope).max(learned.earliest(now, cost, line.scope)),
    }
}
