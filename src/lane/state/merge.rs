//! Lanes that part or become one in a reload: what they have sent, and their waiting requests.

use std::time::Duration;

use andante_clock::Instant;
use andante_order::{QueuePlace, Taken};

use super::State;
use crate::request::AdmitRequest;

/// A waiting request between two lanes.
pub(crate) struct Moving<T> {
    pub(crate) grant: T,
    pub(crate) ask: AdmitRequest,
    since: Instant,
}

/// The last parting of a lane: the instant, and a number that distinguishes lanes that part at the same instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Parting {
    pub(crate) at: Instant,
    pub(crate) lane: usize,
}

impl<T> State<T> {
    /// Removes and returns the waiting requests for `wanted` ports, in order of arrival.
    pub(crate) fn depart(&mut self, wanted: impl Fn(u16) -> bool) -> Vec<Moving<T>> {
        self.rechecks = true;
        let places = self.queue.places(|_, ticket| wanted(ticket.port));
        let taken = places.into_iter().filter_map(|place| Some((place, self.take_out(place)?)));
        let moving = taken.map(|(place, Taken { claim, cost, ticket })| {
            let ask = AdmitRequest { turn: place.turn(), ..ticket.ask(claim, cost) };
            Moving { grant: ticket.grant, ask, since: ticket.since }
        });
        moving.collect()
    }

    /// Enqueues a request that has waited in another lane. It keeps its deadline.
    pub(crate) fn adopt(&mut self, now: Instant, moving: Moving<T>) -> QueuePlace {
        let Moving { grant, ask, since } = moving;
        self.learned.asked(&ask.kind, now);
        self.advance_places(now);
        self.places.asked(&ask.claim);
        let (drawn, _, line) = self.consider(now, &ask);
        self.rechecks = true;
        self.delayed();
        self.enter(&ask, line, drawn, since, ask.deadline, grant)
    }

    /// Counts what `other` has sent until `now`, applies its pauses, and takes over the pools that it gives up.
    pub(crate) fn join(&mut self, now: Instant, other: &mut Self) {
        self.absorb(now, other);
        // A later join may skip only what both lanes knew at the same parting.
        self.parted = self.parted.filter(|_| self.parted == other.parted);
        let ended = other.portion_bequeathed();
        self.portion_inherited(&ended);
    }

    /// Begins with what `other` has sent: from this `parting` on, this lane serves some of its ports.
    pub(crate) fn part_from(&mut self, other: &mut Self, parting: Parting) {
        // `other` does not know what this lane has sent before.
        let begins = self.budget.last().is_none();
        self.absorb(parting.at, other);
        (self.parted, other.parted) = (begins.then_some(parting), Some(parting));
    }

    /// Counts what `other` has sent until `now`, and applies its pauses. The number of its in-flight requests is
    /// unknown here.
    pub(super) fn absorb(&mut self, now: Instant, other: &Self) {
        // Where both were one lane once, both know what was sent until then.
        let since = match self.parted.filter(|_| self.parted == other.parted) {
            Some(parting) => parting.at + Duration::from_nanos(1),
            None => Instant::START,
        };
        self.budget.absorb(&other.budget, since, now);
        self.sub_limits.absorb(&other.sub_limits, since, [&self.budget, &other.budget], now, self.epoch);
        self.learned.absorb(&other.learned.record(now), now);
        self.held = self.held.max(other.held);
        (self.unwritten, self.rechecks) = (true, true);
        self.delayed();
    }
}
