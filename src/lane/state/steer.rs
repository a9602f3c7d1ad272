//! Operators' actions on waiting requests, and on learned limits.

use andante_clock::Instant;
use andante_order::{Claim, QueuePlace, Taken, Turn, Urgency, WaitingFlowQueue};

use super::{State, full::Evicted, numbers, turn::line_of};
use crate::request::Refusal;

/// A request that an operator has moved to the front.
pub(super) struct LetFirst {
    /// The place known to the client's task.
    known: QueuePlace,
    /// The current place.
    place: QueuePlace,
}

impl<T> State<T> {
    /// Drops the waiting requests that are `wanted`. Returns how many there were.
    pub(crate) fn drop_waiting(&mut self, wanted: impl Fn(&Claim) -> bool) -> usize {
        let before = self.evicted.len();
        for place in self.queue.places(|claim, _| wanted(claim)) {
            if let Some(taken) = self.take_out(place) {
                self.evicted.push(Evicted { ticket: taken.ticket.grant, refusal: Refusal::DroppedByOperator });
            }
        }
        self.rechecks = true;
        self.evicted.len() - before
    }

    /// Gives the oldest of the `wanted` requests the highest urgency, in front of all that have not been sent before.
    /// Returns whether there is one.
    pub(crate) fn let_first(&mut self, wanted: impl Fn(&Claim) -> bool) -> bool {
        let Some(before) = self.queue.places(|claim, _| wanted(claim)).into_iter().next() else { return false };
        let Some(Taken { claim, cost, mut ticket }) = self.take_out(before) else { return false };
        let claim = Claim { urgency: Urgency::MOST, ..claim };
        if let Some(drawn) = &mut ticket.drawn {
            self.sub_limits.enqueued(drawn, &self.queue.resolve(&claim), cost, Turn::Resent);
        }
        let line = line_of(&self.learned, &ticket.kind, ticket.metered, ticket.drawn.as_deref());
        let budgets = numbers(&ticket.drawn).to_vec();
        let place = self.queue.enqueue(line, &budgets, claim, cost, Turn::Resent, ticket);
        match self.let_first.iter_mut().find(|moved| moved.place == before) {
            Some(moved) => moved.place = place,
            None => self.let_first.push(LetFirst { known: before, place }),
        }
        self.let_first.retain(|moved| self.queue.holds(moved.place));
        self.rechecks = true;
        true
    }

    /// Gives the identities of the waiting requests the weights that `weigh` returns.
    pub(crate) fn reweigh(&mut self, weigh: impl Fn(&Claim) -> Claim) {
        if !self.queue.is_empty() {
            self.queue.reweigh_all(weigh);
            for WaitingFlowQueue { claim, tickets } in self.queue.flow_queues() {
                let drawn = tickets.filter_map(|(_, _, ticket)| ticket.drawn.as_deref()).next();
                drawn.into_iter().for_each(|drawn| self.sub_limits.reweigh(drawn, &claim));
            }
            self.rechecks = true;
        }
    }

    /// The current place of a request that was put at `place`.
    pub(super) fn place_of(&self, place: QueuePlace) -> QueuePlace {
        self.let_first.iter().find(|moved| moved.known == place).map_or(place, |moved| moved.place)
    }

    /// Forgets what was learned from answers. Sent requests still count, and configured limits hold.
    pub(crate) fn forget_learned(&mut self, now: Instant) {
        self.forget();
        self.share_forgetting(now);
    }

    /// Forgets what was learned from answers, without telling the other members of the fleet.
    pub(super) fn forget(&mut self) {
        self.learned.forget(&self.policy, &mut self.budget);
        self.usual.clear();
        self.in_flight.forget();
        self.sorted.forget();
        (self.rechecks, self.unwritten) = (true, true);
    }
}
