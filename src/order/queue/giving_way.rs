//! The ticket to evict from a full queue for an arriving one.

use std::hash::Hash;

use andante_limit::Cost;

use super::{NEW, NONE, Queue, QueuePlace, Strand};
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
        self.newest(|strand| {
            let draws = budget.is_none_or(|budget| self.sets.budgets(strand.set).contains(&budget));
            draws && strand.claim.claimed() == longest
        })
    }

    /// The newest ticket blocked at a sub-limit, to be evicted for one of `claim` whose `budgets` have no blocked
    /// tickets. `None` if `most` or more flow queues wait elsewhere, or one of its client does. Spares tickets of
    /// higher urgency, and the few within their urgency's guaranteed share. O(flow queues).
    pub fn newest_elsewhere(&self, claim: &Claim, budgets: &[u32], most: usize) -> Option<QueuePlace> {
        let mut own = budgets.iter().filter_map(|budget| self.sets.spot_of(*budget));
        if self.sets.is_empty() || own.any(|spot| self.spots[spot].parked > 0) {
            return None;
        }
        let is_parked = |strand: &Strand| strand.spot != NONE && self.sets.spots(strand.set).contains(&strand.spot);
        let (mut elsewhere, mut of_client) = (0, false);
        for (_, strand) in self.strands.iter().filter(|(_, strand)| !is_parked(strand)) {
            elsewhere += 1;
            of_client |= strand.claim.client == claim.client;
        }
        if elsewhere >= most || of_client {
            return None;
        }
        self.newest(|strand| {
            let urgency = strand.claim.urgency;
            let spared = urgency != claim.urgency && self.backlog.spares(urgency.get().into());
            is_parked(strand) && urgency >= claim.urgency && !spared
        })
    }

    fn newest(&self, wanted: impl Fn(&Strand) -> bool) -> Option<QueuePlace> {
        let strands = self.strands.iter().filter(|(_, strand)| wanted(strand));
        let lasts = strands.map(|(_, strand)| QueuePlace { id: strand.last, key: self.tickets[strand.last].key });
        lasts.max_by_key(|place| place.key).filter(|place| place.key >= NEW)
    }
}
