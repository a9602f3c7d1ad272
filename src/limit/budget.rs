//! All limits of one lane, asked together and charged together.

mod reconfigure;
#[cfg(test)]
mod tests;

use std::{num::NonZeroU32, time::Duration};

use super::{
    CalendarCount, CalendarLimit, CalendarUsage, Gcra, LONGEST_PACE, LimitSpec, Margin, MarginSpec, Window,
    charge::{Charge, Cost, Scope, Seq, Source},
    history::History,
};
use crate::clock::Instant;

/// Several limits and the margin they share.
#[derive(Clone, Debug)]
pub struct Budget {
    limits: Vec<Limit>,
    calendar: Vec<CalendarCount>,
    margin: Margin,
    next: Seq,
    /// When something was taken last.
    last: Option<Instant>,
    since: Instant,
    /// When units were taken, for limits that are added later.
    history: History,
    /// What was configured does not hold while something is known that was not.
    yields: bool,
}

/// One limit: even spacing, and the promise about every window.
#[derive(Clone, Debug)]
struct Limit {
    source: Source,
    /// What was charged before this seq was charged without it.
    since: Seq,
    spec: LimitSpec,
    gcra: Gcra,
    window: Window,
    /// When something was last taken of it.
    taken: Instant,
    /// Until then its window may lack units that left before the limit was there: it counts no more than fill it.
    lacks_until: Instant,
}

/// How far one limit is used, for people to look at.
#[derive(Clone, Debug)]
pub struct Usage {
    /// Who asks for it.
    pub source: Source,
    /// The limit.
    pub spec: LimitSpec,
    /// Cost units that count in the current window.
    pub used: u32,
    /// The margin for jitter in force.
    pub margin: Duration,
}

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
            history: History::default(),
            yields: false,
        }
    }

    /// From now on these hold as well; nothing was used of them. `epoch` is the time since 1970 at [`Instant::START`].
    pub fn with_calendar(self, calendar: &[CalendarLimit], epoch: Duration) -> Self {
        let calendar = calendar.iter().map(|limit| CalendarCount::new(limit.clone(), epoch)).collect();
        Self { calendar, ..self }
    }

    /// The system's clock was set: by what it says now, [`Instant::START`] was at `epoch` since 1970.
    pub fn set_epoch(&mut self, epoch: Duration) {
        self.calendar.iter_mut().for_each(|limit| limit.set_epoch(epoch));
    }

    /// From now on what is configured holds only until something was learned.
    pub fn yielding(self) -> Self {
        Self { yields: true, ..self }
    }

    /// Whether requests leave one by one, whatever has been saved up.
    pub fn is_even(&self) -> bool {
        self.limits.iter().any(|limit| limit.spec.burst().get() == 1)
    }

    /// The limit that `source` asks for.
    pub fn limit(&self, source: Source) -> Option<LimitSpec> {
        self.limits.iter().find(|limit| limit.source == source).map(|limit| limit.spec)
    }

    /// Cost units that count in the window of the limit that `source` asks for.
    pub fn used(&mut self, source: Source, now: Instant) -> u32 {
        let Some(limit) = self.limits.iter_mut().find(|limit| limit.source == source) else { return 0 };
        limit.window.used(now, self.margin.of(limit.spec.rate.per))
    }

    /// `source` asks for `spec` from now on. If it has asked for nothing so far, `used` units of it were used at some
    /// instant up to the one that stands beside them, for each of `before`.
    pub fn learn(&mut self, source: Source, spec: LimitSpec, before: &[(u32, Instant)]) {
        if let Some(index) = self.limits.iter().position(|limit| limit.source == source) {
            return self.retune(index, spec);
        }
        let mut limit = Limit::new(source, spec, self.next);
        // What has left keeps its distance as well.
        if let Some(last) = self.last.filter(|_| spec.burst() == NonZeroU32::MIN) {
            limit.gcra.commit(last, last, Cost::MIN);
        }
        self.limits.push(limit);
        for (used, at) in before {
            if let Some(used) = Cost::new(*used.min(&spec.rate.count.get())) {
                self.count(source, used, *at, *at);
            }
        }
    }

    /// `cost` units that nobody has taken count for `source` all the same: they left at `sent` and were answered at
    /// `answered`.
    pub fn count(&mut self, source: Source, cost: Cost, sent: Instant, answered: Instant) {
        let Some(limit) = self.limits.iter_mut().find(|limit| limit.source == source) else { return };
        // Units that no other limit knows of.
        let first = self.next;
        self.next += u64::from(cost.get());
        limit.window.take(first, cost);
        limit.window.sent(first, cost, sent);
        limit.window.answered(first, cost, sent, answered);
    }

    /// `source` asks for nothing any more.
    pub fn unlearn(&mut self, source: Source) {
        self.limits.retain(|limit| limit.source != source);
    }

    /// The first instant, not before `now`, at which every limit of `scope` has room for `cost`, as far as is known now;
    /// [`Instant::FAR`] if something that has no time yet must happen first.
    pub fn earliest(&mut self, now: Instant, cost: Cost, scope: Scope) -> Instant {
        let margin = &self.margin;
        let renewed = self.calendar.iter_mut().fold(now, |at, limit| at.max(limit.earliest(now, cost)));
        holding(&mut self.limits, self.yields, scope).fold(renewed, |at, limit| {
            let margin = margin.of(limit.spec.rate.per);
            let window = limit.window.earliest(now, cost, margin);
            let spread = limit.window.spread(now, 0, limit.reserve(), margin, limit.taken);
            at.max(limit.gcra.earliest(now)).max(window).max(spread)
        })
    }

    /// Takes `cost` from all limits of `scope` for a slot that was due at `due`. Only when
    /// [`earliest`](Self::earliest) has said `now`: a partial charge would starve requests that need only the limits that
    /// were charged.
    pub fn take(&mut self, now: Instant, due: Instant, cost: Cost, scope: Scope) -> Charge {
        let seq = self.next;
        self.next += u64::from(cost.get());
        self.last = Some(now);
        self.history.take(now, cost);
        for limit in self.limits.iter_mut().filter(|limit| scope.includes(limit.source)) {
            limit.gcra.commit(now, due, cost);
            limit.window.take(seq, cost);
            limit.taken = now;
        }
        self.calendar.iter_mut().for_each(|limit| limit.take(now, seq, cost));
        Charge { seq, cost, scope }
    }

    /// A charge is on its way since `at`.
    pub fn sent(&mut self, charge: Charge, at: Instant) {
        charged(&mut self.limits, charge).for_each(|limit| limit.window.sent(charge.seq, charge.cost, at));
        self.calendar.iter_mut().for_each(|limit| limit.sent(at, charge.seq, charge.cost));
    }

    /// A charge has been sent and will never be answered, as was decided at `at`: it may still be on its way. How long is
    /// a question of the margin; a strict limit, which believes in none, allows for the longest time that an answer has
    /// taken, or for a whole window before the first answer.
    pub fn abandoned(&mut self, charge: Charge, at: Instant) {
        for limit in charged(&mut self.limits, charge) {
            let per = limit.spec.rate.per;
            let margin = self.margin.of(per);
            let late = if limit.spec.strict { self.margin.longest().unwrap_or(per).max(margin) } else { margin };
            limit.window.answered(charge.seq, charge.cost, Instant::START, at + late);
        }
    }

    /// A charge was on its way, as it seemed, but has not been written after all. Says whether it still counts for all of its
    /// limits: otherwise it has to be given back, and taken anew.
    pub fn recall(&mut self, charge: Charge) -> bool {
        let mut counts = true;
        for limit in charged(&mut self.limits, charge) {
            counts &= limit.window.recall(charge.seq, charge.cost);
        }
        counts
    }

    /// A charge that left at `sent`, as is known now, has been answered at `at`.
    pub fn answered(&mut self, charge: Charge, sent: Instant, at: Instant) {
        let Charge { seq, cost, .. } = charge;
        charged(&mut self.limits, charge).for_each(|limit| limit.window.answered(seq, cost, sent, at));
    }

    /// A charge was never sent.
    pub fn give_back(&mut self, charge: Charge) {
        self.history.give_back(charge.cost);
        for limit in charged(&mut self.limits, charge) {
            // A slot that was over before it came back is nobody's.
            if limit.window.give_back(charge.seq, charge.cost) {
                limit.gcra.give_back(charge.cost);
            }
        }
        self.calendar.iter_mut().for_each(|limit| limit.give_back(charge.seq, charge.cost));
    }

    /// An answer's head came `took` after its request: teaches the margin.
    pub fn observe(&mut self, now: Instant, took: Duration) {
        if !self.limits.is_empty() {
            self.margin.observe(now, took);
        }
    }

    /// The API refused what was sent at `sent`: if nobody else can have used up the limit, the margin is too small.
    pub fn refused(&mut self, now: Instant, sent: Instant) {
        let Some(per) = self.limits.iter().map(|limit| limit.spec.rate.per).min() else { return };
        // For the first window the API may still be counting what somebody sent before us.
        if sent.since(self.since) >= per {
            self.margin.refused(now, sent, per);
        }
    }

    /// Another rate for the limit at `index`; what was sent already stays sent. Does nothing without such a limit.
    pub fn retune(&mut self, index: usize, spec: LimitSpec) {
        if let Some(limit) = self.limits.get_mut(index) {
            limit.spec = spec;
            limit.gcra.retune(&spec);
            limit.window.retune(&spec);
        }
    }

    /// When a request of `cost` and `scope` would leave if nothing does before `from` and then everything goes as it should.
    /// `ahead` says how many cost units wait before it for a limit.
    pub fn project(
        &mut self,
        now: Instant,
        from: Instant,
        ahead: impl Fn(Source) -> u64,
        cost: Cost,
        scope: Scope,
    ) -> Instant {
        let margin = &self.margin;
        let before = ahead(Source::Config);
        let renewed = self.calendar.iter().fold(from, |at, limit| at.max(limit.project(from, before, cost)));
        holding(&mut self.limits, self.yields, scope).fold(renewed, |at, limit| {
            let (margin, ahead) = (margin.of(limit.spec.rate.per), ahead(limit.source));
            let window = limit.window.project(now, from, ahead, cost, margin);
            let spread = limit.window.spread(now, ahead, limit.reserve(), margin, limit.taken);
            at.max(limit.gcra.project(from, ahead)).max(window).max(spread)
        })
    }

    /// Whether nothing that was sent counts for a configured limit any more.
    pub fn is_idle(&mut self, now: Instant) -> bool {
        if !self.calendar.iter().all(|limit| limit.is_idle(now)) {
            return false;
        }
        let margin = &self.margin;
        let mut configured = self.limits.iter_mut().filter(|limit| limit.source == Source::Config);
        configured.all(|limit| limit.gcra.is_idle(now) && limit.window.used(now, margin.of(limit.spec.rate.per)) == 0)
    }

    /// How far each limit is used that a calendar renews.
    pub fn calendar(&mut self, now: Instant) -> Vec<CalendarUsage> {
        self.calendar.iter_mut().map(|limit| limit.usage(now)).collect()
    }

    /// How far each limit is used.
    pub fn usage(&mut self, now: Instant) -> Vec<Usage> {
        let margin = &self.margin;
        let usage = |limit: &mut Limit| {
            let margin = margin.of(limit.spec.rate.per);
            Usage { source: limit.source, spec: limit.spec, used: limit.window.used(now, margin), margin }
        };
        self.limits.iter_mut().map(usage).collect()
    }
}

// === impl Limit ===

impl Limit {
    fn new(source: Source, spec: LimitSpec, since: Seq) -> Self {
        Self {
            source,
            since,
            spec,
            gcra: Gcra::new(&spec),
            window: Window::new(&spec),
            taken: Instant::START,
            lacks_until: Instant::START,
        }
    }

    /// How many of the last units of a window are spread until something comes back: what does not leave in a burst, if
    /// the API knows how much is left. Longer windows are allowances, and used up as they are asked for.
    fn reserve(&self) -> u32 {
        match (self.source, self.spec.burst().get()) {
            (Source::Advertised(_), burst @ 2..) if self.spec.rate.per <= LONGEST_PACE => {
                self.spec.rate.count.get() - burst
            }
            _ => 0,
        }
    }
}

/// The limits that `charge` was taken from.
fn charged(limits: &mut [Limit], charge: Charge) -> impl Iterator<Item = &mut Limit> {
    limits.iter_mut().filter(move |limit| charge.scope.includes(limit.source) && limit.since <= charge.seq)
}

/// The limits that hold for requests of `scope`: what is configured may yield to what was learned.
fn holding(limits: &mut [Limit], yields: bool, scope: Scope) -> impl Iterator<Item = &mut Limit> {
    let known = |limit: &Limit| limit.source != Source::Config && scope.includes(limit.source);
    let yields = yields && limits.iter().any(known);
    limits.iter_mut().filter(move |limit| scope.includes(limit.source) && !(yields && limit.source == Source::Config))
}
