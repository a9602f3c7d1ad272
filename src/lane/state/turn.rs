//! The choice of the next waiting request.

use std::time::Duration;

use andante_clock::Instant;
use andante_learn::{Learned, RouteKey};
use andante_limit::{Budget, Cost, Scope, Unit};
use andante_order::{Claim, Hold, Next, TicketRules};
use andante_policy::Trust;

use super::{
    BATCH, State, WaitingRequest,
    places::Places,
    reserving::{Reserving, Sources},
    sub_limits::{Drawn, SubLimits},
    usual::set_outstanding,
};

/// Key of a class: waiting requests blocked by the same learned limits share a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LineKey {
    pub(super) scope: Scope,
    /// The request's kind, if only that kind pauses.
    pub(super) paused: Option<RouteKey>,
    /// True if the request takes units other than requests, so that it may have to wait while others do not.
    pub(super) metered: bool,
}

/// When all tickets were last sorted into their classes, and the version of the scopes used: `None` if more tickets are
/// misplaced than are moved one by one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sorted {
    at: Instant,
    version: Option<u64>,
}

/// The lane's knowledge about its tickets at one instant.
struct Knowledge<'a> {
    now: Instant,
    budget: &'a mut Budget,
    learned: &'a mut Learned,
    sub_limits: &'a mut SubLimits,
    places: &'a Places,
    reserving: Reserving<'a>,
    /// True if the lane's limit on in-flight requests is reached.
    crowded: bool,
    /// True if every request draws on the limits common to all kinds.
    shares: bool,
}

/// The least time between two sorts of all classes.
const SORTING: Duration = Duration::from_millis(100);

impl<T> State<T> {
    /// When the next slot matures for the waiting requests, or for a typical request if none waits.
    pub(crate) fn next_slot(&mut self, now: Instant) -> Instant {
        if self.queue.is_empty() {
            let usual = LineKey { scope: self.learned.usual_scope(), paused: None, metered: false };
            return self.earliest(now, &Cost::MIN, &usual);
        }
        set_outstanding(&mut self.budget, &self.pending_usage, &self.usual, now);
        match self.next(now, &mut { BATCH }) {
            Next::Ticket { .. } => now,
            Next::At(at) => at,
        }
    }

    /// Returns whether an arriving request may leave at once: no request precedes it in its class, and none of another
    /// class could use the slot.
    pub(super) fn passes(&mut self, now: Instant, claim: &Claim, cost: &Cost, line: &LineKey, budgets: &[u32]) -> bool {
        self.advance_places(now);
        if !self.places.has_place(claim) {
            return false;
        }
        set_outstanding(&mut self.budget, &self.pending_usage, &self.usual, now);
        let first = self.queue.is_empty()
            || !self.queue.blocks(line, budgets)
                && matches!(self.next(now, &mut { BATCH }), Next::At(at) if at > now)
                && self.queue.is_blocked();
        first
            && self.earliest(now, cost, line) <= now
            && (budgets.is_empty() || self.sub_limits.closed(budgets, now, *cost, &self.usual).is_none())
    }

    /// Brings the shared places up to date. Where some requests are exempt from the lane's limits, none are shared.
    pub(super) fn advance_places(&mut self, now: Instant) {
        let limit = self.in_flight.limit().filter(|_| !self.sub_limits.apart);
        if self.places.advance(now, limit) {
            self.queue.resume();
        }
    }

    #[inline]
    pub(super) fn has_room(&mut self, now: Instant) -> bool {
        self.in_flight.has_room() && self.budget.has_room(now)
    }

    /// End of the pause by an operator or a handover; `now` if there is none, or if its length is unknown.
    pub(super) fn known_hold_end(&self, now: Instant) -> Instant {
        self.held_until(now).filter(|until| *until != Instant::FAR).unwrap_or(now)
    }

    /// Returns whether every request draws on the limits common to all kinds.
    fn shares(&self) -> bool {
        self.policy.trust != Trust::Api && !self.sub_limits.apart
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

    /// When to check again without room for another request in flight. An answer or a departure triggers the next
    /// check. The fleet's store is asked for room only if nothing else is lacking.
    fn without_room(&mut self, now: Instant) -> Instant {
        if !self.budget.shares_in_flight() {
            return Instant::FAR;
        }
        let at = earliest(&mut self.budget, &mut self.learned, now, &Cost::MIN, &LineKey::SHARED);
        if at > now { at } else { self.budget.asks_for_room_at(now).instant(now) }
    }

    /// Sorts all tickets into their classes, if those may have changed. O(waiting).
    pub(super) fn sort_lines(&mut self, now: Instant) {
        let version = Some(self.learned.scopes_version());
        if self.sorted.version != version {
            self.queue.sort(|ticket| line_of(&self.learned, &ticket.kind, ticket.metered, ticket.drawn.as_deref()));
            self.sorted = Sorted { at: now, version };
        }
    }

    /// Chooses the next ticket, or the instant of the next slot. Late binding: the ticket is chosen only when a slot
    /// has matured. Moves up to `moves` misplaced tickets that have reached the front of a class, and subtracts them
    /// from `moves`.
    pub(super) fn next(&mut self, now: Instant, moves: &mut usize) -> Next<LineKey> {
        if self.queue.is_empty() {
            return Next::At(Instant::FAR);
        }
        self.advance_places(now);
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
        let Self { budget, learned, sub_limits, places, .. } = self;
        let reserving = Reserving::new(&self.policy, &self.usual, &self.pending_usage);
        let mut knowledge = Knowledge { now, budget, learned, sub_limits, places, reserving, crowded, shares };
        if self.sorted.version != version {
            // Predictions for new requests are computed from the contents of each class.
            self.queue.move_misplaced(moves, &mut knowledge);
        }
        let next = self.queue.next(now, moves, &mut knowledge);
        #[cfg(test)]
        {
            self.moved += before - *moves;
        }
        if *moves == 0 && before > 0 {
            // A single sort of all tickets instead of one per answer: an API may report other budgets every time.
            self.sorted.version = None;
        }
        let Next::At(mut at) = next else { return next };
        if self.queue.has_suspended() {
            at = at.min(self.places.period_end());
        }
        if self.sorted.version != version {
            at = at.min((self.sorted.at + SORTING).max(now));
        }
        Next::At(at)
    }
}

impl Knowledge<'_> {
    /// The amounts taken for a request of this cost that draws on these sub-limits, and on the lane's own budget if
    /// `shared`.
    fn reserved(&mut self, numbers: &[u32], shared: bool, cost: Cost) -> Cost {
        let sources = &mut Sources { own: shared.then_some(&mut *self.budget), sub_limits: self.sub_limits, numbers };
        self.reserving.of(sources, self.now, cost)
    }
}

impl<T> TicketRules<LineKey, WaitingRequest<T>> for Knowledge<'_> {
    /// The class of a ticket. A ticket whose kind no longer pauses may stay where it is.
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
        if let Some((budget, until)) = self.sub_limits.closed(budgets, now, cost, self.reserving.usual())
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

    fn admits(&mut self, claim: &Claim) -> bool {
        self.places.has_place(claim)
    }

    fn turnover(&self, budget: u32) -> Option<Duration> {
        self.sub_limits.turnover(budget)
    }

    fn idles(&mut self, key: &LineKey, budget: Option<u32>, cost: Cost) -> Duration {
        match budget {
            Some(budget) => self.sub_limits.idles(budget),
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
            Some(budget) => self.sub_limits.earliest_beside(budget, self.now, cost, kept),
            // No slot is held back in the unit of requests.
            None => self.budget.ready_beside(self.now, cost, kept, |unit| unit != Unit::REQUESTS).instant(self.now),
        }
    }
}

// === impl LineKey ===

impl LineKey {
    /// The class of requests that only the common limits block.
    const SHARED: Self = Self { scope: Scope::NONE, paused: None, metered: false };
}

// === impl Sorted ===

impl Sorted {
    /// No request waits yet.
    pub(super) fn new(now: Instant) -> Self {
        Self { at: now, version: Some(0) }
    }

    /// Marks the classes as unsorted: more tickets may be misplaced than are moved one by one.
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
        // No earlier instant is needed: the end of the pause triggers the next check.
        Some(until) if until > now => until,
        _ => budget.ready(now, cost, line.scope).instant(now).max(learned.earliest(now, cost, line.scope)),
    }
}
