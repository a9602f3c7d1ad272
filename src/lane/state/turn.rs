//! Whose turn it is, among the requests that wait.

use std::time::Duration;

use super::{BATCH, State, Ticket};
use crate::{
    clock::Instant,
    lane::order::{Head, Place},
    learn::{Learned, RouteKey},
    limit::{Budget, Cost, Scope},
};

/// What holds a waiting request up beside what holds up all: requests alike stand in one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineKey {
    pub(super) scope: Scope,
    /// Its kind, if that kind alone pauses.
    pub(super) paused: Option<RouteKey>,
}

/// When all tickets were last put into the lines that they belong to, and as what was known of scopes then: `None` if more
/// stand in wrong lines than are moved one by one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sorted {
    at: Instant,
    version: Option<u64>,
}

/// Whose turn it is.
pub(super) enum Next {
    /// That of the first ticket in this line, now.
    Line(usize, LineKey),
    /// Nobody's before this instant.
    At(Instant),
}

/// The lines are not sorted anew more often than this.
const SORTING: Duration = Duration::from_millis(100);

impl<T> State<T> {
    /// When the next slot matures for those that wait, or for a request like most others if nobody does.
    pub(in crate::lane) fn next_slot(&mut self, now: Instant) -> Instant {
        if self.queue.is_empty() {
            let usual = LineKey { scope: self.learned.usual_scope(), paused: None };
            return self.earliest(now, Cost::MIN, usual);
        }
        match self.next(now, &mut { BATCH }) {
            Next::Line(..) => now,
            Next::At(at) => at,
        }
    }

    /// Whether a request that comes now may leave at once: nobody is before it in its line, and whoever waits in another
    /// one could not use the slot.
    pub(super) fn passes(&mut self, now: Instant, cost: Cost, line: LineKey) -> bool {
        let first = self.queue.is_empty()
            || !self.queue.heads().any(|head| *head.key == line)
                && matches!(self.next(now, &mut { BATCH }), Next::At(at) if at > now);
        first && self.earliest(now, cost, line) <= now
    }

    pub(super) fn has_room(&self) -> bool {
        self.policy.in_flight.is_none_or(|limit| self.in_flight < limit.get())
    }

    /// The first instant at which a request of `cost` and `line` may leave, as far as is known now.
    fn earliest(&mut self, now: Instant, cost: Cost, line: LineKey) -> Instant {
        if !self.has_room() {
            // An answer or a departure calls again: there is nothing to wait for.
            return Instant::FAR;
        }
        earliest(&mut self.budget, &mut self.learned, now, cost, line)
    }

    /// Whose turn it is, or will be. Late binding: only when a slot has matured is the ticket chosen that gets it. Moves up
    /// to `moves` tickets that have come to the front of a line in which they do not belong, and takes that off.
    pub(super) fn next(&mut self, now: Instant, moves: &mut usize) -> Next {
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
        let mut first: Option<(Place, usize, LineKey)> = None;
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
    fn misplaced(&self) -> Option<(usize, LineKey)> {
        self.queue.heads().find_map(|head| {
            let line = head_line(&self.learned, &head);
            (line != *head.key).then_some((head.line, line))
        })
    }
}

// === impl Sorted ===

impl Sorted {
    /// Nobody waits yet.
    pub(super) fn new(now: Instant) -> Self {
        Self { at: now, version: Some(0) }
    }
}

pub(super) fn line_of(learned: &Learned, kind: &RouteKey) -> LineKey {
    LineKey { scope: learned.scope(kind), paused: learned.line(kind) }
}

/// The line into which the first ticket of one belongs. One whose kind pauses no more may stay where it is.
fn head_line<T>(learned: &Learned, head: &Head<'_, LineKey, Ticket<T>>) -> LineKey {
    let line = line_of(learned, &head.ticket.kind);
    LineKey { paused: line.paused.or(head.key.paused), ..line }
}

fn earliest(budget: &mut Budget, learned: &mut Learned, now: Instant, cost: Cost, line: LineKey) -> Instant {
    match line.paused.and_then(|kind| learned.pause(&kind)) {
        // No need to ask for more: it is looked at anew when the pause is over.
        Some(until) if until > now => until,
        _ => budget.earliest(now, cost, line.scope).max(learned.earliest(now, cost, line.scope)),
    }
}
