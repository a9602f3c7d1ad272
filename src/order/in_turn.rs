//! Waiting requests in the order in which they would leave if nothing blocked them. Each client gets its share of the
//! turns, and each of its flows a share of those.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{
    claim::{Claim, Claimed, Sharer},
    slab::Map,
};

/// Requests of several clients in the order of their turns.
#[derive(Debug)]
pub struct InTurn<I: Iterator> {
    clients: Shares<Shares<FlowTickets<I>>>,
}

/// A request whose turn is next.
#[derive(Debug)]
pub struct TurnOf<T> {
    /// The request.
    pub item: T,
    /// The number of its flow.
    pub flow: u32,
    /// Leeway of its turn, as a multiple of the largest cost: the turn may come this much earlier than the preceding
    /// costs imply. Each client, and each flow of a client, is within one largest cost of its share, now and at its
    /// turn.
    pub leeway: f64,
}

/// A source of items, one by one.
trait Sequence {
    type Item;

    /// The next item; `None` at the end.
    fn next(&mut self) -> Option<Self::Item>;
    /// Records that the last returned item has had its turn, at this cost. Items without a turn cost nothing.
    fn served(&mut self, cost: u64);
}

/// Gives its members turns by their weights: next is the member that has received least.
#[derive(Debug)]
struct Shares<M> {
    members: Vec<(u64, M)>,
    /// The amount that each member has received by its weight, the least first.
    order: BinaryHeap<Reverse<(u64, usize)>>,
    weights: u64,
}

/// The waiting requests of one flow, in order.
#[derive(Debug)]
struct FlowTickets<I> {
    number: u32,
    leeway: f64,
    items: I,
}

/// A largest cost now, and one when its turn comes.
const BOTH_ENDS: f64 = 2.0;
/// A unit of cost: large enough to be divided by a weight of 65,535.
const UNIT: u64 = 1 << 16;

// === impl InTurn ===

impl<I: Iterator> InTurn<I> {
    /// The order of the waiting requests of one urgency's flows; each flow has one sequence. A client may be owed up to
    /// `owed` turns.
    pub fn new(flows: impl IntoIterator<Item = (Claim, I)>, owed: f64) -> Self {
        let (mut clients, mut ids) = (Shares::default(), Map::<Sharer, usize>::default());
        for (number, (claim, items)) in flows.into_iter().enumerate() {
            let (upper, lower) = claim.weights();
            let id = *ids
                .entry(claim.upper())
                .or_insert_with(|| clients.join(upper.get(), Shares::<FlowTickets<I>>::default()));
            // Flows that do not share may leave in any order among themselves.
            let leeway = if claim.is_in_order() { f64::INFINITY } else { 0.0 };
            let flow = FlowTickets { number: number as u32, leeway, items };
            clients.members[id].1.join(lower.get(), flow);
        }
        let alone = clients.members.len() < 2;
        for (weight, flows) in &mut clients.members {
            // A single member is always in time.
            let client = clients.weights as f64 / *weight as f64;
            let among_clients = if alone { 0.0 } else { client * (BOTH_ENDS + owed) };
            let few = flows.members.len() < 2;
            for (weight, flow) in &mut flows.members {
                let among_flows = if few { 0.0 } else { client * BOTH_ENDS * flows.weights as f64 / *weight as f64 };
                let shares = few || flow.leeway == 0.0;
                flow.leeway = if shares { among_clients + among_flows } else { f64::INFINITY };
            }
        }
        Self { clients }
    }

    /// The next turn.
    pub fn next_turn(&mut self) -> Option<TurnOf<I::Item>> {
        self.clients.next()
    }

    /// Records that the last request has had its turn, at this cost. A request without a turn does not delay others of
    /// its client.
    pub fn served(&mut self, cost: u64) {
        self.clients.served(cost);
    }
}

/// Groups items by flow, in the order of their flows' first items.
pub fn by_flow<T>(items: impl IntoIterator<Item = (Claim, T)>) -> impl Iterator<Item = (Claim, Vec<T>)> {
    let (mut flows, mut ids) = (Vec::new(), Map::<Claimed, usize>::default());
    for (claim, item) in items {
        let id = *ids.entry(claim.claimed()).or_insert_with(|| {
            flows.push((claim, Vec::new()));
            flows.len() - 1
        });
        flows[id].1.push(item);
    }
    flows.into_iter()
}

// === impl Shares ===

impl<M> Default for Shares<M> {
    fn default() -> Self {
        Self { members: Vec::new(), order: BinaryHeap::new(), weights: 0 }
    }
}

impl<M> Shares<M> {
    /// Adds a member, and returns its number.
    fn join(&mut self, weight: u64, member: M) -> usize {
        let number = self.members.len();
        self.members.push((weight, member));
        self.order.push(Reverse((0, number)));
        self.weights += weight;
        number
    }
}

impl<M: Sequence> Sequence for Shares<M> {
    type Item = M::Item;

    fn next(&mut self) -> Option<M::Item> {
        loop {
            let Reverse((_, number)) = *self.order.peek()?;
            if let Some(item) = self.members[number].1.next() {
                return Some(item);
            }
            self.order.pop();
        }
    }

    fn served(&mut self, cost: u64) {
        let Some(mut first) = self.order.peek_mut() else { return };
        let Reverse((received, number)) = &mut *first;
        let (weight, member) = &mut self.members[*number];
        *received = received.saturating_add(cost.saturating_mul(UNIT) / *weight);
        member.served(cost);
    }
}

// === impl FlowTickets ===

impl<I: Iterator> Sequence for FlowTickets<I> {
    type Item = TurnOf<I::Item>;

    fn next(&mut self) -> Option<Self::Item> {
        let Self { number, leeway, items } = self;
        items.next().map(|item| TurnOf { item, flow: *number, leeway: *leeway })
    }

    fn served(&mut self, _: u64) {}
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;
    use crate::{ClientId, FlowId, Levels, Weight};

    fn claim(client: u8, flow: u64, weight: u16) -> Claim {
        let weight = Weight(NonZeroU16::new(weight).unwrap());
        let client = ClientId::of([10, 0, 0, client].into());
        Claim { client, flow: FlowId(flow), client_weight: weight, ..Claim::USUAL }
    }

    /// The names of the first `count` turns; the names in `skips` have no turn.
    fn first(flows: Vec<(Claim, Vec<&'static str>)>, count: usize, skips: &str) -> Vec<&'static str> {
        let mut in_turn = InTurn::new(flows.into_iter().map(|(claim, items)| (claim, items.into_iter())), 0.0);
        let mut names = Vec::new();
        while names.len() < count
            && let Some(next) = in_turn.next_turn()
        {
            if !skips.contains(next.item) {
                in_turn.served(1);
                names.push(next.item);
            }
        }
        names
    }

    #[test]
    fn clients_take_turns_and_so_do_the_flows_of_one() {
        let flows =
            vec![(claim(1, 1, 1), vec!["a"; 9]), (claim(1, 2, 1), vec!["b"; 9]), (claim(2, 1, 1), vec!["c"; 2])];
        assert_eq!(first(flows, 9, ""), ["a", "c", "b", "c", "a", "b", "a", "b", "a"]);
    }

    #[test]
    fn a_client_of_weight_three_has_three_turns_for_each_of_another() {
        let flows = vec![(claim(1, 1, 3), vec!["a"; 30]), (claim(2, 1, 1), vec!["b"; 30])];
        let names = first(flows, 24, "");
        assert_eq!(names.iter().filter(|name| **name == "a").count(), 18);
    }

    #[test]
    fn whoever_has_no_turn_is_in_nobodys_way() {
        let flows = vec![(claim(1, 1, 1), vec!["x", "x", "x", "a", "a"]), (claim(2, 1, 1), vec!["b", "b"])];
        assert_eq!(first(flows, 4, "x"), ["a", "b", "a", "b"]);
    }

    #[test]
    fn one_of_two_clients_may_be_four_turns_early_and_one_of_its_two_flows_eight_more() {
        let flows = vec![(claim(1, 1, 1), vec![()]), (claim(1, 2, 1), vec![()]), (claim(2, 1, 1), vec![()])];
        let mut in_turn = InTurn::new(flows.into_iter().map(|(claim, items)| (claim, items.into_iter())), 0.0);
        let leeways: Vec<_> = std::iter::from_fn(|| in_turn.next_turn().map(|next| next.leeway)).collect();
        // A client has half of the turns, and a flow of the first client a quarter. A cost of its own corresponds to
        // two turns, or to four.
        assert_eq!(leeways, [4.0 + 8.0, 4.0 + 8.0, 4.0]);
    }
    #[test]
    fn request_of_a_client_whose_flows_do_not_share_may_leave_at_any_time_among_them() {
        let of = |client, flow| Claim { levels: Levels::Client, ..claim(client, flow, 1) };
        let flows = vec![(of(1, 1), vec![()]), (of(1, 2), vec![()]), (of(2, 1), vec![()])];
        let mut in_turn = InTurn::new(flows.into_iter().map(|(claim, items)| (claim, items.into_iter())), 0.0);
        let leeways: Vec<_> = std::iter::from_fn(|| in_turn.next_turn().map(|next| next.leeway)).collect();
        assert_eq!(leeways, [f64::INFINITY, f64::INFINITY, 4.0]);
    }
}
