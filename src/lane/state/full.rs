//! A full queue: which waiting request gives way to a new one.

use std::time::Duration;

use super::{
    State, WaitingRequest,
    predict::{Asking, Before},
    turn::line_of,
};
use crate::{
    clock::Instant,
    lane::{
        order::{Taken, Turn, Waits},
        request::{AdmitRequest, Refusal},
    },
    limit::Unit,
};

/// A request that has waited and has to go, and why.
pub(in crate::lane) struct Displaced<T> {
    pub(in crate::lane) ticket: T,
    pub(in crate::lane) refusal: Refusal,
}

impl<T> State<T> {
    /// Whether as many wait as may.
    pub(super) fn is_full(&self) -> bool {
        self.queue.len() >= self.policy.max_waiting
    }

    /// Whether all places are taken, or kept for those that were told to return by now. While fewer wait than leave in a
    /// second none are kept, so that no slot is lost because of those that never return. Where so many can never wait, or hardly,
    /// that is the last quarter of the places: whoever asks at once when it was served would have all of them otherwise.
    pub(super) fn is_full_for(&mut self, now: Instant, asking: Asking<'_>) -> bool {
        let waiting = self.queue.len();
        let Some(free) = self.policy.max_waiting.checked_sub(waiting).filter(|free| *free > 0) else { return true };
        if asking.ask.turn == Turn::Resent {
            return false;
        }
        let claim = &asking.ask.claim;
        if self.returns.places_kept(now, claim.urgency, claim.client) < free {
            return false;
        }
        // What waits for something else as well does not take the next slots.
        let next = self.queue.waiting(Waits::ForAll, Unit::REQUESTS, 0.0);
        let rates = self.budget.rates(Unit::REQUESTS);
        let slowest = rates.iter().map(|(_, rate)| *rate).reduce(f64::min);
        let most = self.policy.max_waiting;
        slowest.is_some_and(|in_a_second| next >= in_a_second.min((most - most / 4) as f64))
    }

    /// How long it is until the next slot; `None` if an answer must come first.
    pub(super) fn until_next_slot(&mut self, now: Instant) -> Option<Duration> {
        let next = self.next_slot(now);
        (next != Instant::FAR).then(|| next.since(now))
    }

    /// Makes room for a request that [may wait](Self::refusal) although the queue is full: what
    /// [gives way](crate::lane::order::Queue::gives_way) to it has to go.
    pub(super) fn make_room(&mut self, now: Instant, ask: &AdmitRequest) {
        if !self.is_full() {
            return;
        }
        let waiting = self.queue.len();
        // It is not known when an answer comes, but it is not now.
        let retry_after = self.until_next_slot(now).unwrap_or(Duration::from_millis(1));
        if let Some(taken) = self.queue.gives_way(&ask.claim, ask.cost).and_then(|place| self.take_out(place)) {
            self.stats.refused += 1;
            let Taken { claim, cost, ticket } = taken;
            let WaitingRequest { kind, metered, deadline, ref drawn, .. } = ticket;
            let draws = drawn.as_ref().map(|drawn| drawn.draws.clone());
            let asked = AdmitRequest { cost, kind, claim, deadline, turn: Turn::New, draws };
            let (cost, line) = (self.reserve(now, cost), line_of(&self.learned, &kind, metered, drawn.as_deref()));
            let refusal = Refusal::GaveWay { waiting, retry_after };
            let asking = Asking { ask: &asked, cost, line, drawn: drawn.as_deref() };
            let refusal = self.come_back(now, asking, Before::default(), refusal);
            self.displaced.push(Displaced { ticket: ticket.grant, refusal });
        }
    }
}
