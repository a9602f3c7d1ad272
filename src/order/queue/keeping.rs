//! Reserves a slot of one budget for a flow queue that also needs another budget, which opens a little later.
//!
//! Two budgets that others use up are never open at the same instant: each of their slots is taken as it matures. A
//! flow queue that needs both would wait until no other one wants one of them. If its turn has come at one budget while
//! the other was closed, a slot is reserved until the other opens and it leaves. Conditions: it is the first one at the
//! other budget, and no more than two slots are lost by then. A class that waits for units other than requests can be
//! reserved as well.

use std::{hash::Hash, time::Duration};

use andante_clock::Instant;

use super::{
    Hold, NONE, Queue, TicketRules,
    records::{FlowQueue, Kept},
    standing::recheck,
};

/// The longest reservation, even if a longer one would waste no further slot.
const LONGEST: Duration = Duration::from_secs(60);

impl<K: Copy + Eq + Hash, T> Queue<K, T> {
    /// Notes a missed turn: the flow queue had become ready by its turn at one wait point, and is about to be blocked
    /// at another.
    pub(super) fn misses_its_turn(&mut self, id: u32, wait_point: u32) {
        let kept = self.is_kept_from(id, wait_point);
        let flow_queue = &mut self.flow_queues[id];
        flow_queue.missed |= flow_queue.from != NONE && flow_queue.from != wait_point && !kept;
    }

    /// Reserves a slot for a flow queue that misses its turns and has become ready. The reservation at the wait point
    /// it came from lasts until it leaves, even if others precede it.
    pub(super) fn keep_in_front(&mut self, id: u32, now: Instant, gate: &mut impl TicketRules<K, T>) {
        let FlowQueue { from, line, first, .. } = self.flow_queues[id];
        if !self.flow_queues[id].missed || self.is_kept_from(id, from) {
            return;
        }
        let (key, cost) = (self.lines[line].key, self.tickets[first].cost);
        let budget = (0..self.needs(id)).map(|at| self.need(id, at)).find(|(wait_point, _)| *wait_point == from);
        let Some((_, budget)) = budget else { return };
        if self.wait_points[from].kept.as_ref().is_none_or(|kept| kept.until <= now) {
            let until = now + gate.idles(&key, budget, cost).min(LONGEST);
            self.keep(from, Kept { flow_queue: id, until, end: until, cost });
        }
    }

    /// Reserves the missed turn of a flow queue that this `hold` has blocked, if the `hold` ends soon. Returns whether
    /// the reservation is at the wait point it came from.
    pub(super) fn keep_its_turn(
        &mut self,
        id: u32,
        hold: &Hold,
        now: Instant,
        gate: &mut impl TicketRules<K, T>,
    ) -> bool {
        let FlowQueue { from, wait_point: there, line, first, .. } = self.flow_queues[id];
        let until = match *hold {
            Hold::Budget(budget, Instant::FAR) => gate.turnover(budget).map(|turnover| now + turnover),
            Hold::Own(until) | Hold::Budget(_, until) => Some(until),
            Hold::Open | Hold::Shared(_) => None,
        };
        if !self.flow_queues[id].missed || from == there || self.is_kept_from(id, there) {
            return false;
        }
        let (key, cost) = (self.lines[line].key, self.tickets[first].cost);
        let until = until.filter(|_| self.wait_points[there].ranking().next() == Some(id));
        let mut keeps = false;
        for at in 0..self.needs(id) {
            let (wait_point, budget) = self.need(id, at);
            let kept = self.take_kept(wait_point, |kept| kept.flow_queue == id);
            let idles = gate.idles(&key, budget, cost).min(LONGEST);
            let before = kept.as_ref().filter(|kept| kept.until > now);
            // As long again for each of the other needs.
            let end =
                before.map_or_else(|| now + idles * (self.needs(id).saturating_sub(2).max(1) as u32), |kept| kept.end);
            let last = (now + idles).min(end);
            let its_turn = wait_point == from || before.is_some();
            if its_turn && wait_point != there && until.is_some_and(|until| until <= last) {
                // When that opens, it is not yet the first in the ready list.
                self.keep(wait_point, Kept { flow_queue: id, until: last, end, cost });
                if self.wait_points[wait_point].blocked > 0 {
                    self.close(wait_point, now, None);
                }
                keeps |= wait_point == from;
            } else if kept.is_some() {
                recheck(&mut self.wait_points, &mut self.closed, wait_point);
            }
        }
        keeps
    }

    /// The block of a flow queue that could leave at `now`. The class, or one of the budgets, is reserved for another
    /// flow queue and has no slot left over.
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
            let (wait_point, budget) = self.need(id, at);
            self.take_kept(wait_point, |kept| kept.flow_queue != id && kept.until <= now);
            let Some(kept) = self.wait_points[wait_point].kept.as_deref().filter(|kept| kept.flow_queue != id) else {
                continue;
            };
            let FlowQueue { line, first, .. } = self.flow_queues[id];
            let (key, cost) = (self.lines[line].key, self.tickets[first].cost);
            let until = gate.earliest_beside(&key, budget, cost, kept.cost).min(kept.until);
            if until > now {
                return Some(budget.map_or(Hold::Own(until), |budget| Hold::Budget(budget, until)));
            }
        }
        None
    }

    fn keep(&mut self, wait_point: u32, kept: Kept) {
        let before = self.wait_points[wait_point].kept.replace(kept.into());
        self.kept += u32::from(before.is_none());
    }

    /// Ends the reservation of a wait point if it is `over`.
    fn take_kept(&mut self, wait_point: u32, over: impl FnOnce(&Kept) -> bool) -> Option<Box<Kept>> {
        let kept = self.wait_points[wait_point].kept.take_if(|kept| over(kept));
        self.kept -= u32::from(kept.is_some());
        kept
    }

    /// Returns whether this wait point is reserved for another flow queue.
    fn is_kept_from(&self, id: u32, wait_point: u32) -> bool {
        self.wait_points
            .get(wait_point)
            .and_then(|wait_point| wait_point.kept.as_ref())
            .is_some_and(|kept| kept.flow_queue != id)
    }

    /// Resets a flow queue after one of its tickets has been served.
    pub(super) fn had_its_turn(&mut self, id: u32) {
        self.keep_no_more(id);
        let flow_queue = &mut self.flow_queues[id];
        (flow_queue.from, flow_queue.missed) = (NONE, false);
    }

    /// Ends all reservations for a flow queue.
    pub(super) fn keep_no_more(&mut self, id: u32) {
        if !self.flow_queues[id].missed {
            return;
        }
        for at in 0..self.needs(id) {
            let (wait_point, _) = self.need(id, at);
            if self.take_kept(wait_point, |kept| kept.flow_queue == id).is_some() {
                recheck(&mut self.wait_points, &mut self.closed, wait_point);
            }
        }
    }

    /// Number of wait points at which a flow queue may be blocked.
    fn needs(&self, id: u32) -> usize {
        1 + self.sets.wait_points(self.flow_queues[id].set).len()
    }

    /// The wait point of its class (at 0), and then of each budget.
    fn need(&self, id: u32, at: usize) -> (u32, Option<u32>) {
        let FlowQueue { line, set, .. } = self.flow_queues[id];
        match at.checked_sub(1) {
            None => (self.lines[line].wait_point, None),
            Some(at) => (self.sets.wait_points(set)[at], Some(self.sets.budgets(set)[at])),
        }
    }
}
