//! Keeps a budget for who needs another one as well, which opens a little later.
//!
//! Two budgets that others use up are never open at the same instant: each of their slots is taken as it matures. Whoever
//! needs both would wait until nobody else wants one of them. So once its turn has come often enough at one and the other
//! was closed, a slot of the one is kept for it until the other opens, if it is the first one there and no more than that slot
//! is lost by then. A line is kept as well, if it waits for units other than requests.

use std::{hash::Hash, time::Duration};

use super::{
    Hold, NONE, Queue, TicketRules,
    records::{Kept, Strand},
    standing::recheck,
};
use crate::clock::Instant;

/// So often a turn is missed before a budget is kept: where few wait that is never.
const MISSED: u8 = 2;

impl<K: Copy + Eq + Hash, T> Queue<K, T> {
    /// A strand that stands in the front is about to be parked: has it gone there from another spot, because its turn was there,
    /// it has missed that.
    pub(super) fn misses_its_turn(&mut self, id: u32, spot: u32) {
        let strand = &mut self.strands[id];
        if strand.from != NONE && strand.from != spot {
            strand.missed = strand.missed.saturating_add(1);
        }
    }

    /// A strand that misses its turns has been parked because of this `hold`: keeps the one that it had, if that is soon. Says
    /// whether it does so where it came from.
    pub(super) fn keep_its_turn(
        &mut self,
        id: u32,
        hold: &Hold,
        now: Instant,
        gate: &mut impl TicketRules<K, T>,
    ) -> bool {
        let Strand { from, spot: there, line, first, .. } = self.strands[id];
        let (Hold::Own(until) | Hold::Budget(_, until)) = *hold else { return false };
        if !self.strands[id].misses_turns() || from == there {
            return false;
        }
        let turnover = match *hold {
            Hold::Budget(budget, Instant::FAR) => Some(gate.turnover(budget)),
            _ => None,
        };
        let (key, cost) = (self.lines[line].key, self.tickets[first].cost);
        let is_first = self.spots[there].ranking().next() == Some(id);
        let mut keeps = false;
        for at in 0..self.needs(id) {
            let (spot, budget) = self.need(id, at);
            let kept = self.spots[spot].kept.take_if(|kept| kept.strand == id);
            let idles = gate.idles(&key, budget, cost);
            let (until, last) = match turnover {
                Some(turnover) => (now + turnover, now + idles),
                // What opens is looked at before what is kept.
                None => (until, until + Duration::from_nanos(1)),
            };
            let its_turn = spot == from || kept.is_some();
            if is_first && its_turn && spot != there && until <= now + idles {
                self.spots[spot].kept = Some(Kept { strand: id, until: last, cost });
                if self.spots[spot].parked > 0 {
                    self.close(spot, now, None);
                }
                keeps |= spot == from;
            } else if kept.is_some() {
                recheck(&mut self.spots, &mut self.closed, spot);
            }
        }
        keeps
    }

    /// What holds a strand up that may leave at `now`: its line, or one of its budgets, that is kept for another one and has
    /// nothing left beside.
    pub(super) fn held_for_another(
        &mut self,
        id: u32,
        now: Instant,
        gate: &mut impl TicketRules<K, T>,
    ) -> Option<Hold> {
        for at in 0..self.needs(id) {
            let (spot, budget) = self.need(id, at);
            let Some(kept) = self.spots[spot].kept.filter(|kept| kept.strand != id) else { continue };
            let cost = self.tickets[self.strands[id].first].cost;
            if kept.until <= now {
                self.spots[spot].kept = None;
            } else if !gate.lets_both(budget, cost, kept.cost) {
                return Some(budget.map_or(Hold::Own(kept.until), |budget| Hold::Budget(budget, kept.until)));
            }
        }
        None
    }

    /// One of a strand's tickets has been served.
    pub(super) fn had_its_turn(&mut self, id: u32) {
        self.keep_no_more(id);
        let strand = &mut self.strands[id];
        // What was kept for it will have to be kept for the next one, unless that has its turn without.
        (strand.from, strand.missed) = (NONE, if strand.misses_turns() { MISSED } else { 0 });
    }

    /// Nothing is kept any more for a strand.
    pub(super) fn keep_no_more(&mut self, id: u32) {
        if !self.strands[id].misses_turns() {
            return;
        }
        for at in 0..self.needs(id) {
            let (spot, _) = self.need(id, at);
            if self.spots[spot].kept.take_if(|kept| kept.strand == id).is_some() {
                recheck(&mut self.spots, &mut self.closed, spot);
            }
        }
    }

    /// In how many places what a strand needs may be closed.
    fn needs(&self, id: u32) -> usize {
        1 + self.sets.spots(self.strands[id].set).len()
    }

    /// The spot of its line, and then of each budget.
    fn need(&self, id: u32, at: usize) -> (u32, Option<u32>) {
        let Strand { line, set, .. } = self.strands[id];
        match at.checked_sub(1) {
            None => (self.lines[line].spot, None),
            Some(at) => (self.sets.spots(set)[at], Some(self.sets.budgets(set)[at])),
        }
    }
}

// === impl Strand ===

impl Strand {
    /// Whether it misses its turns because what it needs opens at different instants.
    pub(super) fn misses_turns(&self) -> bool {
        self.missed > MISSED
    }
}
