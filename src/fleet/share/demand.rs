//! Tokens that a member would use.

use andante_clock::Instant;

use super::{LARGE, Share};
use crate::Stock;

/// Upper bound of a reported demand, as a multiple of the current use.
const MOST_TIMES: f64 = 20.0;
/// With more responses than this in a window, the number of waiting requests at one instant is no good measure.
const FEW_ANSWERS: u32 = 8;

impl Share {
    /// Units due to this member; `None` before the store has replied.
    pub fn due(&self) -> Option<f64> {
        (self.given.target > 0.0).then(|| self.given.target + f64::from(self.own))
    }

    /// Upper estimate of a usual request's cost.
    pub fn usual(&self) -> u32 {
        self.usual
    }

    /// Number of tokens that the member would use. Workers that wait for responses ask for no more than they get, so
    /// their demand follows from the part of time that they wait for tokens. With slow responses, the waiting requests
    /// bound the demand: two workers whose responses take a whole window use two.
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

    /// Tokens to request beyond those `held` although no request waits yet, for a `demand`. More than half of the held
    /// ones would lie idle at first.
    pub(super) fn takes_on(&self, now: Instant, demand: u32, held: u32) -> u32 {
        if now < self.keeps_until() { demand.saturating_sub(held).min(held / 2) } else { 0 }
    }

    /// Returns true if the cost is so large that tokens saved up for it would be missed elsewhere.
    pub(super) fn is_large(&self, cost: u32) -> bool {
        cost > 1 && f64::from(cost) * LARGE > self.given.target
    }

    /// Tokens that a member may hold in reserve while no other member wants them.
    pub(super) fn spare(&self, demand: u32, most: u32) -> u32 {
        if demand == 0 || self.given.wanted || !self.known {
            return 0;
        }
        (self.given.target.floor() as u32).min(most).saturating_sub(self.held)
    }
}
