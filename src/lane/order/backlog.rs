//! How much waits of each flow, wherever it stands: for predictions, for `/status`, and to choose what gives way in a
//! full queue.

use std::collections::BTreeSet;

use super::{
    bands::Bands,
    claim::{Claim, ClientId, FlowId, Urgency, Weight},
    slab::Map,
};

/// How much waits, by urgency, client and flow.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    bands: [Band; Urgency::COUNT],
    units: u64,
    sizes: Option<Sizes>,
}

/// Clients by the size of their backlogs. Kept from the first question until the queue is half as full.
#[derive(Debug)]
struct Sizes {
    by_size: BTreeSet<(WeightedBacklog, u8, ClientId)>,
    until: u64,
}

/// What waits of a client or a flow, by its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WeightedBacklog(u64);

#[derive(Debug, Default)]
struct Band {
    units: u64,
    clients: Map<ClientId, ClientBacklog>,
}

#[derive(Debug)]
struct ClientBacklog {
    units: u64,
    weight: Weight,
    flows: Map<FlowId, Flow>,
}

#[derive(Debug)]
struct Flow {
    units: u64,
    tickets: u32,
    weight: Weight,
}

/// How much of what waits goes before a request that comes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ahead {
    /// What goes before it, in units of cost.
    pub units: u64,
    /// What waits.
    pub of: u64,
}

/// A flow that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingFlow {
    /// Its urgency, client, name and weights.
    pub claim: Claim,
    /// How many of its requests wait.
    pub waiting: u32,
}

/// The most flows of a client that are told apart by name while they wait. Further ones share as many places.
const EXACT: usize = 256;
/// The most clients and flows that a prediction looks at; the others are taken to be like them.
const SAMPLE: usize = 64;

/// A part of what waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part(f64);

// === impl Ahead ===

impl Ahead {
    /// Which part it is of what waits.
    pub fn part(self) -> Part {
        if self.of == 0 { Part::NONE } else { Part(self.units as f64 / self.of as f64) }
    }
}

// === impl Part ===

impl Part {
    /// Nothing of it.
    pub const NONE: Self = Self(0.0);

    /// This part of `units`.
    pub fn of(self, units: u64) -> u64 {
        (self.0 * units as f64).round() as u64
    }
}

// === impl Backlog ===

impl Backlog {
    /// `claim` as it counts here: beyond [`EXACT`] names flows are put together, so that names cost no memory.
    pub(super) fn resolve(&self, claim: Claim) -> Claim {
        let client = self.bands[band(&claim)].clients.get(&claim.client);
        let exact = client.is_none_or(|client| client.flows.len() < EXACT || client.flows.contains_key(&claim.flow));
        if exact { claim } else { Claim { flow: FlowId(claim.flow.0 % EXACT as u64), ..claim } }
    }

    /// A ticket of this cost waits from now on. Says whether a weight has changed.
    pub(super) fn add(&mut self, claim: &Claim, cost: u64) -> bool {
        let before = self.size_of(claim);
        let changed = self.count(claim, cost);
        self.resized(claim, before);
        changed
    }

    fn count(&mut self, claim: &Claim, cost: u64) -> bool {
        let band = &mut self.bands[band(claim)];
        let new = || ClientBacklog { units: 0, weight: claim.client_weight, flows: Map::default() };
        let client = band.clients.entry(claim.client).or_insert_with(new);
        let new = || Flow { units: 0, tickets: 0, weight: claim.flow_weight };
        let flow = client.flows.entry(claim.flow).or_insert_with(new);
        let before = (client.weight, flow.weight);
        (client.weight, flow.weight) = (claim.client_weight, claim.flow_weight);
        flow.tickets += 1;
        for units in [&mut flow.units, &mut client.units, &mut band.units, &mut self.units] {
            *units += cost;
        }
        before != (client.weight, flow.weight)
    }

    /// It waits no more.
    pub(super) fn subtract(&mut self, claim: &Claim, cost: u64) {
        let before = self.size_of(claim);
        self.discount(claim, cost);
        self.resized(claim, before);
        self.sizes.take_if(|sizes| self.units < sizes.until);
    }

    fn discount(&mut self, claim: &Claim, cost: u64) {
        let band = &mut self.bands[band(claim)];
        let client = band.clients.get_mut(&claim.client).expect("a ticket of it waits");
        let flow = client.flows.get_mut(&claim.flow).expect("a ticket of it waits");
        flow.tickets -= 1;
        for units in [&mut flow.units, &mut client.units, &mut band.units, &mut self.units] {
            *units -= cost;
        }
        if flow.tickets == 0 {
            client.flows.remove(&claim.flow);
            if client.flows.is_empty() {
                band.clients.remove(&claim.client);
            }
        }
    }

    /// How much goes before a request that comes now, if nothing comes after it: what is more urgent, and of its own
    /// urgency what each other client, and each other flow of its own, gets until it has had its turn.
    pub(super) fn ahead(&self, claim: &Claim, cost: u64) -> Ahead {
        let (index, cost) = (band(claim), cost as f64);
        let band = &self.bands[index];
        let client = band.clients.get(&claim.client);
        let flow = client.and_then(|client| client.flows.get(&claim.flow));
        let own = flow.map_or(0, |flow| flow.units) as f64;
        // In the last round half of the others go first.
        let turn = (own + cost / 2.0) / claim.flow_weight.get() as f64;
        let flows = client.map_or(0.0, |client| {
            let flows = client.flows.iter().filter(|(id, _)| **id != claim.flow);
            until(flows.map(|(_, flow)| (flow.units, flow.weight)), client.flows.len(), turn)
        });
        let turn = (own + flows + cost / 2.0) / claim.client_weight.get() as f64;
        let clients = band.clients.iter().filter(|(id, _)| **id != claim.client);
        let clients = until(clients.map(|(_, client)| (client.units, client.weight)), band.clients.len(), turn);
        let urgent: u64 = self.bands[..index].iter().map(|band| band.units).sum();
        let mut bands = Bands::default();
        for (number, band) in (0..).zip(&self.bands) {
            if let Some(urgency) = Urgency::new(number).filter(|_| band.units > 0) {
                bands.enter(urgency, 1, false);
            }
        }
        let units = bands.ahead(claim.urgency, own + flows + clients, urgent as f64);
        Ahead { units: (units.round() as u64).min(self.units), of: self.units }
    }

    /// The flow of which a request gives way to one of `claim` and `cost`: the longest flow of the client with the
    /// largest backlog, among those that are no more urgent. `None` if that is the flow of `claim` itself.
    pub(super) fn gives_way(&mut self, claim: &Claim, cost: u64) -> Option<Claim> {
        let sizes = self.sizes.take().unwrap_or_else(|| self.sizes());
        let largest = sizes.by_size.iter().rev().find(|(_, band, _)| *band >= claim.urgency.get()).copied();
        self.sizes = Some(sizes);
        let (size, number, id) = largest?;
        let clients = &self.bands[band(claim)].clients;
        let own = clients.get(&claim.client);
        let is_own = (number, id) == (claim.urgency.get(), claim.client);
        if !is_own && size <= WeightedBacklog::of(own.map_or(0, |own| own.units) + cost, claim.client_weight) {
            return None;
        }
        let client = &self.bands[usize::from(number)].clients[&id];
        let sizes =
            client.flows.iter().map(|(id, flow)| (WeightedBacklog::of(flow.units, flow.weight), *id, flow.weight));
        let (size, flow, flow_weight) = sizes.max_by_key(|(size, id, _)| (*size, *id))?;
        if is_own {
            let units = client.flows.get(&claim.flow).map_or(0, |flow| flow.units);
            if flow == claim.flow || size <= WeightedBacklog::of(units + cost, claim.flow_weight) {
                return None;
            }
        }
        let urgency = Urgency::new(number)?;
        Some(Claim { urgency, client: id, flow, client_weight: client.weight, flow_weight })
    }

    fn sizes(&self) -> Sizes {
        let bands = (0..).zip(&self.bands);
        let by_size =
            bands.flat_map(|(number, band)| band.clients.iter().map(move |(id, client)| (client.size(), number, *id)));
        Sizes { by_size: by_size.collect(), until: self.units / 2 }
    }

    /// How much waits of the client of `claim`, if anybody asks.
    fn size_of(&self, claim: &Claim) -> Option<WeightedBacklog> {
        self.sizes.as_ref()?;
        self.bands[band(claim)].clients.get(&claim.client).map(ClientBacklog::size)
    }

    /// More or less waits of the client of `claim` than `before`.
    fn resized(&mut self, claim: &Claim, before: Option<WeightedBacklog>) {
        let now = self.size_of(claim);
        if let Some(Sizes { by_size, .. }) = &mut self.sizes {
            let (band, client) = (claim.urgency.get(), claim.client);
            before.map(|size| by_size.remove(&(size, band, client)));
            now.map(|size| by_size.insert((size, band, client)));
        }
    }

    /// The flows with the most waiting requests, `most` of them at most.
    pub(super) fn longest(&self, most: usize) -> Vec<WaitingFlow> {
        let mut flows = Vec::new();
        for (number, band) in (0..).zip(&self.bands) {
            let Some(urgency) = Urgency::new(number) else { continue };
            for (&id, client) in &band.clients {
                flows.extend(client.flows.iter().map(|(&flow, of_flow)| WaitingFlow {
                    claim: Claim {
                        urgency,
                        client: id,
                        flow,
                        client_weight: client.weight,
                        flow_weight: of_flow.weight,
                    },
                    waiting: of_flow.tickets,
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
    fn size(&self) -> WeightedBacklog {
        WeightedBacklog::of(self.units, self.weight)
    }
}

// === impl WeightedBacklog ===

impl WeightedBacklog {
    fn of(units: u64, weight: Weight) -> Self {
        Self(units.saturating_mul(1 << 16) / weight.get())
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

/// What `count` others receive until one of weight 1 has received `turn`: none more than what it waits for.
fn until(others: impl Iterator<Item = (u64, Weight)>, count: usize, turn: f64) -> f64 {
    let (mut seen, mut sum) = (0, 0.0);
    for (units, weight) in others.take(SAMPLE) {
        seen += 1;
        sum += (units as f64).min(weight.get() as f64 * turn);
    }
    if seen < SAMPLE { sum } else { sum * (count as f64 - 1.0).max(1.0) / SAMPLE as f64 }
}
