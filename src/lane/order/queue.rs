//! Orders waiting requests. Owns no clock and never wakes anyone: the lane asks and sleeps itself.
//!
//! A ticket belongs to a *line*: that of the one thing beside what holds for all that can hold it up. The tickets of one
//! flow in one line are a *strand*, first come first served. A strand stands in one place: in the *front*, where only what
//! holds for all can be in its way, or *parked* in its line, which is closed. The front and each line rank what stands in
//! them for themselves, by what has been served of it: so each budget is shared for itself, and where requests wait for
//! it, the next slot goes to whoever has received least of it.
//!
//! A line that opens lets its strands to the front one by one, a further one with each slot that is given: so what stands
//! in ten thousand lines costs no more than what stands in one.

mod links;
mod standing;

use std::{
    collections::{BTreeSet, VecDeque},
    hash::Hash,
};

use super::{
    backlog::{Ahead, Backlog, WaitingFlow},
    claim::Claim,
    ranking::Ranking,
    slab::{Map, Slab},
};
use crate::{clock::Instant, limit::Cost};

/// Where in the queue a ticket stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    id: u32,
    key: u64,
}

/// Which requests of a flow go in front of which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Turn {
    /// It has been sent before.
    Resent,
    /// It has never been sent.
    New,
}

/// What the lane knows about tickets.
pub trait Gate<K, T> {
    /// The line into which a ticket belongs that stands in that of `key`. One that belongs nowhere else stays.
    fn line(&mut self, ticket: &T, key: &K) -> K;
    /// What holds up the tickets of a line of which the first costs so much.
    fn hold(&mut self, key: &K, cost: Cost) -> Hold;
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
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<K> {
    /// That of this ticket, now, which leaves as one of the line `key`.
    Ticket {
        /// Where it stands.
        place: Place,
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
    strand_ids: Map<(u32, Claimed), u32>,
    lines: Slab<Line<K>>,
    line_ids: Map<K, u32>,
    front: Ranking,
    /// The closed lines, by the time when they are to be looked at.
    closed: BTreeSet<(Instant, u32)>,
    /// Lines that have opened and still have strands parked, in turn; or had when they were put here.
    open: VecDeque<u32>,
    backlog: Backlog,
    serial: u64,
    /// A slot was given since a strand was last let to the front.
    gave: bool,
}

/// What tells one strand of a line from another.
type Claimed = (u8, u64, u64);

#[derive(Debug)]
struct Ticket<T> {
    ticket: T,
    key: u64,
    cost: Cost,
    strand: u32,
    before: u32,
    behind: u32,
}

/// The tickets of one flow in one line.
#[derive(Debug)]
struct Strand {
    claim: Claim,
    line: u32,
    first: u32,
    last: u32,
    /// The ticket that was put between others last. Those that follow it are likely to stand behind it.
    finger: u32,
    parked: bool,
}

#[derive(Debug)]
struct Line<K> {
    key: K,
    strands: u32,
    parked: u32,
    units: u64,
    state: State,
    /// Ranks what is parked here; `None` if nothing ever was.
    ranking: Option<Box<Ranking>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its strands stand in the front, or are let there.
    Open,
    /// It is looked at again then.
    Closed(Instant),
}

/// What is found out about the first ticket of a strand.
enum Finding<K> {
    Held(K, Hold),
    /// It belonged into another line, and stands there now.
    Moved,
}

const NONE: u32 = u32::MAX;
/// Keys of tickets that have never been sent are larger than those of others.
const NEW: u64 = 1 << 63;
/// The memory of so many tickets is kept when none waits any more.
const FEW: usize = 64;
/// So many strands are looked at in one go.
const LOOKS: u32 = 64;
/// So many lines are looked at in one go because their time has come, as long as others can be served.
const OPENINGS: u32 = 8;

// === impl Queue ===

impl<K: Copy + Eq + Hash, T> Queue<K, T> {
    /// Nobody waits yet.
    pub fn new() -> Self {
        Self {
            tickets: Slab::new(),
            strands: Slab::new(),
            strand_ids: Map::default(),
            lines: Slab::new(),
            line_ids: Map::default(),
            front: Ranking::new(),
            closed: BTreeSet::new(),
            open: VecDeque::new(),
            backlog: Backlog::default(),
            serial: 0,
            gave: false,
        }
    }

    /// Puts `ticket` into the line of `key`, behind all others of its `turn` in its flow.
    pub fn enqueue(&mut self, key: K, claim: Claim, cost: Cost, turn: Turn, ticket: T) -> Place {
        let claim = self.backlog.resolve(claim);
        let place = self.serial | if turn == Turn::New { NEW } else { 0 };
        self.serial += 1;
        if self.backlog.add(&claim, cost.get().into()) {
            self.reweigh(&claim);
        }
        let ticket = Ticket { ticket, key: place, cost, strand: NONE, before: NONE, behind: NONE };
        let id = self.tickets.insert(ticket);
        self.link(id, key, claim, false);
        Place { id, key: place }
    }

    /// Whose turn it is at `now`. Moves up to `moves` tickets that have come to the front of a line in which they do not
    /// belong, and takes that off. Says [`Next::At`] `now` if there is more to look at than is done in one go. Amortised
    /// O(log waiting).
    pub fn next(&mut self, now: Instant, moves: &mut usize, gate: &mut impl Gate<K, T>) -> Next<K> {
        if std::mem::take(&mut self.gave) {
            self.let_one_forward(now, moves, gate);
        }
        let mut openings = OPENINGS;
        for _ in 0..LOOKS {
            while let Some(&(at, line)) = self.closed.first()
                && at <= now
                && (openings > 0 || self.front.is_empty())
            {
                openings = openings.saturating_sub(1);
                self.look_at(line, now, moves, gate);
            }
            let wakeup = self.closed.first().map_or(Instant::FAR, |(at, _)| *at);
            let Some(strand) = self.front.next() else {
                if self.let_one_forward(now, moves, gate) {
                    continue;
                }
                return Next::At(wakeup);
            };
            let id = self.strands[strand].first;
            match self.find_out(id, now, moves, gate) {
                Finding::Moved => {}
                Finding::Held(key, Hold::Open) => {
                    return Next::Ticket { place: Place { id, key: self.tickets[id].key }, key };
                }
                Finding::Held(_, Hold::Shared(at)) => {
                    return Next::At(if wakeup > now { at.min(wakeup) } else { at });
                }
                Finding::Held(_, Hold::Own(at)) => self.park(strand, at),
            }
        }
        Next::At(now)
    }

    /// Takes out a ticket because it is served: it is charged to its flow.
    pub fn serve(&mut self, place: Place) -> Option<Taken<T>> {
        let ticket = self.tickets.get(place.id).filter(|ticket| ticket.key == place.key)?;
        let (strand, cost) = (&self.strands[ticket.strand], ticket.cost);
        let (claim, line) = (strand.claim, strand.line);
        self.charge_to(&claim, cost, line);
        self.gave = true;
        self.remove(place)
    }

    /// A request that did not have to wait, though others do, is charged to its flow.
    pub fn charge(&mut self, key: &K, claim: &Claim, cost: Cost) {
        let claim = self.backlog.resolve(*claim);
        let line = self.line_ids.get(key).copied().unwrap_or(NONE);
        self.charge_to(&claim, cost, line);
    }

    /// Takes out a ticket that is waited for no longer; `None` if it has been served already.
    pub fn remove(&mut self, place: Place) -> Option<Taken<T>> {
        self.tickets.get(place.id).filter(|ticket| ticket.key == place.key)?;
        let claim = self.unlink(place.id);
        let Ticket { ticket, cost, .. } = self.tickets.remove(place.id);
        self.backlog.subtract(&claim, cost.get().into());
        if self.is_empty() {
            self.rest();
        }
        Some(Taken { claim, cost, ticket })
    }

    /// Whatever holds lines up may have changed: closed ones are looked at anew. O(closed lines).
    pub fn recheck(&mut self) {
        let closed = std::mem::take(&mut self.closed);
        for (_, line) in closed {
            self.close(line, Instant::START);
        }
    }

    /// What holds this line up may have changed.
    pub fn recheck_line(&mut self, key: &K) {
        if let Some(&line) = self.line_ids.get(key)
            && let State::Closed(_) = self.lines[line].state
        {
            self.close(line, Instant::START);
        }
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

    /// How many wait.
    pub fn len(&self) -> usize {
        self.tickets.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.tickets.len() == 0
    }

    /// Whether all that wait are parked in lines that are closed, or were when they were last looked at.
    pub fn is_parked(&self) -> bool {
        self.front.is_empty() && self.open.is_empty()
    }

    /// Whether any wait in this line.
    pub fn has_line(&self, key: &K) -> bool {
        self.line_ids.contains_key(key)
    }

    /// The lines in which any wait. O(lines).
    pub fn lines(&self) -> impl Iterator<Item = &K> {
        self.lines.iter().map(|(_, line)| &line.key)
    }

    /// The cost of all that wait in lines for which `counts` holds, together. O(lines).
    pub fn units(&self, counts: impl Fn(&K) -> bool) -> u64 {
        self.lines.iter().filter(|(_, line)| counts(&line.key)).map(|(_, line)| line.units).sum()
    }

    /// How much of what waits goes before a request that comes now.
    pub fn ahead(&self, claim: &Claim, cost: Cost) -> Ahead {
        self.backlog.ahead(&self.backlog.resolve(*claim), cost.get().into())
    }

    /// How many clients and flows are remembered in the front.
    #[cfg(test)]
    pub(super) fn flows(&self) -> usize {
        self.front.remembered()
    }

    /// The flows of which most requests wait, `most` of them at most. O(flows).
    pub fn longest(&self, most: usize) -> Vec<WaitingFlow> {
        self.backlog.longest(most)
    }

    fn charge_to(&mut self, claim: &Claim, cost: Cost, line: u32) {
        let cost = cost.get().into();
        self.front.charge(claim, cost);
        if line != NONE
            && let Some(ranking) = &mut self.lines[line].ranking
        {
            ranking.charge(claim, cost);
        }
    }

    /// The weights of a claim have changed. O(lines), and seldom.
    fn reweigh(&mut self, claim: &Claim) {
        self.front.reweigh(claim);
        let lines: Vec<u32> = self.lines.iter().map(|(line, _)| line).collect();
        for line in lines {
            if let Some(ranking) = &mut self.lines[line].ranking {
                ranking.reweigh(claim);
            }
        }
    }

    /// Nobody waits: nobody is owed anything.
    fn rest(&mut self) {
        if self.tickets.room() > FEW {
            *self = Self { serial: self.serial, ..Self::new() };
        } else {
            self.front = Ranking::new();
            self.open.clear();
            self.gave = false;
        }
    }
}

impl<K: Copy + Eq + Hash, T> Default for Queue<K, T> {
    fn default() -> Self {
        Self::new()
    }
}
