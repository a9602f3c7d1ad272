//! Transitions of flow queues between ready and blocked.

use std::{collections::BTreeSet, hash::Hash};

use andante_clock::Instant;
use andante_limit::Cost;

use super::{HeadFinding, Hold, LOOKS, NONE, Queue, Spot, SpotState, Strand, TicketRules};
use crate::{
    claim::{Claim, Comes},
    ranking::{RankedAt, Ranking},
    slab::Slab,
};

/// The most clients and flows remembered at a wait point without blocked flow queues.
const REMEMBERED: usize = 512;

impl<K: Copy + Eq + Hash, T> Queue<K, T> {
    /// Number of clients and flows remembered in the ready list.
    #[cfg(test)]
    pub(crate) fn flows(&self) -> usize {
        self.front.remembered()
    }

    /// Number of wait points.
    #[cfg(test)]
    pub(crate) fn spots(&self) -> usize {
        self.spots.len()
    }

    /// Schedules a check of all closed classes, because their limits may have changed. O(classes).
    pub fn recheck(&mut self) {
        for (_, line) in self.lines.iter() {
            recheck(&mut self.spots, &mut self.closed, line.spot);
        }
    }

    /// Schedules a check of the wait points closed without an end: they may have a time now. O(such wait points).
    pub fn recheck_endless(&mut self) {
        while let Some(&(Instant::FAR, spot)) = self.closed.last() {
            recheck(&mut self.spots, &mut self.closed, spot);
        }
    }

    /// Schedules a check of this budget, because its remainder may have changed.
    pub fn recheck_budget(&mut self, budget: u32) {
        if let Some(spot) = self.sets.spot_of(budget) {
            recheck(&mut self.spots, &mut self.closed, spot);
        }
    }

    /// Checks whether the first ticket blocked at a wait point may leave. If so, its flow queue becomes ready.
    pub(super) fn look_at(
        &mut self,
        spot: u32,
        now: Instant,
        moves: &mut usize,
        gate: &mut impl TicketRules<K, T>,
    ) -> bool {
        for _ in 0..LOOKS {
            let strand = self.spots[spot].ranking().next().expect("something is parked there");
            let here = match self.find_out(strand, now, moves, gate) {
                // The flow queue was the last one there, and the class is gone; or nothing is blocked there any more.
                HeadFinding::Moved if self.spots.get(spot).is_none_or(|spot| spot.parked == 0) => return false,
                HeadFinding::Moved => continue,
                HeadFinding::Held(_, Hold::Open | Hold::Shared(_)) => {
                    self.unpark(strand);
                    self.keep_in_front(strand, now, gate);
                    if self.spots[spot].parked > 0 && !self.spots[spot].listed {
                        self.spots[spot].listed = true;
                        self.open.push_back(spot);
                    }
                    return true;
                }
                HeadFinding::Held(_, hold) => (self.spot_of(strand, &hold), hold),
            };
            match here {
                (there, Hold::Own(at) | Hold::Budget(_, at)) if there == spot => {
                    self.close(spot, at, Some(self.tickets[self.strands[strand].first].cost));
                    return false;
                }
                // Something else blocks it longer: it moves there.
                (_, hold) => {
                    self.unpark(strand);
                    self.park(strand, &hold);
                    let keeps = self.keep_its_turn(strand, &hold, now, gate);
                    if keeps || self.spots[spot].parked == 0 {
                        return false;
                    }
                }
            }
        }
        // The rest is checked once others had the lock.
        self.close(spot, now, None);
        false
    }

    /// Makes a flow queue ready at the next open wait point that has a blocked one.
    pub(super) fn let_one_forward(
        &mut self,
        now: Instant,
        moves: &mut usize,
        gate: &mut impl TicketRules<K, T>,
    ) -> bool {
        while let Some(id) = self.open.pop_front() {
            let spot = &mut self.spots[id];
            spot.listed = false;
            if spot.state == SpotState::Gone {
                self.spots.remove(id);
                continue;
            }
            if spot.state == SpotState::Open && spot.parked > 0 && self.look_at(id, now, moves, gate) {
                return true;
            }
        }
        false
    }

    /// Checks the first ticket of a flow queue.
    pub(super) fn find_out(
        &mut self,
        strand: u32,
        now: Instant,
        moves: &mut usize,
        gate: &mut impl TicketRules<K, T>,
    ) -> HeadFinding<K> {
        let Strand { first: id, line, set, .. } = self.strands[strand];
        let (ticket, here) = (&self.tickets[id], self.lines[line].key);
        let key = gate.line(&ticket.ticket, &here);
        if key != here && *moves > 0 {
            *moves -= 1;
            self.move_to(id, key);
            return HeadFinding::Moved;
        }
        let hold = match gate.hold(&key, self.sets.budgets(set), ticket.cost) {
            Hold::Shared(at) | Hold::Own(at) | Hold::Budget(_, at) if at <= now => Hold::Open,
            hold => hold,
        };
        if let Hold::Open = hold
            && let Some(kept) = self.held_for_another(strand, now, gate)
        {
            return HeadFinding::Held(key, kept);
        }
        HeadFinding::Held(key, hold)
    }

    /// Blocks a ready flow queue that its class, or one of its budgets, stops.
    pub(super) fn park(&mut self, strand: u32, hold: &Hold) {
        let (Hold::Own(at) | Hold::Budget(_, at)) = *hold else { unreachable!("what is open or shared parks nobody") };
        let spot = self.spot_of(strand, hold);
        self.misses_its_turn(strand, spot);
        let cost = self.move_into_spot(strand, spot);
        let (at, cost) = match self.spots[spot].state {
            // A flow queue that is already blocked there may leave earlier.
            SpotState::Closed(before) => (before.min(at), self.spots[spot].cost.map(|least| least.least(&cost))),
            SpotState::Open if self.spots[spot].parked > 1 => (Instant::START, Some(cost)),
            SpotState::Open | SpotState::Gone => (at, Some(cost)),
        };
        self.close(spot, at, cost);
    }

    /// Returns a served flow queue from the ready list to its wait point, if others are blocked there. The others may
    /// have received less there, although it has had fewer slots: the order there decides, as for a new arrival.
    pub(super) fn send_back(&mut self, id: u32) {
        if self.strands[id].spot != NONE {
            return;
        }
        let Some(spot) = self.occupied_spot(id) else { return };
        let cost = self.move_into_spot(id, spot);
        self.recheck_for(spot, cost);
    }

    /// A wait point of the flow queue at which others are blocked.
    pub(super) fn occupied_spot(&self, strand: u32) -> Option<u32> {
        let Strand { line, set, .. } = &self.strands[strand];
        let mut spots = std::iter::once(&self.lines[*line].spot).chain(self.sets.spots(*set));
        spots.find(|spot| self.spots[**spot].parked > 0).copied()
    }

    /// The wait point of a flow queue with this block reason.
    fn spot_of(&self, strand: u32, hold: &Hold) -> u32 {
        match hold {
            Hold::Budget(budget, _) => self.sets.spot_of(*budget).expect("the strand draws on it"),
            _ => self.lines[self.strands[strand].line].spot,
        }
    }

    /// Moves a ready flow queue to a wait point. Returns the cost of its first ticket.
    fn move_into_spot(&mut self, id: u32, spot: u32) -> Cost {
        let Strand { claim, first, ranked, .. } = self.strands[id];
        let (key, cost) = (self.tickets[first].key, self.tickets[first].cost);
        self.front.remove(ranked, &claim, id, key);
        let comes = if self.strands[id].missed { Comes::Missed } else { Comes::Moved };
        self.put_into_spot(id, claim, spot, key, cost, comes);
        cost
    }

    /// Puts a flow queue that stands nowhere into the ready list.
    pub(super) fn put_into_front(&mut self, strand: u32, claim: &Claim, key: u64, cost: Cost, comes: Comes) {
        self.strands[strand].ranked = self.front.insert(claim, strand, key, cost.requests().into(), comes);
    }

    pub(super) fn put_into_spot(&mut self, strand: u32, claim: Claim, spot: u32, key: u64, cost: Cost, comes: Comes) {
        self.strands[strand].spot = spot;
        let spot = &mut self.spots[spot];
        spot.parked += 1;
        let ranking = spot.ranking.get_or_insert_with(|| Box::new(Ranking::new(1)));
        self.strands[strand].ranked = ranking.insert(&claim, strand, key, cost.share(), comes);
    }

    /// Charges a served ticket to its flow at a wait point where it waited or might have.
    pub(super) fn charge_spot(&mut self, spot: u32, claim: &Claim, cost: Cost) {
        let spot = &mut self.spots[spot];
        if let Some(ranking) = &mut spot.ranking {
            ranking.charge(claim, cost.share());
            // With no next flow queue there, nothing else would forget any.
            if spot.parked == 0 && ranking.remembered() > REMEMBERED {
                spot.ranking = None;
            }
        }
    }

    fn unpark(&mut self, id: u32) {
        let strand = &mut self.strands[id];
        let spot = std::mem::replace(&mut strand.spot, NONE);
        strand.from = spot;
        let (claim, ranked) = (strand.claim, strand.ranked);
        let (key, cost) = (self.tickets[strand.first].key, self.tickets[strand.first].cost);
        self.spots[spot].remove(ranked, &claim, id, key);
        self.put_into_front(id, &claim, key, cost, Comes::Moved);
        self.reopen(spot);
    }

    /// Schedules a check of the wait point at `at`, when a ticket of this cost may leave; `None` if any ticket may
    /// leave earlier.
    pub(super) fn close(&mut self, spot: u32, at: Instant, cost: Option<Cost>) {
        self.spots[spot].cost = cost;
        if let SpotState::Closed(before) = self.spots[spot].state {
            self.closed.remove(&(before, spot));
        }
        self.spots[spot].state = SpotState::Closed(at);
        self.closed.insert((at, spot));
    }

    /// Schedules a check because a ticket of this cost has become first in a flow queue there: it may leave earlier
    /// than the previous ones.
    pub(super) fn recheck_for(&mut self, spot: u32, cost: Cost) {
        if self.spots[spot].cost.is_none_or(|least| cost.takes_less(&least)) {
            recheck(&mut self.spots, &mut self.closed, spot);
        }
    }

    pub(super) fn reopen(&mut self, spot: u32) {
        if let SpotState::Closed(before) = std::mem::replace(&mut self.spots[spot].state, SpotState::Open) {
            self.closed.remove(&(before, spot));
        }
    }
}

/// Schedules a check of this wait point, because its limits may have changed.
pub(super) fn recheck(spots: &mut Slab<Spot>, closed: &mut BTreeSet<(Instant, u32)>, spot: u32) {
    if let SpotState::Closed(before) = spots[spot].state {
        closed.remove(&(before, spot));
        spots[spot].state = SpotState::Closed(Instant::START);
        closed.insert((Instant::START, spot));
    }
}

// === impl Spot ===

impl Spot {
    /// A wait point without blocked flow queues.
    pub(super) const OPEN: Self =
        Self { parked: 0, state: SpotState::Open, cost: None, listed: false, ranking: None, kept: None };

    /// The ranking of the flow queues blocked here.
    pub(super) fn ranking(&mut self) -> &mut Ranking {
        self.ranking.as_mut().expect("something is parked here")
    }

    /// Removes a flow queue that is no longer blocked here.
    pub(super) fn remove(&mut self, at: RankedAt, claim: &Claim, strand: u32, key: u64) {
        self.parked -= 1;
        self.ranking().remove(at, claim, strand, key);
    }
}
