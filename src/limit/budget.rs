//! All limits of one lane, checked together and charged together.

mod forecast;
mod meter;
mod part;
mod record;
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
    meter::{Limit, Meter, Meters, Slot},
    shared::SharedBudget,
};
use super::{
    Amount, CalendarCount, CalendarLimit, CalendarUsage, Cost, Gcra, LimitSpec, Margin, MarginSpec, Ready, Unit,
    book::UnitBook,
    charge::{Charge, Scope, Seq, Source},
};

/// A window as long as a sample of the page's charts, or shorter: its limit bounds each sample.
const SHORT_WINDOW: Duration = Duration::from_secs(5);

/// Windows count as equal if they differ by at most one part in this many.
const SAME: u32 = 8;

/// Requests keep their distance for this long after a refusal.
const DISTANT: Duration = Duration::from_secs(600);

/// Several limits and the margin they share.
#[derive(Clone, Debug)]
pub struct Budget {
    meters: Meters,
    margin: Margin,
    next: Seq,
    /// When a request last took units.
    last: Option<Instant>,
    since: Instant,
    /// What was taken of each unit.
    books: Vec<UnitBook>,
    /// Configured limits do not hold while a learned limit is known.
    yields: bool,
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
        let limits = limits.iter().map(|spec| Meter::Window(Limit::new(Source::Config, *spec, 0)));
        Self {
            meters: Meters(limits.collect()),
            margin: Margin::new(margin),
            next: 0,
            last: None,
            since: now,
            books: Vec::with_capacity(1),
            yields: false,
            distant: None,
            part: Part::default(),
            shared: None,
        }
    }

    /// Adds calendar limits with nothing used. `epoch` is the time since 1970 at [`Instant::START`].
    pub fn with_calendar(mut self, calendar: &[CalendarLimit], epoch: Duration) -> Self {
        let count = |limit: &CalendarLimit| Meter::Calendar(CalendarCount::new(limit.clone(), epoch));
        self.meters.0.extend(calendar.iter().map(count));
        self
    }

    /// Updates the epoch after the system's clock was set: [`Instant::START`] was at `epoch` since 1970.
    pub fn set_epoch(&mut self, epoch: Duration) {
        self.meters.calendars_mut().for_each(|count| count.set_epoch(epoch));
    }

    /// Makes configured limits hold only until a limit is learned.
    pub fn yielding(self) -> Self {
        Self { yields: true, ..self }
    }

    /// The limit that `source` imposes.
    pub fn limit(&self, source: Source) -> Option<LimitSpec> {
        self.meters.windows().find(|limit| limit.source == source).map(|limit| limit.reported().unwrap_or(limit.spec))
    }

    /// The longest interval between requests among the evenly spaced limits.
    pub fn spacing(&self) -> Duration {
        let even = self.meters.windows().filter(|limit| limit.spec.burst().get() == 1);
        even.map(|limit| limit.spec.rate.interval()).max().unwrap_or_default()
    }

    /// Units that count in the window of the limit that `source` imposes.
    pub fn used(&mut self, source: Source, now: Instant) -> u32 {
        let Some(limit) = self.meters.of(source) else { return 0 };
        limit.used(now, &self.margin)
    }

    /// Units of this kind that the configured limits leave free at `now`; `None` if nothing limits them.
    pub fn room(&mut self, unit: Unit, now: Instant) -> Option<u32> {
        let Self { meters, margin, .. } = self;
        let left = meters.configured(unit).map(|meter| {
            let (count, left) = meter.room(now, margin);
            let Meter::Window(Limit { share: Some(share), .. }) = meter else { return left };
            // A limit shared by several members never offers more here than this member can ever hold.
            let most = share.given().limit.saturating_add(share.own());
            left.saturating_sub(count.saturating_sub(most))
        });
        left.min()
    }

    /// Sets the limit that `source` imposes to `spec`. For a new source, `before` lists units that were used already,
    /// each count with the latest instant at which they can have been used.
    pub fn learn(&mut self, source: Source, spec: LimitSpec, before: &[(u32, Instant)]) {
        if let Some(limit) = self.meters.of(source) {
            return limit.impose(spec, self.part);
        }
        let mut limit = Limit::new(source, spec, self.next);
        limit.impose(spec, self.part);
        let spec = limit.spec;
        // Requests that have left keep their distance as well.
        if let Some(last) = self.last.filter(|_| spec.burst() == NonZeroU32::MIN) {
            limit.gcra.commit(last, last, Amount::MIN);
        }
        self.meters.0.push(Meter::Window(limit));
        for (used, at) in before {
            if let Some(used) = Amount::new(*used.min(&spec.rate.count.get())) {
                self.count(source, used, *at, *at);
            }
        }
    }

    /// Counts `amount` units for `source` that were not taken here: they left at `sent` and were answered at
    /// `answered`.
    pub fn count(&mut self, source: Source, amount: Amount, sent: Instant, answered: Instant) {
        let Some(limit) = self.meters.of(source) else { return };
        // No other limit knows units with these numbers.
        let first = self.next;
        self.next += u64::from(amount.get());
        limit.window.count_answered(first, amount, sent, answered);
    }

    /// Sets when the whole limit of `source` is renewed, whenever its units were taken, if that is known.
    pub fn set_end(&mut self, source: Source, ends: Option<Instant>) {
        let limit = self.meters.of(source).filter(|limit| limit.share.is_none());
        limit.into_iter().for_each(|limit| limit.ends = ends);
    }

    /// Removes the limit that `source` imposed.
    pub fn unlearn(&mut self, source: Source) {
        self.meters.0.retain(|meter| meter.source() != source);
    }

    /// Removes every limit except the configured ones.
    pub fn unlearn_all(&mut self) {
        self.meters.0.retain(|meter| meter.source() == Source::Config);
    }

    /// Reserves room for units that in-flight requests are likely to use beyond their charges. `lack` returns that
    /// excess for a unit and a window's length. Shared limits are left alone.
    pub fn set_outstanding(&mut self, lack: impl Fn(Unit, Duration) -> u32) {
        let limits =
            self.meters.windows_mut().filter(|limit| limit.spec.unit != Unit::REQUESTS && limit.share.is_none());
        for limit in limits {
            let LimitSpec { unit, rate, strict, .. } = limit.spec;
            // A request in flight counts until it is answered (strict), or for one window.
            let lacks = lack(unit, if strict { Duration::MAX } else { rate.per });
            limit.outstanding = lacks.min(rate.count.get() / OUTSTANDING);
        }
    }

    /// When every limit of `scope` has room for `cost`.
    pub fn ready(&mut self, now: Instant, cost: &Cost, scope: Scope) -> Ready {
        let mut lacks = false;
        if !scope.is_apart() {
            // Each book notes what it lacks.
            self.books.iter_mut().for_each(|book| lacks |= book.lacks(cost));
        }
        if lacks {
            return Ready::OnEvent;
        }
        if let Some(again) = self.lacks_tokens(now, cost, scope) {
            return again;
        }
        let margin = &self.margin;
        self.meters.holding(self.yields, scope).fold(Ready::Now, |ready, meter| {
            // A request that takes nothing of a unit does not wait for it.
            cost.of(meter.unit()).map_or(ready, |amount| ready.max(meter.ready(now, amount, margin)))
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
            cost.each().for_each(|(unit, amount)| self.book(unit).take(now, seq, amount));
        }
        let slot = Slot { now, due, late, distant: self.distant.is_some() };
        for meter in self.meters.0.iter_mut().filter(|meter| scope.includes(meter.source())) {
            cost.of(meter.unit()).into_iter().for_each(|amount| meter.take(slot, seq, amount));
        }
        if self.shared.is_some() && !scope.is_apart() {
            cost.each().for_each(|(unit, amount)| self.took_units(now, unit, amount));
        }
        seq
    }

    /// The book of this unit.
    fn book(&mut self, unit: Unit) -> &mut UnitBook {
        let known = self.books.iter().position(|book| book.unit == unit);
        let index = known.unwrap_or_else(|| {
            self.books.push(UnitBook::new(unit));
            self.books.len() - 1
        });
        &mut self.books[index]
    }

    /// Records that a charge was sent at `at`.
    pub fn sent(&mut self, charge: Charge, at: Instant) {
        let distant = self.distant.is_some();
        self.meters.charged(&charge).for_each(|(meter, amount)| meter.sent(at, charge.seq, amount, distant));
    }

    /// Records, at `at`, that a sent charge will never be answered and may still be on its way. The margin bounds that
    /// time. A strict limit does not trust the margin. Instead it allows for the longest response time so far, or for a
    /// whole window before the first response.
    pub fn abandoned(&mut self, charge: Charge, at: Instant) {
        for (limit, amount) in self.meters.charged_windows(&charge) {
            let late = limit.late(&self.margin);
            limit.window.answered(charge.seq, amount, Instant::START, at + late);
        }
    }

    /// Records that a charge marked as sent was not written after all. Returns true if the charge still counts for all
    /// of its limits; otherwise the caller must return it and take it again.
    pub fn recall(&mut self, charge: Charge) -> bool {
        let mut counts = true;
        for (limit, amount) in self.meters.charged_windows(&charge) {
            counts &= limit.window.recall(charge.seq, amount);
        }
        counts
    }

    /// Records that a charge was answered at `at`; `sent` is the corrected time of sending.
    pub fn answered(&mut self, charge: Charge, sent: Instant, at: Instant) {
        let answered = |(limit, amount): (&mut Limit, Amount)| limit.window.answered(charge.seq, amount, sent, at);
        self.meters.charged_windows(&charge).for_each(answered);
    }

    /// Gives back a charge that was never sent.
    pub fn return_unused(&mut self, charge: Charge) {
        let Charge { seq, cost, scope } = charge;
        if !scope.is_apart() {
            cost.each().for_each(|(unit, amount)| self.book(unit).return_unused(seq, amount));
        }
        self.meters.charged(&charge).for_each(|(meter, amount)| meter.return_unused(seq, amount));
    }

    /// Trains the margin: a response's head came `took` after its request.
    pub fn observe(&mut self, now: Instant, took: Duration) {
        if self.meters.windows().next().is_some() || self.shared.is_some() {
            self.margin.observe(now, took);
        }
        self.shared.iter_mut().for_each(|shared| shared.observe(took));
        if self.distant.is_some_and(|since| now.since(since) >= DISTANT) {
            self.distant = None;
        }
    }

    /// Returns true if a request may follow the one before more closely than evenly because a slot was missed.
    pub fn catches_up(&self) -> bool {
        self.distant.is_none() && self.meters.windows().any(|limit| limit.gcra.may_keep_distance())
    }

    /// Makes each request keep its distance from `now` on: the API refused one, perhaps because it followed the one
    /// before too closely.
    pub fn keep_distance(&mut self, now: Instant) {
        self.distant = Some(now);
    }

    /// Returns true if no sent request counts for a configured limit any more.
    pub fn is_idle(&mut self, now: Instant) -> bool {
        let margin = &self.margin;
        let mut configured = self.meters.0.iter_mut().filter(|meter| meter.source() == Source::Config);
        configured.all(|meter| meter.is_idle(now, margin))
    }

    /// Usage of each calendar limit.
    pub fn calendar(&mut self, now: Instant) -> Vec<CalendarUsage> {
        self.meters.calendars_mut().map(|count| count.usage(now)).collect()
    }

    /// Settles a `charge` of this budget: its response reported by `now` that the request used `used` of `unit`.
    ///
    /// The usage counts from now on, instead of the reservation: the API knows it no sooner. Usage beyond the
    /// reservation is a debt, which is paid before the next request leaves.
    pub fn settle(&mut self, charge: Charge, unit: Unit, used: u32, now: Instant) {
        let Charge { seq, cost, scope } = charge;
        let (reserved, used) = (cost.of(unit), Amount::new(used));
        let next = self.next;
        self.next += used.map_or(0, |used| used.get().into());
        let meters = self.meters.0.iter_mut().filter(|meter| meter.unit() == unit && scope.includes(meter.source()));
        meters.for_each(|meter| meter.settle(seq, reserved, next, used, now));
        if scope.is_apart() {
            return;
        }
        let beyond = |used: Amount| Amount::new(used.get().saturating_sub(reserved.map_or(0, Amount::get)));
        if let Some(beyond) = used.and_then(beyond) {
            self.took_units(now, unit, beyond);
        }
        let book = self.book(unit);
        reserved.into_iter().for_each(|reserved| book.return_unused(seq, reserved));
        used.into_iter().for_each(|used| book.take(now, next, used));
    }

    /// Longest delay of requests that wastes at most two requests' capacity. Even spacing: until the next slot but one,
    /// as requests blocked by a window do not come evenly. Bursts: until a burst has been refilled. `Duration::MAX` if
    /// nothing but a calendar limits requests.
    pub fn idles(&self) -> Duration {
        let bursts = self.meters.windows().filter(|limit| limit.spec.burst().get() > 1);
        let back = bursts.map(|limit| limit.spec.rate.interval().saturating_mul(limit.spec.burst().get())).min();
        let even = Some(self.spacing().saturating_mul(2)).filter(|spacing| !spacing.is_zero());
        even.into_iter().chain(back).min().unwrap_or(Duration::MAX)
    }

    /// Shortest time in which the limit of a unit other than requests refills what `cost` takes of it.
    pub fn takes(&self, cost: Cost) -> Duration {
        let others = self.meters.windows().filter(|limit| limit.spec.unit != Unit::REQUESTS);
        others.filter_map(|limit| limit.refills(&cost)).min().unwrap_or_default()
    }

    /// When the configured limits of the units selected by `of` have room for both `cost` and `kept`.
    pub fn ready_beside(&mut self, now: Instant, cost: Cost, kept: Cost, of: impl Fn(Unit) -> bool) -> Ready {
        let Self { meters, margin, .. } = self;
        let both = cost.and(&kept);
        let ready = meters.0.iter_mut().filter(|meter| meter.source() == Source::Config).filter_map(|meter| {
            let amount = both.of(meter.unit()).filter(|_| of(meter.unit()))?;
            Some(match meter {
                Meter::Window(limit) => limit.ready_at_once(now, amount, margin),
                Meter::Calendar(count) => count.ready(now, amount),
            })
        });
        ready.max().unwrap_or(Ready::Now)
    }

    /// Records that the API refused a request of `cost` sent at `sent`. If no other sender can have used up the limit,
    /// the margin is too small. `tries` marks a probe for the end of a pause; `wait` is the delay that the API asks
    /// for.
    pub fn refused(&mut self, now: Instant, sent: Instant, cost: Cost, tries: bool, wait: Option<Duration>) {
        // An estimated limit promises nothing about windows.
        let Self { meters, margin, .. } = self;
        let windows = || {
            let promised = meters.windows().filter(|limit| limit.source != Source::Estimated);
            promised.map(|limit| limit.spec.rate.per)
        };
        let Some((per, longest)) = windows().min().zip(windows().max()) else { return };
        // No window of ours lasts that long: the refusal has another reason.
        let other = wait.is_some_and(|wait| wait >= longest * 2);
        // During the first window the API may still count requests of another process, sent before this one began.
        if other || sent.since(self.since) < per {
            return;
        }
        // If fewer units had left than fill a window, or a fleet member's share of it, no margin would have helped. The
        // units freed since may be as many as the refused request takes. A probe may withdraw a lesson.
        let full = tries
            || meters.windows_mut().filter(|limit| limit.source != Source::Estimated).any(|limit| {
                let used = limit.used(now, margin);
                let cost = cost.of(limit.spec.unit).map(|amount| limit.whole(amount).get());
                cost.is_some_and(|cost| used.saturating_add(cost) >= limit.window.count())
            });
        if full {
            margin.refused(now, sent, per, tries);
        }
    }

    /// Records that the API served a request sent at `sent`.
    pub fn served(&mut self, sent: Instant) {
        self.margin.served(sent);
    }

    /// Replaces the configured limits by `limits` and the margin for jitter by `margin`, from `now` on.
    ///
    /// A limit whose window is as long as before continues where it was: a raised limit gives no fresh burst, and a
    /// lowered limit holds at once. A limit with another window begins with all requests that are known to have been
    /// sent. Limits that are not among `limits` end. Learned limits stay.
    pub fn reconfigure(&mut self, limits: &[LimitSpec], margin: MarginSpec, now: Instant) {
        self.margin.respecify(margin);
        let configured = |limit: &Limit| limit.source == Source::Config;
        if self.meters.windows().filter(|limit| configured(limit)).map(|limit| &limit.spec).eq(limits) {
            return;
        }
        let before = self.meters.remove(|meter| matches!(meter, Meter::Window(limit) if configured(limit)));
        let window = |meter: Meter| if let Meter::Window(limit) = meter { Some(limit) } else { None };
        let mut before: Vec<Limit> = before.into_iter().filter_map(window).collect();
        let known: Vec<_> = before.iter().map(|limit| Limit { share: None, ..limit.clone() }).collect();
        for (place, spec) in limits.iter().enumerate() {
            let alike = |limit: &&Limit| limit.spec.unit == spec.unit;
            let same = before.iter().position(|limit| alike(&limit) && limit.spec.rate.per == spec.rate.per);
            let limit = match same {
                Some(same) => self.respecified(before.swap_remove(same), spec, now),
                None => {
                    let longest = known.iter().filter(alike).max_by_key(|limit| limit.spec.rate.per);
                    self.added(longest, spec, now)
                }
            };
            self.meters.0.insert(place, Meter::Window(limit));
        }
        before.into_iter().for_each(|gone| self.end_share(gone));
        self.share_limits();
    }

    /// Replaces the calendar limits. A limit that is renewed as before keeps its usage; a new limit begins with the
    /// usage that the history knows. `epoch` is the time since 1970 at [`Instant::START`].
    pub fn reconfigure_calendar(&mut self, limits: &[CalendarLimit], epoch: Duration) {
        let mut before = Meters(self.meters.remove(|meter| matches!(meter, Meter::Calendar(_))));
        for limit in limits {
            let kept = before.calendars_mut().find_map(|count| count.respecified(limit));
            let count = kept.unwrap_or_else(|| {
                let mut count = CalendarCount::new(limit.clone(), epoch);
                self.next = take_all(&mut count, self.spent(limit.unit, Instant::START), self.next);
                count
            });
            self.meters.0.push(Meter::Calendar(count));
        }
    }

    /// Sets whether configured limits hold only until a limit is learned.
    pub fn set_yielding(&mut self, yields: bool) {
        self.yields = yields;
    }

    /// Takes over the requests of `other` from `now` on. Units that `other` sent `since` then count here too; units
    /// sent before then count already.
    pub fn absorb(&mut self, other: &Self, since: Instant, now: Instant) {
        self.last = self.last.max(other.last);
        for meter in self.meters.0.iter_mut().filter(|meter| meter.source() == Source::Config) {
            let spent = other.spent(meter.unit(), since);
            self.next = match meter {
                Meter::Window(limit) => {
                    limit.gcra.charge_all(spent.iter().copied(), self.last);
                    count(limit, spent.into_iter().rev(), self.next, now)
                }
                Meter::Calendar(count) => take_all(count, spent, self.next),
            };
        }
        other.books.iter().for_each(|book| self.book(book.unit).history.absorb(&book.history, since));
    }

    /// Returns `limit` with the count, burst and strictness of `spec`, which has the same window.
    fn respecified(&mut self, mut limit: Limit, spec: &LimitSpec, now: Instant) -> Limit {
        limit.gcra.reconfigure(&limit.spec, spec, self.last, now);
        limit.window.retune(spec);
        limit.spec = *spec;
        if now < limit.lacks_until {
            self.count_history(&mut limit, now);
        }
        limit
    }

    /// Returns a limit with a window that no limit had before. The `longest` earlier limit knows the requests in
    /// flight, the history knows the sent ones.
    fn added(&mut self, longest: Option<&Limit>, spec: &LimitSpec, now: Instant) -> Limit {
        let mut limit = longest.cloned().unwrap_or_else(|| Limit::new(Source::Config, *spec, self.next));
        limit.spec = *spec;
        limit.window.retune(spec);
        limit.gcra = Gcra::new(spec);
        limit.gcra.charge_all(self.spent(spec.unit, Instant::START).into_iter(), self.last);
        self.count_history(&mut limit, now);
        limit
    }

    /// Replaces the settled units of `limit` by those that the history knows, counting each unit once. Units of
    /// requests in flight stay separate, because their events are still to come. The history does not mark them: the
    /// last units are assumed to be theirs.
    fn count_history(&mut self, limit: &mut Limit, now: Instant) {
        let mut under_way = u64::from(limit.window.forget_answered(self.last.unwrap_or(now)));
        let settled = self.spent(limit.spec.unit, Instant::START).into_iter().rev().filter_map(|(at, spent)| {
            let units = spent.saturating_sub(under_way);
            under_way = under_way.saturating_sub(spent);
            (units > 0).then_some((at, units))
        });
        self.next = count(limit, settled, self.next, now);
    }

    /// Units of `unit` taken since `since`, with their instants, as far as the history knows; oldest first.
    fn spent(&self, unit: Unit, since: Instant) -> Vec<(Instant, u64)> {
        let book = self.books.iter().find(|book| book.unit == unit);
        let entries = book.into_iter().flat_map(|book| book.history.iter()).filter(|entry| entry.last >= since);
        entries.map(|entry| (entry.last, entry.units)).collect()
    }

    /// Sets the part of the API's quotas that is used here; other processes use the rest.
    pub fn set_part(&mut self, part: Part) {
        self.part = part;
        for limit in self.meters.windows_mut() {
            limit.reported().into_iter().for_each(|reported| limit.impose(reported, part));
        }
    }

    /// Part of the API's quotas that is used here.
    pub fn part(&self) -> Part {
        self.part
    }

    /// Part of the quota of `source` that is used here; for an unknown quota, the part of a divided one.
    pub fn part_in(&self, source: Source) -> f64 {
        let reported = self.meters.windows().find(|limit| limit.source == source).and_then(|limit| limit.reported());
        reported.map_or(self.part.own, |spec| self.part.of(&spec))
    }

    /// Like [`part_in`](Self::part_in), for a quota of `requests` per `window`. If a fleet shares an equal configured
    /// limit, this process's part of that limit counts too: the rest is used by members, not by strangers.
    pub fn part_known(&self, source: Source, requests: f64, window: Duration) -> f64 {
        let is_same = |limit: &&Limit| {
            let LimitSpec { unit, rate, .. } = limit.spec;
            unit == Unit::REQUESTS
                && f64::from(rate.count.get()) == requests
                && rate.per.abs_diff(window) * SAME <= window
        };
        let part = self.part_in(source);
        let shares = self.meters.windows().filter(is_same).filter_map(|limit| limit.share.as_ref());
        shares.map(|share| share.due_part()).fold(part, f64::min)
    }

    /// Returns true if several processes use the API's quotas, and some rate among them is not divided.
    pub fn is_undivided(&self) -> bool {
        let Part { equal, .. } = self.part;
        let mut reported = self.meters.windows().filter_map(|limit| limit.reported());
        equal < 1.0 && reported.any(|spec| Part { own: equal, equal }.of(&spec) >= 1.0)
    }

    /// Smallest rate that the API reports for all processes together, in units per second.
    pub fn reported_rate(&self) -> Option<f64> {
        let reported = self.meters.windows().filter_map(|limit| limit.reported());
        reported.map(|spec| spec.rate.per_second()).min_by(f64::total_cmp)
    }

    /// Usage of each limit.
    pub fn usage(&mut self, now: Instant) -> Vec<LimitUsage> {
        let (margin, part) = (&self.margin, self.part);
        self.meters.windows_mut().map(|limit| LimitUsage::of(limit, now, margin, part)).collect()
    }

    /// Requests per second that may leave at most, over a few seconds: the least pace of the limits that hold at that scale,
    /// which are evenly spaced or have short windows. Without such a limit, the least pace in the long run.
    pub fn pace(&self) -> Option<f64> {
        let specs = || self.meters.windows().map(|limit| &limit.spec).filter(|spec| spec.unit == Unit::REQUESTS);
        let holds = |spec: &&LimitSpec| spec.burst().get() == 1 || spec.rate.per <= SHORT_WINDOW;
        let least = |pace: f64, spec: &LimitSpec| pace.min(spec.rate.per_second());
        let [short, all] = [specs().filter(holds).fold(f64::INFINITY, least), specs().fold(f64::INFINITY, least)];
        [short, all].into_iter().find(|pace| pace.is_finite())
    }
}

/// Counts `spent` units for `calendar`, numbered from `next` on. Returns the next number.
fn take_all(calendar: &mut CalendarCount, spent: Vec<(Instant, u64)>, mut next: Seq) -> Seq {
    for (at, units) in spent {
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        // No request has these numbers: its units left long ago.
        Amount::new(units).into_iter().for_each(|amount| calendar.take(at, next, amount));
        next += u64::from(units);
    }
    next
}

/// Counts those `spent` units, newest first, that still count at `now`; they are numbered from `next` on. Returns the
/// next number.
fn count(limit: &mut Limit, spent: impl Iterator<Item = (Instant, u64)>, mut next: Seq, now: Instant) -> Seq {
    let per = limit.spec.rate.per;
    // Units beyond a full window are irrelevant: the next request waits for the newest units.
    let mut room = u64::from(limit.spec.rate.count.get());
    let mut counted = Vec::new();
    for (at, units) in spent.take_while(|(at, _)| *at + per > now) {
        if units > room {
            limit.lacks_until = now + per;
        }
        let Some(amount) = u32::try_from(units.min(room)).ok().and_then(Amount::new) else { break };
        room -= u64::from(amount.get());
        counted.push((at, amount));
    }
    for (at, amount) in counted.into_iter().rev() {
        limit.window.count_answered(next, amount, at, at);
        next += u64::from(amount.get());
    }
    next
}
