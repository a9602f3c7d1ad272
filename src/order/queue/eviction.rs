//! The ticket to evict from a full queue for an arriving one: the last in the ranking. It is the newest one of a flow
//! that [`Backlog::victim`] chooses. Tickets that were sent before are never evicted.

use std::hash::Hash;

use andante_limit::Cost;

use super::{FlowQueue, NEW, NONE, Queue, QueuePlace};
use crate::{backlog::Backlog, claim::Claim};

impl<K: Copy + Eq + Hash, T> Queue<K, T> {
    /// The ticket to evict for one of `claim` with this cost, if the queue is full. O(flow queues + log clients).
    pub fn victim(&mut self, claim: &Claim, cost: Cost) -> Option<QueuePlace> {
        let claim = self.backlog.resolve(*claim);
        let flow = self.backlog.victim(&claim, cost.share())?;
        self.last(|flow_queue| flow_queue.claim.claimed() == flow.claimed())
    }

    /// The ticket to evict for one of `claim` with this cost, if the queue of this budget, the `backlog`, is full.
    /// O(flow queues + log clients).
    pub fn victim_at(&self, budget: u32, backlog: &mut Backlog, claim: &Claim, cost: Cost) -> Option<QueuePlace> {
        let flow = backlog.victim(&self.backlog.resolve(*claim), cost.share())?;
        self.last(|flow_queue| {
            flow_queue.claim.claimed() == flow.claimed() && self.sets.budgets(flow_queue.set).contains(&budget)
        })
    }

    /// The last ticket blocked at a sub-limit, to be evicted for one of `claim` whose `budgets` have no blocked
    /// tickets. `None` if `most` or more flow queues wait elsewhere, or one of its client does. Spares tickets of
    /// higher urgency, and the few within their urgency's guaranteed share. O(flow queues).
    pub fn victim_elsewhere(&self, claim: &Claim, budgets: &[u32], most: usize) -> Option<QueuePlace> {
        let mut own = budgets.iter().filter_map(|budget| self.sets.wait_point_of(*budget));
        if self.sets.is_empty() || own.any(|wait_point| self.wait_points[wait_point].blocked > 0) {
            return None;
        }
        let is_blocked = |flow_queue: &FlowQueue| {
            flow_queue.wait_point != NONE && self.sets.wait_points(flow_queue.set).contains(&flow_queue.wait_point)
        };
        let (mut elsewhere, mut of_client) = (0, false);
        for (_, flow_queue) in self.flow_queues.iter().filter(|(_, flow_queue)| !is_blocked(flow_queue)) {
            elsewhere += 1;
            of_client |= flow_queue.claim.client == claim.client;
        }
        if elsewhere >= most || of_client {
            return None;
        }
        self.last(|flow_queue| {
            let urgency = flow_queue.claim.urgency;
            let spared = urgency != claim.urgency && self.backlog.spares(urgency.get().into());
            is_blocked(flow_queue) && urgency >= claim.urgency && !spared
        })
    }

    /// The ticket of the `wanted` flow queues that was never sent and is last by urgency, rank and arrival.
    fn last(&self, wanted: impl Fn(&FlowQueue) -> bool) -> Option<QueuePlace> {
        let flow_queues = self.flow_queues.iter().filter(|(_, flow_queue)| wanted(flow_queue));
        let lasts = flow_queues.map(|(_, FlowQueue { claim, last: id, .. })| {
            (claim.urgency, claim.rank, QueuePlace { id: *id, key: self.tickets[*id].key })
        });
        let new = lasts.filter(|(.., place)| place.key >= NEW);
        new.max_by_key(|(urgency, rank, place)| (*urgency, *rank, place.key)).map(|(.., place)| place)
    }
}
