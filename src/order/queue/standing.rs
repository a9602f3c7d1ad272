//! Transitions of flow queues between ready and blocked.

use std::{collections::BTreeSet, hash::Hash};

use andante_clock::Instant;
use andante_limit::Cost;

use super::{FlowQueue, HeadFinding, Hold, LOOKS, NONE, Queue, TicketRules, WaitPoint, WaitPointState};
use crate::{
    claim::{Claim, Comes},
    ranking::Ranking,
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
    pub(crate) fn wait_points(&self) -> usize {
        self.wait_points.len()
    }

    /// Schedules a check of all closed classes, because their limits may have changed. O(classes).
    pub fn recheck(&mut self) {
        for (_, line) in self.lines.iter() {
            recheck(&mut self.wait_points, &mut self.closed, line.wait_point);
        }
    }

    /// Schedules a check of the wait points closed without an end: they may have a time now. O(such wait points).
    pub fn recheck_endless(&mut self) {
        while let Some(&(Instant::FAR, wait_point)) = self.closed.last() {
            recheck(&mut self.wait_points, &mut self.closed, wait_point);
        }
    }

    /// Schedules a check of this budget, because its remainder may have changed.
    pub fn recheck_budget(&mut self, budget: u32) {
        if let Some(wait_point) = self.sets.wait_point_of(budget) {
            recheck(&mut self.wait_points, &mut self.closed, wait_point);
        }
    }

    /// Checks whether the first ticket blocked at a wait point may leave. If so, its flow queue becomes ready.
    pub(super) fn look_at(
        &mut self,
        wait_point: u32,
        now: Instant,
        moves: &mut usize,
        gate: &mut impl TicketRules<K, T>,
    ) -> bool {
        for _ in 0..LOOKS {
            let flow_queue = self.wait_points[wait_point].ranking().next().expect("a flow queue is blocked there");
            let here = match self.find_out(flow_queue, now, moves, gate) {
                // The flow queue was the last one there, and the class is gone; or nothing is blocked there any more.
                HeadFinding::Moved
                    if self.wait_points.get(wait_point).is_none_or(|wait_point| wait_point.blocked == 0) =>
                {
                    return false;
                }
                HeadFinding::Moved => continue,
                HeadFinding::Held(_, Hold::Open | Hold::Shared(_)) => {
                    self.unpark(flow_queue);
                    self.keep_in_front(flow_queue, now, gate);
                    if self.wait_points[wait_point].blocked > 0 && !self.wait_points[wait_point].listed {
                        self.wait_points[wait_point].listed = true;
                        self.open.push_back(wait_point);
                    }
                    return true;
                }
                HeadFinding::Held(_, hold) => (self.wait_point_of(flow_queue, &hold), hold),
            };
            match here {
                (there, Hold::Own(at) | Hold::Budget(_, at)) if there == wait_point => {
                    self.close(wait_point, at, Some(self.tickets[self.flow_queues[flow_queue].first].cost));
                    return false;
                }
                // Something else blocks it longer: it moves there.
                (_, hold) => {
                    self.unpark(flow_queue);
                    self.park(flow_queue, &hold);
                    let keeps = self.keep_its_turn(flow_queue, &hold, now, gate);
                    if keeps || self.wait_points[wait_point].blocked == 0 {
                        return false;
                    }
                }
            }
        }
        // The rest is checked once others had the lock.
        self.close(wait_point, now, None);
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
            let wait_point = &mut self.wait_points[id];
            wait_point.listed = false;
            if wait_point.state == WaitPointState::Gone {
                self.wait_points.remove(id);
                continue;
            }
            if wait_point.state == WaitPointState::Open && wait_point.blocked > 0 && self.look_at(id, now, moves, gate)
            {
                return true;
            }
        }
        false
    }

    /// Checks the first ticket of a flow queue.
    pub(super) fn find_out(
        &mut self,
        flow_queue: u32,
        now: Instant,
        moves: &mut usize,
        gate: &mut impl TicketRules<K, T>,
    ) -> HeadFinding<K> {
        let FlowQueue { first: id, line, set, .. } = self.flow_queues[flow_queue];
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
            && let Some(kept) = self.held_for_another(flow_queue, now, gate)
        {
            return HeadFinding::Held(key, kept);
        }
        HeadFinding::Held(key, hold)
    }

    /// Blocks a ready flow queue that its class, or one of its budgets, stops.
    pub(super) fn park(&mut self, flow_queue: u32, hold: &Hold) {
        let (Hold::Own(at) | Hold::Budget(_, at)) = *hold else { unreachable!("what is open or shared parks nobody") };
        let wait_point = self.wait_point_of(flow_queue, hold);
        self.misses_its_turn(flow_queue, wait_point);
        let cost = self.move_into_wait_point(flow_queue, wait_point);
        let (at, cost) = match self.wait_points[wait_point].state {
            // A flow queue that is already blocked there may leave earlier.
            WaitPointState::Closed(before) => {
                (before.min(at), self.wait_points[wait_point].cost.map(|least| least.least(&cost)))
            }
            WaitPointState::Open if self.wait_points[wait_point].blocked > 1 => (Instant::START, Some(cost)),
            WaitPointState::Open | WaitPointState::Gone => (at, Some(cost)),
        };
        self.close(wait_point, at, cost);
    }

    /// Returns a served flow queue from the ready list to its wait point, if others are blocked there. The others may
    /// have received less there, although it has had fewer slots: the order there decides, as for a new arrival.
    pub(super) fn send_back(&mut self, id: u32) {
        if self.flow_queues[id].wait_point != NONE {
            return;
        }
        let Some(wait_point) = self.occupied_wait_point(id) else { return };
        let cost = self.move_into_wait_point(id, wait_point);
        self.recheck_for(wait_point, cost);
    }

    /// A wait point of the flow queue at which others are blocked.
    pub(super) fn occupied_wait_point(&self, flow_queue: u32) -> Option<u32> {
        let FlowQueue { line, set, .. } = &self.flow_queues[flow_queue];
        let mut wait_points = std::iter::once(&self.lines[*line].wait_point).chain(self.sets.wait_points(*set));
        wait_points.find(|wait_point| self.wait_points[**wait_point].blocked > 0).copied()
    }

    /// The wait point of a flow queue with this block reason.
    fn wait_point_of(&self, flow_queue: u32, hold: &Hold) -> u32 {
        match hold {
            Hold::Budget(budget, _) => self.sets.wait_point_of(*budget).expect("the flow queue draws on it"),
            _ => self.lines[self.flow_queues[flow_queue].line].wait_point,
        }
    }

    /// Moves a ready flow queue to a wait point. Returns the cost of its first ticket.
    fn move_into_wait_point(&mut self, id: u32, wait_point: u32) -> Cost {
        let FlowQueue { claim, first, ranked, .. } = self.flow_queues[id];
        let (key, cost) = (self.tickets[first].key, self.tickets[first].cost);
        self.front.remove(ranked, &claim, id, key);
        let comes = if self.flow_queues[id].missed { Comes::Missed } else { Comes::Moved };
        self.put_into_wait_point(id, claim, wait_point, key, cost, comes);
        cost
    }

    /// Puts a flow queue that stands nowhere into the ready list.
    pub(super) fn put_into_front(&mut self, flow_queue: u32, claim: &Claim, key: u64, cost: Cost, comes: Comes) {
        self.flow_queues[flow_queue].ranked = self.front.insert(claim, flow_queue, key, cost.requests().into(), comes);
    }

    pub(super) fn put_into_wait_point(
        &mut self,
        flow_queue: u32,
        claim: Claim,
        wait_point: u32,
        key: u64,
        cost: Cost,
        comes: Comes,
    ) {
        self.flow_queues[flow_queue].wait_point = wait_point;
        let wait_point = &mut self.wait_points[wait_point];
        wait_point.blocked += 1;
        let ranking = wait_point.ranking.get_or_insert_with(|| Box::new(Ranking::new(1)));
        self.flow_queues[flow_queue].ranked = ranking.insert(&claim, flow_queue, key, cost.share(), comes);
    }

    /// Charges a served ticket to its flow at a wait point where it waited or might have.
    pub(super) fn charge_wait_point(&mut self, wait_point: u32, claim: &Claim, cost: Cost) {
        let wait_point = &mut self.wait_points[wait_point];
        if let Some(ranking) = &mut wait_point.ranking {
            ranking.charge(claim, cost.share());
            // With no next flow queue there, nothing else would forget any.
            if wait_point.blocked == 0 && ranking.remembered() > REMEMBERED {
                wait_point.ranking = None;
            }
        }
    }

    fn unpark(&mut self, id: u32) {
        let flow_queue = &mut self.flow_queues[id];
        let wait_point = std::mem::replace(&mut flow_queue.wait_point, NONE);
        flow_queue.from = wait_point;
        let (claim, ranked) = (flow_queue.claim, flow_queue.ranked);
        let (key, cost) = (self.tickets[flow_queue.first].key, self.tickets[flow_queue.first].cost);
        self.wait_points[wait_point].remove(ranked, &claim, id, key);
        self.put_into_front(id, &claim, key, cost, Comes::Moved);
        self.reopen(wait_point);
    }

    /// Schedules a check of the wait point at `at`, when a ticket of this cost may leave; `None` if any ticket may
    /// leave earlier.
    pub(super) fn close(&mut self, wait_point: u32, at: Instant, cost: Option<Cost>) {
        self.wait_points[wait_point].cost = cost;
        if let WaitPointState::Closed(before) = self.wait_points[wait_point].state {
            self.closed.remove(&(before, wait_point));
        }
        self.wait_points[wait_point].state = WaitPointState::Closed(at);
        self.closed.insert((at, wait_point));
    }

    /// Schedules a check because a ticket of this cost has become first in a flow queue there: it may leave earlier
    /// than the previous ones.
    pub(super) fn recheck_for(&mut self, wait_point: u32, cost: Cost) {
        if self.wait_points[wait_point].cost.is_none_or(|least| cost.takes_less(&least)) {
            recheck(&mut self.wait_points, &mut self.closed, wait_point);
        }
    }

    pub(super) fn reopen(&mut self, wait_point: u32) {
        if let WaitPointState::Closed(before) =
            std::mem::replace(&mut self.wait_points[wait_point].state, WaitPointState::Open)
        {
            self.closed.remove(&(before, wait_point));
        }
    }
}

/// Schedules a check of this wait point, because its limits may have changed.
pub(super) fn recheck(wait_points: &mut Slab<WaitPoint>, closed: &mut BTreeSet<(Instant, u32)>, wait_point: u32) {
    if let WaitPointState::Closed(before) = wait_points[wait_point].state {
        closed.remove(&(before, wait_point));
        wait_points[wait_point].state = WaitPointState::Closed(Instant::START);
        closed.insert((Instant::START, wait_point));
    }
}
