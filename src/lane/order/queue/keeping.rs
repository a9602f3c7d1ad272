//! Keeps a budget for who needs another one as well, which opens a little later.
//!
//! Two budgets that others use up are never open at the same instant: each of their slots is taken as it matures. Whoever
//! needs both would wait until nobody else wants one of them. So once its turn has come often enough at one and the other
//! was closed, the one is kept for it until the other opens, if that takes no longer than one of its slots, and it is
//! the first one there.

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
        let Strand { from, spot: there, set, .. } = self.strands[id];
        let (Hold::Budget(_, until), true) = (*hold, self.strands[id].misses_turns() && from != there) else {
            return false;
        };
        let is_first = self.spots[there].ranking().next() == Some(id);
        let mut keeps = false;
        for at in 0..self.sets.spots(set).len() {
            let (spot, budget) = (self.sets.spots(set)[at], self.sets.budgets(set)[at]);
            let kept = self.spots[spot].kept.take_if(|kept| kept.strand == id);
            let spacing = gate.spacing(budget);
            let its_turn = spot == from || kept.is_some();
            if is_first && its_turn && spot != there && self.spots[spot].parked > 0 && until <= now + spacing {
                // What opens is looked at before what is kept.
                let until = until + Duration::from_nanos(1);
                self.spots[spot].kept = Some(Kept { strand: id, until });
                self.close(spot, until, None);
                keeps |= spot == from;
            } else if kept.is_some() {
                recheck(&mut self.spots, &mut self.closed, spot);
            }
        }
        keeps
    }

    /// Whether this spot is kept for somebody who is not there.
    pub(super) fn is_kept(&mut self, spot: u32, now: Instant) -> bool {
        let until = self.spots[spot].kept.map(|kept| kept.until);
        match until.filter(|until| *until > now) {
            Some(until) => self.close(spot, until, None),
            None => self.spots[spot].kept = None,
        }
        self.spots[spot].kept.is_some()
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
        let set = self.strands[id].set;
        if !self.strands[id].misses_turns() {
            return;
        }
        for at in 0..self.sets.spots(set).len() {
            let spot = self.sets.spots(set)[at];
            if self.spots[spot].kept.take_if(|kept| kept.strand == id).is_some() {
                recheck(&mut self.spots, &mut self.closed, spot);
            }
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
