//! All limits of one lane, checked together and charged together.

mod forecast;
mod idle;
mod lessons;
mod limit;
mod part;
mod reconfigure;
mod record;
mod settle;
mod shared;
#[cfg(test)]
mod tests;
mod usage;

use std::{num::NonZeroU32, time::Duration};

use andante_clock::Instant;

pub use self::{
    forecast::Rates,
    part::Part,
    record::{BudgetRecord, Gap},
    shared::{ShareReport, ShareUsage},
    usage::LimitUsage,
};
use self::{
    limit::Limit,
    part::{part_of, reported},
    shared::SharedBudget,
};
use super::{
    Amount, CalendarCount, CalendarLimit, CalendarUsage, Cost, LimitSpec, Margin, MarginSpec, Ready, Unit,
    ahead::{WrittenAhead, lacks, written_ahead},
    charge::{Charge, Scope, Seq, Source},
    history::SpendHistory,
};

/// Requests keep their distance for this long after a refusal.
const DISTANT: Duration = Duration::from_secs(600);

/// Several limits and the margin they share.
#[derive(Clone, Debug)]
pub struct Budget {
    limits: Vec<Limit>,
    calendar: Vec<CalendarCount>,
    margin: Margin,
    next: Seq,
    /// When a request last took units.
    last: Option<Instant>,
    since: Instant,
    /// When units of each kind were taken, for limits that are added later.
    histories: Vec<(Unit, SpendHistory)>,
    /// Configured limits do not hold while a learned limit is known.
    yields: bool,
    /// Units that long limits may spend before the next record is persisted; `None` if nothing is persisted ahead.
    ahead: Option<Vec<(Unit, WrittenAhead)>>,
    /// Instant of the refusal that makes requests keep their distance; `None` if late timers' slots are caught up.
    distant: Option<Instant>,
    /// Share of the API's quotas that this process uses; other users have the rest.
    part: Part,
    /// The fleet's side of the budget; `None` if the budget is not shared.
    shared: Option<Box<SharedBudget>>,
}

/// Usage that in-flight requests are expected to add reserves at most `1 / OUTSTANDING` of a window. Such requests may
/// hang, or their clients may not read, and other requests must not stall for that.
const OUTSTANDING: u32 = 4;

// === impl Budget ===

impl Budget {
    /// An unused budget; without limits it allows everything.
    pub fn new(limits: &[LimitSpec], margin: MarginSpec, now: Instant) -> Self {
        let limits = limits.iter().map(|spec| Limit::new(Source::Config, *spec, 0));
        Self {
            limits: limits.collect(),
            calendar: Vec::new(),
            margin: Margin::new(margin),
            next: 0,
            last: None,
            since: now,
            histories: Vec::with_capacity(1),
            yields: false,
            ahead: None,
            distant: None,
            part: Part::default(),
            shared: None,
        }
    }

    /// Adds calendar limits with nothing used. `epoch` is the time since 1970 at [`Instant::START`].
    pub fn with_calendar(self, calendar: &[CalendarLimit], epoch: Duration) -> Self {
        let calendar = calendar.iter().map(|limit| CalendarCount::new(limit.clone(), epoch)).collect();
        Self { calendar, ..self }
    }

    /// Updates the epoch after the system's clock was set: [`Instant::START`] was at `epoch` since 1970.
    pub fn set_epoch(&mut self, epoch: Duration) {
        self.calendar.iter_mut().for_each(|limit| limit.set_epoch(epoch));
    }

    /// Makes configured limits hold only until a limit is learned.
    pub fn yielding(self) -> Self {
        Self { yields: true, ..self }
    }

    /// Returns true if requests leave one by one, whatever capacity has been saved up.
    pub fn is_even(&self) -> bool {
        self.limits.iter().any(|limit| limit.spec.burst().get() == 1)
    }

    /// The limit that `source` imposes.
    pub fn limit(&self, source: Source) -> Option<LimitSpec> {
        self.limits.iter().find(|limit| limit.source == source).map(|limit| limit.reported().unwrap_or(limit.spec))
    }

    /// The longest interval between requests among the evenly spaced limits.
    pub fn spacing(&self) -> Duration {
        let even = self.limits.iter().filter(|limit| limit.spec.burst().get() == 1);
        even.map(|limit| limit.spec.rate.interval()).max().unwrap_or_default()
    }

    /// Units that count in the window of the limit that `source` imposes.
    pub fn used(&mut self, source: Source, now: Instant) -> u32 {
        let Some(limit) = self.limits.iter_mut().find(|limit| limit.source == source) else { return 0 };
        limit.window.used(now, limit.margin(&self.margin))
    }

    /// Units of this kind that the configured limits leave free at `now`; `None` if nothing limits them.
    pub fn room(&mut self, unit: Unit, now: Instant) -> Option<u32> {
        let Self { limits, calendar, margin, .. } = self;
        let windows = limits.iter_mut().filter(|limit| limit.source == Source::Config && limit.spec.unit == unit);
        let windows = windows.map(|limit| {
            let used = limit.window.used(now, limit.margin(margin));
            // A limit shared by several members never offers more here than this member can ever hold.
            let most = limit.share.as_ref().map_or(u32::MAX, |share| share.given().limit.saturating_add(share.own()));
            limit.spec.rate.count.get().min(most).saturating_sub(used)
        });
        let calendar = calendar.iter_mut().filter(|count| count.unit() == unit);
        windows.chain(calendar.map(|count| count.count().get().saturating_sub(count.usage(now).used))).min()
    }

    /// Sets the limit that `source` imposes to `spec`. For a new source, `before` lists units that were used already,
    /// each count with the latest instant at which they can have been used.
    pub fn learn(&mut self, source: Source, spec: LimitSpec, before: &[(u32, Instant)]) {
        if let Some(index) = self.limits.iter().position(|limit| limit.source == source) {
            return self.retune(index, spec);
        }
        let reported = reported(source, spec);
        let spec = reported.map_or(spec, |reported| part_of(&reported, self.part));
        let mut limit = Limit { reported: reported.map(Box::new), ..Limit::new(source, spec, self.next) };
        // Requests that have left keep their distance as well.
        if let Some(last) = self.last.filter(|_| spec.burst() == NonZeroU32::MIN) {
            limit.gcra.commit(last, last, Amount::MIN);
        }
        self.limits.push(limit);
        for (used, at) in before {
            if let Some(used) = Amount::new(*used.min(&spec.rate.count.get())) {
                self.count(source, used, *at, *at);
            }
        }
    }

    /// Counts `amount` units for `source` that were not taken here: they left at `sent` and were answered at
    /// `answered`.
    pub fn count(&mut self, source: Source, amount: Amount, sent: Instant, answered: Instant) {
        let Some(limit) = self.limits.iter_mut().find(|limit| limit.source == source) else { return };
        // No other limit knows units with these numbers.
        let first = self.next;
        self.next += u64::from(amount.get());
        limit.window.count_answered(first, amount, sent, answered);
    }

    /// Sets when the whole limit of `source` is renewed, whenever its units were taken, if that is known.
    pub fn set_end(&mut self, source: Source, ends: Option<Instant>) {
        let limit = self.limits.iter_mut().find(|limit| limit.source == source && limit.share.is_none());
        limit.into_iter().for_each(|limit| limit.ends = ends);
    }

    /// Removes the limit that `source` imposed.
    pub fn unlearn(&mut self, source: Source) {
        self.limits.retain(|limit| limit.source != source);
    }

    /// Removes every limit except the configured ones.
    pub fn unlearn_all(&mut self) {
        self.limits.retain(|limit| limit.source == Source::Config);
    }

    /// Reserves room for units that in-flight requests are likely to use beyond their charges. `lack` returns that
    /// excess for a unit and a window's length. Shared limits are left alone.
    pub fn set_outstanding(&mut self, lack: impl Fn(Unit, Duration) -> u32) {
        let limits = self.limits.iter_mut().filter(|limit| limit.spec.unit != Unit::REQUESTS && limit.share.is_none());
        for limit in limits {
            let LimitSpec { unit, rate, strict, .. } = limit.spec;
            // A request in flight counts until it is answered (strict), or for one window.
            let lacks = lack(unit, if strict { Duration::MAX } else { rate.per });
            limit.outstanding = lacks.min(rate.count.get() / OUTSTANDING);
        }
    }

    /// When every limit of `scope` has room for `cost`.
    pub fn ready(&mut self, now: Instant, cost: &Cost, scope: Scope) -> Ready {
        if !scope.is_apart() && self.ahead.as_mut().is_some_and(|ahead| lacks(ahead, cost)) {
            return Ready::OnEvent;
        }
        if let Some(again) = self.lacks_tokens(now, cost, scope) {
            return again;
        }
        let margin = &self.margin;
        let renewed = counting(&mut self.calendar, cost, scope)
            .fold(Ready::Now, |ready, (limit, amount)| ready.max(limit.ready(now, amount)));
        holding(&mut self.limits, self.yields, scope).fold(renewed, |ready, limit| {
            // A request that takes nothing of a unit does not wait for it.
            let Some(amount) = cost.of(limit.spec.unit) else { return ready };
            ready.max(limit.ready(now, amount, margin))
        })
    }

    /// Takes `cost` from all limits of `scope` for a slot that was due at `due`. Call it only when
    /// [`ready`](Self::ready) returned [`Ready::Now`]: a partial charge would starve requests that need only the limits
    /// that were charged.
    #[inline]
    pub fn take(&mut self, now: Instant, due: Instant, cost: Cost, scope: Scope) -> Charge {
        self.take_late(now, due, Duration::ZERO, cost, scope)
    }

    /// Like [`take`](Self::take), for a request that waited up to `late` for its turn: that wait loses no slots.
    #[inline]
    pub fn take_late(&mut self, now: Instant, due: Instant, late: Duration, cost: Cost, scope: Scope) -> Charge {
        Charge { seq: self.charge(now, due, late, &cost, scope), cost, scope }
    }

    fn charge(&mut self, now: Instant, due: Instant, late: Duration, cost: &Cost, scope: Scope) -> Seq {
        let seq = self.next;
        self.next += cost.span();
        self.last = Some(now);
        if !scope.is_apart() {
            self.history(Unit::REQUESTS).take(now, seq, cost.of(Unit::REQUESTS).unwrap_or(Amount::MIN));
            cost.others().for_each(|(unit, amount)| self.history(unit).take(now, seq, amount));
            written_ahead(&mut self.ahead, cost).for_each(|(ahead, amount)| ahead.take(amount));
        }
        for limit in self.limits.iter_mut().filter(|limit| scope.includes(limit.source)) {
            let Some(amount) = cost.of(limit.spec.unit) else { continue };
            let late = Some(late).filter(|_| !(self.distant.is_some() && limit.gcra.may_keep_distance()));
            limit.gcra.commit_late(now, due, late, limit.whole(amount));
            limit.window.take(seq, amount);
            (limit.taken, limit.newest) = (now, seq);
        }
        counting(&mut self.calendar, cost, scope).for_each(|(limit, amount)| limit.take(now, seq, amount));
        if self.shared.is_some() && !scope.is_apart() {
            self.took_tokens(now, *cost);
        }
        seq
    }

    /// The record of when units of this kind were taken.
    fn history(&mut self, unit: Unit) -> &mut SpendHistory {
        let known = self.histories.iter().position(|(other, _)| *other == unit);
        let index = known.unwrap_or_else(|| {
            self.histories.push((unit, SpendHistory::default()));
            self.histories.len() - 1
        });
        &mut self.histories[index].1
    }

    /// Records that a charge was sent at `at`.
    pub fn sent(&mut self, charge: Charge, at: Instant) {
        let Charge { seq, cost, scope } = charge;
        for (limit, amount) in charged(&mut self.limits, &charge) {
            limit.window.sent(seq, amount, at);
            if self.distant.is_some() && limit.gcra.may_keep_distance() {
                let whole = limit.whole(amount);
                limit.gcra.sent(at, whole);
            }
        }
        counting(&mut self.calendar, &cost, scope).for_each(|(limit, amount)| limit.sent(at, seq, amount));
    }

    /// Records, at `at`, that a sent charge will never be answered and may still be on its way. The margin bounds that
    /// time. A strict limit does not trust the margin. Instead it allows for the longest response time so far, or for a
    /// whole window before the first response.
    pub fn abandoned(&mut self, charge: Charge, at: Instant) {
        for (limit, amount) in charged(&mut self.limits, &charge) {
            let late = limit.late(&self.margin);
            limit.window.answered(charge.seq, amount, Instant::START, at + late);
        }
    }

    /// Records that a charge marked as sent was not written after all. Returns true if the charge still counts for all
    /// of its limits; otherwise the caller must return it and take it again.
    pub fn recall(&mut self, charge: Charge) -> bool {
        let mut counts = true;
        for (limit, amount) in charged(&mut self.limits, &charge) {
            counts &= limit.window.recall(charge.seq, amount);
        }
        counts
    }

    /// Records that a charge was answered at `at`; `sent` is the corrected time of sending.
    pub fn answered(&mut self, charge: Charge, sent: Instant, at: Instant) {
        let answered = |(limit, amount): (&mut Limit, Amount)| limit.window.answered(charge.seq, amount, sent, at);
        charged(&mut self.limits, &charge).for_each(answered);
    }

    /// Gives back a charge that was never sent.
    pub fn return_unused(&mut self, charge: Charge) {
        let Charge { seq, cost, scope } = charge;
        if !scope.is_apart() {
            for (unit, history) in &mut self.histories {
                cost.of(*unit).into_iter().for_each(|amount| history.return_unused(seq, amount));
            }
            written_ahead(&mut self.ahead, &cost).for_each(|(ahead, amount)| ahead.return_unused(amount));
        }
        for (limit, amount) in charged(&mut self.limits, &charge) {
            // A slot that passed before its charge was returned is lost.
            if limit.window.return_unused(seq, amount) {
                limit.gcra.return_unused(limit.whole(amount), seq == limit.newest);
            }
        }
        counting(&mut self.calendar, &cost, scope).for_each(|(limit, amount)| limit.return_unused(seq, amount));
    }

    /// Trains the margin: a response's head came `took` after its request.
    pub fn observe(&mut self, now: Instant, took: Duration) {
        if !self.limits.is_empty() || self.shared.is_some() {
            self.margin.observe(now, took);
        }
        self.shared.iter_mut().for_each(|shared| shared.observe(took));
        if self.distant.is_some_and(|since| now.since(since) >= DISTANT) {
            self.distant = None;
        }
    }

    /// Returns true if a request may follow the one before more closely than evenly because a slot was missed.
    pub fn catches_up(&self) -> bool {
        self.distant.is_none() && self.limits.iter().any(|limit| limit.gcra.may_keep_distance())
    }

    /// Makes each request keep its distance from `now` on: the API refused one, perhaps because it followed the one
    /// before too closely.
    pub fn keep_distance(&mut self, now: Instant) {
        self.distant = Some(now);
    }

    /// Returns true if no sent request counts for a configured limit any more.
    pub fn is_idle(&mut self, now: Instant) -> bool {
        if !self.calendar.iter().all(|limit| limit.is_idle(now)) {
            return false;
        }
        let margin = &self.margin;
        let mut configured = self.limits.iter_mut().filter(|limit| limit.source == Source::Config);
        configured.all(|limit| {
            let used = limit.window.used(now, limit.margin(margin));
            limit.gcra.is_idle(now) && used == 0 && limit.share.as_ref().is_none_or(|share| share.is_over())
        })
    }

    /// Usage of each calendar limit.
    pub fn calendar(&mut self, now: Instant) -> Vec<CalendarUsage> {
        self.calendar.iter_mut().map(|limit| limit.usage(now)).collect()
    }
}

/// The limits that `charge` was taken from, and how much of each.
fn charged<'a>(limits: &'a mut [Limit], charge: &'a Charge) -> impl Iterator<Item = (&'a mut Limit, Amount)> {
    limits.iter_mut().filter_map(|limit| {
        let taken = charge.scope.includes(limit.source) && limit.since <= charge.seq;
        charge.cost.of(limit.spec.unit).filter(|_| taken).map(|amount| (limit, amount))
    })
}

/// The calendar limits of `scope` whose unit `cost` takes, each with the amount.
fn counting<'a>(
    calendar: &'a mut [CalendarCount],
    cost: &'a Cost,
    scope: Scope,
) -> impl Iterator<Item = (&'a mut CalendarCount, Amount)> {
    let holding = calendar.iter_mut().filter(move |_| scope.includes(Source::Config));
    holding.filter_map(move |limit| cost.of(limit.unit()).map(|amount| (limit, amount)))
}

/// The limits that hold for requests of `scope`: configured ones may yield to learned ones.
fn holding(limits: &mut [Limit], yields: bool, scope: Scope) -> impl Iterator<Item = &mut Limit> {
    let known = |limit: &Limit| limit.source != Source::Config && scope.includes(limit.source);
    let yields = yields && limits.iter().any(known);
    limits.iter_mut().filter(move |limit| scope.includes(limit.source) && !(yields && limit.source == Source::Config))
}
