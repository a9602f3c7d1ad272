//! How much waits of each flow, wherever it stands: what predictions and people ask for.

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
}

#[derive(Debug, Default)]
struct Band {
    units: u64,
    clients: Map<ClientId, Client>,
}

#[derive(Debug)]
struct Client {
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

/// So many flows of a client are told apart by their names while they wait. What comes beyond shares as many more.
const EXACT: usize = 256;
/// Predictions look at so many clients and flows, and take the others to be like them.
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
        let band = &mut self.bands[band(claim)];
        let new = || Client { units: 0, weight: claim.client_weight, flows: Map::default() };
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
                bands.enter(urgency, 1);
            }
        }
        let units = bands.ahead(claim.urgency, own + flows + clients, urgent as f64);
        Ahead { units: (units.round() as u64).min(self.units), of: self.units }
    }

    /// The flows of which most requests wait, `most` of them at most.
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
