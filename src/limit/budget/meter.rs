//! Meters: the limits of a budget, and what has been taken of each.

use std::{fmt::Write, sync::Arc, time::Duration};

use andante_clock::Instant;
use andante_fleet::{Entry, Lease, Share, Stock, micros, stretched};

use super::{
    Part,
    shared::{NO_NEED, ShareUsage, duration, entry, usage, way},
};
use crate::{
    Amount, CalendarCount, Charge, Cost, Gcra, LONGEST_PACE, LimitSpec, Margin, Ready, Scope, Seq, Source, Unit,
    Window, ahead::LONG, lesser,
};

/// One limit, and what has been taken of it.
#[derive(Clone, Debug)]
pub(super) enum Meter {
    /// At most N units in any window, evenly spaced or in bursts.
    Window(Limit),
    /// At most N units from one renewal to the next.
    Calendar(CalendarCount),
}

/// The meters of a budget, which are asked together and charged together.
#[derive(Clone, Debug, Default)]
pub(super) struct Meters(pub(super) Vec<Meter>);

/// A slot that a request takes at `now`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) now: Instant,
    /// When the slot was due.
    pub(super) due: Instant,
    /// Time for which the request waited for something that blocked other requests too.
    pub(super) late: Duration,
    /// Requests of the lane keep their distance.
    pub(super) distant: bool,
}

/// A limit of a rate: even spacing, and the promise about every window.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    pub(super) source: Source,
    /// Charges with a lower number were taken without this limit.
    pub(super) since: Seq,
    pub(super) spec: LimitSpec,
    /// The quota that the API reports; `spec` is the part of it that is used here. Boxed: most limits are configured,
    /// and each keyed budget has one.
    pub(super) reported: Option<Box<LimitSpec>>,
    pub(super) gcra: Gcra,
    pub(super) window: Window,
    /// When a request last took units of the limit, and its number.
    pub(super) taken: Instant,
    pub(super) newest: Seq,
    /// Until then the window may lack units from before the limit existed: only as many as fill it were counted.
    pub(super) lacks_until: Instant,
    /// When the whole quota is renewed, even if a window has not passed, if such an instant was reported.
    pub(super) ends: Option<Instant>,
    /// Share of this process, if the limit is shared with other processes.
    pub(super) share: Option<Box<Share>>,
    /// Units that in-flight requests will probably take beyond their charges.
    pub(super) outstanding: u32,
}

/// Interval between looks at a limit that only `outstanding` units block: a request that hangs stops adding to them.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

// === impl Meters ===

impl Meters {
    /// The limits of rates.
    pub(super) fn windows(&self) -> impl Iterator<Item = &Limit> {
        self.0.iter().filter_map(|meter| if let Meter::Window(limit) = meter { Some(limit) } else { None })
    }

    /// The limits of rates.
    pub(super) fn windows_mut(&mut self) -> impl Iterator<Item = &mut Limit> {
        self.0.iter_mut().filter_map(|meter| if let Meter::Window(limit) = meter { Some(limit) } else { None })
    }

    /// The limits that a calendar renews.
    pub(super) fn calendars_mut(&mut self) -> impl Iterator<Item = &mut CalendarCount> {
        self.0.iter_mut().filter_map(|meter| if let Meter::Calendar(count) = meter { Some(count) } else { None })
    }

    /// The limit that `source` imposes.
    pub(super) fn of(&mut self, source: Source) -> Option<&mut Limit> {
        self.windows_mut().find(|limit| limit.source == source)
    }

    /// The meters that the configuration imposes on this `unit`.
    pub(super) fn configured(&mut self, unit: Unit) -> impl Iterator<Item = &mut Meter> {
        self.0.iter_mut().filter(move |meter| meter.source() == Source::Config && meter.unit() == unit)
    }

    /// Removes and returns the meters that `of` selects.
    pub(super) fn remove(&mut self, of: impl Fn(&Meter) -> bool) -> Vec<Meter> {
        self.0.extract_if(.., |meter| of(meter)).collect()
    }

    /// The meters that hold for requests of `scope`: configured rates may yield to learned ones.
    pub(super) fn holding(&mut self, yields: bool, scope: Scope) -> impl Iterator<Item = &mut Meter> {
        let known = |limit: &Limit| limit.source != Source::Config && scope.includes(limit.source);
        let yields = yields && self.windows().any(known);
        let yields =
            move |meter: &Meter| yields && matches!(meter, Meter::Window(limit) if limit.source == Source::Config);
        self.0.iter_mut().filter(move |meter| scope.includes(meter.source()) && !yields(meter))
    }

    /// The meters that `charge` was taken from, and how much of each.
    pub(super) fn charged<'a>(&'a mut self, charge: &'a Charge) -> impl Iterator<Item = (&'a mut Meter, Amount)> {
        self.0.iter_mut().filter_map(|meter| {
            let since = if let Meter::Window(limit) = meter { limit.since } else { 0 };
            let taken = charge.scope.includes(meter.source()) && since <= charge.seq;
            charge.cost.of(meter.unit()).filter(|_| taken).map(|amount| (meter, amount))
        })
    }

    /// The limits of rates that `charge` was taken from, and how much of each.
    pub(super) fn charged_windows<'a>(
        &'a mut self,
        charge: &'a Charge,
    ) -> impl Iterator<Item = (&'a mut Limit, Amount)> {
        self.charged(charge).filter_map(|(meter, amount)| match meter {
            Meter::Window(limit) => Some((limit, amount)),
            Meter::Calendar(_) => None,
        })
    }
}

// === impl Meter ===

impl Meter {
    /// Source that imposes the limit.
    pub(super) fn source(&self) -> Source {
        match self {
            Self::Window(limit) => limit.source,
            Self::Calendar(_) => Source::Config,
        }
    }

    /// Unit that the limit counts.
    pub(super) fn unit(&self) -> Unit {
        match self {
            Self::Window(limit) => limit.spec.unit,
            Self::Calendar(count) => count.unit(),
        }
    }

    /// Returns true if the limit is so long that a persisted budget spends it in blocks.
    pub(super) fn is_long(&self) -> bool {
        match self {
            Self::Window(limit) => limit.spec.rate.per >= LONG,
            Self::Calendar(_) => true,
        }
    }

    /// When the limit has room for `amount`.
    pub(super) fn ready(&mut self, now: Instant, amount: Amount, margin: &Margin) -> Ready {
        match self {
            Self::Window(limit) => limit.ready(now, amount, margin),
            Self::Calendar(count) => count.ready(now, amount),
        }
    }

    /// Units of the limit, and how many of them may be taken at `now`.
    pub(super) fn room(&mut self, now: Instant, margin: &Margin) -> (u32, u32) {
        let (count, used) = match self {
            Self::Window(limit) => (limit.spec.rate.count, limit.used(now, margin)),
            Self::Calendar(count) => (count.count(), count.usage(now).used),
        };
        (count.get(), count.get().saturating_sub(used))
    }

    /// Takes `amount` units, numbered from `seq`.
    pub(super) fn take(&mut self, slot: Slot, seq: Seq, amount: Amount) {
        match self {
            Self::Window(limit) => limit.take(slot, seq, amount),
            Self::Calendar(count) => count.take(slot.now, seq, amount),
        }
    }

    /// Records that units left at `at`; `distant` if requests keep their distance.
    pub(super) fn sent(&mut self, at: Instant, seq: Seq, amount: Amount, distant: bool) {
        match self {
            Self::Window(limit) => {
                limit.window.sent(seq, amount, at);
                if distant && limit.gcra.may_keep_distance() {
                    limit.gcra.sent(at, limit.whole(amount));
                }
            }
            Self::Calendar(count) => count.sent(at, seq, amount),
        }
    }

    /// Gives back units that were never sent.
    pub(super) fn return_unused(&mut self, seq: Seq, amount: Amount) {
        match self {
            Self::Window(limit) => {
                // A slot that passed before its charge was returned is lost.
                if limit.window.return_unused(seq, amount) {
                    limit.gcra.return_unused(limit.whole(amount), seq == limit.newest);
                }
            }
            Self::Calendar(count) => count.return_unused(seq, amount),
        }
    }

    /// Replaces `reserved` units, numbered from `seq`, by `used` units, numbered from `next`, that count from `now` on.
    pub(super) fn settle(&mut self, seq: Seq, reserved: Option<Amount>, next: Seq, used: Option<Amount>, now: Instant) {
        match self {
            Self::Window(limit) => {
                let reserved = reserved.filter(|_| limit.since <= seq);
                reserved.into_iter().for_each(|reserved| limit.window.refund(seq, reserved));
                used.into_iter().for_each(|used| limit.window.count_answered(next, used, now, now));
                let whole =
                    |amount: Option<Amount>| amount.map_or(0, |amount| lesser(limit.spec.rate.count, amount).get());
                limit.gcra.settle(now, whole(reserved), whole(used));
            }
            Self::Calendar(count) => {
                reserved.into_iter().for_each(|reserved| count.return_unused(seq, reserved));
                used.into_iter().for_each(|used| count.take(now, next, used));
            }
        }
    }

    /// Returns true if no sent request counts any more.
    pub(super) fn is_idle(&mut self, now: Instant, margin: &Margin) -> bool {
        match self {
            Self::Window(limit) => {
                let used = limit.used(now, margin);
                limit.gcra.is_idle(now) && used == 0 && limit.share.as_ref().is_none_or(|share| share.is_over())
            }
            Self::Calendar(count) => count.is_idle(now),
        }
    }
}

// === impl Limit ===

impl Limit {
    pub(super) fn new(source: Source, spec: LimitSpec, since: Seq) -> Self {
        Self {
            source,
            since,
            spec,
            reported: None,
            gcra: Gcra::new(&spec),
            window: Window::new(&spec),
            taken: Instant::START,
            newest: 0,
            lacks_until: Instant::START,
            ends: None,
            share: None,
            outstanding: 0,
        }
    }

    /// The quota that the API reports, if the limit is a part of one.
    pub(super) fn reported(&self) -> Option<LimitSpec> {
        self.reported.as_deref().copied()
    }

    /// When the limit has room for `amount`.
    pub(super) fn ready(&mut self, now: Instant, amount: Amount, margin: &Margin) -> Ready {
        if self.ends.is_some_and(|ends| ends <= now) {
            self.begin_anew(now);
        }
        let ends = self.ends.map_or(Ready::OnEvent, Ready::At);
        let (spaced, reserve) = (Ready::from(self.gcra.earliest(now), now), self.reserve());
        let with_outstanding = amount.saturating_add(self.outstanding);
        if self.window.has_plenty(with_outstanding, reserve) {
            return spaced.min(ends);
        }
        let margin = self.margin(margin);
        // The order matters: the window forgets units that have left it.
        let mut window = self.window.ready(now, amount, margin);
        if self.outstanding > 0 {
            window = self.window.ready(now, with_outstanding, margin).min(window.max(Ready::At(now + LOOK_AGAIN)));
        }
        let spread = Ready::from(self.window.spread(now, 0, reserve, margin, self.taken), now);
        spaced.max(window).max(spread).min(ends)
    }

    /// Units that count in the window at `now`.
    pub(super) fn used(&mut self, now: Instant, margin: &Margin) -> u32 {
        self.window.used(now, self.margin(margin))
    }

    /// Takes `amount` units, numbered from `seq`.
    fn take(&mut self, slot: Slot, seq: Seq, amount: Amount) {
        let late = Some(slot.late).filter(|_| !slot.distant || !self.gcra.may_keep_distance());
        self.gcra.commit_late(slot.now, slot.due, late, self.whole(amount));
        self.window.take(seq, amount);
        (self.taken, self.newest) = (slot.now, seq);
    }

    /// Changes the limit to `spec`, or to this `part` of a quota that the API reports; sent requests stay sent.
    pub(super) fn impose(&mut self, spec: LimitSpec, part: Part) {
        let reported = matches!(self.source, Source::Advertised(_)).then_some(spec);
        self.reported = reported.map(Box::new);
        self.spec = reported.map_or(spec, |reported| part.apply(&reported));
        self.gcra.retune(&self.spec);
        self.window.retune(&self.spec);
    }

    /// Forgets all answered units. A shared limit is left as it is: its tokens are the store's.
    fn begin_anew(&mut self, now: Instant) {
        self.ends = None;
        if self.share.is_none() {
            self.window.forget_answered(now);
            self.gcra = Gcra::new(&self.spec);
        }
    }

    /// Units of the limit that a request of `amount` takes: a request that costs more than the limit takes a whole
    /// window.
    pub(super) fn whole(&self, amount: Amount) -> Amount {
        let count = self.share.as_ref().and_then(|share| Amount::new(share.limit())).unwrap_or(Amount::MAX);
        amount.min(self.spec.rate.count).min(count)
    }

    /// Units that leave in one window, as far as is known.
    pub(super) fn round(&self) -> u64 {
        let shared = self.share.as_ref().map(|share| share.pace().max(1));
        shared.unwrap_or(self.spec.rate.count.get()).into()
    }

    /// Margin of the limit's window. An estimated limit promises nothing about windows and has none.
    pub(super) fn margin(&self, margin: &Margin) -> Duration {
        if self.source == Source::Estimated { Duration::ZERO } else { margin.of(self.spec.rate.per) }
    }

    /// Units that may leave back to back at `now`, as far as the spacing counts.
    pub(super) fn saved(&self, now: Instant) -> u64 {
        let (mut may, mut may_not) = (0, u64::from(self.spec.burst().get()));
        while may < may_not {
            let middle = may + (may_not - may) / 2;
            if self.gcra.project(now, middle) <= now { may = middle + 1 } else { may_not = middle }
        }
        may
    }

    /// When `amount` may leave back to back. [`Ready::OnEvent`] if it never may.
    pub(super) fn ready_at_once(&mut self, now: Instant, amount: Amount, margin: &Margin) -> Ready {
        if amount > self.spec.burst() || amount > self.whole(amount) {
            return Ready::OnEvent;
        }
        let spaced = self.gcra.project(now, u64::from(amount.get()) - 1);
        self.ready(now, amount, margin).max(Ready::from(spaced, now))
    }

    /// Time after the sending in which the API may still count a request without a response.
    pub(super) fn late(&self, margin: &Margin) -> Duration {
        let per = self.spec.rate.per;
        let usual = self.margin(margin);
        if self.spec.strict { margin.longest().unwrap_or(per).max(usual) } else { usual }
    }

    /// Number of last units of a window that are spread until the next unit is free: all beyond the burst, if the API
    /// reports the quota. Longer windows are quotas, which requests may use up as they come.
    pub(super) fn reserve(&self) -> u32 {
        match (self.source, self.spec.burst().get()) {
            (Source::Advertised(_), burst @ 2..) if self.spec.rate.per <= LONGEST_PACE => {
                self.spec.rate.count.get() - burst
            }
            _ => 0,
        }
    }

    /// Returns true if the limit is shared by tokens. A longer window would miss a dead member's tokens for too long.
    pub(super) fn is_short(&self) -> bool {
        self.spec.rate.per <= LONGEST_PACE
    }

    /// An empty share of the tokens in `pool`.
    pub(super) fn nothing_of(&self, pool: Arc<str>, lease: &Lease) -> Share {
        Share::new(pool, lease.lendable(self.spec.rate.count.get()), self.spec.rate.per)
    }

    /// Fits the window and the spacing to the usable units.
    pub(super) fn refit(&mut self, now: Instant, margin: &Margin, lease: &Lease) {
        let (clears, count, used) = (self.clears(margin), self.spec.rate.count.get(), self.used(now, margin));
        let Some(share) = &mut self.share else { return };
        share.set_own(lease.own(now, count, clears), count - lease.lendable(count));
        let leased = lease.holds(now);
        share.set_opens(now, lease.opens(self.spec.rate.per));
        let usable = if leased { share.usable(now, used) } else { lease.alone(now, count, clears) };
        let per = duration(stretched(micros(self.spec.rate.per)));
        self.window.share(usable, per, way(margin));
        // While no unit may be used at all, predictions are for the time after that.
        let pace = if leased || usable == 0 { share.pace() } else { usable }.clamp(1, count);
        let part = |of: Amount| {
            Amount::new((u64::from(of.get()) * u64::from(pace) / u64::from(self.spec.rate.count.get())) as u32)
        };
        // An amount that does not fit is no smaller when the limit is shared.
        let whole = self.spec.has_slack();
        let burst = self.spec.burst.map(|burst| if whole { burst } else { part(burst).unwrap_or(Amount::MIN) });
        let mut spec = LimitSpec { burst, ..self.spec };
        spec.rate.count = Amount::new(pace).unwrap_or(Amount::MIN);
        self.gcra.retune(&spec);
    }

    /// When a request with `ahead` units before it would leave if only the window counted, and none left before `from`.
    pub(super) fn project(
        &mut self,
        now: Instant,
        from: Instant,
        ahead: u64,
        amount: Amount,
        margin: Duration,
    ) -> Instant {
        let whole = self.whole(amount);
        let Some(share) = &self.share else { return self.window.project(now, from, ahead, whole, margin) };
        // The prediction rests on the due share, not on the tokens that are here at the moment.
        let (held, pace) = (self.window.count(), share.pace());
        self.window.set_count(pace);
        let at = self.window.project(now, from, ahead, whole, margin);
        self.window.set_count(held);
        at
    }

    /// Time in which the limit refills what `cost` takes of it.
    pub(super) fn refills(&self, cost: &Cost) -> Option<Duration> {
        Some(self.spec.rate.interval().saturating_mul(cost.of(self.spec.unit)?.get()))
    }

    /// Time after which a taken unit counts for no member any more.
    fn clears(&self, margin: &Margin) -> Duration {
        duration(stretched(micros(self.spec.rate.per))) + self.late(margin) + way(margin)
    }

    /// Returns true if the next request, as far as it is known to wait for this limit, still has to wait.
    pub(super) fn lacks(&mut self, now: Instant, margin: &Margin) -> bool {
        let Some(cost) = self.share.as_ref().and_then(|share| Amount::new(share.lacks())) else { return false };
        let (whole, used) = (self.whole(cost).get(), self.used(now, margin));
        used.saturating_add(whole) > self.window.count()
    }

    /// Demand for the limit while `backlog` units wait for it.
    pub(super) fn stock(&mut self, now: Instant, backlog: u32, margin: &Margin, took: Option<Duration>) -> Stock {
        let again = took.map_or(u32::MAX, |took| self.spec.rate.per.div_duration_f64(took).ceil() as u32);
        let (lingering, _) = self.window.lingering(now, self.margin(margin));
        let cost = self.share.as_mut().map_or(0, |share| share.lacking(backlog));
        let used = self.used(now, margin);
        // Usage beyond reservations is requested together with the next request: otherwise no request would pay it.
        // Usage that the whole limit cannot pay waits for its window, and blocks no other member.
        let debt = match (&self.share, cost) {
            (Some(share), 1..) if used.saturating_add(cost) <= share.limit() => {
                used.saturating_sub(share.held().saturating_add(share.own()))
            }
            _ => 0,
        };
        let (cost, backlog) = (cost.saturating_add(debt), backlog.saturating_add(debt));
        let cost = self.whole(Amount::new(cost).unwrap_or(Amount::MIN)).get().min(cost);
        Stock { used, lingering, lately: 0, most: u32::MAX, backlog, again, cost }
    }

    /// Updates the pool for the lane's `name` and the limit's rank (`number`) among limits with its window. The share
    /// of another pool ends.
    pub(super) fn rename(
        &mut self,
        now: Instant,
        name: &str,
        number: usize,
        margin: &Margin,
        lease: &Lease,
    ) -> Option<(Entry, Instant)> {
        let mut pool = format!("{name}\n{}", micros(self.spec.rate.per));
        // No unit's name is a number, so pool names are unique.
        let (unit, number) =
            (Some(self.spec.unit).filter(|unit| *unit != Unit::REQUESTS), Some(number).filter(|n| *n > 0));
        unit.into_iter().for_each(|unit| _ = write!(pool, "\n{unit}"));
        number.into_iter().for_each(|number| _ = write!(pool, "\n{number}"));
        let share = self.share.as_ref()?;
        if *share.pool == *pool {
            return None;
        }
        let ended = self.end(now, margin, lease);
        self.share = Some(Box::new(self.nothing_of(pool.into(), lease)));
        ended
    }

    /// Ends the share: its tokens are not used any more. Returns when others may use them, if the store knows of the
    /// share.
    pub(super) fn end(&mut self, now: Instant, margin: &Margin, lease: &Lease) -> Option<(Entry, Instant)> {
        let share = self.share.take().filter(|share| !share.is_over())?;
        let per = self.spec.rate.per;
        let late = self.late(margin) + way(margin);
        let (lingering, _) = self.window.lingering(now, self.margin(margin));
        let counts = lingering > 0 || self.used(now, margin) > 0;
        let free = if counts { now + self.clears(margin) } else { now };
        let entry = entry(&share, lease.lendable(self.spec.rate.count.get()), per, late, NO_NEED);
        Some((entry, free))
    }

    pub(super) fn share_usage(&mut self, now: Instant, margin: Duration) -> Option<ShareUsage> {
        let used = self.window.used(now, margin);
        let share = self.share.as_ref()?;
        Some(usage(share, used, now, share.opens()))
    }
}
