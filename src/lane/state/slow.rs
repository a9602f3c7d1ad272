//! Requests that wait for something beside their turn in the lane: they are in the way of others only as fast as that lets
//! them go.

use super::State;
use crate::{
    clock::Instant,
    lane::order::Waits,
    limit::{Source, Unit},
};

/// All that wait for narrower budgets, and for units other than requests.
pub(super) struct SlowGroups {
    /// How many requests wait.
    waiting: f64,
    /// How many of them may leave before anything is renewed: one for each thing, or what was saved up of it.
    at_once: f64,
    /// How many a second all of these let go.
    pace: f64,
}

impl SlowGroups {
    pub(super) fn new<T>(state: &State<T>, now: Instant) -> Self {
        let crowd = state.narrow.crowd();
        let (waiting, at_once, pace) = (crowd.units as f64, crowd.budgets as f64, crowd.pace as f64 / 1e6);
        let metered = state.queue.waiting(Waits::ForUnits, Unit::REQUESTS);
        let of_unit = |unit| {
            // Each takes as much of it as they do in the mean.
            let each = state.queue.waiting(Waits::ForUnits, unit) / metered;
            let rates = state.budget.rates(unit);
            let rates = rates.iter().filter(|(source, _)| *source == Source::Config).map(|(_, rate)| *rate / each);
            let pace = rates.reduce(f64::min).filter(|pace| pace.is_finite())?;
            Some((pace, (state.budget.saved(unit, now) as f64 / each).max(1.0)))
        };
        if metered == 0.0 {
            return Self { waiting, at_once, pace };
        }
        match state.policy.units().filter_map(of_unit).min_by(|one, other| one.0.total_cmp(&other.0)) {
            Some((slowest, saved)) => {
                Self { waiting: waiting + metered, at_once: at_once + saved, pace: pace + slowest }
            }
            None => Self { waiting, at_once, pace },
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0.0
    }

    /// How many requests leave until `others` have left which wait for nothing else, at so many a second together.
    pub(super) fn beside(&self, others: f64, rate: f64) -> u64 {
        if self.pace >= rate {
            return u64::MAX;
        }
        let meanwhile = self.at_once + self.pace * (others + self.at_once) / (rate - self.pace);
        (others + meanwhile.min(self.waiting)).round() as u64
    }
}
