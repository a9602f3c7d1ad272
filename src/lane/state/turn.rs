//! Whose turn it is, among the requests that wait.

use std::time::Duration;

use super::{
    BATCH, State, WaitingRequest,
    narrow::{Drawn, Narrow},
    reserving::{Reserving, Sources},
    usual::set_outstanding,
};
use crate::{
    clock::Instant,
    lane::order::{Hold, Next, TicketRules},
    learn::{Learned, RouteKey},
    limit::{Budget, Cost, Scope, Unit},
    policy::Trust,
};

/// What holds a waiting request up beside what holds up all: requests alike stand in one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LineKey {
    pub(super) scope: Scope,
    /// Its kind, if that kind alone pauses.
    pub(super) paused: Option<RouteKey>,
    /// Whether it takes of other units than requests, so that it may have to wait while others do not.
    pub(super) metered: bool,
}

/// When all tickets were last put into the lines that they belong to, and as what was known of scopes then: `None` if more
/// stand in wrong lines than are moved one by one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sorted {
    at: Instant,
    version: Option<u64>,
}

/// What the lane knows about its tickets at one instant.
struct Knowledge<'a> {
    now: Instant,
    budget: &'a mut Budget,
    learned: &'a mut Learned,
    narrow: &'a mut Narrow,
    reserving: Reserving<'a>,
    /// Whether all that is configured for the lane has as many in flight as may be.
    crowded: bool,
    /// Whether what holds for all kinds of requests holds for each.
    shares: bool,
}

/// The lines are not sorted anew more often than this.
const SORTING: Duration = Duration::from_millis(100);

impl<T> State<T> {
    /// When the next slot matures for the waiting requests, or for one like most others if none waits.
    pub(in crate::lane) fn next_slot(&mut self, now: Instant) -> Instant {
        if self.queue.is_empty() {
            let usual = LineKey { scope: self.learned.usual_scope(), paused: None, metered: false };
            return self.earliest(now, &Cost::MIN, &usual);
        }
        set_outstanding(&mut self.budget, &self.untold, &self.usual, now);
        match self.next(now, &mut { BATCH }) {
            Next::Ticket { .. } => now,
            Next::At(at) => at,
        }
    }

    /// Whether a request that comes now may leave at once: none is before it in its line, and none that waits in
    /// another line could use the slot.
    pub(super) fn passes(&mut self, now: Instant, cost: &Cost, line: &LineKey, budgets: &[u32]) -> bool {
        set_outstanding(&mut self.budget, &self.untold, &self.usual, now);
        let first = self.queue.is_empty()
            || !self.queue.parks(line, budgets)
                && matches!(self.next(now, &mut { BATCH }), Next::At(at) if at > now)
                && self.queue.is_parked();
        first
            && self.earliest(now, cost, line) <= now
            && (budgets.is_empty() || self.narrow.closed(budgets, now, *cost, &self.usual).is_none())
    }

    #[inline]
    pub(super) fn has_room(&mut self, now: Instant) -> bool {
        self.in_flight.has_room() && self.budget.has_room(now)
    }

    /// Whether what holds for all kinds of requests holds for each.
    fn shares(&self) -> bool {
        self.policy.trust != Trust::Api && !self.narrow.apart
    }

    /// The first instant at which a request of `cost` and `line` may leave, as far as is known now.
    fn earliest(&mut self, now: Instant, cost: &Cost, line: &LineKey) -> Instant {
        if let Some(until) = self.held_until(now) {
            return until;
        }
        if !line.scope.is_apart() && !self.has_room(now) {
            return self.without_room(now);
        }
        earliest(&mut self.budget, &mut self.learned, now, cost, line)
    }

    /// An answer or a departure calls again: there is nothing to wait for. But a fleet's store is asked for room only once
    /// that is all that lacks.
    fn without_room(&mut self, now: Instant) -> Instant {
        if !self.budget.shares_in_flight() {
            return Instant::FAR;
        }
        let at = earliest(&mut self.budget, &mut self.learned, now, &Cost::MIN, &LineKey::SHARED);
        if at > now { at } else { self.budget.asks_for_room_at(now) }
    }

    /// Puts all tickets into the lines in which they belong, if that may have changed. O(waiting). Returns whether it may.
    pub(super) fn sort_lines(&mut self, now: Instant) -> bool {
        let version = Some(self.learned.scopes_version());
        let unsorted = self.sorted.version != version;
        if unsorted {
            self.queue.sort(|ticket| line_of(&self.learned, &ticket.kind, ticket.metered, ticket.drawn.as_deref()));
            self.sorted = Sorted { at: now, version };
        }
        unsorted
    }

    /// Whose turn it is, or will be. Late binding: only when a slot has matured is the ticket chosen that gets it. Moves up
    /// to `moves` tickets that have come to the front of a line in which they do not belong, and takes that off.
    pub(super) fn next(&mut self, now: Instant, moves: &mut usize) -> Next<LineKey> {
        if self.queue.is_empty() {
            return Next::At(Instant::FAR);
        }
        let (shares, crowded) = (self.shares(), !self.has_room(now));
        if shares && crowded {
            return Next::At(self.without_room(now));
        }
        if let Some(until) = self.held_until(now) {
            return Next::At(until);
        }
        let version = Some(self.learned.scopes_version());
        if self.sorted.at + SORTING <= now {
            self.sort_lines(now);
        }
        if std::mem::take(&mut self.rechecks) {
            self.queue.recheck();
        }
        let before = *moves;
        let Self { budget, learned, narrow, .. } = self;
        let reserving = Reserving::new(&self.policy, &self.usual, &self.untold);
        let mut knowledge = Knowledge { now, budget, learned, narrow, reserving, crowded, shares };
        if self.sorted.version != version {
            // Predictions for new requests are computed from what waits in each line.
            self.queue.move_misplaced(moves, &mut knowledge);
        }
        let next = self.queue.next(now, moves, &mut knowledge);
        #[cfg(test)]
        {
            self.moved += before - *moves;
        }
        if *moves == 0 && before > 0 {
            // All together, and not for each answer: an API may tell of other budgets every time.
            self.sorted.version = None;
        }
        match next {
            Next::At(at) if self.sorted.version != version => Next::At(at.min((self.sorted.at + SORTING).max(now))),
            next => next,
        }
    }
}

impl Knowledge<'_> {
    /// What is taken for a request of this cost that draws on these narrower budgets, and on the lane's own if that is `shared`.
    fn reserved(&mut self, numbers: &[u32], shared: bool, cost: Cost) -> Cost {
        let sources = &mut Sources { own: shared.then_some(&mut *self.budget), narrow: self.narrow, numbers };
        self.reserving.of(sources, self.now, cost)
    }
}

impl<T> TicketRules<LineKey, WaitingRequest<T>> for Knowledge<'_> {
    /// One whose kind pauses no more may stay where it is.
    fn line(&mut self, ticket: &WaitingRequest<T>, key: &LineKey) -> LineKey {
        let line = line_of(self.learned, &ticket.kind, ticket.metered, ticket.drawn.as_deref());
        LineKey { paused: line.paused.or(key.paused), ..line }
    }

    fn hold(&mut self, key: &LineKey, budgets: &[u32], cost: Cost) -> Hold {
        let now = self.now;
        let cost = self.reserved(budgets, !key.scope.is_apart(), cost);
        let at = match self.crowded && !key.scope.is_apart() {
            true => Instant::FAR,
            false => earliest(self.budget, self.learned, now, &cost, key),
        };
        if let Some((budget, until)) = self.narrow.closed(budgets, now, cost, self.reserving.usual())
            && until >= at
        {
            return Hold::Budget(budget, until);
        }
        if at <= now {
            return Hold::Open;
        }
        if !self.shares {
            return Hold::Own(at);
        }
        let shared = match *key {
            LineKey::SHARED => at,
            _ => earliest(self.budget, self.learned, now, &cost.unmetered(), &LineKey::SHARED),
        };
        if shared < at { Hold::Own(at) } else { Hold::Shared(shared) }
    }

    fn turnover(&self, budget: u32) -> Option<Duration> {
        self.narrow.turnover(budget)
    }

    fn idles(&mut self, key: &LineKey, budget: Option<u32>, cost: Cost) -> Duration {
        match budget {
            Some(budget) => self.narrow.idles(budget),
            None if key.metered => {
                let cost = self.reserved(&[], true, cost);
                self.budget.takes(cost)
            }
            None => Duration::ZERO,
        }
    }

    fn earliest_beside(&mut self, key: &LineKey, budget: Option<u32>, cost: Cost, kept: Cost) -> Instant {
        let shared = !key.scope.is_apart();
        let [cost, kept] = [cost, kept].map(|cost| self.reserved(budget.as_slice(), shared, cost));
        match budget {
            Some(budget) => self.narrow.earliest_beside(budget, self.now, cost, kept),
            // Of requests nothing is kept.
            None => self.budget.earliest_beside(self.now, cost, kept, |unit| unit != Unit::REQUESTS),
        }
    }
}

// === impl LineKey ===

impl LineKey {
    /// What nothing but that holds up which holds up all.
    const SHARED: Self = Self { scope: Scope::NONE, paused: None, metered: false };
}

// === impl Sorted ===

impl Sorted {
    /// No request waits yet.
    pub(super) fn new(now: Instant) -> Self {
        Self { at: now, version: Some(0) }
    }

    /// More may stand in wrong lines than are moved one by one.
    pub(super) fn forget(&mut self) {
        self.version = None;
    }
}

#[inline(always)]
pub(super) fn line_of(learned: &Learned, kind: &RouteKey, metered: bool, drawn: Option<&Drawn>) -> LineKey {
    let scope = learned.scope(kind);
    let apart = drawn.is_some_and(Drawn::is_apart);
    LineKey { scope: if apart { scope.apart() } else { scope }, paused: learned.line(kind), metered }
}

fn earliest(budget: &mut Budget, learned: &mut Learned, now: Instant, cost: &Cost, line: &LineKey) -> Instant {
    match line.paused.and_then(|kind| learned.pause(&kind)) {
        // No need to ask for more: it is looked at anew when the pause is over.
        Some(until) if until > now => until,
        _ => budget.earliest(now, cost, line.scope).max(learned.earliest(now, cost, line.scope)),
    }
}
