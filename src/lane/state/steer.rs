//! What operators do to those that wait, and to what was learned.

use super::{State, full::Displaced, numbers, turn::line_of};
use crate::lane::{
    order::{Claim, Taken, Turn, Urgency},
    request::Refusal,
};

impl<T> State<T> {
    /// Those that wait and are `wanted` have to go. Returns how many those are.
    pub(in crate::lane) fn drop_waiting(&mut self, wanted: impl Fn(&Claim) -> bool) -> usize {
        let before = self.displaced.len();
        for place in self.queue.places(wanted) {
            if let Some(taken) = self.take_out(place) {
                self.displaced.push(Displaced { ticket: taken.ticket.grant, refusal: Refusal::DroppedByOperator });
            }
        }
        self.rechecks = true;
        self.displaced.len() - before
    }

    /// The one of those that are `wanted` that came first is as urgent as can be, and goes before all that have not been
    /// sent before. Returns whether there is one.
    pub(in crate::lane) fn let_first(&mut self, wanted: impl Fn(&Claim) -> bool) -> bool {
        let Some(taken) = self.queue.places(wanted).into_iter().next().and_then(|place| self.queue.remove(place))
        else {
            return false;
        };
        let Taken { claim, cost, ticket } = taken;
        let claim = Claim { urgency: Urgency::MOST, ..claim };
        let line = line_of(&self.learned, &ticket.kind, ticket.metered, ticket.drawn.as_deref());
        let budgets = numbers(&ticket.drawn).to_vec();
        // Whoever waits knows the place it had: should it leave, its turn is given to the next when it comes.
        self.queue.enqueue(line, &budgets, claim, cost, Turn::Resent, ticket);
        self.rechecks = true;
        true
    }

    /// Nothing was learned from answers. What was sent stays known, and what is configured holds.
    pub(in crate::lane) fn forget_learned(&mut self) {
        self.learned.forget(&self.policy, &mut self.budget);
        self.usual.clear();
        self.sorted.forget();
        (self.rechecks, self.unwritten) = (true, true);
    }
}
