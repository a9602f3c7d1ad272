//! The order of flow queues in one place: by urgency, then by the two levels of their claims, then by arrival.

mod turns;

use std::hash::{BuildHasher, BuildHasherDefault, Hash};

use smallvec::SmallVec;

pub(super) use self::turns::Turns;

use super::{
    bands::Bands,
    claim::{Claim, Comes, FlowRank, Sharer, Urgency, Weight},
    fair::{Fair, FairMember, Forgotten, Members, Share},
    slab::{Map, Mix, Slab},
    sorted_set::SortedSet,
};

/// Ranks the flow queues in one place. Knows them by their numbers, and by the keys of their first tickets.
#[derive(Debug)]
pub(super) struct Ranking {
    bands: Bands,
    /// The most turns owed to a flow queue that comes from another place.
    credit: u8,
    /// How each urgency seen is shared among clients.
    shares: SmallVec<[(Urgency, Fair); 1]>,
    clients: Slab<Client>,
    flows: Slab<Flow>,
    /// Index of the first few clients and flows. With more of them, a map is kept.
    client_tags: Tags,
    flow_tags: Tags,
    numbers: Option<Box<Numbers>>,
    /// Clients whose turns do not come, although their flow queues stand here.
    suspended: Vec<u32>,
}

/// Hash bytes of the first few keys, by number. The bytes stand side by side, so that one memory access finds the
/// candidates.
type Tags = [u8; FEW];

/// The numbers of clients and flows by their keys.
#[derive(Debug, Default)]
struct Numbers {
    clients: Map<ClientKey, u32>,
    flows: Map<FlowKey, u32>,
}

type ClientKey = (Urgency, Sharer);
/// The number of its client, and its own name in the lower level.
type FlowKey = (u32, u64);

/// The client and the flow of a flow queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RankedAt {
    client: u32,
    flow: u32,
}

/// A client at one urgency: a member of the upper level.
#[derive(Debug)]
struct Client {
    key: ClientKey,
    member: FairMember,
    /// How its share is shared among its flows.
    share: Share,
}

/// A flow of a client: a member of the lower level. Each of ten thousand wait points remembers some dozens, so its size
/// matters.
#[derive(Debug)]
struct Flow {
    member: FairMember,
    name: u64,
    /// The number of its client.
    client: u32,
    /// The first of its flow queues, by the key of its first ticket; [`NONE`] if it has none.
    first: u32,
    first_key: FlowQueueKey,
    /// Further flow queues, in the same order; `None` if there never were any.
    others: Option<Box<SortedSet<(FlowQueueKey, u32)>>>,
}

/// Place of a flow queue in its flow: its rank, then the key of its first ticket.
type FlowQueueKey = (FlowRank, u64);

const NONE: u32 = u32::MAX;
const NO_KEY: FlowQueueKey = (FlowRank::LAST, 0);
/// The most clients, or flows, that are found without a map.
const FEW: usize = 64;

// === impl RankedAt ===

impl RankedAt {
    /// The rank of a flow queue that stands nowhere yet.
    pub(super) const NOWHERE: Self = Self { client: u32::MAX, flow: u32::MAX };
}

// === impl Ranking ===

impl Ranking {
    pub(super) fn new(credit: u8) -> Self {
        Self {
            bands: Bands::default(),
            credit,
            shares: SmallVec::new(),
            clients: Slab::new(),
            flows: Slab::new(),
            client_tags: [0; FEW],
            flow_tags: [0; FEW],
            numbers: None,
            suspended: Vec::new(),
        }
    }

    /// Inserts a flow queue whose first ticket has this `key` and `cost`. Returns its rank, which is valid until it is
    /// removed.
    pub(super) fn insert(&mut self, claim: &Claim, flow_queue: u32, key: u64, cost: u64, comes: Comes) -> RankedAt {
        let at = self.rank_of(claim);
        if !self.suspended.contains(&at.client) {
            self.bands.enter(claim.urgency, cost, comes);
        }
        let (upper, lower) = claim.weights();
        let over = share_of(&mut self.shares, claim.urgency);
        let client = &mut self.clients[at.client];
        let flow = &mut self.flows[at.flow];
        over.expect(cost);
        client.share.expect(cost);
        flow.insert((claim.rank, key), flow_queue);
        if !flow.member.is_active() {
            client.share.reweigh(at.flow, &mut flow.member, lower);
            client.share.activate(at.flow, &mut flow.member, comes);
        }
        if !client.member.is_active() {
            over.reweigh(at.client, &mut client.member, upper);
            over.activate(at.client, &mut client.member, comes);
        }
        at
    }

    /// Removes a flow queue that no longer stands here.
    pub(super) fn remove(&mut self, at: RankedAt, claim: &Claim, flow_queue: u32, key: u64) {
        let flow = &mut self.flows[at.flow];
        flow.remove((claim.rank, key), flow_queue);
        if flow.first != NONE {
            return;
        }
        let client = &mut self.clients[at.client];
        client.share.deactivate(at.flow, &mut flow.member);
        if client.share.is_idle() {
            if let Some(index) = self.suspended.iter().position(|number| *number == at.client) {
                self.suspended.swap_remove(index);
                self.resume_client(at.client);
            }
            let client = &mut self.clients[at.client];
            let over = share_of(&mut self.shares, claim.urgency);
            over.deactivate(at.client, &mut client.member);
            if over.is_idle() {
                self.bands.leave(claim.urgency);
            }
        }
    }

    /// Takes the client of the flow queue at the front out of the order, until clients are resumed.
    pub(super) fn suspend(&mut self, at: RankedAt, urgency: Urgency) {
        let over = share_of(&mut self.shares, urgency);
        over.suspend(at.client, &mut self.clients[at.client].member);
        if over.is_idle() {
            self.bands.leave(urgency);
        }
        self.suspended.push(at.client);
    }

    /// Resumes all suspended clients.
    pub(super) fn resume(&mut self) {
        while let Some(number) = self.suspended.pop() {
            self.resume_client(number);
        }
    }

    /// Returns whether any client is suspended.
    pub(super) fn has_suspended(&self) -> bool {
        !self.suspended.is_empty()
    }

    fn resume_client(&mut self, number: u32) {
        let client = &mut self.clients[number];
        let (urgency, _) = client.key;
        self.bands.enter(urgency, 0, Comes::Moved);
        share_of(&mut self.shares, urgency).resume(number, &mut client.member);
    }

    /// Replaces the key `old` of the flow queue's first ticket by `new`.
    pub(super) fn rekey(&mut self, at: RankedAt, rank: FlowRank, flow_queue: u32, old: u64, new: u64) {
        let flow = &mut self.flows[at.flow];
        flow.remove((rank, old), flow_queue);
        flow.insert((rank, new), flow_queue);
    }

    /// Applies new weights of `claim`, also to waiting tickets.
    pub(super) fn reweigh(&mut self, claim: &Claim) {
        let Some(number) = self.client_of((claim.urgency, claim.upper())) else { return };
        let Some(flow) = self.flow_of((number, claim.lower())) else { return };
        let (upper, lower) = claim.weights();
        let client = &mut self.clients[number];
        client.share.reweigh(flow, &mut self.flows[flow].member, lower);
        share_of(&mut self.shares, claim.urgency).reweigh(number, &mut client.member, upper);
    }

    /// Charges what was served of `claim`, wherever it stood.
    pub(super) fn charge(&mut self, claim: &Claim, cost: u64) {
        let at = self.rank_of(claim);
        self.charge_at(at, claim.urgency, cost);
    }

    /// Charges what was served of a flow queue that stands here.
    pub(super) fn charge_at(&mut self, at: RankedAt, urgency: Urgency, cost: u64) {
        self.bands.charge(urgency, cost);
        let client = &mut self.clients[at.client];
        client.share.charge(at.flow, &mut self.flows[at.flow].member, cost);
        share_of(&mut self.shares, urgency).charge(at.client, &mut client.member, cost);
    }

    /// The flow queue whose turn it is.
    pub(super) fn next(&mut self) -> Option<u32> {
        let urgency = self.bands.next()?;
        let mut forgotten = Forgotten::new();
        let client = share_of(&mut self.shares, urgency).next(&mut self.clients, &mut forgotten)?;
        while let Some(gone) = forgotten.pop() {
            self.forget_client(gone);
        }
        let flow = self.clients[client].share.next(&mut self.flows, &mut forgotten)?;
        while let Some(gone) = forgotten.pop() {
            forget_flow(&mut self.flows, &mut self.numbers, gone);
        }
        Some(self.flows[flow].first)
    }

    /// Returns whether no flow queue stands here.
    pub(super) fn is_empty(&self) -> bool {
        self.bands.is_empty()
    }

    /// Number of clients and flows remembered.
    pub(super) fn remembered(&self) -> usize {
        self.clients.len() + self.flows.len()
    }

    /// The rank of this identity; adds its client and flow if they are unknown.
    fn rank_of(&mut self, claim: &Claim) -> RankedAt {
        let client = (claim.urgency, claim.upper());
        let client = self.client_of(client).unwrap_or_else(|| self.add_client(client, claim.weights().0));
        let key = (client, claim.lower());
        let flow = self.flow_of(key).unwrap_or_else(|| self.add_flow(key, claim.weights().1));
        RankedAt { client, flow }
    }

    fn client_of(&self, key: ClientKey) -> Option<u32> {
        match &self.numbers {
            Some(numbers) => numbers.clients.get(&key).copied(),
            None => tagged(&self.client_tags, &key)
                .find(|number| self.clients.get(*number).is_some_and(|client| client.key == key)),
        }
    }

    fn flow_of(&self, key: FlowKey) -> Option<u32> {
        match &self.numbers {
            Some(numbers) => numbers.flows.get(&key).copied(),
            None => tagged(&self.flow_tags, &key)
                .find(|number| self.flows.get(*number).is_some_and(|flow| flow.key() == key)),
        }
    }

    fn add_client(&mut self, key: ClientKey, weight: Weight) -> u32 {
        let (urgency, _) = key;
        if self.shares.iter().all(|(known, _)| *known != urgency) {
            self.shares.push((urgency, Fair::new(self.credit)));
        }
        let member = share_of(&mut self.shares, urgency).newcomer(weight);
        let number = self.clients.insert(Client { key, member, share: Share::new(self.credit) });
        set_tag(&mut self.client_tags, number, &key);
        if let Some(numbers) = self.numbers_if_many() {
            numbers.clients.insert(key, number);
        }
        number
    }

    fn add_flow(&mut self, key: FlowKey, weight: Weight) -> u32 {
        let share = &mut self.clients[key.0].share;
        let member = share.newcomer(weight, &mut self.flows);
        let number = self.flows.insert(Flow::new(key, member));
        set_tag(&mut self.flow_tags, number, &key);
        share.joined(number);
        if let Some(numbers) = self.numbers_if_many() {
            numbers.flows.insert(key, number);
        }
        number
    }

    /// The maps of numbers, created once they are worthwhile.
    fn numbers_if_many(&mut self) -> Option<&mut Numbers> {
        if self.numbers.is_none() && self.clients.len().max(self.flows.len()) > FEW {
            let clients = self.clients.iter().map(|(number, client)| (client.key, number)).collect();
            let flows = self.flows.iter().map(|(number, flow)| (flow.key(), number)).collect();
            self.numbers = Some(Box::new(Numbers { clients, flows }));
        }
        self.numbers.as_deref_mut()
    }

    /// Forgets a client that is not listed any more, and its flows.
    fn forget_client(&mut self, number: u32) {
        let client = self.clients.remove(number);
        if let Some(numbers) = &mut self.numbers {
            numbers.clients.remove(&client.key);
        }
        for flow in client.share.members() {
            forget_flow(&mut self.flows, &mut self.numbers, flow);
        }
    }
}

// === impl Flow ===

impl Flow {
    fn new((client, name): FlowKey, member: FairMember) -> Self {
        Self { member, name, client, first: NONE, first_key: NO_KEY, others: None }
    }

    fn key(&self) -> FlowKey {
        (self.client, self.name)
    }

    fn insert(&mut self, mut key: FlowQueueKey, mut flow_queue: u32) {
        if self.first == NONE {
            (self.first_key, self.first) = (key, flow_queue);
            return;
        }
        if key < self.first_key {
            std::mem::swap(&mut self.first_key, &mut key);
            std::mem::swap(&mut self.first, &mut flow_queue);
        }
        self.others.get_or_insert_default().insert((key, flow_queue));
    }

    fn remove(&mut self, key: FlowQueueKey, flow_queue: u32) {
        if self.first != flow_queue {
            let removed = self.others.as_mut().is_some_and(|others| others.remove(&(key, flow_queue)));
            return debug_assert!(removed, "a flow queue stands where it was put");
        }
        let next = self.others.as_ref().and_then(|others| others.first().copied());
        if let Some((next, others)) = next.zip(self.others.as_mut()) {
            others.remove(&next);
        }
        (self.first_key, self.first) = next.unwrap_or((NO_KEY, NONE));
    }
}

fn tag(key: &impl Hash) -> u8 {
    BuildHasherDefault::<Mix>::default().hash_one(key) as u8
}

fn set_tag(tags: &mut Tags, number: u32, key: &impl Hash) {
    if let Some(place) = tags.get_mut(number as usize) {
        *place = tag(key);
    }
}

/// The numbers with the tag of `key`: some of them may be empty.
fn tagged(tags: &Tags, key: &impl Hash) -> impl Iterator<Item = u32> {
    memchr::memchr_iter(tag(key), tags).map(|number| number as u32)
}

fn share_of(shares: &mut [(Urgency, Fair)], wanted: Urgency) -> &mut Fair {
    let share = shares.iter_mut().find(|(urgency, _)| *urgency == wanted);
    &mut share.expect("it is made for the first client of an urgency").1
}

/// Forgets a flow that is not listed any more.
fn forget_flow(flows: &mut Slab<Flow>, numbers: &mut Option<Box<Numbers>>, number: u32) {
    let flow = flows.remove(number);
    if let Some(numbers) = numbers {
        numbers.flows.remove(&flow.key());
    }
}

impl Members for Slab<Client> {
    fn member(&mut self, number: u32) -> &mut FairMember {
        &mut self[number].member
    }
}

impl Members for Slab<Flow> {
    fn member(&mut self, number: u32) -> &mut FairMember {
        &mut self[number].member
    }
}
