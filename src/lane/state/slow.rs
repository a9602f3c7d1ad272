//! Requests that wait for another limit in addition to their turn in the lane. Such requests delay others only as fast
//! as that limit admits them.

use andante_clock::Instant;
use andante_limit::{Budget, Source, Unit};
use andante_order::{Ahead, Claim, Meanwhile, Queue, Waits};
use smallvec::SmallVec;

use super::{
    State, WaitingRequest,
    sub_limits::{Drawn, HeldUp},
    turn::LineKey,
    usual::unsaid_mean,
};
use crate::request::AdmitRequest;

/// Waiting requests blocked by sub-limits, and by units other than requests.
pub(super) struct SlowGroups {
    budgets: SlowGroup,
    units: SlowGroup,
    /// Configured rates per second, of requests and of other units.
    rates: SmallVec<[(Unit, f64); 4]>,
}

/// Waiting requests blocked by one sort of limit.
#[derive(Clone, Copy, Default)]
struct SlowGroup {
    /// Number of waiting requests.
    waiting: f64,
    /// Number that may leave before any limit renews: one for each limit, or the saved-up burst.
    at_once: f64,
    /// Number admitted per second.
    pace: f64,
}

/// How to count requests that wait for something in addition to their turn, and may leave before or after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// The number that is likely to leave before it.
    Likely,
    /// Zero, and no future arrivals either: reservations do not let them leave before the request.
    Least,
}

/// The number that leaves depends on the elapsed time, and the time depends on the number: this many rounds of
/// iteration suffice.
const ROUNDS: usize = 3;

impl<T> State<T> {
    /// For each budget that a request draws on: the part of the requests ahead that leaves before it. Requests blocked
    /// by slower budgets count only as far as those admit them.
    pub(super) fn not_held_up(
        &self,
        ask: &AdmitRequest,
        drawn: &Drawn,
        ahead: &[Ahead],
        counted: Counted,
    ) -> SmallVec<[f64; 2]> {
        let budgets = drawn.numbers().iter().zip(self.sub_limits.held_up_at(drawn)).zip(ahead);
        let parts = budgets.map(|((number, (rate, held_up)), ahead)| {
            let (all, group) = (ahead.requests(), SlowGroup::held_up(held_up));
            let Some(backlog) = self.sub_limits.backlog(*number).filter(|_| held_up.requests > 0 && all > 0.0) else {
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
        let budgets = SlowGroup::held_up(state.sub_limits.held_up());
        let waiting = state.queue.waiting(Waits::ForUnits, Unit::REQUESTS, 0.0);
        let of_unit = |unit| {
            // Each takes the mean amount of the unit.
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

    /// Number of requests that leave before one that asks now, at a common `rate` per second.
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

    fn pace(&self) -> f64 {
        self.budgets.pace + self.units.pace
    }

    /// The amount of `unit` that less urgent requests take in addition to their share of it, because of their share of
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

/// The number of requests that leave before a request. All of them leave at a common `rate` per second, and requests
/// blocked by something else are admitted at `pace`. `ahead` returns the number for a wait of so many seconds, or if no
/// blocked request leaves. `None` if `pace` is so high that they are not blocked.
fn leaving(rate: f64, pace: f64, counted: Counted, ahead: impl Fn(Option<f64>) -> f64) -> Option<f64> {
    if counted == Counted::Least {
        return Some(ahead(None));
    }
    if pace >= rate {
        return None;
    }
    let mut seconds = 0.0;
    for round in 0..ROUNDS {
        // The first round assumes that the unblocked requests get only the rest of the rate.
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

    /// Number of requests that leave within this time.
    fn within(&self, seconds: f64) -> f64 {
        (self.at_once + self.pace * seconds).min(self.waiting)
    }
}
