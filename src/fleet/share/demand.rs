//! How many tokens a member would use.

use super::{LARGE, Share};
use crate::{clock::Instant, fleet::Stock};

/// A member that is short of tokens tells of a demand that is so many times what it uses at most.
const MOST_TIMES: f64 = 20.0;
/// Where a worker has more answers in a window, how many wait at one instant says too little.
const FEW_ANSWERS: u32 = 8;

impl Share {
    /// How much is due to this member; `None` before the store has said anything.
    pub fn due(&self) -> Option<f64> {
        (self.given.target > 0.0).then(|| self.given.target + f64::from(self.own))
    }

    /// What a request takes as a rule, or more.
    pub fn usual(&self) -> u32 {
        self.usual
    }

    /// How many tokens it would use. Workers that wait for their answers ask for no more than they get: what they would ask for
    /// follows from how much of the time they wait for tokens. Where answers take long, that is no more than those that wait would
    /// ask for beside the others: two workers whose answers take a whole window use two.
    pub(super) fn demand(&mut self, now: Instant, stock: Stock) -> u32 {
        if stock.backlog == 0 {
            self.strain.set(now, false);
        }
        let served = (1.0 - self.strain.part(now)).max(1.0 / MOST_TIMES);
        let most = stock.used.saturating_add(stock.backlog.saturating_mul(stock.again));
        let unstrained = (f64::from(stock.used) / served) as u32;
        let unstrained = if stock.again <= FEW_ANSWERS { unstrained.min(most) } else { unstrained };
        stock.used.saturating_add(stock.backlog).max(stock.lately).max(unstrained).min(self.given.limit)
    }

    /// How many tokens it asks for beside those `held` although nothing waits for them yet, if it would use so many: half as many as
    /// it has, since more would lie idle until it is time for them.
    pub(super) fn takes_on(&self, now: Instant, demand: u32, held: u32) -> u32 {
        if now < self.keeps_until() { demand.saturating_sub(held).min(held / 2) } else { 0 }
    }

    /// Whether a request takes so much that what is kept for it until it fits would be missed elsewhere.
    pub(super) fn is_large(&self, cost: u32) -> bool {
        cost > 1 && f64::from(cost) * LARGE > self.given.target
    }

    /// What a member that uses a limit may keep at hand while nobody else wants it.
    pub(super) fn spare(&self, demand: u32, most: u32) -> u32 {
        if demand == 0 || self.given.wanted || !self.known {
            return 0;
        }
        (self.given.target.floor() as u32).min(most).saturating_sub(self.held)
    }
}
