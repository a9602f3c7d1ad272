//! Links of tickets in flow queues, and of flow queues in classes.

use std::hash::Hash;

use andante_limit::{Cost, Sum};

use super::{
    FlowQueue, Line, NONE, Queue, QueuePlace, Ticket, TicketRules, WaitPoint, WaitPointState, standing::recheck,
};
use crate::{
    claim::{Claim, Comes},
    ranking::RankedAt,
};

/// Waiting tickets of one flow that the same limits block.
#[derive(Debug)]
pub struct WaitingFlowQueue<I> {
    /// The identity of its requests.
    pub claim: Claim,
    /// The tickets, in their order.
    pub tickets: I,
}

impl<K: Copy + Eq + Hash, T> Queue<K, T> {
    /// The places of all `wanted` tickets, selected by identity and ticket, in order of arrival. O(waiting).
    pub fn places(&self, wanted: impl Fn(&Claim, &T) -> bool) -> Vec<QueuePlace> {
        let wanted = |ticket: &Ticket<T>| wanted(&self.flow_queues[ticket.flow_queue].claim, &ticket.ticket);
        let tickets = self.tickets.iter().filter(|(_, ticket)| wanted(ticket));
        let mut places: Vec<_> = tickets.map(|(id, ticket)| QueuePlace { id, key: ticket.key }).collect();
        places.sort_unstable_by_key(|place| place.key);
        places
    }

    /// The tickets of each flow queue in order: place, cost, and the ticket itself.
    pub fn flow_queues(&self) -> impl Iterator<Item = WaitingFlowQueue<impl Iterator<Item = (QueuePlace, &Cost, &T)>>> {
        self.flow_queues.iter().map(move |(_, flow_queue)| {
            let ids = std::iter::successors(Some(flow_queue.first), move |id| {
                Some(self.tickets[*id].behind).filter(|behind| *behind != NONE)
            });
            let tickets = ids.map(move |id| {
                let Ticket { key, cost, ticket, .. } = &self.tickets[id];
                (QueuePlace { id, key: *key }, cost, ticket)
            });
            WaitingFlowQueue { claim: flow_queue.claim, tickets }
        })
    }

    /// Applies the weights that `weigh` returns to the identities of waiting tickets. O(flow queues).
    pub fn reweigh_all(&mut self, weigh: impl Fn(&Claim) -> Claim) {
        for (_, flow_queue) in self.flow_queues.iter_mut_numbered() {
            let claim = weigh(&flow_queue.claim);
            if claim == flow_queue.claim {
                continue;
            }
            flow_queue.claim = claim;
            self.backlog.reweigh(&claim);
            self.front.reweigh(&claim);
            for &wait_point in
                [self.lines[flow_queue.line].wait_point].iter().chain(self.sets.wait_points(flow_queue.set))
            {
                self.wait_points[wait_point].ranking.iter_mut().for_each(|ranking| ranking.reweigh(&claim));
            }
        }
    }

    /// Moves each ticket to the class that `key_of` returns, where it keeps its place. O(waiting).
    pub fn sort(&mut self, mut key_of: impl FnMut(&T) -> K) {
        let mut misplaced = Vec::new();
        for (id, ticket) in self.tickets.iter() {
            let key = key_of(&ticket.ticket);
            if key != self.lines[self.flow_queues[ticket.flow_queue].line].key {
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
        let firsts: Vec<u32> = self.flow_queues.iter().map(|(_, flow_queue)| flow_queue.first).collect();
        for mut id in firsts {
            while id != NONE && *moves > 0 {
                let ticket = &self.tickets[id];
                let here = self.lines[self.flow_queues[ticket.flow_queue].line].key;
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
                let wait_point = self.wait_points.insert(WaitPoint::OPEN);
                let line = self.lines.insert(Line { key, flow_queues: 0, units: Sum::default(), wait_point });
                self.line_ids.insert(key, line);
                line
            }
        };
        let (place, cost) = (self.tickets[id].key, self.tickets[id].cost);
        self.lines[line].units.add(&cost);
        if let Some(&flow_queue) = self.flow_queue_ids.get(&(line, set, claim.claimed())) {
            self.tickets[id].flow_queue = flow_queue;
            self.put_between(id, flow_queue);
            return;
        }
        let ranked = RankedAt::NOWHERE;
        let (first, last) = (id, id);
        let flow_queue = FlowQueue {
            claim,
            line,
            set,
            first,
            last,
            finger: NONE,
            wait_point: NONE,
            ranked,
            from: NONE,
            missed: false,
        };
        let flow_queue = self.flow_queues.insert(flow_queue);
        self.flow_queue_ids.insert((line, set, claim.claimed()), flow_queue);
        self.tickets[id].flow_queue = flow_queue;
        self.lines[line].flow_queues += 1;
        self.sets.keep(set);
        match self.occupied_wait_point(flow_queue) {
            None => self.put_into_front(flow_queue, &claim, place, cost, comes),
            // Tickets that wait there already come first, as they are ranked there. The new ticket may also be first
            // itself.
            Some(wait_point) => {
                self.put_into_wait_point(flow_queue, claim, wait_point, place, cost, comes);
                self.recheck_for(wait_point, cost);
            }
        }
    }

    /// The number of a set of budgets.
    pub(super) fn set_of(&mut self, budgets: &[u32]) -> u32 {
        let Self { sets, wait_points, .. } = self;
        sets.number(budgets, || wait_points.insert(WaitPoint::OPEN))
    }

    /// Takes a ticket out of its flow queue. Returns its identity.
    pub(super) fn unlink(&mut self, id: u32) -> Claim {
        let Ticket { key, cost, flow_queue: flow_queue_id, before, behind, .. } = self.tickets[id];
        let flow_queue = &mut self.flow_queues[flow_queue_id];
        let FlowQueue { claim, line: line_id, set, wait_point, ranked, .. } = *flow_queue;
        let line = &mut self.lines[line_id];
        line.units.subtract(&cost);
        if before != NONE || behind != NONE {
            if flow_queue.finger == id {
                flow_queue.finger = before;
            }
            match before {
                NONE => self.set_first(flow_queue_id, behind, key),
                before => self.tickets[before].behind = behind,
            }
            match behind {
                NONE => self.flow_queues[flow_queue_id].last = before,
                behind => self.tickets[behind].before = before,
            }
            return claim;
        }
        line.flow_queues -= 1;
        self.keep_no_more(flow_queue_id);
        if wait_point == NONE {
            self.front.remove(ranked, &claim, flow_queue_id, key);
        } else {
            self.wait_points[wait_point].remove(ranked, &claim, flow_queue_id, key);
            if self.wait_points[wait_point].blocked == 0 {
                self.reopen(wait_point);
            } else {
                // The flow queues behind it may leave earlier.
                recheck(&mut self.wait_points, &mut self.closed, wait_point);
            }
        }
        self.flow_queue_ids.remove(&(line_id, set, claim.claimed()));
        self.flow_queues.remove(flow_queue_id);
        if self.lines[line_id].flow_queues == 0 {
            let line = self.lines.remove(line_id);
            self.line_ids.remove(&line.key);
            self.forget_wait_point(line.wait_point);
        }
        for wait_point in self.sets.release(set) {
            self.forget_wait_point(wait_point);
        }
        claim
    }

    fn forget_wait_point(&mut self, wait_point: u32) {
        debug_assert_eq!(self.wait_points[wait_point].blocked, 0, "a blocked flow queue draws on it");
        if self.wait_points[wait_point].listed {
            self.wait_points[wait_point].state = WaitPointState::Gone;
        } else {
            self.wait_points.remove(wait_point);
        }
    }

    /// Puts a ticket in its place within its flow queue. O(1), except for a ticket that has stood elsewhere.
    fn put_between(&mut self, id: u32, flow_queue: u32) {
        let key = self.tickets[id].key;
        let FlowQueue { first, last, finger, .. } = self.flow_queues[flow_queue];
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
            self.flow_queues[flow_queue].finger = id;
            (before, behind)
        };
        (self.tickets[id].before, self.tickets[id].behind) = (before, behind);
        match behind {
            NONE => self.flow_queues[flow_queue].last = id,
            behind => self.tickets[behind].before = id,
        }
        match before {
            NONE => self.set_first(flow_queue, id, self.tickets[behind].key),
            before => self.tickets[before].behind = id,
        }
    }

    /// Makes another ticket the first of a flow queue, instead of the one with the key `old`.
    fn set_first(&mut self, flow_queue: u32, id: u32, old: u64) {
        self.flow_queues[flow_queue].first = id;
        let FlowQueue { claim: Claim { rank, .. }, ranked, wait_point, .. } = self.flow_queues[flow_queue];
        let new = self.tickets[id].key;
        if wait_point == NONE {
            self.front.rekey(ranked, rank, flow_queue, old, new);
        } else {
            self.wait_points[wait_point].ranking().rekey(ranked, rank, flow_queue, old, new);
            self.recheck_for(wait_point, self.tickets[id].cost);
        }
    }

    pub(super) fn move_to(&mut self, id: u32, key: K) {
        let set = self.flow_queues[self.tickets[id].flow_queue].set;
        self.sets.keep(set);
        let claim = self.unlink(id);
        (self.tickets[id].before, self.tickets[id].behind) = (NONE, NONE);
        self.link(id, key, set, claim, Comes::Moved);
        let unused = self.sets.release(set);
        debug_assert!(unused.is_empty(), "its flow queue draws on it");
    }
}
