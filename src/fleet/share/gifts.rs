//! Tokens that a member gives back to the store for other members.

use andante_clock::Instant;

use super::{FEW, Share};
use crate::Stock;

/// Free tokens are worth a call of their own from `1 / WORTH` of the held ones on.
const WORTH: u32 = 32;
/// Workers send their next request within `1 / PAUSE` of a window: until then their tokens are reserved for them.
const PAUSE: u32 = 16;

impl Share {
    /// Number of the `free` tokens to give back, for a member that would use `demand`.
    pub(super) fn gift(&self, now: Instant, stock: Stock, free: u32, demand: u32) -> u32 {
        if !self.given.wanted {
            return free.min(self.held.saturating_sub(stock.most));
        }
        let lately = if now < self.keeps_until() { demand } else { 0 };
        let kept = Stock { lately: stock.lately.max(lately), ..stock }.kept();
        if stock.backlog == 0 {
            return free.saturating_sub(kept).max(free.min(self.surplus(now)));
        }
        let credit = if !self.given.over && free + stock.lingering >= stock.cost { self.credit.min(free) } else { 0 };
        let above = self.surplus(now).saturating_sub(credit).min(free - credit);
        above.max(free.saturating_sub(stock.backlog.max(stock.cost).max(kept)))
    }

    /// Returns true if `give` tokens are worth a call.
    pub(super) fn is_worth_a_call(&self, now: Instant, give: u32) -> bool {
        give > 0 && (give >= self.held / WORTH || self.refresh.is_due(now))
    }

    /// End of the time in which the member keeps the tokens that it would use, even if no request waits.
    pub(super) fn keeps_until(&self) -> Instant {
        self.used_at + self.per / PAUSE
    }

    /// Tokens above the target, if other members want them.
    pub(super) fn surplus(&self, now: Instant) -> u32 {
        if !self.given.wanted {
            return 0;
        }
        let above = f64::from(self.held) - self.given.target;
        if self.given.over {
            return (above - 1e-9).ceil().max(0.0) as u32;
        }
        if above >= 1.0 {
            return above.floor() as u32;
        }
        let few = self.given.target < FEW && above > 1e-6;
        u32::from(few && (self.given.target < 1.0 || now >= self.rotate_at))
    }

    /// Held tokens beyond a small target, including fractions of a token.
    pub(super) fn part(&self) -> f64 {
        if self.given.target < FEW { (f64::from(self.held) - self.given.target).max(0.0) } else { 0.0 }
    }
}
