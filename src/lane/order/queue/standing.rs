//! Where strands stand: in the front, or parked at what is closed; and when they go from the one to the other.

use std::{collections::BTreeSet, hash::Hash};

use super::{HeadFinding, Hold, LOOKS, NONE, Queue, Spot, SpotState, Strand, TicketRules};
use crate::{
    clock::Instant,
    lane::order::{
        claim::{Claim, Comes, Urgency},
        ranking::{RankedAt, Ranking},
        slab::Slab,
    },
    limit::Cost,
};

/// How many clients and flows are remembered of those that were served from where nobody is parked.
const REMEMBERED: usize = 512;

impl<K: Copy + Eq + Hash, T> Queue<K, T> {
    /// How many clients and flows are remembered in the front.
    #[cfg(test)]
    pub(in crate::lane::order) fn flows(&self) -> usize {
        self.front.remembered()
    }

    /// How many places there are where strands may be parked.
    #[cfg(test)]
    pub(in crate::lane::order) fn spots(&self) -> usize {
        self.spots.len()
    }

    /// Whatever holds lines up may have changed: closed ones are looked at anew. O(lines).
    pub fn recheck(&mut self) {
        for (_, line) in self.lines.iter() {
            recheck(&mut self.spots, &mut self.closed, line.spot);
        }
    }

    /// Looks again at what is held up without an end: it may have a time now. O(such spots).
    pub fn recheck_endless(&mut self) {
        while let Some(&(Instant::FAR, spot)) = self.closed.last() {
            recheck(&mut self.spots, &mut self.closed, spot);
        }
    }

    /// What is left of this budget may have changed.
    pub fn recheck_budget(&mut self, budget: u32) {
        if let Some(spot) = self.sets.spot_of(budget) {
            recheck(&mut self.spots, &mut self.closed, spot);
        }
    }

    /// Looks whether the first of what is parked at a spot may leave: then its strand goes to the front.
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
                // It was the last one there, and the line is gone; or nothing is parked there any more.
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
                // Something else holds it up longer: it is parked there.
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
        // The rest is looked at when others had the lock.
        self.close(spot, now, None);
        false
    }

    /// Lets a strand to the front from the next spot that is open, if one has any parked.
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

    /// Looks at the first ticket of a strand.
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

    /// A strand in the front does not leave because of its line, or of one of its budgets.
    pub(super) fn park(&mut self, strand: u32, hold: &Hold) {
        let (Hold::Own(at) | Hold::Budget(_, at)) = *hold else { unreachable!("what is open or shared parks nobody") };
        let spot = self.spot_of(strand, hold);
        self.misses_its_turn(strand, spot);
        let cost = self.move_into_spot(strand, spot);
        let (at, cost) = match self.spots[spot].state {
            // Another one that is parked there may leave earlier.
            SpotState::Closed(before) => (before.min(at), self.spots[spot].cost.map(|least| least.least(&cost))),
            SpotState::Open if self.spots[spot].parked > 1 => (Instant::START, Some(cost)),
            SpotState::Open | SpotState::Gone => (at, Some(cost)),
        };
        self.close(spot, at, cost);
    }

    /// A strand in the front has been served. What waits where it has waited may be owed more of what is shared out there,
    /// although it has had fewer slots: who is next is decided there, as for one that comes.
    pub(super) fn send_back(&mut self, id: u32) {
        if self.strands[id].spot != NONE {
            return;
        }
        let Some(spot) = self.occupied_spot(id) else { return };
        let cost = self.move_into_spot(id, spot);
        self.recheck_for(spot, cost);
    }

    /// A place where a strand may be parked and others are.
    pub(super) fn occupied_spot(&self, strand: u32) -> Option<u32> {
        let Strand { line, set, .. } = &self.strands[strand];
        let mut spots = std::iter::once(&self.lines[*line].spot).chain(self.sets.spots(*set));
        spots.find(|spot| self.spots[**spot].parked > 0).copied()
    }

    /// Where a strand is parked that is held up by this.
    fn spot_of(&self, strand: u32, hold: &Hold) -> u32 {
        match hold {
            Hold::Budget(budget, _) => self.sets.spot_of(*budget).expect("the strand draws on it"),
            _ => self.lines[self.strands[strand].line].spot,
        }
    }

    /// A strand that stands in the front is parked. Says what its first ticket costs.
    fn move_into_spot(&mut self, id: u32, spot: u32) -> Cost {
        let Strand { claim, first, ranked, .. } = self.strands[id];
        let (key, cost) = (self.tickets[first].key, self.tickets[first].cost);
        self.front.remove(ranked, claim.urgency, id, key);
        let comes = if self.strands[id].missed { Comes::Missed } else { Comes::Moved };
        self.put_into_spot(id, claim, spot, key, cost, comes);
        cost
    }

    /// A strand that stands nowhere stands in the front from now on.
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

    /// Charges what is served to its flow in a spot, where it waited or might have.
    pub(super) fn charge_spot(&mut self, spot: u32, claim: &Claim, cost: Cost) {
        let spot = &mut self.spots[spot];
        if let Some(ranking) = &mut spot.ranking {
            ranking.charge(claim, cost.share());
            // Nobody is next there, so that nothing else would forget any.
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
        self.spots[spot].remove(ranked, claim.urgency, id, key);
        self.put_into_front(id, &claim, key, cost, Comes::Moved);
        self.reopen(spot);
    }

    /// The spot is looked at again at `at`, when what costs so much may leave; `None` if anything may leave earlier.
    pub(super) fn close(&mut self, spot: u32, at: Instant, cost: Option<Cost>) {
        self.spots[spot].cost = cost;
        if let SpotState::Closed(before) = self.spots[spot].state {
            self.closed.remove(&(before, spot));
        }
        self.spots[spot].state = SpotState::Closed(at);
        self.closed.insert((at, spot));
    }

    /// Something of this cost has come to a spot, or to the front of a strand there: it may leave earlier than what was there.
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

/// Whatever has closed this spot may have changed.
pub(super) fn recheck(spots: &mut Slab<Spot>, closed: &mut BTreeSet<(Instant, u32)>, spot: u32) {
    if let SpotState::Closed(before) = spots[spot].state {
        closed.remove(&(before, spot));
        spots[spot].state = SpotState::Closed(Instant::START);
        closed.insert((Instant::START, spot));
    }
}

// === impl Spot ===

impl Spot {
    /// Nothing is parked there.
    pub(super) const OPEN: Self =
        Self { parked: 0, state: SpotState::Open, cost: None, listed: false, ranking: None, kept: None };

    /// The ranking of what is parked here.
    pub(super) fn ranking(&mut self) -> &mut Ranking {
        self.ranking.as_mut().expect("something is parked here")
    }

    /// A strand is parked here no more.
    pub(super) fn remove(&mut self, at: RankedAt, urgency: Urgency, strand: u32, key: u64) {
        self.parked -= 1;
        self.ranking().remove(at, urgency, strand, key);
    }
}
