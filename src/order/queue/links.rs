//! Links of tickets in flow queues, and of flow queues in classes.

use std::hash::Hash;

use andante_limit::{Cost, Sum};

use super::{Line, NONE, Queue, QueuePlace, Spot, SpotState, Strand, Ticket, TicketRules, standing::recheck};
use crate::{
    claim::{Claim, Comes},
    ranking::RankedAt,
};

/// Waiting tickets of one flow that the same limits block.
#[derive(Debug)]
pub struct WaitingStrand<I> {
    /// Key shared by all flow queues that the same limits block.
    pub alike: (u32, u32),
    /// The identity of its requests.
    pub claim: Claim,
    /// The tickets, in their order.
    pub tickets: I,
}

impl<K: Copy + Eq + Hash, T> Queue<K, T> {
    /// The places of all `wanted` tickets, selected by identity and ticket, in order of arrival. O(waiting).
    pub fn places(&self, wanted: impl Fn(&Claim, &T) -> bool) -> Vec<QueuePlace> {
        let wanted = |ticket: &Ticket<T>| wanted(&self.strands[ticket.strand].claim, &ticket.ticket);
        let tickets = self.tickets.iter().filter(|(_, ticket)| wanted(ticket));
        let mut places: Vec<_> = tickets.map(|(id, ticket)| QueuePlace { id, key: ticket.key }).collect();
        places.sort_unstable_by_key(|place| place.key);
        places
    }

    /// The tickets of each flow queue in order: place, cost, and the ticket itself.
    pub fn strands(&self) -> impl Iterator<Item = WaitingStrand<impl Iterator<Item = (QueuePlace, &Cost, &T)>>> {
        self.strands.iter().map(move |(_, strand)| {
            let ids = std::iter::successors(Some(strand.first), move |id| {
                Some(self.tickets[*id].behind).filter(|behind| *behind != NONE)
            });
            let tickets = ids.map(move |id| {
                let Ticket { key, cost, ticket, .. } = &self.tickets[id];
                (QueuePlace { id, key: *key }, cost, ticket)
            });
            WaitingStrand { alike: (strand.line, strand.set), claim: strand.claim, tickets }
        })
    }

    /// Applies the weights that `weigh` returns to the identities of waiting tickets. O(flow queues).
    pub fn reweigh_all(&mut self, weigh: impl Fn(&Claim) -> Claim) {
        for (_, strand) in self.strands.iter_mut_numbered() {
            let claim = weigh(&strand.claim);
            if claim == strand.claim {
                continue;
            }
            strand.claim = claim;
            self.backlog.reweigh(&claim);
            self.front.reweigh(&claim);
            for &spot in [self.lines[strand.line].spot].iter().chain(self.sets.spots(strand.set)) {
                self.spots[spot].ranking.iter_mut().for_each(|ranking| ranking.reweigh(&claim));
            }
        }
    }

    /// Moves each ticket to the class that `key_of` returns, where it keeps its place. O(waiting).
    pub fn sort(&mut self, mut key_of: impl FnMut(&T) -> K) {
        let mut misplaced = Vec::new();
        for (id, ticket) in self.tickets.iter() {
            let key = key_of(&ticket.ticket);
            if key != self.lines[self.strands[ticket.strand].line].key {
                misplaced.push((ticket.key, id, key));
            }
        }
        // In their order, so that each goes behind the one before it.
        misplaced.sort_unstable_by_key(|(place, ..)| *place);
        for (_, id, key) in misplaced {
            self.move_to(id, key);
        }
    }

    /// Moves up to `moves` tickets that stand first in a flow queue but belong to another class, and subtracts them
    /// from `moves`. O(flow queues + moves).
    pub fn move_misplaced(&mut self, moves: &mut usize, gate: &mut impl TicketRules<K, T>) {
        let firsts: Vec<u32> = self.strands.iter().map(|(_, strand)| strand.first).collect();
        for mut id in firsts {
            while id != NONE && *moves > 0 {
                let ticket = &self.tickets[id];
                let here = self.lines[self.strands[ticket.strand].line].key;
                let (key, behind) = (gate.line(&ticket.ticket, &here), ticket.behind);
                if key == here {
                    break;
                }
                *moves -= 1;
                self.move_to(id, key);
                id = behind;
            }
        }
    }

    /// Puts a ticket, which draws on the budgets of `set`, into the flow queue in which it belongs.
    pub(super) fn link(&mut self, id: u32, key: K, set: u32, claim: Claim, comes: Comes) {
        let line = match self.line_ids.get(&key) {
            Some(line) => *line,
            None => {
                let spot = self.spots.insert(Spot::OPEN);
                let line = self.lines.insert(Line { key, strands: 0, units: Sum::default(), spot });
                self.line_ids.insert(key, line);
                line
            }
        };
        let (place, cost) = (self.tickets[id].key, self.tickets[id].cost);
        self.lines[line].units.add(&cost);
        if let Some(&strand) = self.strand_ids.get(&(line, set, claim.claimed())) {
            self.tickets[id].strand = strand;
            self.put_between(id, strand);
            return;
        }
        let ranked = RankedAt::NOWHERE;
        let (first, last) = (id, id);
        let strand =
            Strand { claim, line, set, first, last, finger: NONE, spot: NONE, ranked, from: NONE, missed: false };
        let strand = self.strands.insert(strand);
        self.strand_ids.insert((line, set, claim.claimed()), strand);
        self.tickets[id].strand = strand;
        self.lines[line].strands += 1;
        self.sets.keep(set);
        match self.occupied_spot(strand) {
            None => self.put_into_front(strand, &claim, place, cost, comes),
            // Tickets that wait there already come first, as they are ranked there. The new ticket may also be first
            // itself.
            Some(spot) => {
                self.put_into_spot(strand, claim, spot, place, cost, comes);
                self.recheck_for(spot, cost);
            }
        }
    }

    /// The number of a set of budgets.
    pub(super) fn set_of(&mut self, budgets: &[u32]) -> u32 {
        let Self { sets, spots, .. } = self;
        sets.number(budgets, || spots.insert(Spot::OPEN))
    }

    /// Takes a ticket out of its flow queue. Returns its identity.
    pub(super) fn unlink(&mut self, id: u32) -> Claim {
        let Ticket { key, cost, strand: strand_id, before, behind, .. } = self.tickets[id];
        let strand = &mut self.strands[strand_id];
        let Strand { claim, line: line_id, set, spot, ranked, .. } = *strand;
        let line = &mut self.lines[line_id];
        line.units.subtract(&cost);
        if before != NONE || behind != NONE {
            if strand.finger == id {
                strand.finger = before;
            }
            match before {
                NONE => self.set_first(strand_id, behind, key),
                before => self.tickets[before].behind = behind,
            }
            match behind {
                NONE => self.strands[strand_id].last = before,
                behind => self.tickets[behind].before = before,
            }
            return claim;
        }
        line.strands -= 1;
        self.keep_no_more(strand_id);
        if spot == NONE {
            self.front.remove(ranked, &claim, strand_id, key);
        } else {
            self.spots[spot].remove(ranked, &claim, strand_id, key);
            if self.spots[spot].parked == 0 {
                self.reopen(spot);
            } else {
                // The flow queues behind it may leave earlier.
                recheck(&mut self.spots, &mut self.closed, spot);
            }
        }
        self.strand_ids.remove(&(line_id, set, claim.claimed()));
        self.strands.remove(strand_id);
        if self.lines[line_id].strands == 0 {
            let line = self.lines.remove(line_id);
            self.line_ids.remove(&line.key);
            self.forget_spot(line.spot);
        }
        for spot in self.sets.release(set) {
            self.forget_spot(spot);
        }
        claim
    }

    fn forget_spot(&mut self, spot: u32) {
        debug_assert_eq!(self.spots[spot].parked, 0, "whatever is parked draws on it");
        if self.spots[spot].listed {
            self.spots[spot].state = SpotState::Gone;
        } else {
            self.spots.remove(spot);
        }
    }

    /// Puts a ticket in its place within its flow queue. O(1), except for a ticket that has stood elsewhere.
    fn put_between(&mut self, id: u32, strand: u32) {
        let key = self.tickets[id].key;
        let Strand { first, last, finger, .. } = self.strands[strand];
        let (before, behind) = if key > self.tickets[last].key {
            (last, NONE)
        } else if key < self.tickets[first].key {
            (NONE, first)
        } else {
            let mut before = if finger == NONE { first } else { finger };
            while self.tickets[before].key > key {
                before = self.tickets[before].before;
            }
            let mut behind = self.tickets[before].behind;
            while self.tickets[behind].key < key {
                (before, behind) = (behind, self.tickets[behind].behind);
            }
            self.strands[strand].finger = id;
            (before, behind)
        };
        (self.tickets[id].before, self.tickets[id].behind) = (before, behind);
        match behind {
            NONE => self.strands[strand].last = id,
            behind => self.tickets[behind].before = id,
        }
        match before {
            NONE => self.set_first(strand, id, self.tickets[behind].key),
            before => self.tickets[before].behind = id,
        }
    }

    /// Makes another ticket the first of a flow queue, instead of the one with the key `old`.
    fn set_first(&mut self, strand: u32, id: u32, old: u64) {
        self.strands[strand].first = id;
        let Strand { claim: Claim { rank, .. }, ranked, spot, .. } = self.strands[strand];
        let new = self.tickets[id].key;
        if spot == NONE {
            self.front.rekey(ranked, rank, strand, old, new);
        } else {
            self.spots[spot].ranking().rekey(ranked, rank, strand, old, new);
            self.recheck_for(spot, self.tickets[id].cost);
        }
    }

    pub(super) fn move_to(&mut self, id: u32, key: K) {
        let set = self.strands[self.tickets[id].strand].set;
        self.sets.keep(set);
        let claim = self.unlink(id);
        (self.tickets[id].before, self.tickets[id].behind) = (NONE, NONE);
        self.link(id, key, set, claim, Comes::Moved);
        let unused = self.sets.release(set);
        debug_assert!(unused.is_empty(), "its strand draws on it");
    }
}
