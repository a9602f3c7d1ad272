//! Keeps a budget for who needs another one as well, which opens a little later.
//!
//! Two budgets that others use up are never open at the same instant: each of their slots is taken as it matures. Whoever
//! needs both would wait until nobody else wants one of them. So once its turn has come often enough at one and the other
//! was closed, the one is kept for it until the other opens, if that takes no longer than one of its slots, and it is
//! the first one there.

use std::{hash::Hash, time::Duration};

use super::{
    Hold, Queue, TicketRules,
    records::{Kept, Strand},
};
use crate::clock::Instant;

/// So often a turn is missed before a budget is kept: where few wait that is never.
const MISSED: u8 = 2;

impl<K: Copy + Eq + Hash, T> Queue<K, T> {
    /// A strand that has gone to the front from where its turn was has been parked elsewhere because of this `hold`: keeps its
    /// turn, if that is soon. Says whether it does so where it came from.
    pub(super) fn keep_its_turn(
        &mut self,
        id: u32,
        hold: &Hold,
        now: Instant,
        gate: &mut impl TicketRules<K, T>,
    ) -> bool {
        let strand = &mut self.strands[id];
        let (from, there) = (strand.from, strand.spot);
        let (Hold::Budget(_, until), true) = (*hold, from != there) else { return false };
        strand.missed = strand.missed.saturating_add(1);
        if !strand.misses_turns() || self.spots[there].ranking().next() != Some(id) {
            return false;
        }
        let set = strand.set;
        let mut keeps = false;
        for at in 0..self.sets.spots(set).len() {
            let (spot, budget) = (self.sets.spots(set)[at], self.sets.budgets(set)[at]);
            let its_turn = spot == from || self.spots[spot].kept.is_some_and(|kept| kept.strand == id);
            if spot == there || !its_turn || self.spots[spot].parked == 0 || until > now + gate.spacing(budget) {
                continue;
            }
            // It goes to the front before anybody from here does.
            let until = until + Duration::from_nanos(1);
            self.spots[spot].kept = Some(Kept { strand: id, until });
            self.close(spot, until, None);
            keeps |= spot == from;
        }
        keeps
    }

    /// Whether this spot is kept for somebody who is not there.
    pub(super) fn is_kept(&mut self, spot: u32, now: Instant) -> bool {
        let Some(Kept { strand, until }) = self.spots[spot].kept else { return false };
        // It may have left, or had its turn.
        let is_needed = until > now && self.strands.get(strand).is_some_and(|strand| strand.misses_turns());
        if is_needed {
            self.close(spot, until, None);
        } else {
            self.spots[spot].kept = None;
        }
        is_needed
    }

    /// One of a strand's tickets has been served.
    pub(super) fn had_its_turn(&mut self, id: u32) {
        let strand = &mut self.strands[id];
        // What was kept for it will have to be kept for the next one, unless that has its turn without.
        strand.missed = if strand.misses_turns() { MISSED } else { 0 };
    }
}

// === impl Strand ===

impl Strand {
    /// Whether it misses its turns because what it needs opens at different instants.
    pub(super) fn misses_turns(&self) -> bool {
        self.missed > MISSED
    }
}
