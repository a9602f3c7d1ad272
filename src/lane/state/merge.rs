//! A lane that becomes part of another one.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;

use super::{State, WaitingRequest, narrow::LeftBudget, numbers, turn::line_of};
use crate::{
    clock::Instant,
    lane::{
        order::{Claim, QueuePlace, Taken, Turn},
        request::Draws,
    },
    learn::{LearnedRecord, RouteKey},
    limit::{Budget, Cost},
};

/// What a lane has sent and what holds it up, for another one that some of its requests go to from now on.
#[derive(Clone)]
pub(in crate::lane) struct Inheritance {
    budget: Budget,
    narrow: Vec<LeftBudget>,
    learned: LearnedRecord,
    held: Option<Instant>,
    parted: Partings,
}

/// To which ports requests of a lane have gone, the first few of them.
pub(super) type Ports = SmallVec<[u16; 4]>;
/// When a lane has parted from others: what was sent until then counts in all of them.
pub(super) type Partings = SmallVec<[Parting; 1]>;

/// When a lane parted, and a number that tells it from the other lanes that did so at that instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::lane) struct Parting {
    pub(in crate::lane) at: Instant,
    pub(in crate::lane) lane: usize,
}

/// More ports of one host are not told apart, nor are more partings remembered.
const MOST: usize = 16;

/// What a lane leaves to the one that goes on for it.
pub(in crate::lane) struct Legacy<T> {
    inheritance: Inheritance,
    ports: Ports,
    /// What the store does not know yet that it is given up.
    ended: Vec<Arc<str>>,
    /// In the order in which they came.
    pub(in crate::lane) waiting: Vec<Moving<T>>,
}

/// A waiting request between two lanes.
pub(in crate::lane) struct Moving<T> {
    pub(in crate::lane) grant: T,
    claim: Claim,
    cost: Cost,
    kind: RouteKey,
    metered: bool,
    since: Instant,
    deadline: Instant,
    draws: Draws,
    port: u16,
}

impl<T> State<T> {
    /// From `now` on another lane goes on for this one. Nothing waits here any more: two queues would leave at twice the
    /// pace.
    pub(in crate::lane) fn bequeathed(&mut self, now: Instant) -> Legacy<T> {
        let (inheritance, ports) = (self.inheritance(now), self.ports.clone());
        let waiting = self.departing(|_| true);
        Legacy { inheritance, ports, ended: self.portion_bequeathed(), waiting }
    }

    /// To which ports requests have gone.
    pub(in crate::lane) fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// What waits here and goes to ports that are `wanted` waits in another lane from now on, and so does what comes; in the order
    /// in which it came.
    pub(in crate::lane) fn departing(&mut self, wanted: impl Fn(u16) -> bool) -> Vec<Moving<T>> {
        self.rechecks = true;
        self.ports.retain(|port| !wanted(*port));
        let places = self.queue.places(|_, ticket| wanted(ticket.port));
        places.into_iter().filter_map(|place| self.take_out(place)).map(Moving::from).collect()
    }

    /// What another lane has to know of this one.
    pub(super) fn inheritance(&mut self, now: Instant) -> Inheritance {
        let (narrow, learned, held) = (self.narrow.left(), self.learned.record(now), self.held);
        Inheritance { budget: self.budget.clone(), narrow, learned, held, parted: self.parted.clone() }
    }

    /// A request goes to this port.
    pub(super) fn goes_to(&mut self, port: u16) {
        // Nearly all go to the same one.
        if self.ports.first() != Some(&port) && !self.ports.contains(&port) && self.ports.len() < MOST {
            self.ports.push(port);
        }
    }

    /// What is known of this lane when requests to some ports get lanes of their own: for those that are opened later.
    pub(in crate::lane) fn bequest(&mut self, parting: Parting) -> Inheritance {
        // An operator pauses lanes that are there, and resumes these.
        Inheritance { held: None, ..self.parts(parting) }
    }

    /// Requests to some ports get a lane of their own, which has to know this.
    pub(in crate::lane) fn parts(&mut self, parting: Parting) -> Inheritance {
        self.has_parted(parting);
        self.inheritance(parting.at)
    }

    fn has_parted(&mut self, parting: Parting) {
        if self.parted.contains(&parting) {
            return;
        }
        if self.parted.len() == MOST {
            self.parted.remove(0);
        }
        self.parted.push(parting);
    }

    /// From `now` on, requests that asked another lane ask this one: what was sent there counts here, and whatever held it up
    /// holds up this one. How many of them are under way is not known here.
    pub(super) fn absorbed(&mut self, now: Instant, other: &Inheritance) {
        let Inheritance { budget, narrow, learned, held, parted } = other;
        // Where they were one lane once, both know what was sent until then.
        let one_until = parted.iter().filter(|parting| self.parted.contains(parting)).map(|parting| parting.at).max();
        let since = one_until.map_or(Instant::START, |at| at + Duration::from_nanos(1));
        self.budget.absorb(budget, since, now);
        self.narrow.absorbed(budget, since, now);
        self.narrow.taken_over(narrow, since, &self.budget, now, self.epoch);
        parted.iter().for_each(|parting| self.has_parted(*parting));
        self.learned.absorb(learned, now);
        self.held = self.held.max(*held);
        (self.unwritten, self.rechecks) = (true, true);
    }

    /// From `now` on requests to this port that asked another lane ask this one.
    pub(in crate::lane) fn departed(&mut self, now: Instant, other: &Inheritance, port: u16) {
        self.absorbed(now, other);
        self.goes_to(port);
    }

    /// From `now` on this lane goes on for the one that has left this.
    pub(in crate::lane) fn inherited(&mut self, now: Instant, legacy: &Legacy<T>) {
        self.absorbed(now, &legacy.inheritance);
        legacy.ports.iter().for_each(|port| self.goes_to(*port));
        self.portion_inherited(&legacy.ended);
    }

    /// A request that has waited in another lane waits in this one.
    pub(in crate::lane) fn adopted(&mut self, now: Instant, moving: Moving<T>) -> QueuePlace {
        let Moving { grant, claim, cost, kind, metered, since, deadline, draws, port } = moving;
        self.learned.asked(&kind, now);
        let Self { narrow, returns, budget, .. } = self;
        let draws = draws.as_ref();
        let mut drawn = draws.map(|draws| narrow.find(draws, budget, now, self.epoch, |number| returns.names(number)));
        if let Some(drawn) = &mut drawn {
            self.narrow.enqueued(drawn, &self.queue.resolve(&claim), cost, Turn::New);
        }
        let line = line_of(&self.learned, &kind, metered, drawn.as_deref());
        let budgets = numbers(&drawn).to_vec();
        self.rechecks = true;
        let ticket = WaitingRequest { grant, kind, metered, since, deadline, drawn, port };
        self.queue.enqueue(line, &budgets, claim, cost, Turn::New, ticket)
    }
}

impl<T> From<Taken<WaitingRequest<T>>> for Moving<T> {
    fn from(taken: Taken<WaitingRequest<T>>) -> Self {
        let Taken { claim, cost, ticket: WaitingRequest { grant, kind, metered, since, deadline, drawn, port } } =
            taken;
        let draws = drawn.map(|drawn| drawn.draws.clone());
        Self { grant, claim, cost, kind, metered, since, deadline, draws, port }
    }
}
