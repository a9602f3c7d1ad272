//! Idle and spare capacity of a budget.

use std::time::Duration;

use andante_clock::Instant;

use super::{Budget, Limit};
use crate::{Cost, Ready, Unit, charge::Source};

impl Budget {
    /// Longest delay of requests that wastes at most two requests' capacity. Even spacing: until the next slot but one,
    /// as requests blocked by a window do not come evenly. Bursts: until a burst has been refilled. `Duration::MAX` if
    /// nothing but a calendar limits requests.
    pub fn idles(&self) -> Duration {
        let bursts = self.limits.iter().filter(|limit| limit.spec.burst().get() > 1);
        let back = bursts.map(|limit| limit.spec.rate.interval().saturating_mul(limit.spec.burst().get())).min();
        let even = Some(self.spacing().saturating_mul(2)).filter(|spacing| !spacing.is_zero());
        even.into_iter().chain(back).min().unwrap_or(Duration::MAX)
    }

    /// Shortest time in which the limit of a unit other than requests refills what `cost` takes of it.
    pub fn takes(&self, cost: Cost) -> Duration {
        let takes = |limit: &Limit| Some(limit.spec.rate.interval().saturating_mul(cost.of(limit.spec.unit)?.get()));
        let others = self.limits.iter().filter(|limit| limit.spec.unit != Unit::REQUESTS);
        others.filter_map(takes).min().unwrap_or_default()
    }

    /// When the configured limits of the units selected by `of` have room for both `cost` and `kept`.
    pub fn ready_beside(&mut self, now: Instant, cost: Cost, kept: Cost, of: impl Fn(Unit) -> bool) -> Ready {
        let Self { limits, calendar, margin, .. } = self;
        let both = cost.and(&kept);
        let amount = |unit| both.of(unit).filter(|_| of(unit));
        let windows = limits.iter_mut().filter(|limit| limit.source == Source::Config);
        let windows = windows.filter_map(|limit| Some(limit.ready_at_once(now, amount(limit.spec.unit)?, margin)));
        let renewed = calendar.iter_mut().filter_map(|limit| Some(limit.ready(now, amount(limit.unit())?)));
        windows.chain(renewed).max().unwrap_or(Ready::Now)
    }
}
