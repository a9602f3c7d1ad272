//! Which ticket gives way to one that comes, where as many wait as may.

use std::hash::Hash;

use super::{NEW, NONE, Queue, QueuePlace, Strand, claimed};
use crate::{
    lane::order::claim::{Claim, Urgency},
    limit::Cost,
};

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

    /// The newest ticket that is parked at one of its budgets and not more urgent than this, unless it was sent before. O(strands).
    pub fn newest_elsewhere(&self, urgency: Urgency) -> Option<QueuePlace> {
        self.newest(|strand| {
            let parked = strand.spot != NONE && self.sets.spots(strand.set).contains(&strand.spot);
            parked && strand.claim.urgency >= urgency
        })
    }

    fn newest(&self, wanted: impl Fn(&Strand) -> bool) -> Option<QueuePlace> {
        let strands = self.strands.iter().filter(|(_, strand)| wanted(strand));
        let lasts = strands.map(|(_, strand)| QueuePlace { id: strand.last, key: self.tickets[strand.last].key });
        lasts.max_by_key(|place| place.key).filter(|place| place.key >= NEW)
    }
}
