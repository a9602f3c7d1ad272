//! Predictions: when a request will have its slot, and whether it may wait for it.

use std::time::Duration;

use andante_clock::Instant;
use andante_learn::{Learned, RouteKey};
use andante_limit::{Cost, Scope, Unit};
use andante_order::{Ahead, Turn};
use smallvec::SmallVec;

use super::{
    State,
    room::WaitingRoom,
    slow::{Counted, SlowGroups},
    sub_limits::{Drawn, SubLimits},
    turn::{LineKey, line_of},
    usual::unsaid_mean,
};
use crate::request::{AdmitRequest, Preview, PreviewDecision, Refusal};

/// A request that asks, with the inputs of its admission decision: the cost taken for it, its class, and its
/// sub-limits.
#[derive(Clone, Copy)]
pub(super) struct Asking<'a> {
    pub(super) ask: &'a AdmitRequest,
    pub(super) cost: &'a Cost,
    pub(super) line: &'a LineKey,
    pub(super) drawn: Option<&'a Drawn>,
}

/// Amounts that precede a request: at the lane's limits, in units other than requests, and at its sub-limits.
#[derive(Default)]
pub(super) struct Before {
    all: Ahead,
    of_units: Ahead,
    of_budgets: SmallVec<[Ahead; 1]>,
}

/// The expected slot of a request.
pub(super) struct Expected {
    pub(super) at: Instant,
    /// The sub-limit that opens last; `None` if the lane's own limits decide.
    last: Option<u32>,
}

impl<T> State<T> {
    /// Inputs of the admission decision. Inlined: a result returned in memory would be read before it is fully written.
    #[inline(always)]
    pub(super) fn consider(&mut self, now: Instant, ask: &AdmitRequest) -> (Option<Box<Drawn>>, Cost, LineKey) {
        // Nearly all requests draw on no sub-limit.
        let draws = ask.draws.as_ref();
        let drawn = draws.map(|draws| self.sub_limits.find(draws, &self.budget, now, self.epoch));
        let cost = self.reserve(now, ask.cost, drawn.as_deref());
        let line = line_of(&self.learned, &ask.kind, cost.is_metered(), drawn.as_deref());
        (drawn, cost, line)
    }

    /// Decides whether a request that asks now leaves, waits or is refused, and when a refused request returns. Takes
    /// nothing yet.
    pub(super) fn decide(&mut self, now: Instant, asking: Asking<'_>) -> PreviewDecision {
        if self.passes(now, &asking.ask.claim, asking.cost, asking.line, asking.drawn.map_or(&[], Drawn::numbers)) {
            return PreviewDecision::Send;
        }
        let before = self.before(asking);
        let expected = self.expected(now, asking, &before, Counted::Likely);
        match self.refusal(now, &expected, asking, &before) {
            Some(refusal) => {
                let passed = self.is_passed();
                PreviewDecision::Refuse(self.come_back(now, asking, refusal, passed))
            }
            None => {
                let ahead = before.all.part().of(self.queue.len() as u64);
                PreviewDecision::Wait { expected: expected.at, ahead: u32::try_from(ahead).unwrap_or(u32::MAX) }
            }
        }
    }

    /// The decision on a request that asked now, without a lasting effect.
    pub(crate) fn preview(&mut self, now: Instant, ask: &AdmitRequest) -> Preview {
        let (trial, returns) = (self.sub_limits.try_out(&ask.draws), self.returns.clone());
        let (drawn, cost, line) = &self.consider(now, ask);
        let decision = self.decide(now, Asking { ask, cost, line, drawn: drawn.as_deref() });
        self.returns = returns;
        let budgets =
            ask.draws.iter().flat_map(|draws| &**draws).map(|draw| self.sub_limits.usage_of(draw, now)).collect();
        self.sub_limits.end_trial(trial);
        Preview { decision, budgets }
    }

    /// Amounts that precede a request that asks now. A request that has been sent before goes to the front.
    fn before(&self, asking: Asking<'_>) -> Before {
        let Asking { ask: AdmitRequest { claim, cost: said, turn, .. }, cost, line, drawn } = asking;
        if *turn == Turn::Resent {
            return Before::default();
        }
        let at_budget = |number, backlog: &_| self.queue.ahead_at(number, backlog, claim, said);
        Before {
            all: self.queue.ahead(claim, said),
            of_units: if cost.is_metered() { self.queue.units_ahead(claim, said, line) } else { Ahead::default() },
            of_budgets: drawn.map(|drawn| self.sub_limits.ahead(drawn, at_budget)).unwrap_or_default(),
        }
    }

    /// Predicts when a request that asks now will have its slot behind `goes`, if everything goes well.
    pub(super) fn expected(&mut self, now: Instant, asking: Asking<'_>, goes: &Before, counted: Counted) -> Expected {
        let Asking { ask, cost, line: own, drawn } = asking;
        let Before { all, of_units, of_budgets } = goes;
        // Classes that pause block no others until their pause is over.
        let pauses =
            |line: &LineKey| line.paused.and_then(|kind| self.learned.pause(&kind)).is_some_and(|until| until > now);
        let before = |line: &LineKey, source| line.scope.includes(source) && (line == own || !pauses(line));
        let (slow, rates) = (SlowGroups::new(self, now), self.budget.rates(Unit::REQUESTS));
        let unsaid = |unit| unsaid_mean(&self.policy, &self.usual, unit);
        let waiting = |source, unit| {
            let units = self.queue.units(unit, |line| before(line, source));
            if unit != Unit::REQUESTS {
                // Only what takes of a unit waits for it, in an order of its own.
                let each = unsaid(unit);
                let units = units as f64 + self.queue.unsaid(unit, |line| before(line, source)) as f64 * each;
                let beside = match counted {
                    Counted::Likely if ask.turn != Turn::Resent => {
                        slow.beside_urgent(&self.queue, &ask.claim, unit, each)
                    }
                    _ => 0.0,
                };
                return of_units.part_of(unit, each).of(units as u64) + beside as u64;
            }
            let fair = all.part_of(unit, 0.0).of(units);
            let rates = rates.iter().filter(|(of, _)| *of == source).map(|(_, rate)| *rate);
            let waiting = match rates.reduce(f64::min) {
                // Requests that also wait for something else leave meanwhile only as fast as that lets them.
                Some(rate) if !slow.is_empty() => fair.min(slow.beside(&self.queue, ask, rate, counted)),
                _ => fair,
            };
            let to_come = if counted == Counted::Likely { all.to_come(units) } else { 0 };
            waiting + to_come
        };
        // A kind with a limit of its own leaves one by one.
        let of_kind = self.queue.units(Unit::REQUESTS, |line| line.paused.is_some() && line == own);
        let of_kind = all.part_of(Unit::REQUESTS, 0.0).of(of_kind);
        let slots = self.learned.slot(&ask.kind).saturating_mul(u32::try_from(of_kind).unwrap_or(u32::MAX));
        // A pause of unknown length refuses nothing.
        let held = self.known_hold_end(now);
        let from = opens(&self.learned, now, own.scope, Some(&ask.kind)).max(held) + slots;
        let at = self.budget.project(now, from, waiting, *cost, own.scope);
        match drawn {
            Some(drawn) => {
                let parts = self.not_held_up(ask, drawn, of_budgets, counted);
                let before = |budget: usize, unit| {
                    let of_budget = of_budgets.get(budget).map_or(0, |ahead| ahead.units(unit, unsaid(unit)));
                    let part = parts.get(budget).copied().unwrap_or(1.0);
                    (of_budget as f64 * part).round() as u64
                };
                match self.sub_limits.project(drawn, now, from, ask.cost, before) {
                    (later, last) if later > at => Expected { at: later, last },
                    _ => Expected { at, last: None },
                }
            }
            None => Expected { at, last: None },
        }
    }

    /// Why a request with this much `before` it may not wait for its `expected` slot.
    fn refusal(&mut self, now: Instant, expected: &Expected, asking: Asking<'_>, before: &Before) -> Option<Refusal> {
        let Asking { ask, drawn, .. } = asking;
        // The time at which a place in flight frees up is unknown, but it is not now.
        let least = if self.has_room(now) && self.places.has_place(&ask.claim) {
            Duration::ZERO
        } else {
            Duration::from_millis(1)
        };
        let wait = expected.at.since(now).max(least);
        let patience = ask.deadline.since(now).min(self.policy.max_wait);
        let patience = drawn.map_or(patience, |drawn| patience.min(SubLimits::max_wait(drawn)));
        // Refuse only if even the optimistic estimate misses the deadline.
        if wait > patience && self.expected(now, asking, before, Counted::Least).at.since(now).max(least) > patience {
            let room = expected.last.map_or(WaitingRoom::Lane, WaitingRoom::Budget);
            let ((waiting, _), rule) = (self.places(room), self.rule_of(room));
            let cap = self.learned.cap(&ask.kind).map(|renewed| renewed.since(now));
            return Some(Refusal::TooLong { waiting, rule, wait, patience, cap, retry_after: wait - patience });
        }
        self.has_no_place(now, asking, wait)
    }
}

/// When all pauses are over that stop requests of `scope` and of `kind`.
pub(super) fn opens(learned: &Learned, now: Instant, scope: Scope, kind: Option<&RouteKey>) -> Instant {
    let paused = kind.and_then(|kind| learned.pause(kind)).unwrap_or(now);
    learned.opens(now, scope).max(paused).max(now)
}
