//! Orders waiting requests. Owns no clock and never wakes anyone: the lane asks and sleeps itself.
//!
//! A ticket belongs to a *line*: that of the one learned thing beside what holds for all that can hold it up. It may also
//! draw on narrower *budgets*, which its line knows nothing of. The tickets of one flow that share both are a *strand*,
//! first come first served. A strand stands in one place: in the *front*, where only what holds for all can be in its way,
//! or *parked* at one closed thing: its line, or one of its budgets. The front and each of these rank for themselves what
//! waits for them, by what has been served of it: so each budget is shared for itself, and where requests wait for it, the
//! next slot goes to whoever has received least of it.
//!
//! Who needs two budgets would be passed for ever by those who need one of them each: where a strand's turn has come at one
//! that is open while another one was closed, a slot of the one is [kept](keeping) for it until it leaves.
//!
//! What opens lets its strands to the front one by one, a further one with each slot that is given: so what is parked in
//! ten thousand places costs no more than what is parked in one.

mod ahead;
mod giving_way;
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

pub use self::links::WaitingStrand;
use self::{
    links::claimed,
    records::{Line, Spot, SpotState, Strand, Ticket},
    sets::Sets,
};
use super::{
    backlog::{Backlog, Waits},
    claim::{Claim, Comes, Turn, Urgency},
    inflow::Inflow,
    ranking::{RankedAt, Ranking},
    slab::{Map, Slab},
};
use crate::{clock::Instant, limit::Cost};

/// Where in the queue a ticket stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePlace {
    id: u32,
    key: u64,
}

/// What the lane knows about tickets.
pub trait TicketRules<K, T> {
    /// The line that `ticket`, which stands in the line `key`, belongs to now: `key` itself, mostly.
    fn line(&mut self, ticket: &T, key: &K) -> K;
    /// What holds up those tickets of a line that draw on `budgets`; the first of them costs `cost`.
    fn hold(&mut self, key: &K, budgets: &[u32], cost: Cost) -> Hold;
    /// How long it takes in the mean until this budget lets a ticket go, where it is not known when it will.
    fn turnover(&self, _budget: u32) -> Option<Duration> {
        None
    }
    /// For how long a ticket of `cost` of this line may be left out before more than that is lost: of this one of its budgets, or
    /// of what the line waits for. What says nothing is never kept.
    fn idles(&mut self, _key: &K, _budget: Option<u32>, _cost: Cost) -> Duration {
        Duration::ZERO
    }
    /// When this budget, or what the line waits for, has what a ticket of `cost` of this line takes, and what one of `kept` takes as
    /// well.
    fn earliest_beside(&mut self, _key: &K, _budget: Option<u32>, _cost: Cost, _kept: Cost) -> Instant {
        Instant::FAR
    }
}

/// What holds up a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Nothing.
    Open,
    /// What holds for all, until then.
    Shared(Instant),
    /// What holds for its line, until then.
    Own(Instant),
    /// This one of its budgets, until then.
    Budget(u32, Instant),
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<K> {
    /// That of this ticket, now, which leaves as one of the line `key`.
    Ticket {
        /// Where it stands.
        place: QueuePlace,
        /// The line to which it belongs.
        key: K,
    },
    /// Nobody's before this instant.
    At(Instant),
}

/// A ticket that is taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken<T> {
    /// By what it claimed its turn.
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
    strands: Slab<Strand>,
    strand_ids: Map<(u32, u32, Claimed), u32>,
    lines: Slab<Line<K>>,
    line_ids: Map<K, u32>,
    sets: Sets,
    /// Where strands may be parked: one for each line, and one for each budget that is drawn on.
    spots: Slab<Spot>,
    front: Ranking,
    /// The closed spots, by the time when they are to be looked at.
    closed: BTreeSet<(Instant, u32)>,
    /// Spots that have opened and still have strands parked, in turn; or had when they were put here.
    open: VecDeque<u32>,
    backlog: Backlog,
    inflow: Inflow,
    serial: u64,
    /// A slot was given since a strand was last let to the front.
    gave: bool,
    /// How many spots are kept: mostly none, so that none is looked at.
    kept: u32,
}

/// What tells one strand of a line, and of a set of budgets, from another.
type Claimed = (u8, [u64; 2], u64);

/// What a look at the first ticket of a strand finds.
enum HeadFinding<K> {
    Held(K, Hold),
    /// It belonged into another line, and stands there now.
    Moved,
}

const NONE: u32 = u32::MAX;
/// How many turns of the front a client, or a flow, is owed at most that waited elsewhere. One that waits for tokens behind
/// others gets the slots of that time together, once tokens have come: with one turn it would get a third of its share beside
/// those who take none (docs/decisions/queue.md).
pub(in crate::lane) const CREDIT: u8 = 8;
/// Keys of tickets that have never been sent are larger than those of others.
const NEW: u64 = 1 << 63;
/// For how many tickets memory is kept when none waits any more.
const FEW: usize = 64;
/// How many strands are looked at in one go.
const LOOKS: u32 = 64;
/// How many lines are looked at in one go because their time has come, while others can be served.
const OPENINGS: u32 = 8;

// === impl QueuePlace ===

impl QueuePlace {
    /// Whether what stands there was sent before.
    pub fn is_of_resent(self) -> bool {
        self.key < NEW
    }

    /// In which turn what stands there was put.
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
            strands: Slab::new(),
            strand_ids: Map::default(),
            lines: Slab::new(),
            line_ids: Map::default(),
            sets: Sets::default(),
            spots: Slab::new(),
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

    /// Puts `ticket`, which draws on `budgets`, into the line of `key`, behind all others of its `turn` in its flow.
    pub fn enqueue(&mut self, key: K, budgets: &[u32], claim: Claim, cost: Cost, turn: Turn, ticket: T) -> QueuePlace {
        let mut claim = self.backlog.resolve(claim);
        if turn == Turn::Resent {
            // It read its weights when it came first; others may hold by now.
            claim = self.backlog.with_known_weights(claim);
        }
        let place = self.serial | if turn == Turn::New { NEW } else { 0 };
        self.serial += 1;
        if self.backlog.add(&claim, &cost, Waits::of(&cost, !budgets.is_empty()), turn) {
            self.reweigh(&claim);
        }
        self.inflow.came(claim.urgency, cost.requests());
        let ticket = Ticket { ticket, key: place, cost, strand: NONE, before: NONE, behind: NONE };
        let id = self.tickets.insert(ticket);
        let set = self.set_of(budgets);
        self.link(id, key, set, claim, Comes::New);
        QueuePlace { id, key: place }
    }

    /// Whose turn it is at `now`. Moves up to `moves` tickets that have come to the front of a line in which they do not
    /// belong, and takes that off. Says [`Next::At`] `now` if there is more to look at than is done in one go. Amortised
    /// O(log waiting).
    pub fn next(&mut self, now: Instant, moves: &mut usize, gate: &mut impl TicketRules<K, T>) -> Next<K> {
        if std::mem::take(&mut self.gave) {
            self.let_one_forward(now, moves, gate);
        }
        let mut openings = OPENINGS;
        for _ in 0..LOOKS {
            while let Some(&(at, spot)) = self.closed.first()
                && at <= now
                && (openings > 0 || self.front.is_empty())
            {
                openings = openings.saturating_sub(1);
                self.look_at(spot, now, moves, gate);
            }
            let Some(strand) = self.front.next() else {
                if self.let_one_forward(now, moves, gate) {
                    continue;
                }
                // What was open may have been found closed just now.
                return Next::At(self.next_look());
            };
            match self.find_out(strand, now, moves, gate) {
                HeadFinding::Moved => {}
                HeadFinding::Held(key, Hold::Open) => {
                    let id = self.strands[strand].first;
                    return Next::Ticket { place: QueuePlace { id, key: self.tickets[id].key }, key };
                }
                HeadFinding::Held(_, Hold::Shared(at)) => {
                    let look = self.next_look();
                    return Next::At(if look > now { at.min(look) } else { at });
                }
                HeadFinding::Held(_, hold) => {
                    self.park(strand, &hold);
                    self.keep_its_turn(strand, &hold, now, gate);
                }
            }
        }
        Next::At(now)
    }

    /// When something that is closed is to be looked at.
    fn next_look(&self) -> Instant {
        self.closed.first().map_or(Instant::FAR, |(at, _)| *at)
    }

    /// Takes out a ticket because it is served: it is charged to its flow.
    pub fn serve(&mut self, place: QueuePlace) -> Option<Taken<T>> {
        let ticket = self.tickets.get(place.id).filter(|ticket| ticket.key == place.key)?;
        let (id, strand, cost) = (ticket.strand, &self.strands[ticket.strand], ticket.cost);
        let (claim, line, set) = (strand.claim, self.lines[strand.line].spot, strand.set);
        let (is_last, ranked) = (strand.first == strand.last, (strand.spot == NONE).then_some(strand.ranked));
        self.inflow.served(claim.urgency, cost.requests());
        self.charge_front(&claim, cost, ranked);
        self.charge_spot(line, &claim, cost);
        for at in 0..self.sets.spots(set).len() {
            self.charge_spot(self.sets.spots(set)[at], &claim, cost);
        }
        self.gave = true;
        let taken = self.remove(place);
        if !is_last {
            self.had_its_turn(id);
            self.send_back(id);
        }
        taken
    }

    /// Takes out a ticket that is waited for no longer; `None` if it has been served already.
    pub fn remove(&mut self, place: QueuePlace) -> Option<Taken<T>> {
        self.holds(place).then_some(())?;
        let draws = self.strands[self.tickets[place.id].strand].set != NONE;
        let claim = self.unlink(place.id);
        let Ticket { ticket, cost, .. } = self.tickets.remove(place.id);
        self.backlog.subtract(&claim, &cost, Waits::of(&cost, draws), place.turn());
        if self.is_empty() {
            self.rest();
        }
        Some(Taken { claim, cost, ticket })
    }

    /// The first ticket of each strand, and the first of those in it that have not been sent yet: one of them has waited
    /// longest. O(strands + tickets that have been sent before).
    pub fn eldest(&self) -> impl Iterator<Item = &T> {
        self.strands.iter().flat_map(|(_, strand)| {
            let first = &self.tickets[strand.first];
            let mut new = strand.first;
            while new != NONE && self.tickets[new].key < NEW {
                new = self.tickets[new].behind;
            }
            let new = (new != NONE && new != strand.first).then(|| &self.tickets[new].ticket);
            [Some(&first.ticket), new].into_iter().flatten()
        })
    }

    /// Which share of the slots goes to what keeps coming and is more urgent than this.
    pub fn inflow_above(&self, urgency: Urgency) -> f64 {
        self.inflow.above(urgency)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.tickets.len()
    }

    /// Whether a ticket waits at `place`.
    pub fn holds(&self, place: QueuePlace) -> bool {
        self.tickets.get(place.id).is_some_and(|ticket| ticket.key == place.key)
    }

    /// Whether no ticket waits.
    pub fn is_empty(&self) -> bool {
        self.tickets.len() == 0
    }

    /// Whether all that wait are parked at what is closed, or was when it was last looked at.
    pub fn is_parked(&self) -> bool {
        self.front.is_empty() && self.open.is_empty()
    }

    /// Whether any are parked in this line, or at one of these budgets, or one of these is kept.
    pub fn parks(&self, key: &K, budgets: &[u32]) -> bool {
        let line = self.line_ids.get(key).map(|line| self.lines[*line].spot);
        let spots = budgets.iter().filter_map(|budget| self.sets.spot_of(*budget));
        line.into_iter().chain(spots).any(|spot| self.spots[spot].parked > 0 || self.spots[spot].kept.is_some())
    }

    /// The lines in which any wait. O(lines).
    pub fn lines(&self) -> impl Iterator<Item = &K> {
        self.lines.iter().map(|(_, line)| &line.key)
    }

    /// Charges what is served to its flow in the front, where it is `ranked` if it stands there. It counts as so many
    /// requests, whatever it takes of other units: these are shared where requests wait for them.
    fn charge_front(&mut self, claim: &Claim, cost: Cost, ranked: Option<RankedAt>) {
        let requests = cost.requests().into();
        match ranked {
            Some(at) => self.front.charge_at(at, claim.urgency, requests),
            None => self.front.charge(claim, requests),
        }
    }

    /// The weights of a claim have changed. O(strands + spots), and seldom.
    fn reweigh(&mut self, claim: &Claim) {
        self.front.reweigh(claim);
        for strand in self.strands.iter_mut().filter(|strand| claimed(&strand.claim) == claimed(claim)) {
            strand.claim = *claim;
        }
        for spot in self.spots.iter_mut() {
            if let Some(ranking) = &mut spot.ranking {
                ranking.reweigh(claim);
            }
        }
    }

    /// The queue is empty: no share is owed.
    fn rest(&mut self) {
        if self.tickets.room() > FEW {
            *self = Self { serial: self.serial, ..Self::new() };
        } else {
            (self.front, self.inflow) = (Ranking::new(CREDIT), Inflow::default());
            while let Some(gone) = self.open.pop_front() {
                self.spots.remove(gone);
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
