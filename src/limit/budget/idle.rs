//! For how long what a budget gives may be left unused, and what it gives beside.

use std::time::Duration;

use super::{Budget, Limit};
use crate::{
    clock::Instant,
    limit::{Cost, Unit, charge::Source},
};

impl Budget {
    /// For how long a request may be left out before more than two are lost: until the next but one is due where they are spaced
    /// evenly, as what a window holds up does not come evenly, and else until what a burst leaves has come back. For ever
    /// where nothing but a calendar limits them.
    pub fn idles(&self) -> Duration {
        let bursts = self.limits.iter().filter(|limit| limit.spec.burst().get() > 1);
        let back = bursts.map(|limit| limit.spec.rate.interval().saturating_mul(limit.spec.burst().get())).min();
        let even = Some(self.spacing().saturating_mul(2)).filter(|spacing| !spacing.is_zero());
        even.into_iter().chain(back).min().unwrap_or(Duration::MAX)
    }

    /// How long it takes until what a request takes of units other than requests is there again.
    pub fn takes(&self, cost: Cost) -> Duration {
        let takes = |limit: &Limit| Some(limit.spec.rate.interval().saturating_mul(cost.of(limit.spec.unit)?.get()));
        let others = self.limits.iter().filter(|limit| limit.spec.unit != Unit::REQUESTS);
        others.filter_map(takes).min().unwrap_or_default()
    }

    /// The first instant at which what `cost` takes of these units is free, and what `kept` takes as well, as far as is configured;
    /// [`Instant::FAR`] if both never are.
    pub fn earliest_beside(&mut self, now: Instant, cost: Cost, kept: Cost, of: impl Fn(Unit) -> bool) -> Instant {
        let Self { limits, calendar, margin, .. } = self;
        let both = cost.and(&kept);
        let amount = |unit| both.of(unit).filter(|_| of(unit));
        let windows = limits.iter_mut().filter(|limit| limit.source == Source::Config);
        let windows = windows.filter_map(|limit| Some(limit.earliest_at_once(now, amount(limit.spec.unit)?, margin)));
        let renewed = calendar.iter_mut().filter_map(|limit| Some(limit.earliest(now, amount(limit.unit())?)));
        windows.chain(renewed).max().unwrap_or(now)
    }
}
