//! All limits of one lane, asked together and charged together.

use std::{num::NonZeroU32, time::Duration};

use super::{Gcra, LimitSpec, Margin, MarginSpec, Window};
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
}

/// One limit: even spacing, and the promise about every window.
#[derive(Clone, Debug)]
struct Limit {
    spec: LimitSpec,
    gcra: Gcra,
    window: Window,
}

/// How far one limit is used, for people to look at.
#[derive(Clone, Debug)]
pub struct Usage {
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
        let limits = limits.iter().map(|spec| Limit { spec: *spec, gcra: Gcra::new(spec), window: Window::new(spec) });
        Self { limits: limits.collect(), margin: Margin::new(margin), next: 0, since: now }
    }

    /// The first instant, not before `now`, at which every limit has room for `cost`, as far as is known now;
    /// [`Instant::FAR`] if something that has no time yet must happen first.
    pub fn earliest(&mut self, now: Instant, cost: Cost) -> Instant {
        let margin = &self.margin;
        self.limits.iter_mut().fold(now, |at, limit| {
            let window = limit.window.earliest(now, cost, margin.of(limit.spec.rate.per));
            at.max(limit.gcra.earliest(now)).max(window)
        })
    }

    /// Takes `cost` from all limits. Only when [`earliest`](Self::earliest) has said `now`: a partial charge would starve
    /// requests that need only the limits that were charged.
    ///
    /// `late` is how far back a slot may have matured that is taken only now.
    pub fn take(&mut self, now: Instant, cost: Cost, late: Duration) -> Unit {
        let first = self.next;
        self.next += u64::from(cost.get());
        for limit in &mut self.limits {
            limit.gcra.commit(now, late, cost);
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
        self.limits.iter_mut().fold(now, |at, limit| {
            let window = limit.window.project(now, ahead, cost, margin.of(limit.spec.rate.per));
            at.max(limit.gcra.project(now, ahead)).max(window)
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
            Usage { spec: limit.spec, used: limit.window.used(now, margin), margin }
        };
        self.limits.iter_mut().map(usage).collect()
    }
}
