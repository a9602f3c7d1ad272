//! The ticket to evict from a full queue for an arriving one.

use std::hash::Hash;

use andante_limit::Cost;

use super::{FlowQueue, NEW, NONE, Queue, QueuePlace};
use crate::claim::Claim;

impl<K: Copy + Eq + Hash, T> Queue<K, T> {
    /// The ticket to evict for one of `claim` with this cost, if the queue is full: the newest ticket of the flow that
    /// [`Backlog`](crate::Backlog) chooses. O(flow queues + log clients).
    pub fn gives_way(&mut self, claim: &Claim, cost: Cost) -> Option<QueuePlace> {
        let claim = self.backlog.resolve(*claim);
        let longest = self.backlog.gives_way(&claim, cost.share())?;
        self.newest_of(&longest, None)
    }

    /// The newest ticket of a flow, or of its tickets that draw on this budget, unless it was sent before. O(flow
    /// queues).
    pub fn newest_of(&self, claim: &Claim, budget: Option<u32>) -> Option<QueuePlace> {
        let longest = claim.claimed();
        self.newest(|flow_queue| {
            let draws = budget.is_none_or(|budget| self.sets.budgets(flow_queue.set).contains(&budget));
            draws && flow_queue.claim.claimed() == longest
        })
    }

    /// The newest ticket blocked at a sub-limit, to be evicted for one of `claim` whose `budgets` have no blocked
    /// tickets. `None` if `most` or more flow queues wait elsewhere, or one of its client does. Spares tickets of
    /// higher urgency, and the few within their urgency's guaranteed share. O(flow queues).
    pub fn newest_elsewhere(&self, claim: &Claim, budgets: &[u32], most: usize) -> Option<QueuePlace> {
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
        self.newest(|flow_queue| {
            let urgency = flow_queue.claim.urgency;
            let spared = urgency != claim.urgency && self.backlog.spares(urgency.get().into());
            is_blocked(flow_queue) && urgency >= claim.urgency && !spared
        })
    }

    fn newest(&self, wanted: impl Fn(&FlowQueue) -> bool) -> Option<QueuePlace> {
        let flow_queues = self.flow_queues.iter().filter(|(_, flow_queue)| wanted(flow_queue));
        let lasts = flow_queues
            .map(|(_, flow_queue)| QueuePlace { id: flow_queue.last, key: self.tickets[flow_queue.last].key });
        lasts.max_by_key(|place| place.key).filter(|place| place.key >= NEW)
    }
}
