//! What a member holds of one limit: how much of that it may use, what it gives back, and when it asks for more.

mod demand;
mod gifts;
mod opening;

use std::{sync::Arc, time::Duration};

use super::{
    peak::Peak,
    refresh::{Refresh, next_refresh},
    stock::{ShareNeed, Stock},
    strain::Strain,
    words::PoolGrant,
};
use crate::clock::Instant;

/// What a member holds of one limit.
#[derive(Clone, Debug)]
pub struct Share {
    /// The name of the pool that it comes from.
    pub pool: Arc<str>,
    held: u32,
    /// Units that are this member's beside them, and never the store's.
    own: u32,
    /// How many units are some member's, and never the store's.
    never_lent: u32,
    /// Tokens that were granted and not used since: they are used once before somebody else may have them.
    credit: u32,
    /// What the store said last.
    given: PoolGrant,
    /// Whether the store has a row of it.
    known: bool,
    /// The demand that the store knows of.
    told: u32,
    /// How many more than are held it was asked for, and what the next request took then.
    asked: u32,
    asked_for: u32,
    /// What the last requests took, the largest of them.
    usual: u32,
    /// What the next request takes of which it is known that there is not enough.
    lacks: u32,
    /// It stands in line for a large request.
    waits: bool,
    /// The store may not have heard what was said last.
    unheard: bool,
    /// A call is under way that speaks of it.
    asking: bool,
    /// It does not ask again before.
    ask_at: Instant,
    /// It was not given all that it has asked for: it does not ask for the same before.
    more_at: Instant,
    /// Without any reason it asks again then, while it is used or wanted.
    refresh: Refresh,
    /// A part of a token is passed on then.
    rotate_at: Instant,
    /// When it was used last.
    used_at: Instant,
    /// How many units were in use at once lately.
    lately: Peak,
    /// For how much of the time requests waited for tokens.
    strain: Strain,
    /// The length of the limit's window; none if it has none.
    per: Duration,
    /// When the store begins to give out of it, if it is new and nothing is held.
    opens: Option<Instant>,
}

/// Two calls for one pool are this far apart at least; where nothing but the demand has changed, this far.
const GAP: Duration = Duration::from_millis(5);
const LONG_GAP: Duration = Duration::from_millis(50);
/// What was in use at once within this time, or twice that, is kept, up to such a part of what is held: requests that follow one
/// another would need a call each.
const LATELY: Duration = Duration::from_millis(250);
const KEPT: u32 = 8;
/// A demand is told at once that has grown by such a part.
const GROWN: u32 = 8;
/// A part of a token goes to the next member after this.
const ROTATE: Duration = Duration::from_secs(2);
/// Up to so many tokens are shared out one by one.
const FEW: f64 = 20.0;
/// A request is large that takes more than this part of the target.
const LARGE: f64 = 28.0;
/// What the largest request took is forgotten by such a part with each one that takes less.
const USUAL: u32 = 8;
/// What is not used for that long is given back, as if it had never been asked for.
const IDLE: Duration = Duration::from_secs(30);

// === impl Share ===

impl Share {
    /// Nothing of `pool`, which has `limit` tokens for each window of length `per`.
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

    /// How many tokens are here, spent ones included.
    pub fn held(&self) -> u32 {
        self.held
    }

    /// Whether a call is under way that speaks of it.
    pub fn is_asking(&self) -> bool {
        self.asking
    }

    /// How many units are this member's for ever.
    pub fn own(&self) -> u32 {
        self.own
    }

    /// So many units are this member's from now on, of `never_lent` that are all members' own.
    pub fn set_own(&mut self, units: u32, never_lent: u32) {
        (self.own, self.never_lent) = (units, never_lent);
    }

    /// Whether nothing is held, and the store knows of nothing.
    pub fn is_over(&self) -> bool {
        self.held == 0 && !self.known
    }

    /// How many units the limit has by what all members are configured with.
    pub fn limit(&self) -> u32 {
        self.given.limit.saturating_add(self.never_lent)
    }

    /// Which part of the limit is due to this member; before the store has said anything, all of it.
    pub fn due_part(&self) -> f64 {
        let (due, limit) = (self.given.target + f64::from(self.own), f64::from(self.limit()));
        if self.given.target > 0.0 && due < limit { due / limit } else { 1.0 }
    }

    /// What the store said last.
    pub fn given(&self) -> &PoolGrant {
        &self.given
    }

    /// How many of what is held may be used, of which `used` are: what is above the target goes to others as it comes free.
    /// What was granted may be used once, all the same.
    pub fn usable(&self, now: Instant, used: u32) -> u32 {
        self.own + self.lent(now, used.saturating_sub(self.own))
    }

    fn lent(&self, now: Instant, used: u32) -> u32 {
        let kept = self.held - self.surplus(now).saturating_sub(self.credit).min(self.held);
        if self.credit == 0 { kept } else { kept.max(used.saturating_add(self.credit).min(self.held)) }
    }

    /// At what part of the limit requests are spaced: the larger of what is here and what is due. Before the store has said
    /// anything, or gives out anything, that may be all of it.
    pub fn pace(&self) -> u32 {
        let due = match self.given.target.max(self.given.pace) {
            // What it says that is due is a part of what it has, which is nothing yet.
            _ if self.opens.is_some() => self.given.limit,
            0.0 => self.given.limit,
            due => due.round() as u32,
        };
        self.own + due.max(self.held).clamp(1, self.given.limit.max(1))
    }

    /// Units were taken.
    pub fn take(&mut self, now: Instant, units: u32) {
        self.credit = self.credit.saturating_sub(units);
        (self.used_at, self.lacks) = (now, 0);
        self.usual = units.max(self.usual - self.usual.div_ceil(USUAL));
        self.strain.set(now, false);
    }

    /// So many units are in use.
    pub fn uses(&mut self, now: Instant, units: u32) {
        self.lately.set(now, units);
    }

    /// A request waits that takes so many units, which are not here.
    pub fn lack(&mut self, now: Instant, units: u32) {
        self.lacks = self.lacks.max(units);
        // What takes several may wait although there are some, which says little of how many are needed.
        self.strain.set(now, units == 1);
    }

    /// There are as many as the next request takes: whatever holds it up is not for want of tokens.
    pub fn lack_is_over(&mut self, now: Instant) {
        self.strain.set(now, false);
    }

    /// What the next request takes of which it is known that there is not enough; 0 if there is none.
    pub fn lacks(&self) -> u32 {
        self.lacks
    }

    /// What the next request takes, as far as is known, while units of `backlog` wait.
    pub fn lacking(&mut self, backlog: u32) -> u32 {
        self.lacks = if backlog > 0 { self.lacks.max(1) } else { 0 };
        self.lacks
    }

    /// Whether it stands in line for a large request, which may have left by now.
    pub fn waits(&self) -> bool {
        self.waits && self.given.queued && !self.asking
    }

    /// It does not ask before, unless a call is under way or it stands in line.
    pub fn asks_at(&self) -> Instant {
        if self.asking || self.given.queued { Instant::FAR } else { self.asks_from(self.lacks) }
    }

    /// It does not ask for a request of `cost` before.
    fn asks_from(&self, cost: u32) -> Instant {
        if cost > self.asked_for { self.ask_at } else { self.ask_at.max(self.more_at) }
    }

    /// Whether it is worth a look, for a request that has to wait.
    pub fn calls(&self, now: Instant) -> bool {
        now >= self.asks_at()
    }

    /// Whether it holds more than it may keep, for others that want it.
    pub fn passes_on(&self, now: Instant) -> bool {
        !self.asking && self.surplus(now) > 0
    }

    /// Decides what to say to the store. Gifts are taken off at once, and never taken back.
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
            // All of it is free, and the pool's at once.
            (self.held, self.credit) = (0, 0);
            return ShareNeed { speaks: true, ends: true, ..quiet };
        }
        let enough = free.saturating_add(stock.lingering);
        let hold = self.held - self.lent(now, stock.used);
        let stuck = stock.backlog > 0 && enough.saturating_sub(hold) < stock.cost;
        let large = stuck && self.is_large(stock.cost);
        // What does not suffice here may suffice elsewhere.
        let give = if large && self.given.wanted { free } else { self.gift(now, stock, free, demand) };
        let below = f64::from(self.held) < self.given.target - if self.given.target < FEW { 0.0 } else { 1.0 }
            || self.held < stock.cost
            || !leased;
        // More would be due to it if the store knew; not so if it has its part of what is short.
        let grown = demand - demand / GROWN > self.told && f64::from(self.told) <= self.given.target;
        let spare = self.spare(demand, stock.most);
        let asks = now >= self.asks_from(stock.cost)
            && (stuck && !self.given.queued && (below || grown) || spare > 0 && enough * 8 < spare);
        let refresh = self.known && self.refresh.is_due(now) && (stock.backlog > 0 || self.given.wanted);
        let leaves = self.given.queued && self.waits && !stuck;
        let worth = self.is_worth_a_call(now, give);
        let speaks = worth || leaves || self.unheard || reports && (self.held > 0 || self.known);
        if !(speaks || asks || refresh) {
            // It has its share, and waits for that: not to be looked at again at once.
            if stuck && !self.given.queued && now >= self.asks_from(stock.cost) {
                self.ask_at = now + LONG_GAP;
            }
            return quiet;
        }
        let (held, waits) = (self.held - give, large && self.given.wanted);
        // What is above the target and does not suffice would be given back at once, and granted again.
        let whole = large || stock.cost > 1 && self.surplus(now) > 0;
        let need = match whole {
            true => stock.cost.saturating_sub((enough - give).saturating_sub(hold.saturating_sub(give))),
            false => stock.cost.saturating_sub(held),
        };
        let more = self.takes_on(now, demand, held);
        let needs = match stock.backlog {
            0 => more,
            // More would lie idle until it is time for the request behind this one.
            _ if waits => need,
            backlog => backlog.max(stock.cost).max(more).saturating_sub(free - give),
        };
        let want = needs.max(if give == 0 { spare } else { 0 }).min(self.given.limit);
        let said = ShareNeed { speaks: true, want, need, ..quiet };
        // What takes more than was asked for has not been said yet.
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

    /// When to look again although nothing happens; `freed` is when a token that is held comes free for others.
    pub fn next_look(&mut self, now: Instant, stock: Stock, freed: Instant) -> Instant {
        if self.asking {
            return Instant::FAR;
        }
        // What is owned counts among what was in use lately.
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
        // What was due by now has just been looked at.
        let next = reasons.into_iter().filter(|(holds, at)| *holds && *at > now).map(|(_, at)| at).min();
        next.map_or(Instant::FAR, |next| next.max(now + Duration::from_millis(1)))
    }

    /// What [`look`](Self::look) has said is under way.
    pub fn told(&mut self, now: Instant, said: ShareNeed) {
        let ShareNeed { demand, want, cost, .. } = said;
        (self.asking, self.unheard, self.known) = (true, false, true);
        (self.told, self.asked, self.asked_for) = (demand, want, cost);
        self.ask_at = now + GAP;
        self.refresh.said(now, said);
    }

    /// No reply came.
    pub fn unheard(&mut self) {
        (self.asking, self.unheard) = (false, true);
    }

    /// The store has forgotten it, as was asked for.
    pub fn ended(&mut self) {
        let (pool, limit, own, never_lent) = (self.pool.clone(), self.given.limit, self.own, self.never_lent);
        *self = Self { own, never_lent, ..Self::new(pool, limit, self.per) };
    }

    /// The store's reply.
    pub fn heard(&mut self, now: Instant, given: PoolGrant) {
        self.asking = false;
        // The store knows what it lacks, and tells when there is any.
        let lacks = given.holds < self.held.saturating_add(self.asked);
        self.more_at = if lacks { next_refresh(now) } else { now };
        self.ask_when_open(now);
        if given.holds >= self.held {
            self.credit += given.holds - self.held;
            if self.waits && given.holds > self.held {
                // It was granted what a large request lacked: all of that is for this one.
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

    /// Somebody is to call: its turn has come, or others want what it has.
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
