//! Orders waiting requests. Has no clock and never wakes any request: the lane calls it, and sets the timer itself.
//!
//! A ticket belongs to a *class* ([`Line`]): tickets that the same learned limits can block, in addition to the common
//! limits. A ticket may also draw on the *budgets* of narrower rules, which are independent of its class. The tickets
//! of one flow with the same class and budgets form a *flow queue* ([`FlowQueue`]), served in order of arrival. A flow
//! queue is *ready* when only the common limits can stop it. Otherwise it is *blocked* at one closed *wait
//! point* ([`WaitPoint`]): its class, or one of its budgets. The ready list and each wait point rank their flow queues
//! themselves, by what has been served there. So each budget is shared on its own: the next slot goes to the flow queue
//! that has received least of that budget.
//!
//! A request that needs two budgets could starve behind requests that need only one of them. If its turn comes at an
//! open budget while the other is closed, a slot of the open one is [reserved](keeping) until it leaves.
//!
//! A wait point that opens makes its flow queues ready one by one, another one with each granted slot. So tickets
//! blocked at ten thousand wait points cost no more than tickets blocked at one.

mod ahead;
mod eviction;
mod keeping;
mod links;
mod records;
mod sets;
mod standing;

use std::{
    collections::{BTreeSet, VecDeque},
    hash::Hash,
    time::Duration,
};

use andante_clock::Instant;
use andante_limit::Cost;

pub use self::links::WaitingFlowQueue;
use self::{
    records::{FlowQueue, Line, Ticket, WaitPoint, WaitPointState},
    sets::Sets,
};
use super::{
    backlog::{Backlog, Waits},
    claim::{Claim, Claimed, Comes, Turn, Urgency},
    inflow::Inflow,
    ranking::{RankedAt, Ranking},
    slab::{Map, Slab},
};

/// A ticket's place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePlace {
    id: u32,
    key: u64,
}

/// The lane's knowledge about tickets.
pub trait TicketRules<K, T> {
    /// The current class of `ticket`, which stands in the class `key`: usually `key` itself.
    fn line(&mut self, ticket: &T, key: &K) -> K;
    /// The limit that blocks tickets of a class that draw on `budgets`; the first of them costs `cost`.
    fn hold(&mut self, key: &K, budgets: &[u32], cost: Cost) -> Hold;
    /// Returns whether requests with this identity may leave at all. Requests of clients for which it is false wait
    /// until [`Queue::resume`].
    fn admits(&mut self, _claim: &Claim) -> bool {
        true
    }
    /// Mean time until this budget admits a ticket, if the time of its next slot is unknown.
    fn turnover(&self, _budget: u32) -> Option<Duration> {
        None
    }
    /// The time for which a ticket's slot may stay unused before more than that slot is lost. The slot is that of this
    /// budget, or of the units that its class waits for. Zero means that no slot is ever reserved.
    fn idles(&mut self, _key: &K, _budget: Option<u32>, _cost: Cost) -> Duration {
        Duration::ZERO
    }
    /// When this budget, or the units for which the class waits, suffices for both a ticket of `cost` of this class and
    /// one of `kept`.
    fn earliest_beside(&mut self, _key: &K, _budget: Option<u32>, _cost: Cost, _kept: Cost) -> Instant {
        Instant::FAR
    }
}

/// The limit that blocks a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Nothing.
    Open,
    /// The limits common to all tickets, until this instant.
    Shared(Instant),
    /// The limits of its class, until this instant.
    Own(Instant),
    /// This one of its budgets, until this instant.
    Budget(u32, Instant),
}

/// The result of asking for the next ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<K> {
    /// This ticket leaves now, as one of the class `key`.
    Ticket {
        /// Its place.
        place: QueuePlace,
        /// Its class.
        key: K,
    },
    /// No ticket leaves before this instant.
    At(Instant),
}

/// A ticket that was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken<T> {
    /// Its identity.
    pub claim: Claim,
    /// What it costs.
    pub cost: Cost,
    /// The ticket.
    pub ticket: T,
}

/// Tickets in the order in which they will be served. Every operation is O(log waiting) unless it says otherwise.
#[derive(Debug)]
pub struct Queue<K, T> {
    tickets: Slab<Ticket<T>>,
    flow_queues: Slab<FlowQueue>,
    flow_queue_ids: Map<(u32, u32, Claimed), u32>,
    lines: Slab<Line<K>>,
    line_ids: Map<K, u32>,
    sets: Sets,
    /// Wait points: one for each class, and one for each budget that is drawn on.
    wait_points: Slab<WaitPoint>,
    front: Ranking,
    /// The closed wait points, by the time of the next check.
    closed: BTreeSet<(Instant, u32)>,
    /// Open wait points, in turn. Each had blocked flow queues when it was added.
    open: VecDeque<u32>,
    backlog: Backlog,
    inflow: Inflow,
    serial: u64,
    /// True if a slot was granted since a flow queue was last made ready.
    gave: bool,
    /// Number of wait points with a reserved slot: usually 0, and then none is checked.
    kept: u32,
}

/// Result of checking the first ticket of a flow queue.
enum HeadFinding<K> {
    Held(K, Hold),
    /// The ticket belonged to another class, and stands there now.
    Moved,
}

const NONE: u32 = u32::MAX;
/// The most turns in the ready list owed to a client or a flow that waited elsewhere. A flow queue that waits for
/// tokens behind others gets its missed slots together once tokens have come. With one turn it would get a third of its
/// share beside flows that take no tokens (docs/decisions/queue.md).
const CREDIT: u8 = 8;
/// Keys of tickets that have never been sent are larger than those of resent tickets.
const NEW: u64 = 1 << 63;
/// Number of tickets for which an empty queue keeps memory.
const FEW: usize = 64;
/// The most flow queues checked in one go.
const LOOKS: u32 = 64;
/// The most wait points checked in one go because their time has come, while other tickets can be served.
const OPENINGS: u32 = 8;

// === impl QueuePlace ===

impl QueuePlace {
    /// Returns whether the ticket there was sent before.
    pub fn is_of_resent(self) -> bool {
        self.key < NEW
    }

    /// The attempt with which the ticket there was enqueued.
    pub fn turn(self) -> Turn {
        if self.is_of_resent() { Turn::Resent } else { Turn::New }
    }
}

// === impl Queue ===

impl<K: Copy + Eq + Hash, T> Queue<K, T> {
    /// An empty queue.
    pub fn new() -> Self {
        Self {
            tickets: Slab::new(),
            flow_queues: Slab::new(),
            flow_queue_ids: Map::default(),
            lines: Slab::new(),
            line_ids: Map::default(),
            sets: Sets::default(),
            wait_points: Slab::new(),
            front: Ranking::new(CREDIT),
            closed: BTreeSet::new(),
            open: VecDeque::new(),
            backlog: Backlog::default(),
            inflow: Inflow::default(),
            serial: 0,
            gave: false,
            kept: 0,
        }
    }

    /// Enqueues `ticket`, which draws on `budgets`, in the class of `key`, behind all others of its `turn` in its flow.
    pub fn enqueue(&mut self, key: K, budgets: &[u32], claim: Claim, cost: Cost, turn: Turn, ticket: T) -> QueuePlace {
        let mut claim = self.backlog.resolve(claim);
        if turn == Turn::Resent {
            // The request's weights were read when it came first; others may hold by now.
            claim = self.backlog.with_known_weights(claim);
        }
        let place = self.serial | if turn == Turn::New { NEW } else { 0 };
        self.serial += 1;
        if self.backlog.add(&claim, &cost, Waits::of(&cost, !budgets.is_empty()), turn) {
            self.reweigh(&claim);
        }
        self.inflow.came(claim.urgency, cost.requests());
        let ticket = Ticket { ticket, key: place, cost, flow_queue: NONE, before: NONE, behind: NONE };
        let id = self.tickets.insert(ticket);
        let set = self.set_of(budgets);
        self.link(id, key, set, claim, Comes::New);
        QueuePlace { id, key: place }
    }

    /// The next ticket at `now`, or the next instant to ask. Moves up to `moves` misplaced tickets that have reached
    /// the front of a class, and subtracts them from `moves`. Returns [`Next::At`] `now` if there is more to check than
    /// fits in one go. Amortised O(log waiting).
    pub fn next(&mut self, now: Instant, moves: &mut usize, gate: &mut impl TicketRules<K, T>) -> Next<K> {
        if std::mem::take(&mut self.gave) {
            self.let_one_forward(now, moves, gate);
        }
        let mut openings = OPENINGS;
        for _ in 0..LOOKS {
            while let Some(&(at, wait_point)) = self.closed.first()
                && at <= now
                && (openings > 0 || self.front.is_empty() && !self.front.has_suspended())
            {
                openings = openings.saturating_sub(1);
                self.look_at(wait_point, now, moves, gate);
            }
            let Some(flow_queue) = self.front.next() else {
                if self.let_one_forward(now, moves, gate) {
                    continue;
                }
                // An open wait point may just have been found closed.
                return Next::At(self.next_look().max(now));
            };
            let FlowQueue { claim, ranked, .. } = self.flow_queues[flow_queue];
            if !gate.admits(&claim) {
                self.keep_no_more(flow_queue);
                self.front.suspend(ranked, claim.urgency);
                continue;
            }
            match self.find_out(flow_queue, now, moves, gate) {
                HeadFinding::Moved => {}
                HeadFinding::Held(key, Hold::Open) => {
                    let id = self.flow_queues[flow_queue].first;
                    return Next::Ticket { place: QueuePlace { id, key: self.tickets[id].key }, key };
                }
                HeadFinding::Held(_, Hold::Shared(at)) => {
                    let look = self.next_look();
                    return Next::At(if look > now { at.min(look) } else { at });
                }
                HeadFinding::Held(_, hold) => {
                    self.park(flow_queue, &hold);
                    self.keep_its_turn(flow_queue, &hold, now, gate);
                }
            }
        }
        Next::At(now)
    }

    /// Asks [`TicketRules::admits`] again for the clients that were not admitted.
    pub fn resume(&mut self) {
        self.front.resume();
    }

    /// Returns whether clients that were not admitted have ready tickets.
    pub fn has_suspended(&self) -> bool {
        self.front.has_suspended()
    }

    /// When the next closed wait point has to be checked.
    fn next_look(&self) -> Instant {
        self.closed.first().map_or(Instant::FAR, |(at, _)| *at)
    }

    /// Removes a ticket that is served, and charges it to its flow.
    pub fn serve(&mut self, place: QueuePlace) -> Option<Taken<T>> {
        let ticket = self.tickets.get(place.id).filter(|ticket| ticket.key == place.key)?;
        let (id, flow_queue, cost) = (ticket.flow_queue, &self.flow_queues[ticket.flow_queue], ticket.cost);
        let (claim, line, set) = (flow_queue.claim, self.lines[flow_queue.line].wait_point, flow_queue.set);
        let (is_last, ranked) =
            (flow_queue.first == flow_queue.last, (flow_queue.wait_point == NONE).then_some(flow_queue.ranked));
        self.inflow.served(claim.urgency, cost.requests());
        self.charge_front(&claim, cost, ranked);
        self.charge_wait_point(line, &claim, cost);
        for at in 0..self.sets.wait_points(set).len() {
            self.charge_wait_point(self.sets.wait_points(set)[at], &claim, cost);
        }
        self.gave = true;
        let taken = self.remove(place);
        if !is_last {
            self.had_its_turn(id);
            self.send_back(id);
        }
        taken
    }

    /// Removes a ticket that is no longer waited for; `None` if it has been served already.
    pub fn remove(&mut self, place: QueuePlace) -> Option<Taken<T>> {
        self.holds(place).then_some(())?;
        let draws = self.flow_queues[self.tickets[place.id].flow_queue].set != NONE;
        let claim = self.unlink(place.id);
        let Ticket { ticket, cost, .. } = self.tickets.remove(place.id);
        self.backlog.subtract(&claim, &cost, Waits::of(&cost, draws), place.turn());
        if self.is_empty() {
            self.rest();
        }
        Some(Taken { claim, cost, ticket })
    }

    /// The first ticket of each flow queue, and its first ticket that was never sent: one of all these has waited
    /// longest. O(flow queues + resent tickets).
    pub fn eldest(&self) -> impl Iterator<Item = &T> {
        self.flow_queues.iter().flat_map(|(_, flow_queue)| {
            let first = &self.tickets[flow_queue.first];
            let mut new = flow_queue.first;
            while new != NONE && self.tickets[new].key < NEW {
                new = self.tickets[new].behind;
            }
            let new = (new != NONE && new != flow_queue.first).then(|| &self.tickets[new].ticket);
            [Some(&first.ticket), new].into_iter().flatten()
        })
    }

    /// The share of the slots that goes to arriving requests of higher urgency.
    pub fn inflow_above(&self, urgency: Urgency) -> f64 {
        self.inflow.above(urgency)
    }

    /// Number of waiting tickets.
    pub fn len(&self) -> usize {
        self.tickets.len()
    }

    /// Returns whether a ticket waits at `place`.
    pub fn holds(&self, place: QueuePlace) -> bool {
        self.tickets.get(place.id).is_some_and(|ticket| ticket.key == place.key)
    }

    /// Returns whether no ticket waits.
    pub fn is_empty(&self) -> bool {
        self.tickets.len() == 0
    }

    /// Returns whether all waiting tickets are blocked at wait points that were closed at the last check.
    pub fn is_blocked(&self) -> bool {
        self.front.is_empty() && self.open.is_empty()
    }

    /// Returns whether tickets are blocked in this class or at one of these budgets, or a slot is reserved at one of
    /// them.
    pub fn blocks(&self, key: &K, budgets: &[u32]) -> bool {
        let line = self.line_ids.get(key).map(|line| self.lines[*line].wait_point);
        let wait_points = budgets.iter().filter_map(|budget| self.sets.wait_point_of(*budget));
        line.into_iter()
            .chain(wait_points)
            .any(|wait_point| self.wait_points[wait_point].blocked > 0 || self.wait_points[wait_point].kept.is_some())
    }

    /// The classes with waiting tickets. O(classes).
    pub fn lines(&self) -> impl Iterator<Item = &K> {
        self.lines.iter().map(|(_, line)| &line.key)
    }

    /// Charges a served ticket to its flow in the ready list; `ranked` is its rank if it stands there. The ticket
    /// counts only as requests: other units are shared at the wait points where requests wait for them.
    fn charge_front(&mut self, claim: &Claim, cost: Cost, ranked: Option<RankedAt>) {
        let requests = cost.requests().into();
        match ranked {
            Some(at) => self.front.charge_at(at, claim.urgency, requests),
            None => self.front.charge(claim, requests),
        }
    }

    /// Applies the changed weights of a claim. O(flow queues + wait points), and seldom.
    fn reweigh(&mut self, claim: &Claim) {
        self.front.reweigh(claim);
        for flow_queue in self.flow_queues.iter_mut().filter(|flow_queue| flow_queue.claim.claimed() == claim.claimed())
        {
            flow_queue.claim = *claim;
        }
        for wait_point in self.wait_points.iter_mut() {
            if let Some(ranking) = &mut wait_point.ranking {
                ranking.reweigh(claim);
            }
        }
    }

    /// Resets the shares, because the queue is empty.
    fn rest(&mut self) {
        if self.tickets.room() > FEW {
            *self = Self { serial: self.serial, ..Self::new() };
        } else {
            (self.front, self.inflow) = (Ranking::new(CREDIT), Inflow::default());
            while let Some(gone) = self.open.pop_front() {
                self.wait_points.remove(gone);
            }
            self.gave = false;
        }
    }
}

impl<K: Copy + Eq + Hash, T> Default for Queue<K, T> {
    fn default() -> Self {
        Self::new()
    }
}
