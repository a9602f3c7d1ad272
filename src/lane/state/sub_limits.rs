//! Sub-limits: the budgets of narrower rules. A lane's requests may draw on sub-limits in addition to the limits of the
//! whole lane. All or nothing: a request takes from all its budgets at once, or from none.

mod amounts;
mod forgetting;
mod held_up;
mod record;
mod reserve;
mod rules;
mod trial;
mod view;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use andante_clock::Instant;
use andante_learn::{AnswerReport, RouteKey};
use andante_limit::{Budget, Charge, Cost, PendingUsage, Scope, Sum, Unit};
use andante_order::{Backlog, Map, Part, Passing, Slab};
use andante_policy::Policy;
use smallvec::SmallVec;

pub(super) use self::held_up::HeldUp;
use self::{
    held_up::{HeldAt, Holders},
    record::StoredBudget,
};
pub(crate) use self::{record::SubLimitRecord, rules::SubLimitRules};
use super::{
    End,
    blocked::{Assume, until_settled},
    in_flight::InFlight,
    memory::REMEMBERED,
    usual::{Usual, set_outstanding},
};
use crate::{
    capacity::{Capacity, OpenBudgets},
    request::Draw,
};

/// The sub-limits that were drawn on lately.
#[derive(Debug, Default)]
pub(super) struct SubLimits {
    /// Boxed, so that a table that grows moves no budgets.
    budgets: Slab<Box<SubLimit>>,
    open: OpenBudgets,
    ids: Map<u64, u32>,
    /// Where the next search for idle budgets begins.
    next_look: u32,
    /// True if some requests are exempt from the lane's own limits.
    pub(super) apart: bool,
    /// Until this instant an earlier process may have drawn on the budgets without a record.
    pub(super) unknown_until: Option<Instant>,
    /// Budgets stored by an earlier process that nothing has drawn on since.
    stored: BTreeMap<u64, StoredBudget>,
    /// The instant since which only the lane's own budget counts sent requests, because it has no reserve; `None` while
    /// it has one.
    unreserved_since: Option<Instant>,
    /// Number of waiting requests in each place that something slower blocks.
    held: Map<HeldAt, u32>,
    held_up: HeldUp,
    /// The rules as they are since the last reload; `None` before one.
    rules: Option<SubLimitRules>,
    /// Amounts taken from forgotten budgets, by rule name.
    used: BTreeMap<Arc<str>, Sum>,
}

#[derive(Debug)]
pub(super) struct SubLimit {
    key: u64,
    pub(super) rule: Arc<Policy>,
    pub(super) budget: Budget,
    pub(super) in_flight: InFlight,
    /// In-flight requests whose usage is known only from the answer.
    pending_usage: PendingUsage,
    pub(super) waiting: u32,
    /// Amounts taken by requests that were sent.
    used: Sum,
    /// The end of the time for which sent requests count if the rule, which is gone, is configured again.
    counted_until: Instant,
    /// The budget's queue; `None` while it is empty.
    backlog: Option<Box<Backlog>>,
    held_up: HeldUp,
}

/// The sub-limits on which one request draws, and the amounts taken from them.
#[derive(Debug)]
pub(crate) struct Drawn {
    pub(crate) draws: Arc<[Draw]>,
    numbers: SmallVec<[u32; 2]>,
    charges: SmallVec<[Charge; 2]>,
    holders: Holders,
}

/// Number of other budgets that each new budget examines, to forget those that remember nothing.
const LOOKS: u32 = 4;

/// The pace of a budget without a rate, in millionths of a request per second: a million a second. The sum over ten
/// million such budgets still fits.
const BOUNDLESS: u64 = 1_000_000_000_000;

// === impl SubLimits ===

impl SubLimits {
    /// Creates an empty set of sub-limits.
    pub(super) fn new(capacity: Arc<Capacity>) -> Self {
        Self { open: OpenBudgets::within(capacity), unreserved_since: Some(Instant::START), ..Self::default() }
    }

    /// The budgets of `draws`, including new ones. `own` is the lane's budget.
    pub(super) fn find(&mut self, draws: &Arc<[Draw]>, own: &Budget, now: Instant, epoch: Duration) -> Box<Drawn> {
        let mut numbers = SmallVec::new();
        let own_numbers: SmallVec<[_; 2]> =
            draws.iter().map(|draw| self.ids.get(&self.key_of(draw)).copied()).collect();
        let new = own_numbers.iter().filter(|number| number.is_none()).count();
        let named = |number| own_numbers.contains(&Some(number));
        if new > 0 {
            self.forget_idle(LOOKS, now, named);
        }
        for _ in 0..new {
            if self.open.is_full() {
                self.forget_oldest(now, named);
            }
        }
        for draw in &**draws {
            self.apart |= draw.apart;
            numbers.push(self.number_of(self.key_of(draw), &draw.rule, own, now, epoch));
        }
        numbers.sort_unstable();
        numbers.dedup();
        Box::new(Drawn { draws: draws.clone(), numbers, charges: SmallVec::new(), holders: Holders::default() })
    }

    /// The budget among these that stays closed longest from `now` on, and until when. `usual` holds the usage
    /// estimates.
    pub(super) fn closed(
        &mut self,
        numbers: &[u32],
        now: Instant,
        cost: Cost,
        usual: &[Usual],
    ) -> Option<(u32, Instant)> {
        let earliest = numbers.iter().map(|number| {
            let sub_limit = &mut self.budgets[*number];
            set_outstanding(&mut sub_limit.budget, &sub_limit.pending_usage, usual, now);
            (*number, sub_limit.earliest(now, cost))
        });
        earliest.filter(|(_, at)| *at > now).max_by_key(|(_, at)| *at)
    }

    /// Mean time until a place in flight frees up at a budget; `None` if the budget has a free place, or the time is
    /// unknown.
    pub(super) fn turnover(&self, number: u32) -> Option<Duration> {
        let in_flight = &self.budgets[number].in_flight;
        (!in_flight.has_room()).then(|| in_flight.turnover()).flatten()
    }

    /// The time for which a slot of a budget may stay unused, by its limits and its places in flight.
    pub(super) fn idles(&self, number: u32) -> Duration {
        let sub_limit = &self.budgets[number];
        sub_limit.budget.idles().min(sub_limit.in_flight.idles())
    }

    /// When a budget lets a request of `cost` leave and another one of `kept` as well.
    pub(super) fn earliest_beside(&mut self, number: u32, now: Instant, cost: Cost, kept: Cost) -> Instant {
        let sub_limit = &mut self.budgets[number];
        let room = sub_limit.in_flight.has_room_for(2);
        if room { sub_limit.budget.ready_beside(now, cost, kept, |_| true).instant(now) } else { Instant::FAR }
    }

    /// Takes `cost` from all budgets for a request that has waited since `since`. Waiting for the lane's own budget,
    /// which lets one request go every `spacing`, must not cost slots of these budgets. Holding a request back for
    /// another one's slot must not cost them either.
    pub(super) fn take(&mut self, drawn: &mut Drawn, now: Instant, since: Instant, spacing: Duration, cost: Cost) {
        let rules: SmallVec<[_; Cost::MOST]> =
            cost.reserved().map(|unit| (unit, self.rule_of(&drawn.numbers, unit).cloned())).collect();
        let rule_of = |unit| rules.iter().find(|(other, _)| *other == unit).and_then(|(_, rule)| rule.clone());
        for number in &drawn.numbers {
            let several = drawn.numbers.len() > 1;
            let sub_limit = &mut self.budgets[*number];
            let late = if several { spacing.max(sub_limit.budget.spacing()) } else { spacing };
            let charge = sub_limit.budget.take_late(now, since, late, cost, Scope::NONE);
            sub_limit.in_flight.took(charge.seq, now, 0);
            sub_limit.pending_usage.leaves(&charge, now, rule_of);
            drawn.charges.push(charge);
        }
    }

    pub(super) fn sent(&mut self, drawn: &Drawn, now: Instant) {
        self.each(drawn, |sub_limit, charge| {
            sub_limit.budget.sent(charge, now);
            sub_limit.used.add(&charge.cost);
        });
    }

    /// Takes back a send. Returns whether the charges are still valid.
    pub(super) fn recalled(&mut self, drawn: &Drawn) -> bool {
        let mut holds = true;
        self.each(drawn, |sub_limit, charge| {
            holds &= sub_limit.budget.recall(charge);
            sub_limit.used.subtract(&charge.cost);
        });
        holds
    }

    pub(super) fn answered(&mut self, drawn: &Drawn, sent: Instant, now: Instant, heard: &AnswerReport<'_>) {
        self.each(drawn, |sub_limit, charge| {
            sub_limit.budget.answered(charge, sent, now);
            sub_limit.budget.observe(now, now.since(sent));
            sub_limit.in_flight.answered(charge.seq, now.since(sent), heard);
        });
    }

    /// Records a request that could not be sent, broke off, or timed out.
    pub(super) fn broke(&mut self, drawn: &Drawn) {
        self.each(drawn, |sub_limit, charge| sub_limit.in_flight.broke(charge.seq));
    }

    /// Records that the API refused what was sent at `sent` within these limits.
    pub(super) fn refused(&mut self, drawn: &Drawn, sent: Instant, now: Instant) {
        self.each(drawn, |sub_limit, charge| sub_limit.budget.refused(now, sent, charge.cost, false, None));
    }

    pub(super) fn settled(&mut self, drawn: &Drawn, now: Instant, end: End) {
        self.each(drawn, |sub_limit, charge| {
            sub_limit.in_flight.ended(now, 0);
            sub_limit.pending_usage.ended(&charge);
            match end {
                End::Unsent => sub_limit.budget.return_unused(charge),
                End::Unanswered => sub_limit.budget.abandoned(charge, now),
                End::Answered => return,
            }
            sub_limit.in_flight.unanswered(charge.seq, end == End::Unanswered);
        });
    }

    /// Records how much of `unit` the answer reported.
    pub(super) fn settle(&mut self, drawn: &Drawn, unit: Unit, used: u32, now: Instant) {
        self.each(drawn, |sub_limit, charge| {
            let reserved = charge.cost.of(unit).map_or(0, |reserved| reserved.get());
            sub_limit.used.settle(unit, reserved.into(), used.into());
            sub_limit.budget.settle(charge, unit, used, now);
            sub_limit.pending_usage.told(charge.seq, unit);
        });
    }

    /// Estimates when a request of `cost` leaves that no pause stops after `from`, if only this budget counts. `part`
    /// returns the part of the budget's queue that precedes the request.
    pub(super) fn eta(
        &mut self,
        number: u32,
        (now, from): (Instant, Instant),
        cost: Cost,
        assume: Assume,
        part: impl Fn(&Backlog, Passing) -> Part,
        unsaid: impl Fn(Unit) -> f64,
    ) -> Instant {
        let SubLimit { budget, backlog, held_up, in_flight, .. } = &mut *self.budgets[number];
        let passing = |seconds| Passing { units: 1.0, budgets: held_up.passing(seconds) };
        let at = until_settled(from, assume, passing, |passing| {
            let ahead = backlog.as_deref().map(|backlog| (backlog, part(backlog, passing)));
            let of = |unit| ahead.map_or(0, |(backlog, part)| part.of(backlog.units(unit, unsaid(unit)) as f64));
            budget.project(now, from, |_, unit| of(unit), cost, Scope::NONE)
        });
        // The time at which a place in flight frees up is unknown.
        if in_flight.has_room() { at } else { at.max(now + Duration::from_millis(1)) }
    }

    /// Time between two slots for requests of `cost`, at the slowest of these budgets.
    pub(super) fn interval(&self, drawn: &Drawn, cost: Cost) -> Duration {
        let intervals = drawn.numbers.iter().map(|number| self.budgets[*number].budget.interval(&cost, Scope::NONE));
        intervals.max().unwrap_or_default()
    }

    /// Longest time for which a request's narrower rules let it wait.
    pub(super) fn max_wait(drawn: &Drawn) -> Duration {
        drawn.draws.iter().map(|draw| draw.rule.max_wait).min().unwrap_or(Duration::MAX)
    }

    /// The queue of this budget, if it is not empty, to choose a request to evict.
    pub(super) fn backlog_mut(&mut self, number: u32) -> Option<&mut Backlog> {
        self.budgets[number].backlog.as_deref_mut()
    }

    /// When the last request that waits for one of these budgets will have left.
    pub(super) fn drained(&mut self, now: Instant, unsaid: impl Fn(Unit) -> f64) -> Instant {
        let waits = self.budgets.iter_mut().filter(|sub_limit| sub_limit.waiting > 0);
        let drained = waits.map(|sub_limit| {
            let backlog = sub_limit.backlog.as_deref();
            let ahead = |_, unit| backlog.map_or(0, |backlog| backlog.units(unit, unsaid(unit))).saturating_sub(1);
            let cost = sub_limit.rule.units().fold(Cost::MIN, |cost, unit| cost.with(unit, 1));
            sub_limit.budget.project(now, now, ahead, cost, Scope::NONE)
        });
        drained.max().unwrap_or(now)
    }

    pub(super) fn set_epoch(&mut self, epoch: Duration) {
        self.budgets.iter_mut().for_each(|sub_limit| sub_limit.budget.set_epoch(epoch));
    }

    /// Upper bound of the budgets' numbers.
    pub(super) fn end(&self) -> u32 {
        self.budgets.end()
    }

    fn each(&mut self, drawn: &Drawn, mut act: impl FnMut(&mut SubLimit, Charge)) {
        for (number, charge) in drawn.numbers.iter().zip(&drawn.charges) {
            act(&mut self.budgets[*number], *charge);
        }
    }
}

// === impl SubLimit ===

impl SubLimit {
    fn new(key: u64, rule: Arc<Policy>, budget: Budget) -> Self {
        let in_flight = InFlight::new(rule.in_flight);
        let (used, held_up, pending_usage) = (Sum::default(), HeldUp::default(), PendingUsage::default());
        let counted_until = Instant::START;
        Self { key, rule, budget, in_flight, pending_usage, waiting: 0, used, counted_until, backlog: None, held_up }
    }

    /// The first instant at which the budget lets a request of `cost` leave.
    fn earliest(&mut self, now: Instant, cost: Cost) -> Instant {
        // An answer or a departure triggers the next check.
        if self.has_room() { self.budget.ready(now, &cost, Scope::NONE).instant(now) } else { Instant::FAR }
    }

    fn has_room(&self) -> bool {
        self.in_flight.has_room()
    }

    /// Returns whether no request waits for it or is in flight.
    fn is_unused(&self) -> bool {
        self.in_flight.count() == 0 && self.waiting == 0
    }

    fn is_idle(&mut self, now: Instant) -> bool {
        // A learned limit on in-flight requests is kept as long as a lane keeps what it learned.
        let last = self.budget.last().unwrap_or(Instant::START);
        let blank = self.in_flight.is_blank() || now.since(last) >= REMEMBERED;
        let counts = now < self.counted_until || !self.budget.is_idle(now);
        self.is_unused() && blank && !counts
    }

    /// Time at which the rule's sent requests stop counting.
    fn counts_until(&mut self, now: Instant) -> Instant {
        let windows = self.rule.limits.iter().map(|limit| limit.rate.per);
        let periods = self.budget.calendar(now).into_iter().map(|usage| usage.renewed_in);
        now + windows.chain(periods).max().unwrap_or_default()
    }

    /// Rate of the budget in millionths of a request per second.
    fn pace(&self) -> u64 {
        self.budget.slowest(Unit::REQUESTS).map_or(BOUNDLESS, |rate| ((rate * 1e6) as u64).min(BOUNDLESS))
    }

    /// Returns whether the rule can block for longer than its rate implies: by in-flight, calendar or unit limits.
    fn has_limits_besides_rate(&self) -> bool {
        self.rule.in_flight.is_some() || !self.rule.calendar.is_empty() || self.rule.units().next().is_some()
    }
}

// === impl Drawn ===

impl Drawn {
    /// The numbers of the budgets.
    pub(super) fn numbers(&self) -> &[u32] {
        &self.numbers
    }

    /// The name of the rule whose budget has this hash, as request kinds store it.
    pub(super) fn rule_of(&self, budget: u32) -> Option<&str> {
        let draw = self.draws.iter().find(|draw| RouteKey::NONE.with_budget(draw.budget).budget() == budget);
        draw.map(|draw| &*draw.rule.name)
    }

    /// Returns whether the request is exempt from the lane's own limits.
    pub(super) fn is_apart(&self) -> bool {
        self.draws.iter().any(|draw| draw.apart)
    }
}
