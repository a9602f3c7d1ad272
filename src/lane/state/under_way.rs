//! In-flight requests: their number, and how they end.

use andante_clock::Instant;
use andante_limit::Charge;
use andante_order::Claim;

use super::{End, Slot, State};

impl<T> State<T> {
    /// Records a request that could not be sent, broke off, or timed out.
    pub(crate) fn broke(&mut self, now: Instant, slot: &Slot) {
        self.changed(slot);
        let Charge { seq, scope, .. } = slot.charge;
        if !scope.is_apart() {
            self.in_flight.broke(seq);
        }
        if let Some(drawn) = &slot.drawn {
            self.sub_limits.broke(drawn);
        }
        let changes = self.learned.broke(now, seq);
        self.note(changes);
    }

    /// Records that a request has ended.
    pub(crate) fn settled(&mut self, now: Instant, slot: &mut Slot, end: End) {
        if slot.charge.scope.is_apart() {
            self.apart -= 1;
        } else {
            let free = self.free_places(&slot.claim);
            self.in_flight.ended(now, free);
            if slot.placed {
                self.places.ended(&slot.claim);
            }
            self.queue.resume();
            self.budget.under_way(now, self.in_flight.count());
            if end != End::Answered {
                self.in_flight.unanswered(slot.charge.seq, end == End::Unanswered);
            }
        }
        self.changed(slot);
        if end != End::Answered {
            self.learned.ended(now, slot.charge, &slot.kind, end != End::Unsent);
        }
        match end {
            End::Unsent => self.budget.return_unused(slot.charge),
            End::Unanswered => self.budget.abandoned(slot.charge, now),
            End::Answered => {}
        }
        if let Some(drawn) = &slot.drawn {
            self.sub_limits.settled(drawn, now, end);
        }
        self.pending_usage.ended(&slot.charge);
        // An unanswered request is abandoned first: a window settles an answered request, or one that counts as
        // answered.
        if slot.charge.cost.is_open() && end != End::Unsent {
            self.ends_pending(now, slot, end);
        }
    }

    /// Number of requests in flight.
    pub(super) fn under_way(&self) -> u32 {
        self.in_flight.count() + self.apart
    }

    /// Number of places that stay free although requests of a client such as this one wait for them.
    fn free_places(&self, claim: &Claim) -> u32 {
        let wants = self.queue.has_suspended() || !self.queue.is_empty() && !self.places.has_place(claim);
        if wants { self.places.free_beside(claim) } else { 0 }
    }

    /// Records one more request in flight, which draws on these sub-limits. Returns whether it holds a shared place.
    pub(super) fn leaves(&mut self, now: Instant, charge: &Charge, claim: &Claim, numbers: &[u32]) -> bool {
        if charge.scope.is_apart() {
            self.apart += 1;
            false
        } else {
            self.pending_usage.leaves(charge, now, |unit| self.sub_limits.rule_of(numbers, unit).cloned());
            let placed = self.places.took(claim);
            let free = self.free_places(claim);
            self.in_flight.took(charge.seq, now, free);
            self.budget.under_way(now, self.in_flight.count());
            placed
        }
    }
}
