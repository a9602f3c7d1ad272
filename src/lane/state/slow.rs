//! Requests that wait for something beside their turn in the lane: they are in the way of others only as fast as that lets
//! them go.

use smallvec::SmallVec;

use super::{
    State, WaitingRequest,
    narrow::{Drawn, HeldUp},
    turn::LineKey,
    usual::unsaid_mean,
};
use crate::{
    clock::Instant,
    lane::{
        order::{Ahead, Claim, Meanwhile, Queue, Waits},
        request::AdmitRequest,
    },
    limit::{Budget, Source, Unit},
};

/// All that wait for narrower budgets, and for units other than requests.
pub(super) struct SlowGroups {
    budgets: SlowGroup,
    units: SlowGroup,
    /// How many requests, and other units, a second what is configured allows.
    rates: SmallVec<[(Unit, f64); 4]>,
}

/// What waits for one sort of thing.
#[derive(Clone, Copy, Default)]
struct SlowGroup {
    /// How many requests wait.
    waiting: f64,
    /// How many of them may leave before anything is renewed: one for each thing, or what was saved up of it.
    at_once: f64,
    /// How many a second are let go.
    pace: f64,
}

/// How many of those are counted that wait for something beside their turn, and may leave before a request or after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// As many as are likely to leave before it.
    Likely,
    /// None, nor what is yet to come: it does not leave before this, by what is reserved.
    Least,
}

/// What leaves meanwhile depends on how long that is, and that on what leaves: so often both are computed from each other.
const ROUNDS: usize = 3;

impl<T> State<T> {
    /// Which part of what goes before a request at each budget that it draws on leaves before it: of what slower budgets hold
    /// up, no more than those let go.
    pub(super) fn not_held_up(
        &self,
        ask: &AdmitRequest,
        drawn: &Drawn,
        ahead: &[Ahead],
        counted: Counted,
    ) -> SmallVec<[f64; 2]> {
        let budgets = drawn.numbers().iter().zip(self.narrow.held_up_at(drawn)).zip(ahead);
        let parts = budgets.map(|((number, (rate, held_up)), ahead)| {
            let (all, group) = (ahead.requests(), SlowGroup::held_up(held_up));
            let Some(backlog) = self.narrow.backlog(*number).filter(|_| held_up.requests > 0 && all > 0.0) else {
                return 1.0;
            };
            let beside = |seconds: Option<f64>| {
                let budgets = seconds.map_or(0.0, |seconds| group.within(seconds));
                self.queue.slots_ahead_at(*number, backlog, &ask.claim, &ask.cost, budgets)
            };
            leaving(rate, group.pace, counted, beside).map_or(1.0, |leave| (leave / all).min(1.0))
        });
        parts.collect()
    }
}

// === impl SlowGroups ===

impl SlowGroups {
    pub(super) fn new<T>(state: &State<T>, now: Instant) -> Self {
        let budgets = SlowGroup::held_up(state.narrow.held_up());
        let waiting = state.queue.waiting(Waits::ForUnits, Unit::REQUESTS, 0.0);
        let of_unit = |unit| {
            // Each takes as much of it as they do in the mean.
            let unsaid = unsaid_mean(&state.policy, &state.usual, unit);
            let each = state.queue.waiting(Waits::ForUnits, unit, unsaid) / waiting;
            let pace = rate_of(&state.budget, unit).map(|rate| rate / each).filter(|pace| pace.is_finite())?;
            Some(SlowGroup { waiting, at_once: (state.budget.saved(unit, now) as f64 / each).max(1.0), pace })
        };
        if waiting == 0.0 {
            return Self { budgets, units: SlowGroup::default(), rates: SmallVec::new() };
        }
        let slowest = state.policy.units().filter_map(of_unit).min_by(|one, other| one.pace.total_cmp(&other.pace));
        let units = [Unit::REQUESTS].into_iter().chain(state.policy.units());
        let rates = units.filter_map(|unit| Some((unit, rate_of(&state.budget, unit)?))).collect();
        Self { budgets, units: slowest.unwrap_or_default(), rates }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.budgets.waiting + self.units.waiting == 0.0
    }

    /// How many requests leave before one that asks now, at so many a second together.
    pub(super) fn beside<T>(
        &self,
        queue: &Queue<LineKey, WaitingRequest<T>>,
        ask: &AdmitRequest,
        rate: f64,
        counted: Counted,
    ) -> u64 {
        let ahead = |seconds: Option<f64>| {
            let within = |group: &SlowGroup| seconds.map_or(0.0, |seconds| group.within(seconds));
            let meanwhile = Meanwhile { units: within(&self.units), budgets: within(&self.budgets) };
            queue.slots_ahead(&ask.claim, &ask.cost, meanwhile)
        };
        leaving(rate, self.pace(), counted, ahead).map_or(u64::MAX, |ahead| ahead.round() as u64)
    }

    /// How many requests leave before one that all go before which wait, at so many a second together.
    pub(super) fn before_the_last<T>(&self, queue: &Queue<LineKey, WaitingRequest<T>>, rate: f64) -> u64 {
        let others = queue.waiting(Waits::ForAll, Unit::REQUESTS, 0.0);
        let let_go = |seconds: f64| self.units.within(seconds) + self.budgets.within(seconds);
        let ahead = |seconds: Option<f64>| others + seconds.map_or(0.0, let_go);
        leaving(rate, self.pace(), Counted::Likely, ahead).map_or(u64::MAX, |ahead| ahead.round() as u64)
    }

    fn pace(&self) -> f64 {
        self.budgets.pace + self.units.pace
    }

    /// How much of `unit` those take that are less urgent than `claim`, beside their share of it, because of their share of
    /// the slots.
    pub(super) fn beside_urgent<T>(
        &self,
        queue: &Queue<LineKey, WaitingRequest<T>>,
        claim: &Claim,
        unit: Unit,
        unsaid: f64,
    ) -> f64 {
        let rate = |unit| self.rates.iter().find(|(of, _)| *of == unit).map(|(_, rate)| *rate);
        let Some((slots_a_second, units_a_second)) = rate(Unit::REQUESTS).zip(rate(unit)) else { return 0.0 };
        let (slots, taken) = queue.taken_beside(claim, unit, unsaid);
        taken.min(units_a_second * slots / slots_a_second)
    }
}

/// How many leave before a request where `rate` a second do together, and those that are held up by something else are let go
/// at this `pace`: `ahead` says how many if that goes on for so many seconds, or if none of them leaves. `None` if so many are
/// let go that they are not held up.
fn leaving(rate: f64, pace: f64, counted: Counted, ahead: impl Fn(Option<f64>) -> f64) -> Option<f64> {
    if counted == Counted::Least {
        return Some(ahead(None));
    }
    if pace >= rate {
        return None;
    }
    let mut seconds = 0.0;
    for round in 0..ROUNDS {
        // From the first round on as if what is let go came in proportion.
        let leave = if round == 0 { rate - pace } else { rate };
        seconds = ahead(Some(seconds)) / leave;
    }
    Some(ahead(Some(seconds)))
}

fn rate_of(budget: &Budget, unit: Unit) -> Option<f64> {
    let rates = budget.rates(unit);
    rates.iter().filter(|(source, _)| *source == Source::Config).map(|(_, rate)| *rate).reduce(f64::min)
}

// === impl SlowGroup ===

impl SlowGroup {
    fn held_up(by: HeldUp) -> Self {
        Self { waiting: by.requests as f64, at_once: by.budgets as f64, pace: by.pace as f64 / 1e6 }
    }

    /// How many leave within this time.
    fn within(&self, seconds: f64) -> f64 {
        (self.at_once + self.pace * seconds).min(self.waiting)
    }
}
