//! The waiting amount of each flow, in all classes: for predictions, for `/status`, and to choose what to evict from a
//! full queue. Also used for the queue of one sub-limit.

mod ahead;
mod waiting;

use std::collections::BTreeSet;

use andante_limit::{Cost, Unit};

pub(crate) use self::waiting::Contest;
use self::waiting::Waiting;
pub use self::{
    ahead::Part,
    waiting::{Passing, Waits},
};
use super::{
    bands::Bands,
    claim::{Claim, Claimed, FlowId, FlowRank, Levels, Sharer, Turn, Urgency, Weight},
    slab::Map,
};

/// Waiting amounts, by urgency, client and flow.
#[derive(Debug, Default)]
pub struct Backlog {
    /// The urgencies in which something has waited since the backlog was last empty.
    bands: [Option<Box<Band>>; Urgency::COUNT],
    waiting: Waiting,
    sizes: Option<Sizes>,
    /// Number of tickets ever added.
    added: u64,
}

/// For each urgency, the clients with a ticket that may be evicted, by the size of their backlogs. Kept from the first
/// query until the queue is half as full.
#[derive(Debug)]
struct Sizes {
    by_size: [BTreeSet<(ClientSize, Sharer)>; Urgency::COUNT],
    until: u64,
}

/// Size of a client's backlog. Among equal backlogs, the latest ticket's client is evicted first, so that it is not
/// always the same client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ClientSize {
    backlog: WeightedBacklog,
    latest: u64,
}

/// The backlog of a client or a flow beyond one request, divided by its weight. Every client may have one waiting
/// request, whatever its cost. Otherwise a client with expensive requests would have none beside many others that have
/// one each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WeightedBacklog(u64);

#[derive(Debug, Default)]
struct Band {
    waiting: Waiting,
    clients: Map<Sharer, ClientBacklog>,
}

/// The backlog of a member of the upper level.
#[derive(Debug)]
struct ClientBacklog {
    waiting: Waiting,
    /// Number of its tickets that have never been sent: only these may be evicted.
    new: u32,
    /// The number of its latest ticket.
    latest: u64,
    weight: Weight,
    flows: Map<Claimed, Flow>,
}

/// The backlog of one flow of one client.
#[derive(Debug)]
struct Flow {
    /// The identity of its latest ticket.
    claim: Claim,
    waiting: Waiting,
    tickets: u32,
    new: u32,
    /// The number of its latest ticket.
    latest: u64,
}

/// A flow that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingFlow {
    /// The urgency, client, name and weights of the flow.
    pub claim: Claim,
    /// Number of its waiting requests.
    pub waiting: u32,
}

// === impl Backlog ===

impl Backlog {
    /// `claim` as it counts here: beyond `FlowId::MAX_EXACT` names, flows are merged, so that names cost no memory.
    pub fn resolve(&self, claim: Claim) -> Claim {
        let Some(band) = self.bands[band(&claim)].as_ref() else { return claim };
        let client = band.clients.get(&claim.upper());
        // Beyond them, names have no rank either: a client's names cost no time.
        let exact = match claim.levels {
            Levels::ClientThenFlow | Levels::Client => client.is_none_or(|client| {
                client.flows.len() < FlowId::MAX_EXACT || client.flows.contains_key(&claim.claimed())
            }),
            Levels::FlowThenClient | Levels::Flow => band.clients.len() < FlowId::MAX_EXACT || client.is_some(),
            // Nothing is remembered of the names.
            Levels::InOrder => true,
        };
        let shared = || Claim { flow: claim.flow.shared(), rank: FlowRank::LAST, ..claim };
        if exact { claim } else { shared() }
    }

    /// `claim` with the weights that its client and its flow have here, if tickets of them wait.
    pub(super) fn with_known_weights(&self, claim: Claim) -> Claim {
        let client = self.bands[band(&claim)].as_ref().and_then(|band| band.clients.get(&claim.upper()));
        let flow = client.and_then(|client| client.flows.get(&claim.claimed()));
        let (upper, lower) = claim.weights();
        claim.with_weights(client.map_or(upper, |client| client.weight), flow.map_or(lower, Flow::weight))
    }

    /// Adds a waiting ticket of this cost. Returns whether a weight has changed.
    pub fn add(&mut self, claim: &Claim, cost: &Cost, waits: Waits, turn: Turn) -> bool {
        let before = self.size_of(claim);
        let changed = self.count(claim, cost, waits, turn);
        self.resized(claim, before);
        changed
    }

    fn count(&mut self, claim: &Claim, cost: &Cost, waits: Waits, turn: Turn) -> bool {
        self.added += 1;
        let number = self.added;
        let band = self.bands[band(claim)].get_or_insert_default();
        let (weight, _) = claim.weights();
        let client = band.clients.entry(claim.upper()).or_insert_with(|| ClientBacklog::new(weight));
        let flow = client.flows.entry(claim.claimed()).or_insert_with(|| Flow::new(*claim));
        let before = (client.weight, flow.weight());
        (client.weight, flow.claim) = (weight, *claim);
        flow.tickets += 1;
        (flow.latest, client.latest) = (number, number);
        for new in [&mut flow.new, &mut client.new] {
            *new += u32::from(turn == Turn::New);
        }
        for waiting in [&mut flow.waiting, &mut client.waiting, &mut band.waiting, &mut self.waiting] {
            waiting.add(cost, waits);
        }
        before != claim.weights()
    }

    /// Applies new weights of `claim`, which has waiting tickets.
    pub fn reweigh(&mut self, claim: &Claim) {
        let before = self.size_of(claim);
        let band = self.bands[band(claim)].as_mut();
        if let Some(client) = band.and_then(|band| band.clients.get_mut(&claim.upper())) {
            client.weight = claim.weights().0;
            client.flows.get_mut(&claim.claimed()).into_iter().for_each(|flow| flow.claim = *claim);
        }
        self.resized(claim, before);
    }

    /// Removes a ticket that no longer waits.
    pub fn subtract(&mut self, claim: &Claim, cost: &Cost, waits: Waits, turn: Turn) {
        let before = self.size_of(claim);
        self.discount(claim, cost, waits, turn);
        self.resized(claim, before);
        self.sizes.take_if(|sizes| self.waiting.size(Contest::All) < sizes.until);
    }

    fn discount(&mut self, claim: &Claim, cost: &Cost, waits: Waits, turn: Turn) {
        let band = self.bands[band(claim)].as_mut().expect("a ticket of it waits");
        let client = band.clients.get_mut(&claim.upper()).expect("a ticket of it waits");
        let flow = client.flows.get_mut(&claim.claimed()).expect("a ticket of it waits");
        flow.tickets -= 1;
        for new in [&mut flow.new, &mut client.new] {
            *new -= u32::from(turn == Turn::New);
        }
        for waiting in [&mut flow.waiting, &mut client.waiting, &mut band.waiting, &mut self.waiting] {
            waiting.subtract(cost, waits);
        }
        if flow.tickets == 0 {
            client.flows.remove(&claim.claimed());
            if client.flows.is_empty() {
                band.clients.remove(&claim.upper());
            }
        }
    }

    /// Total of `unit` over all waiting tickets; a ticket that does not declare its amount counts as `unsaid`.
    pub fn units(&self, unit: Unit, unsaid: f64) -> u64 {
        Waits::EACH.iter().map(|waits| self.units_of(*waits, unit, unsaid)).sum::<f64>() as u64
    }

    /// Total of `unit` over the tickets that wait like this; a ticket that does not declare its amount counts as
    /// `unsaid`.
    pub(crate) fn units_of(&self, waits: Waits, unit: Unit, unsaid: f64) -> f64 {
        self.waiting.units(waits, unit, unsaid)
    }

    /// Returns whether the waiting tickets of this urgency are within its guaranteed share, which is at least one
    /// ticket.
    pub(super) fn spares(&self, band: usize) -> bool {
        let due = ((self.waiting.costs(Contest::All) as f64 * Bands::SHARE) as u64).max(1);
        self.bands[band].as_ref().is_none_or(|band| band.waiting.costs(Contest::All) <= due)
    }

    /// The flow that loses a request to one of `claim` and `cost`; `None` if no flow does. The least urgent of the
    /// lower urgencies loses first, unless its tickets are within its guaranteed share. Within the same urgency, the
    /// client with the largest backlog loses. Of its flows the one of the last rank loses, and among equal ranks the
    /// one with the largest backlog. The new request's own client and flow must come before these.
    pub fn victim(&mut self, claim: &Claim, cost: u64) -> Option<Claim> {
        let sizes = self.sizes.take().unwrap_or_else(|| self.sizes());
        let own = band(claim);
        let largest = (own..Urgency::COUNT).rev().filter(|band| *band == own || !self.spares(*band)).find_map(|band| {
            let (size, client) = sizes.by_size[band].last()?;
            Some((band, *size, *client))
        });
        self.sizes = Some(sizes);
        let (number, size, id) = largest?;
        let is_equal = number == own;
        let is_own = is_equal && id == claim.upper();
        let clients = &self.bands[number].as_ref()?.clients;
        let own = is_equal.then(|| clients.get(&claim.upper())).flatten();
        let (upper, lower) = claim.weights();
        if is_equal && !is_own && size.backlog <= WeightedBacklog::with(own.map(|own| &own.waiting), cost, upper) {
            return None;
        }
        let client = &clients[&id];
        let flows = client.flows.iter().filter(|(_, flow)| flow.new > 0);
        let sizes =
            flows.map(|(id, flow)| (flow.claim.rank, WeightedBacklog::of(&flow.waiting, flow.weight()), *id, flow));
        let (rank, size, id, flow) = sizes.max_by_key(|(rank, size, _, flow)| (*rank, *size, flow.latest))?;
        if is_own {
            let own = client.flows.get(&claim.claimed()).map(|flow| &flow.waiting);
            if id == claim.claimed() || (rank, size) <= (claim.rank, WeightedBacklog::with(own, cost, lower)) {
                return None;
            }
        }
        Some(flow.claim)
    }

    fn sizes(&self) -> Sizes {
        let by_size = self.bands.each_ref().map(|band| {
            let clients = band.iter().flat_map(|band| &band.clients);
            clients.filter_map(|(id, client)| Some((client.size()?, *id))).collect()
        });
        Sizes { by_size, until: self.waiting.size(Contest::All) / 2 }
    }

    /// Backlog size of the client of `claim`, if sizes are kept and a ticket of the client may be evicted.
    fn size_of(&self, claim: &Claim) -> Option<ClientSize> {
        self.sizes.as_ref()?;
        self.bands[band(claim)].as_ref()?.clients.get(&claim.upper())?.size()
    }

    /// Updates the size of the client of `claim`, which was `before`.
    fn resized(&mut self, claim: &Claim, before: Option<ClientSize>) {
        let now = self.size_of(claim);
        if let Some(Sizes { by_size, .. }) = &mut self.sizes {
            let of_band = &mut by_size[band(claim)];
            before.map(|size| of_band.remove(&(size, claim.upper())));
            now.map(|size| of_band.insert((size, claim.upper())));
        }
    }

    /// The flows with the most waiting requests, at most `most` of them.
    pub(super) fn longest(&self, most: usize) -> Vec<WaitingFlow> {
        let mut flows = Vec::new();
        for band in self.bands.iter().flatten() {
            for client in band.clients.values() {
                flows.extend(client.flows.values().map(|flow| WaitingFlow {
                    claim: flow.claim.with_weights(client.weight, flow.weight()),
                    waiting: flow.tickets,
                }));
                if flows.len() > 16 * most {
                    keep_longest(&mut flows, most);
                }
            }
        }
        keep_longest(&mut flows, most);
        flows
    }
}

// === impl ClientBacklog ===

impl ClientBacklog {
    fn new(weight: Weight) -> Self {
        Self { waiting: Waiting::default(), new: 0, latest: 0, weight, flows: Map::default() }
    }

    /// Size of the backlog, if a ticket of the client may be evicted.
    fn size(&self) -> Option<ClientSize> {
        let size = || ClientSize { backlog: WeightedBacklog::of(&self.waiting, self.weight), latest: self.latest };
        (self.new > 0).then(size)
    }
}

// === impl Flow ===

impl Flow {
    fn new(claim: Claim) -> Self {
        Self { claim, waiting: Waiting::default(), tickets: 0, new: 0, latest: 0 }
    }

    fn weight(&self) -> Weight {
        self.claim.weights().1
    }
}

// === impl WeightedBacklog ===

impl WeightedBacklog {
    fn of(waiting: &Waiting, weight: Weight) -> Self {
        Self::beyond_one(waiting.size(Contest::All), waiting.costs(Contest::All), weight)
    }

    /// The size with one more request of this cost.
    fn with(waiting: Option<&Waiting>, cost: u64, weight: Weight) -> Self {
        let (units, requests) =
            waiting.map_or((0, 0), |waiting| (waiting.size(Contest::All), waiting.costs(Contest::All)));
        Self::beyond_one(units + cost, requests + 1, weight)
    }

    /// Size beyond one request. The exempt request counts as the mean of all, whichever it is: of two clients that
    /// evict each other's requests, neither gains by coming again.
    fn beyond_one(units: u64, requests: u64, weight: Weight) -> Self {
        let units = units.saturating_mul(1 << 16);
        Self((units - units / requests.max(1)) / weight.get())
    }
}

fn band(claim: &Claim) -> usize {
    claim.urgency.get().into()
}

fn keep_longest(flows: &mut Vec<WaitingFlow>, most: usize) {
    flows.sort_unstable_by_key(|flow| {
        (std::cmp::Reverse(flow.waiting), flow.claim.urgency, flow.claim.client, flow.claim.flow)
    });
    flows.truncate(most);
}
