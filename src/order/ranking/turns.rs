//! The rank of an arriving request among the others, for estimates.

use super::Ranking;
use crate::{
    bands::Bands,
    claim::{Claim, Sharer},
    fair::{Level, Standing, Turn},
};

/// The turns of one identity, among the clients of its urgency and among the flows of its client.
pub(crate) struct Turns<'a> {
    ranking: Option<&'a Ranking>,
    claim: &'a Claim,
    /// The number of its client.
    client: Option<u32>,
    clients: Level,
    flows: Level,
}

impl<'a> Turns<'a> {
    /// The turns of `claim` by the order of `ranking`; `None` if nothing has been shared out there yet.
    pub(crate) fn of(ranking: Option<&'a Ranking>, claim: &'a Claim) -> Self {
        let client = ranking.and_then(|ranking| ranking.client_of((claim.urgency, claim.upper())));
        let share = ranking.and_then(|ranking| ranking.shares.iter().find(|(urgency, _)| *urgency == claim.urgency));
        let flows = ranking.zip(client).map(|(ranking, client)| {
            let start_of = |id| ranking.flows[id].member.start();
            ranking.clients[client].share.level(start_of)
        });
        let clients = share.map_or(Level::default(), |(_, fair)| fair.level());
        Self { ranking, claim, client, clients, flows: flows.unwrap_or_default() }
    }

    /// The turn among the clients of its urgency, for a request of `cost` behind `before` of its client's backlog.
    pub(crate) fn among_clients(&self, before: f64, cost: f64) -> Turn {
        let standing = self.standing_of_client(self.claim.upper(), before == 0.0);
        self.clients.turn(standing, self.claim.weights().0, before, cost)
    }

    /// The turn among the flows of its client, for a request of `cost` behind `before` of its flow's backlog.
    pub(crate) fn among_flows(&self, before: f64, cost: f64) -> Turn {
        let standing = self.standing_of_flow(self.claim.lower(), before == 0.0);
        self.flows.turn(standing, self.claim.weights().1, before, cost)
    }

    /// Standing of another client of its urgency that has waiting requests.
    pub(crate) fn client(&self, client: Sharer) -> Standing {
        self.standing_of_client(client, false)
    }

    /// Standing of another flow of its client that has waiting requests.
    pub(crate) fn flow(&self, flow: &Claim) -> Standing {
        self.standing_of_flow(flow.lower(), false)
    }

    /// The amount served before its urgency's next guaranteed turn, for a request of this cost.
    pub(crate) fn until_guaranteed(&self, cost: f64) -> f64 {
        let none = Bands::default();
        self.ranking.map_or(&none, |ranking| &ranking.bands).until_guaranteed(self.claim.urgency, cost)
    }

    fn standing_of_client(&self, client: Sharer, comes: bool) -> Standing {
        let found = self.ranking.and_then(|ranking| {
            let id = ranking.client_of((self.claim.urgency, client))?;
            Some(self.clients.standing(&ranking.clients[id].member, comes))
        });
        found.unwrap_or(Standing::UNKNOWN)
    }

    fn standing_of_flow(&self, flow: u64, comes: bool) -> Standing {
        let found = self.ranking.zip(self.client).and_then(|(ranking, client)| {
            let id = ranking.flow_of((client, flow))?;
            Some(self.flows.standing(&ranking.flows[id].member, comes))
        });
        found.unwrap_or(Standing::UNKNOWN)
    }
}
