//! Which ticket gives way to one that comes, where as many wait as may.

use std::hash::Hash;

use super::{NEW, NONE, Queue, QueuePlace, Strand, claimed};
use crate::{lane::order::claim::Claim, limit::Cost};

impl<K: Copy + Eq + Hash, T> Queue<K, T> {
    /// The ticket that gives way to one of `claim` that costs so much, if the queue is full: the newest of the
    /// flow that does, by its backlog. O(strands + log clients).
    pub fn gives_way(&mut self, claim: &Claim, cost: Cost) -> Option<QueuePlace> {
        let claim = self.backlog.resolve(*claim);
        let longest = self.backlog.gives_way(&claim, cost.share())?;
        self.newest_of(&longest, None)
    }

    /// The newest ticket of a flow, or of those in it that draw on this budget, unless it was sent before. O(strands).
    pub fn newest_of(&self, claim: &Claim, budget: Option<u32>) -> Option<QueuePlace> {
        let longest = claimed(claim);
        self.newest(|strand| {
            let draws = budget.is_none_or(|budget| self.sets.budgets(strand.set).contains(&budget));
            draws && claimed(&strand.claim) == longest
        })
    }

    /// The newest ticket that is parked at a narrower budget, and gives way to one of `claim` at whose `budgets` nothing is, while
    /// fewer than `most` flows wait elsewhere, and none of its client: it is not more urgent, and not one of the few that are due to
    /// its urgency. O(strands).
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
