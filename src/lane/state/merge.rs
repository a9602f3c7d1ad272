//! Lanes that become part of another one.

use std::{sync::Arc, time::Duration};

use andante_clock::Instant;
use andante_learn::{LearnedRecord, RouteKey};
use andante_limit::{Budget, Cost};
use andante_order::{Claim, QueuePlace, Taken, Turn};
use smallvec::SmallVec;

use super::{State, WaitingRequest, numbers, sub_limits::LeftBudget, turn::line_of};
use crate::request::Draws;

/// A lane's sent requests and limits, for another lane that some of its requests move to.
#[derive(Clone)]
pub(crate) struct Inheritance {
    budget: Budget,
    sub_limits: Vec<LeftBudget>,
    learned: LearnedRecord,
    held: Option<Instant>,
    parted: Partings,
}

/// The first few ports that requests of a lane have gone to.
pub(super) type Ports = SmallVec<[u16; 4]>;
/// When a lane has parted from others: requests sent until then count in all of them.
pub(super) type Partings = SmallVec<[Parting; 1]>;

/// The instant of a lane's parting, and a number that distinguishes lanes parting at the same instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Parting {
    pub(crate) at: Instant,
    pub(crate) lane: usize,
}

/// More ports of one host are not distinguished, and more partings are not remembered.
const MOST: usize = 16;

/// State that a lane hands to its successor.
pub(crate) struct Legacy<T> {
    inheritance: Inheritance,
    ports: Ports,
    /// Pools whose end the store has not received yet.
    ended: Vec<Arc<str>>,
    /// Waiting requests in order of arrival.
    pub(crate) waiting: Vec<Moving<T>>,
}

/// A waiting request between two lanes.
pub(crate) struct Moving<T> {
    pub(crate) grant: T,
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
    /// Hands this lane's state to its successor at `now`. No request waits here any more: two queues would send at
    /// twice the pace.
    pub(crate) fn bequeathed(&mut self, now: Instant) -> Legacy<T> {
        let (inheritance, ports) = (self.inheritance(now), self.ports.clone());
        let waiting = self.departing(|_| true);
        Legacy { inheritance, ports, ended: self.portion_bequeathed(), waiting }
    }

    /// Ports that requests have gone to.
    pub(crate) fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// Removes and returns the waiting requests for `wanted` ports, in order of arrival. From now on, requests for
    /// these ports belong to another lane.
    pub(crate) fn departing(&mut self, wanted: impl Fn(u16) -> bool) -> Vec<Moving<T>> {
        self.rechecks = true;
        self.ports.retain(|port| !wanted(*port));
        let places = self.queue.places(|_, ticket| wanted(ticket.port));
        places.into_iter().filter_map(|place| self.take_out(place)).map(Moving::from).collect()
    }

    /// The state of this lane that another lane has to know.
    pub(super) fn inheritance(&mut self, now: Instant) -> Inheritance {
        let (sub_limits, learned, held) = (self.sub_limits.left(), self.learned.record(now), self.held);
        Inheritance { budget: self.budget.clone(), sub_limits, learned, held, parted: self.parted.clone() }
    }

    /// Records that a request goes to this port.
    pub(super) fn goes_to(&mut self, port: u16) {
        // Nearly all requests go to the same port.
        if self.ports.first() != Some(&port) && !self.ports.contains(&port) && self.ports.len() < MOST {
            self.ports.push(port);
        }
    }

    /// The state of this lane when requests to some ports get lanes of their own: for lanes that are opened later.
    pub(crate) fn bequest(&mut self, parting: Parting) -> Inheritance {
        // An operator's pause applies to existing lanes, and only those are resumed.
        Inheritance { held: None, ..self.parts(parting) }
    }

    /// Returns the state that a lane for some of this lane's ports has to know.
    pub(crate) fn parts(&mut self, parting: Parting) -> Inheritance {
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

    /// Absorbs another lane whose requests come to this one from `now` on. Requests sent there count here, and its
    /// limits and pauses hold here. The number of its in-flight requests is unknown here.
    pub(super) fn absorbed(&mut self, now: Instant, other: &Inheritance) {
        let Inheritance { budget, sub_limits, learned, held, parted } = other;
        // Where both were one lane once, both know what was sent until then.
        let one_until = parted.iter().filter(|parting| self.parted.contains(parting)).map(|parting| parting.at).max();
        let since = one_until.map_or(Instant::START, |at| at + Duration::from_nanos(1));
        self.budget.absorb(budget, since, now);
        self.sub_limits.absorbed(budget, since, now);
        self.sub_limits.taken_over(sub_limits, since, &self.budget, now, self.epoch);
        parted.iter().for_each(|parting| self.has_parted(*parting));
        self.learned.absorb(learned, now);
        self.held = self.held.max(*held);
        (self.unwritten, self.rechecks) = (true, true);
    }

    /// Takes over the requests to this port that asked another lane before `now`.
    pub(crate) fn departed(&mut self, now: Instant, other: &Inheritance, port: u16) {
        self.absorbed(now, other);
        self.goes_to(port);
    }

    /// Takes over from the lane that has left this `legacy`, from `now` on.
    pub(crate) fn inherited(&mut self, now: Instant, legacy: &Legacy<T>) {
        self.absorbed(now, &legacy.inheritance);
        legacy.ports.iter().for_each(|port| self.goes_to(*port));
        self.portion_inherited(&legacy.ended);
    }

    /// Enqueues a request that has waited in another lane.
    pub(crate) fn adopted(&mut self, now: Instant, moving: Moving<T>) -> QueuePlace {
        let Moving { grant, claim, cost, kind, metered, since, deadline, draws, port } = moving;
        self.learned.asked(&kind, now);
        let draws = draws.as_ref();
        let mut drawn = draws.map(|draws| self.sub_limits.find(draws, &self.budget, now, self.epoch));
        if let Some(drawn) = &mut drawn {
            self.sub_limits.enqueued(drawn, &self.queue.resolve(&claim), cost, Turn::New);
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
