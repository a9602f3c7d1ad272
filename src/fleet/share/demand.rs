//! How many tokens a member would use.

use super::Share;
use crate::{clock::Instant, fleet::Stock};

/// A member that is short of tokens tells of a demand that is so many times what it uses at most.
const MOST_TIMES: f64 = 20.0;

impl Share {
    /// How many tokens it would use. Workers that wait for their answers ask for no more than they get: what they would ask for
    /// follows from how much of the time they wait for tokens.
    pub(super) fn demand(&mut self, now: Instant, stock: Stock) -> u32 {
        if stock.backlog == 0 {
            self.strain.set(now, false);
        }
        let served = (1.0 - self.strain.part(now)).max(1.0 / MOST_TIMES);
        let unstrained = (f64::from(stock.used) / served) as u32;
        stock.used.saturating_add(stock.backlog).max(stock.lately).max(unstrained).min(self.given.limit)
    }

    /// How many tokens it asks for although nothing waits for them yet, if it would use so many: half as many as it has, since more
    /// would lie idle until it is time for them.
    pub(super) fn takes_on(&self, now: Instant, demand: u32) -> u32 {
        if now < self.keeps_until() { demand.saturating_sub(self.held).min(self.held / 2) } else { 0 }
    }
}
