//! All limits of one lane, asked together and charged together.

use std::{num::NonZeroU32, time::Duration};

use super::{Gcra, LONGEST_PACE, LimitSpec, Margin, MarginSpec, Window};
use crate::clock::Instant;

/// What a request costs, in the limit's own units; nearly always one.
pub type Cost = NonZeroU32;

/// Numbers the cost units that a lane has handed out, through its whole life.
pub type Unit = u64;

/// Several limits and the margin they share.
#[derive(Clone, Debug)]
pub struct Budget {
    limits: Vec<Limit>,
    margin: Margin,
    next: Unit,
    since: Instant,
    /// What was configured does not hold while something is known that was not.
    yields: bool,
}

/// One limit: even spacing, and the promise about every window.
#[derive(Clone, Debug)]
struct Limit {
    source: Source,
    spec: LimitSpec,
    gcra: Gcra,
    window: Window,
}

/// Who asks for a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The configuration.
    Config,
    /// The API, of its budget with this number.
    Told(u8),
    /// What it refuses.
    Found,
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
        let limits = limits.iter().map(|spec| Limit::new(Source::Config, *spec));
        Self { limits: limits.collect(), margin: Margin::new(margin), next: 0, since: now, yields: false }
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
        let mut limit = Limit::new(source, spec);
        for (used, at) in before {
            let Some(used) = Cost::new(*used.min(&spec.rate.count.get())) else { continue };
            // Units that no other limit knows of.
            let first = self.next;
            self.next += u64::from(used.get());
            limit.window.take(first, used);
            limit.window.sent(first, used, *at);
            limit.window.answered(first, used, *at);
        }
        self.limits.push(limit);
    }

    /// `source` asks for nothing any more.
    pub fn unlearn(&mut self, source: Source) {
        self.limits.retain(|limit| limit.source != source);
    }

    /// The first instant, not before `now`, at which every limit has room for `cost`, as far as is known now;
    /// [`Instant::FAR`] if something that has no time yet must happen first.
    pub fn earliest(&mut self, now: Instant, cost: Cost) -> Instant {
        let margin = &self.margin;
        holding(&mut self.limits, self.yields).fold(now, |at, limit| {
            let margin = margin.of(limit.spec.rate.per);
            let window = limit.window.earliest(now, cost, margin);
            let spread = limit.window.spread(now, 0, limit.reserve(), margin);
            at.max(limit.gcra.earliest(now)).max(window).max(spread)
        })
    }

    /// Takes `cost` from all limits for a slot that was due at `due`. Only when [`earliest`](Self::earliest) has said
    /// `now`: a partial charge would starve requests that need only the limits that were charged.
    pub fn take(&mut self, now: Instant, due: Instant, cost: Cost) -> Unit {
        let first = self.next;
        self.next += u64::from(cost.get());
        for limit in &mut self.limits {
            limit.gcra.commit(now, due, cost);
            limit.window.take(first, cost);
        }
        first
    }

    /// What was taken as `first` is on its way since `at`.
    pub fn sent(&mut self, first: Unit, cost: Cost, at: Instant) {
        for limit in &mut self.limits {
            limit.window.sent(first, cost, at);
        }
    }

    /// What was taken as `first` has been sent and will never be answered, as was decided at `at`: it may still be on
    /// its way. How long is a question of the margin; a strict limit, which believes in none, allows for the longest
    /// time that an answer has taken, or for a whole window before the first answer.
    pub fn abandoned(&mut self, first: Unit, cost: Cost, at: Instant) {
        for limit in &mut self.limits {
            let per = limit.spec.rate.per;
            let margin = self.margin.of(per);
            let late = if limit.spec.strict { self.margin.longest().unwrap_or(per).max(margin) } else { margin };
            limit.window.answered(first, cost, at + late);
        }
    }

    /// What was taken as `first` was on its way, as it seemed, but has not been written after all.
    pub fn recall(&mut self, first: Unit, cost: Cost) {
        for limit in &mut self.limits {
            limit.window.recall(first, cost);
        }
    }

    /// What was taken as `first` and sent has been answered at `at`.
    pub fn answered(&mut self, first: Unit, cost: Cost, at: Instant) {
        for limit in &mut self.limits {
            limit.window.answered(first, cost, at);
        }
    }

    /// What was taken as `first` was never sent.
    pub fn give_back(&mut self, first: Unit, cost: Cost) {
        for limit in &mut self.limits {
            limit.gcra.give_back(cost);
            limit.window.give_back(first, cost);
        }
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

    /// When a request of `cost` with `ahead` cost units before it would leave, if everything goes as it should.
    pub fn project(&mut self, now: Instant, ahead: u64, cost: Cost) -> Instant {
        let margin = &self.margin;
        holding(&mut self.limits, self.yields).fold(now, |at, limit| {
            let margin = margin.of(limit.spec.rate.per);
            let window = limit.window.project(now, ahead, cost, margin);
            let spread = limit.window.spread(now, ahead, limit.reserve(), margin);
            at.max(limit.gcra.project(now, ahead)).max(window).max(spread)
        })
    }

    /// Whether a new budget would decide the same from now on.
    pub fn is_idle(&mut self, now: Instant) -> bool {
        let margin = &self.margin;
        self.limits
            .iter_mut()
            .all(|limit| limit.gcra.is_idle(now) && limit.window.used(now, margin.of(limit.spec.rate.per)) == 0)
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
    fn new(source: Source, spec: LimitSpec) -> Self {
        Self { source, spec, gcra: Gcra::new(&spec), window: Window::new(&spec) }
    }

    /// How many of the last units of a window are spread until something comes back: what does not leave in a burst, if
    /// the API knows how much is left. Longer windows are allowances, and used up as they are asked for.
    fn reserve(&self) -> u32 {
        match (self.source, self.spec.burst().get()) {
            (Source::Told(_), burst @ 2..) if self.spec.rate.per <= LONGEST_PACE => self.spec.rate.count.get() - burst,
            _ => 0,
        }
    }
}

/// The limits that hold: what is configured may yield to what was learned.
fn holding(limits: &mut [Limit], yields: bool) -> impl Iterator<Item = &mut Limit> {
    let yields = yields && limits.iter().any(|limit| limit.source != Source::Config);
    limits.iter_mut().filter(move |limit| !yields || limit.source != Source::Config)
}
