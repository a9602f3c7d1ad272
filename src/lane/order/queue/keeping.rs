//! Keeps a budget for who needs another one as well, which opens a little later.
//!
//! Two budgets that others use up are never open at the same instant: each of their slots is taken as it matures. Whoever
//! needs both would wait until nobody else wants one of them. So once its turn has come at one and the other was closed, a slot of
//! the one is kept for it until the other opens and it leaves, if it is the first one there and no more than two slots are lost by
//! then. A line is kept as well, if it waits for units other than requests.

use std::{hash::Hash, time::Duration};

use super::{
    Hold, NONE, Queue, TicketRules,
    records::{Kept, Strand},
    standing::recheck,
};
use crate::clock::Instant;

/// Nothing is kept for longer, though no more be lost by that.
const LONGEST: Duration = Duration::from_secs(60);

impl<K: Copy + Eq + Hash, T> Queue<K, T> {
    /// A strand that stands in the front is about to be parked: has it gone there from another spot, because its turn was there,
    /// it has missed that.
    pub(super) fn misses_its_turn(&mut self, id: u32, spot: u32) {
        let kept = self.is_kept_from(id, spot);
        let strand = &mut self.strands[id];
        strand.missed |= strand.from != NONE && strand.from != spot && !kept;
    }

    /// A strand that misses its turns has gone to the front: what it has waited for is kept until it leaves, though others are
    /// before it there.
    pub(super) fn keep_in_front(&mut self, id: u32, now: Instant, gate: &mut impl TicketRules<K, T>) {
        let Strand { from, line, first, .. } = self.strands[id];
        if !self.strands[id].missed || self.is_kept_from(id, from) {
            return;
        }
        let (key, cost) = (self.lines[line].key, self.tickets[first].cost);
        let budget = (0..self.needs(id)).map(|at| self.need(id, at)).find(|(spot, _)| *spot == from);
        let Some((_, budget)) = budget else { return };
        if self.spots[from].kept.as_ref().is_none_or(|kept| kept.until <= now) {
            let until = now + gate.idles(&key, budget, cost).min(LONGEST);
            self.keep(from, Kept { strand: id, until, end: until, cost });
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
        let until = match *hold {
            Hold::Budget(budget, Instant::FAR) => gate.turnover(budget).map(|turnover| now + turnover),
            Hold::Own(until) | Hold::Budget(_, until) => Some(until),
            Hold::Open | Hold::Shared(_) => None,
        };
        if !self.strands[id].missed || from == there || self.is_kept_from(id, there) {
            return false;
        }
        let (key, cost) = (self.lines[line].key, self.tickets[first].cost);
        let until = until.filter(|_| self.spots[there].ranking().next() == Some(id));
        let mut keeps = false;
        for at in 0..self.needs(id) {
            let (spot, budget) = self.need(id, at);
            let kept = self.take_kept(spot, |kept| kept.strand == id);
            let idles = gate.idles(&key, budget, cost).min(LONGEST);
            let before = kept.as_ref().filter(|kept| kept.until > now);
            // For as long with each of the others.
            let end =
                before.map_or_else(|| now + idles * (self.needs(id).saturating_sub(2).max(1) as u32), |kept| kept.end);
            let last = (now + idles).min(end);
            let its_turn = spot == from || before.is_some();
            if its_turn && spot != there && until.is_some_and(|until| until <= last) {
                // It is not the first in the front as soon as that opens.
                self.keep(spot, Kept { strand: id, until: last, end, cost });
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
        if self.kept == 0 {
            return None;
        }
        for at in 0..self.needs(id) {
            let (spot, budget) = self.need(id, at);
            self.take_kept(spot, |kept| kept.strand != id && kept.until <= now);
            let Some(kept) = self.spots[spot].kept.as_deref().filter(|kept| kept.strand != id) else { continue };
            let Strand { line, first, .. } = self.strands[id];
            let (key, cost) = (self.lines[line].key, self.tickets[first].cost);
            let until = gate.earliest_beside(&key, budget, cost, kept.cost).min(kept.until);
            if until > now {
                return Some(budget.map_or(Hold::Own(until), |budget| Hold::Budget(budget, until)));
            }
        }
        None
    }

    fn keep(&mut self, spot: u32, kept: Kept) {
        let before = self.spots[spot].kept.replace(kept.into());
        self.kept += u32::from(before.is_none());
    }

    /// A spot is not kept any more, if what it is kept for is `over`.
    fn take_kept(&mut self, spot: u32, over: impl FnOnce(&Kept) -> bool) -> Option<Box<Kept>> {
        let kept = self.spots[spot].kept.take_if(|kept| over(kept));
        self.kept -= u32::from(kept.is_some());
        kept
    }

    /// Whether this spot is kept for another strand.
    fn is_kept_from(&self, id: u32, spot: u32) -> bool {
        self.spots.get(spot).and_then(|spot| spot.kept.as_ref()).is_some_and(|kept| kept.strand != id)
    }

    /// One of a strand's tickets has been served.
    pub(super) fn had_its_turn(&mut self, id: u32) {
        self.keep_no_more(id);
        let strand = &mut self.strands[id];
        (strand.from, strand.missed) = (NONE, false);
    }

    /// Nothing is kept any more for a strand.
    pub(super) fn keep_no_more(&mut self, id: u32) {
        if !self.strands[id].missed {
            return;
        }
        for at in 0..self.needs(id) {
            let (spot, _) = self.need(id, at);
            if self.take_kept(spot, |kept| kept.strand == id).is_some() {
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
