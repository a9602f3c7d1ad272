//! Which strand is next, of those that stand in one place: by urgency, then by client, then by flow, then by arrival.

use super::{
    bands::Bands,
    claim::{Claim, ClientId, FlowId, Urgency},
    fair::{Fair, FairMember, Members},
    slab::{Map, Slab},
    sorted_set::SortedSet,
};

/// Ranks the strands that stand in one place. Knows them by their numbers, and by the keys of their first tickets.
#[derive(Debug)]
pub(super) struct Ranking {
    bands: Bands,
    /// How many turns are owed at most to what comes from another place.
    credit: u8,
    /// Of each urgency, how it is shared among clients.
    clients: [Option<Box<Fair>>; Urgency::COUNT],
    /// How much stands here of each client is shared among its flows.
    flows: Slab<Fair>,
    nodes: Slab<Node>,
    ids: Map<NodeKey, u32>,
    forgotten: Vec<u32>,
}

type NodeKey = (u8, ClientId, Option<FlowId>);

/// The nodes of a strand that stands here: its client's, and its flow's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RankedAt {
    client: u32,
    flow: u32,
}

/// A client, or a flow of it, at one urgency.
#[derive(Debug)]
struct Node {
    key: NodeKey,
    member: FairMember,
    kind: NodeKind,
}

#[derive(Debug)]
enum NodeKind {
    /// A client, with the number of what is shared among its flows.
    Client(u32),
    /// A flow of a client, with its strands by the keys of their first tickets.
    Flow { strands: SortedSet<(u64, u32)> },
}

// === impl RankedAt ===

impl RankedAt {
    /// It does not stand anywhere yet.
    pub(super) const NOWHERE: Self = Self { client: u32::MAX, flow: u32::MAX };
}

// === impl Ranking ===

impl Ranking {
    pub(super) fn new(credit: u8) -> Self {
        Self {
            bands: Bands::default(),
            credit,
            clients: Default::default(),
            flows: Slab::new(),
            nodes: Slab::new(),
            ids: Map::default(),
            forgotten: Vec::new(),
        }
    }

    /// A strand stands here, the first ticket of which has this `key` and `cost`; it was `moved` here from another place
    /// or has just come. Says where it is ranked for as long as it stands here.
    pub(super) fn insert(&mut self, claim: &Claim, strand: u32, key: u64, cost: u64, moved: bool) -> RankedAt {
        let at = self.nodes_of(claim);
        let RankedAt { client, flow } = at;
        let band = usize::from(claim.urgency.get());
        self.bands.enter(claim.urgency, cost, moved);
        let over = self.clients[band].as_mut().expect("a client's node has one over it");
        let under = &mut self.flows[self.nodes[client].flows()];
        over.expect(cost);
        under.expect(cost);
        let node = &mut self.nodes[flow];
        node.strands().insert((key, strand));
        if !node.member.is_active() {
            under.reweigh(flow, &mut node.member, claim.flow_weight);
            under.activate(flow, &mut node.member, moved);
        }
        let node = &mut self.nodes[client];
        if !node.member.is_active() {
            over.reweigh(client, &mut node.member, claim.client_weight);
            over.activate(client, &mut node.member, moved);
        }
        at
    }

    /// The strand does not stand here any more.
    pub(super) fn remove(&mut self, at: RankedAt, urgency: Urgency, strand: u32, key: u64) {
        let RankedAt { client, flow } = at;
        let removed = self.nodes[flow].strands().remove(&(key, strand));
        debug_assert!(removed, "a strand stands where it was put");
        if !self.nodes[flow].strands().is_empty() {
            return;
        }
        let under = &mut self.flows[self.nodes[client].flows()];
        let forgotten = under.deactivate(flow, &mut self.nodes[flow].member);
        let idle = under.is_idle();
        if forgotten {
            self.forget(flow);
        }
        if idle {
            let over = self.clients[usize::from(urgency.get())].as_mut().expect("it has members");
            let forgotten = over.deactivate(client, &mut self.nodes[client].member);
            if over.is_idle() {
                self.bands.leave(urgency);
            }
            if forgotten {
                self.forget(client);
            }
        }
    }

    /// Another ticket is first in the strand, with the key `new` instead of `old`.
    pub(super) fn rekey(&mut self, at: RankedAt, strand: u32, old: u64, new: u64) {
        let strands = self.nodes[at.flow].strands();
        strands.remove(&(old, strand));
        strands.insert((new, strand));
    }

    /// The weights of `claim` hold from now on, for what waits too.
    pub(super) fn reweigh(&mut self, claim: &Claim) {
        let Some((&client, &flow)) = self.ids.get(&client_key(claim)).zip(self.ids.get(&flow_key(claim))) else {
            return;
        };
        let under = self.nodes[client].flows();
        self.flows[under].reweigh(flow, &mut self.nodes[flow].member, claim.flow_weight);
        let over = self.clients[usize::from(claim.urgency.get())].as_mut().expect("it has members");
        over.reweigh(client, &mut self.nodes[client].member, claim.client_weight);
    }

    /// What was served of `claim`, wherever it stood, counts here.
    pub(super) fn charge(&mut self, claim: &Claim, cost: u64) {
        let at = self.nodes_of(claim);
        self.charge_at(at, claim.urgency, cost);
    }

    /// What was served of a strand that stands here.
    pub(super) fn charge_at(&mut self, at: RankedAt, urgency: Urgency, cost: u64) {
        let RankedAt { client, flow } = at;
        self.bands.charge(urgency, cost);
        let under = self.nodes[client].flows();
        self.flows[under].charge(flow, &mut self.nodes[flow].member, cost);
        let over = self.clients[usize::from(urgency.get())].as_mut().expect("a client's node has one over it");
        over.charge(client, &mut self.nodes[client].member, cost);
    }

    /// The strand whose turn it is.
    pub(super) fn next(&mut self) -> Option<u32> {
        let urgency = self.bands.next()?;
        let over = self.clients[usize::from(urgency.get())].as_mut()?;
        let client = over.next(&mut self.nodes, &mut self.forgotten)?;
        let under = self.nodes[client].flows();
        let flow = self.flows[under].next(&mut self.nodes, &mut self.forgotten)?;
        while let Some(id) = self.forgotten.pop() {
            self.forget(id);
        }
        self.nodes[flow].strands().first().map(|(_, strand)| *strand)
    }

    /// Whether nothing stands here.
    pub(super) fn is_empty(&self) -> bool {
        self.bands.next().is_none()
    }

    /// How many clients and flows it remembers.
    pub(super) fn remembered(&self) -> usize {
        self.nodes.len()
    }

    /// The nodes of a client and of its flow.
    fn nodes_of(&mut self, claim: &Claim) -> RankedAt {
        let client = match self.ids.get(&client_key(claim)) {
            Some(client) => *client,
            None => {
                let over = &mut self.clients[usize::from(claim.urgency.get())];
                let over = over.get_or_insert_with(|| Box::new(Fair::new(self.credit)));
                let member = over.newcomer(claim.client_weight);
                let kind = NodeKind::Client(self.flows.insert(Fair::new(self.credit)));
                self.add(client_key(claim), member, kind)
            }
        };
        let flow = match self.ids.get(&flow_key(claim)) {
            Some(flow) => *flow,
            None => {
                let member = self.flows[self.nodes[client].flows()].newcomer(claim.flow_weight);
                self.add(flow_key(claim), member, NodeKind::Flow { strands: SortedSet::default() })
            }
        };
        RankedAt { client, flow }
    }

    fn add(&mut self, key: NodeKey, member: FairMember, kind: NodeKind) -> u32 {
        let id = self.nodes.insert(Node { key, member, kind });
        self.ids.insert(key, id);
        id
    }

    /// Forgets a node that is not listed any more; with a client go its flows.
    fn forget(&mut self, id: u32) {
        let node = self.nodes.remove(id);
        self.ids.remove(&node.key);
        if let NodeKind::Client(flows) = node.kind {
            for flow in self.flows.remove(flows).members() {
                let flow = self.nodes.remove(flow);
                self.ids.remove(&flow.key);
            }
        }
    }
}

impl Members for Slab<Node> {
    fn member(&mut self, id: u32) -> &mut FairMember {
        &mut self[id].member
    }
}

// === impl Node ===

impl Node {
    /// The number of what is shared among a client's flows.
    fn flows(&self) -> u32 {
        match self.kind {
            NodeKind::Client(flows) => flows,
            NodeKind::Flow { .. } => unreachable!("only a client is asked for its flows"),
        }
    }

    fn strands(&mut self) -> &mut SortedSet<(u64, u32)> {
        match &mut self.kind {
            NodeKind::Flow { strands } => strands,
            NodeKind::Client(_) => unreachable!("only a flow is asked for its strands"),
        }
    }
}

fn client_key(claim: &Claim) -> NodeKey {
    (claim.urgency.get(), claim.client, None)
}

fn flow_key(claim: &Claim) -> NodeKey {
    (claim.urgency.get(), claim.client, Some(claim.flow))
}
