//! A member's share of one limit: how much it may use, what it gives back, and when it asks for more.

mod demand;
mod gifts;
mod opening;

use std::{sync::Arc, time::Duration};

use andante_clock::Instant;

use super::{
    peak::Peak,
    refresh::{Refresh, next_refresh},
    stock::{ShareNeed, Stock},
    strain::Strain,
    words::PoolGrant,
};

/// A member's share of one limit.
#[derive(Clone, Debug)]
pub struct Share {
    /// Name of the token pool.
    pub pool: Arc<str>,
    held: u32,
    /// Units that belong to this member permanently, in addition to the held tokens.
    own: u32,
    /// Units that belong to some member permanently and are never the store's.
    never_lent: u32,
    /// Granted tokens that were not used since: each is used once before it may go to another member.
    credit: u32,
    /// The store's last grant.
    given: PoolGrant,
    /// The store has a row for the share.
    known: bool,
    /// The demand that the store knows.
    told: u32,
    /// Tokens requested beyond the held ones, and the next request's cost at that time.
    asked: u32,
    asked_for: u32,
    /// Upper estimate of recent costs, which decays slowly.
    usual: u32,
    /// Cost of the next request, if tokens are known to be insufficient; otherwise 0.
    lacks: u32,
    /// The share is queued for a large request.
    waits: bool,
    /// The store may not have received the last report.
    unheard: bool,
    /// A call in flight reports the share.
    asking: bool,
    /// Earliest time of the next request for tokens.
    ask_at: Instant,
    /// Earliest time to repeat a request for tokens that was not granted in full.
    more_at: Instant,
    /// When to report again without another reason, while the share is used or wanted.
    refresh: Refresh,
    /// When a fraction of a token passes to the next member.
    rotate_at: Instant,
    /// When the share was last used.
    used_at: Instant,
    /// Maximum of units recently in use at once.
    lately: Peak,
    /// Part of the time in which requests waited for tokens.
    strain: Strain,
    /// Length of the limit's window; zero without a window.
    per: Duration,
    /// When the store begins to give out the limit's tokens, if the store is new and none are held.
    opens: Option<Instant>,
}

/// Minimum time between two calls for one pool: `LONG_GAP` if only the demand has changed, otherwise `GAP`.
const GAP: Duration = Duration::from_millis(5);
const LONG_GAP: Duration = Duration::from_millis(50);
/// Units in use at once within this time, or twice that, are kept, up to `1 / KEPT` of the held ones. Otherwise
/// successive requests would need a call each.
const LATELY: Duration = Duration::from_millis(250);
const KEPT: u32 = 8;
/// A demand that has grown by `1 / GROWN` is reported at once.
const GROWN: u32 = 8;
/// A fraction of a token passes to the next member after this time.
const ROTATE: Duration = Duration::from_secs(2);
/// Up to this many tokens are shared out one by one.
const FEW: f64 = 20.0;
/// A request is large if it takes more than `1 / LARGE` of the target.
const LARGE: f64 = 28.0;
/// Each smaller request reduces the estimate of the usual cost by `1 / USUAL`.
const USUAL: u32 = 8;
/// A share unused for this long is given back completely.
const IDLE: Duration = Duration::from_secs(30);

// === impl Share ===

impl Share {
    /// An empty share of `pool`, which has `limit` tokens for each window of length `per`.
    pub fn new(pool: Arc<str>, limit: u32, per: Duration) -> Self {
        Self {
            pool,
            held: 0,
            own: 0,
            never_lent: 0,
            credit: 0,
            given: PoolGrant { limit, ..PoolGrant::default() },
            known: false,
            told: 0,
            asked: 0,
            asked_for: 0,
            usual: 0,
            lacks: 0,
            waits: false,
            unheard: false,
            asking: false,
            ask_at: Instant::START,
            more_at: Instant::START,
            refresh: Refresh::new(),
            rotate_at: Instant::START,
            used_at: Instant::START,
            lately: Peak::new(LATELY),
            strain: Strain::new(per.max(LATELY)),
            per,
            opens: None,
        }
    }

    /// Number of tokens that are here, including spent ones.
    pub fn held(&self) -> u32 {
        self.held
    }

    /// Returns true if a call in flight reports the share.
    pub fn is_asking(&self) -> bool {
        self.asking
    }

    /// Units that belong to this member permanently.
    pub fn own(&self) -> u32 {
        self.own
    }

    /// Sets the units that belong to this member, out of `never_lent` that belong to all members.
    pub fn set_own(&mut self, units: u32, never_lent: u32) {
        (self.own, self.never_lent) = (units, never_lent);
    }

    /// Returns true if no token is held and the store has no row for the share.
    pub fn is_over(&self) -> bool {
        self.held == 0 && !self.known
    }

    /// Units of the limit, as the smallest configuration among the members says.
    pub fn limit(&self) -> u32 {
        self.given.limit.saturating_add(self.never_lent)
    }

    /// Part of the limit that is due to this member; all of it before the store has replied.
    pub fn due_part(&self) -> f64 {
        let (due, limit) = (self.given.target + f64::from(self.own), f64::from(self.limit()));
        if self.given.target > 0.0 && due < limit { due / limit } else { 1.0 }
    }

    /// The store's last grant.
    pub fn given(&self) -> &PoolGrant {
        &self.given
    }

    /// Number of units that may be used, including the `used` ones. Tokens above the target go to others as they come
    /// free, but each granted token may be used once.
    pub fn usable(&self, now: Instant, used: u32) -> u32 {
        self.own + self.lent(now, used.saturating_sub(self.own))
    }

    fn lent(&self, now: Instant, used: u32) -> u32 {
        let kept = self.held - self.surplus(now).saturating_sub(self.credit).min(self.held);
        if self.credit == 0 { kept } else { kept.max(used.saturating_add(self.credit).min(self.held)) }
    }

    /// Rate at which requests are spaced, in units per window: the larger of the held units and the due units. The
    /// whole limit before the store has replied or gives out tokens.
    pub fn pace(&self) -> u32 {
        let due = match self.given.target.max(self.given.pace) {
            // The store's target is a part of what the store has, which is nothing yet.
            _ if self.opens.is_some() => self.given.limit,
            0.0 => self.given.limit,
            due => due.round() as u32,
        };
        self.own + due.max(self.held).clamp(1, self.given.limit.max(1))
    }

    /// Records that a request took `units`.
    pub fn take(&mut self, now: Instant, units: u32) {
        self.credit = self.credit.saturating_sub(units);
        (self.used_at, self.lacks) = (now, 0);
        self.usual = units.max(self.usual - self.usual.div_ceil(USUAL));
        self.strain.set(now, false);
    }

    /// Records that `units` are in use.
    pub fn uses(&mut self, now: Instant, units: u32) {
        self.lately.set(now, units);
    }

    /// Records that a waiting request lacks tokens; it takes `units`.
    pub fn lack(&mut self, now: Instant, units: u32) {
        self.lacks = self.lacks.max(units);
        // A request for several tokens may wait although there are some, which reveals little about the demand.
        self.strain.set(now, units == 1);
    }

    /// Records that the next request has enough tokens: another cause blocks it, if any.
    pub fn lack_is_over(&mut self, now: Instant) {
        self.strain.set(now, false);
    }

    /// Cost of the next request, if tokens are known to be insufficient; otherwise 0.
    pub fn lacks(&self) -> u32 {
        self.lacks
    }

    /// Cost of the next request, as far as is known, while `backlog` units wait.
    pub fn lacking(&mut self, backlog: u32) -> u32 {
        self.lacks = if backlog > 0 { self.lacks.max(1) } else { 0 };
        self.lacks
    }

    /// Returns true if the share is queued for a large request, which may have left by now.
    pub fn waits(&self) -> bool {
        self.waits && self.given.queued && !self.asking
    }

    /// Earliest next request for tokens; [`Instant::FAR`] while a call is in flight or the share is queued.
    pub fn asks_at(&self) -> Instant {
        if self.asking || self.given.queued { Instant::FAR } else { self.asks_from(self.lacks) }
    }

    /// Earliest next request for tokens, for a request of `cost`.
    fn asks_from(&self, cost: u32) -> Instant {
        if cost > self.asked_for { self.ask_at } else { self.ask_at.max(self.more_at) }
    }

    /// Returns true if a call may help a request that has to wait.
    pub fn calls(&self, now: Instant) -> bool {
        now >= self.asks_at()
    }

    /// Returns true if the share has more than it may keep while others want tokens.
    pub fn passes_on(&self, now: Instant) -> bool {
        !self.asking && self.surplus(now) > 0
    }

    /// Decides on the report to the store. Gifts are deducted at once and never taken back.
    pub fn look(&mut self, now: Instant, stock: Stock, leased: bool, reports: bool) -> ShareNeed {
        self.uses(now, stock.used);
        let kept =
            self.lately.read(now).min(stock.used.saturating_add(stock.lingering).saturating_add(self.held / KEPT));
        let stock = Stock { lately: stock.lately.max(kept), ..stock };
        let stock = stock.beyond(self.own, self.given.limit);
        let free = self.held.saturating_sub(stock.used.saturating_add(stock.lingering));
        let demand = self.demand(now, stock);
        let quiet = ShareNeed { speaks: false, want: 0, cost: stock.cost, need: 0, demand, ends: false };
        if self.asking {
            return quiet;
        }
        if self.known && demand == 0 && free == self.held && now.since(self.used_at) > IDLE {
            // All tokens are free and return to the pool at once.
            (self.held, self.credit) = (0, 0);
            return ShareNeed { speaks: true, ends: true, ..quiet };
        }
        // Not `free` and lingering units: after a debt those may be more than the share holds.
        let enough = self.held.saturating_sub(stock.used);
        let hold = self.held - self.lent(now, stock.used);
        let stuck = stock.backlog > 0 && enough.saturating_sub(hold) < stock.cost;
        let large = stuck && self.is_large(stock.cost);
        // Tokens that do not suffice here may suffice elsewhere.
        let give = if large && self.given.wanted { free } else { self.gift(now, stock, free, demand) };
        let below = f64::from(self.held) < self.given.target - if self.given.target < FEW { 0.0 } else { 1.0 }
            || self.held < stock.cost
            || !leased;
        // The target would grow if the store knew the demand, unless the share has its part of a scarce limit.
        let grown = demand - demand / GROWN > self.told && f64::from(self.told) <= self.given.target;
        let spare = self.spare(demand, stock.most);
        let asks = now >= self.asks_from(stock.cost)
            && (stuck && !self.given.queued && (below || grown) || spare > 0 && enough * 8 < spare);
        let refresh = self.known && self.refresh.is_due(now) && (stock.backlog > 0 || self.given.wanted);
        let leaves = self.given.queued && self.waits && !stuck;
        let worth = self.is_worth_a_call(now, give);
        let speaks = worth || leaves || self.unheard || reports && (self.held > 0 || self.known);
        if !(speaks || asks || refresh) {
            // The share has its target and waits for its own tokens: it need not be looked at again at once.
            if stuck && !self.given.queued && now >= self.asks_from(stock.cost) {
                self.ask_at = now + LONG_GAP;
            }
            return quiet;
        }
        let (held, waits) = (self.held - give, large && self.given.wanted);
        // Insufficient tokens above the target would be given back at once, and granted again.
        let whole = large || stock.cost > 1 && self.surplus(now) > 0;
        let need = match whole {
            true => stock.cost.saturating_sub((enough - give).saturating_sub(hold.saturating_sub(give))),
            false => stock.cost.saturating_sub(held),
        };
        let more = self.takes_on(now, demand, held);
        let needs = match stock.backlog {
            0 => more,
            // More would lie idle until the next but one request may leave.
            _ if waits => need,
            backlog => backlog.max(stock.cost).max(more).saturating_sub(free - give),
        };
        let want = needs.max(if give == 0 { spare } else { 0 }).min(self.given.limit);
        let said = ShareNeed { speaks: true, want, need, ..quiet };
        // A request that costs more than the last reported one has not been reported yet.
        let asked = !asks || stock.cost <= self.asked_for;
        if !speaks && asked && self.refresh.leaves_out(now, said, self.used_at) {
            self.more_at = self.refresh.at();
            return quiet;
        }
        if give > 0 {
            self.rotate_at = now + ROTATE;
        }
        (self.held, self.credit, self.waits) = (held, self.credit.min(free - give), waits);
        said
    }

    /// When to look again if nothing happens; `freed` is when the next held token is free for others.
    pub fn next_look(&mut self, now: Instant, stock: Stock, freed: Instant) -> Instant {
        if self.asking {
            return Instant::FAR;
        }
        // Owned units count as units recently in use.
        let in_use = stock.used;
        let stock = stock.beyond(self.own, self.given.limit);
        let waits = stock.backlog > 0;
        let (gives, passes) = (!waits && self.held > 0 || self.surplus(now) > 0, self.part() > 0.0);
        let reasons = [
            (waits || self.given.wanted, self.refresh.at()),
            (waits && !self.given.queued, self.asks_from(stock.cost)),
            (self.given.wanted && (gives || self.is_large(stock.cost)), freed),
            (self.given.wanted && passes, self.rotate_at.max(freed)),
            (self.given.wanted && !waits && self.held > 0 && self.lately.read(now) > in_use, self.lately.falls_at()),
            (self.given.wanted && gives, self.keeps_until()),
            (self.known, self.used_at.max(now) + IDLE + GAP),
        ];
        // Earlier instants have just been handled.
        let next = reasons.into_iter().filter(|(holds, at)| *holds && *at > now).map(|(_, at)| at).min();
        next.map_or(Instant::FAR, |next| next.max(now + Duration::from_millis(1)))
    }

    /// Records that the report of [`look`](Self::look) is in flight.
    pub fn told(&mut self, now: Instant, said: ShareNeed) {
        let ShareNeed { demand, want, cost, .. } = said;
        (self.asking, self.unheard, self.known) = (true, false, true);
        (self.told, self.asked, self.asked_for) = (demand, want, cost);
        self.ask_at = now + GAP;
        self.refresh.said(now, said);
    }

    /// Records that no reply came.
    pub fn unheard(&mut self) {
        (self.asking, self.unheard) = (false, true);
    }

    /// Resets the share after the store has removed its row, as requested.
    pub fn ended(&mut self) {
        let (pool, limit, own, never_lent) = (self.pool.clone(), self.given.limit, self.own, self.never_lent);
        *self = Self { own, never_lent, ..Self::new(pool, limit, self.per) };
    }

    /// Applies the store's reply.
    pub fn heard(&mut self, now: Instant, given: PoolGrant) {
        self.asking = false;
        // The store knows what the share lacks, and will announce tokens.
        let lacks = given.holds < self.held.saturating_add(self.asked);
        self.more_at = if lacks { next_refresh(now) } else { now };
        self.ask_when_open(now);
        if given.holds >= self.held {
            self.credit += given.holds - self.held;
            if self.waits && given.holds > self.held {
                // The grant is for a large request, so all tokens that the request lacked are reserved for it.
                self.credit = self.credit.max(self.lacks);
            }
        } else {
            self.credit = self.credit.min(given.holds);
        }
        self.held = given.holds;
        if f64::from(self.told) <= given.target && f64::from(self.held) >= given.target.floor() {
            self.ask_at = self.ask_at.max(now + LONG_GAP);
        }
        self.given = given;
    }

    /// Handles a hint to call: the share's turn has come (`turn`), or other members want its tokens.
    pub fn hinted(&mut self, now: Instant, turn: bool) {
        if turn {
            self.given.queued = false;
            (self.ask_at, self.more_at) = (now, now);
            self.refresh.hasten(now);
        } else {
            self.given.wanted = true;
        }
    }
}
