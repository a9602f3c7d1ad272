//! Even spacing: the generic cell rate algorithm of `governor`, with the time passed in and decisions that can be
//! undone.
//!
//! GCRA (ITU-T I.371, annex A) remembers one number, the theoretical arrival time (TAT) of the next request. Governor
//! decides with it. This adapter owns it, so that a decision can be previewed, returned or restored.

#[cfg(test)]
mod tests;

use std::{cell::Cell, num::NonZeroU32, time::Duration};

use andante_clock::{Instant, nanos};
use governor::{
    Quota, RateLimiter, clock,
    middleware::NoOpMiddleware,
    nanos::Nanos,
    state::{NotKeyed, StateStore},
};

use super::{Amount, LONGEST_PACE, LimitSpec};

/// Slots that were due at most this long ago are still handed out one by one to waiting requests. Timers are about 1 ms
/// late, a busy machine's several; a longer burst would be more than an API expects of even spacing.
const CATCH_UP: Duration = Duration::from_millis(50);

/// Maximum reduction of the distance while missed slots are caught up: a quarter of the spacing, or this value if
/// larger.
const CLOSER: Duration = Duration::from_millis(5);

/// A missed slot waits at most this long to keep that distance: where every timer is late, slots would be lost
/// otherwise.
const SPREAD: Duration = Duration::from_millis(25);

/// Slots closer than this are always caught up: timers are about a millisecond late, and the loss would be too large.
const COARSE: Duration = Duration::from_millis(25);

/// The spacing of one limit.
#[derive(Clone, Debug)]
pub struct Gcra {
    quota: Quota,
    /// Nanoseconds from one request to the next.
    interval: u64,
    /// Nanoseconds that the last request of a burst is ahead of its time.
    tolerance: u64,
    /// When the next request is due by the rate alone; `None` before the first one.
    tat: Option<Instant>,
    /// The earliest instant for a missed slot that keeps its distance to the last taken slot.
    spread: Instant,
}

/// A cell of state that governor borrows for one decision.
struct Tat(Cell<Option<Nanos>>);

/// A clock set by the caller. An epoch of 0 makes governor's times absolute.
#[derive(Default)]
struct GivenTime(Cell<Nanos>);

// === impl Gcra ===

impl Gcra {
    /// Spacing for `limit` before the first request.
    pub fn new(limit: &LimitSpec) -> Self {
        let quota = quota(limit);
        let interval = nanos(quota.replenish_interval());
        let tolerance = interval.saturating_mul(u64::from(quota.burst_size().get() - 1));
        Self { quota, interval, tolerance, tat: None, spread: Instant::START }
    }

    /// Spacing for `limit` in the state that was stored elsewhere.
    pub fn restored(limit: &LimitSpec, tat: Option<Instant>) -> Self {
        Self { tat, ..Self::new(limit) }
    }

    /// The state, for storage elsewhere.
    pub fn tat(&self) -> Option<Instant> {
        self.tat
    }

    /// Returns true if missed slots need not be caught up: the spacing is even and coarse.
    pub fn may_keep_distance(&self) -> bool {
        self.is_even() && self.quota.replenish_interval() >= COARSE
    }

    /// Records that a request of `cost` was written only at `at`, after a connection was made. Call only for requests
    /// that keep their distance: the next one keeps it to `at`.
    pub fn sent(&mut self, at: Instant, cost: Amount) {
        self.tat = self.tat.map(|tat| tat.max(self.after(at, cost.get().into())));
    }

    /// The first instant, not before `now`, at which one more request keeps the spacing.
    pub fn earliest(&self, now: Instant) -> Instant {
        self.decide(now).map_or_else(|at| at, |_| now).max(self.spread)
    }

    /// Takes a slot that was due at `due`, considering everything it depends on. Call only when
    /// [`earliest`](Self::earliest) returns `now`.
    ///
    /// A request may cost more than the burst: it leaves like any other, and later requests wait for all of its cost.
    pub fn commit(&mut self, now: Instant, due: Instant, cost: Amount) {
        self.commit_late(now, due, Some(Duration::ZERO), cost);
    }

    /// Like [`commit`](Self::commit), for a request that waited up to `late` for something that blocked other requests
    /// too. That wait is caught up as well as the lateness of timers. With `None` nothing is caught up: the next request
    /// leaves a whole interval after this one.
    pub fn commit_late(&mut self, now: Instant, due: Instant, late: Option<Duration>, cost: Amount) {
        let matured = self.tat.zip(late).map_or(now, |(tat, late)| {
            let free = earlier(tat, self.tolerance);
            // A slot that waited only for its distance had been missed before, and still has to be caught up.
            if due <= self.spread { free } else { free.max(due).max(now - CATCH_UP - late).min(now) }
        });
        // If the request may not leave yet, charge it nevertheless: a caller's mistake cannot raise the rate.
        let tat = self.decide(matured).unwrap_or_else(|at| later(self.after(at, 1), self.tolerance));
        self.tat = Some(self.after(tat, u64::from(cost.get()) - 1));
        // A burst has no distance to keep, and a whole interval leaves nothing to catch up.
        if self.is_even() && late.is_some() {
            let interval = self.quota.replenish_interval();
            self.spread = (now + interval.saturating_sub(CLOSER.max(interval / 4))).min(tat + SPREAD);
        }
    }

    /// Undoes one [`commit`](Self::commit) of `cost`: its slots are free again. Unless that commit was the `newest`,
    /// requests that left after it keep their distance.
    pub fn return_unused(&mut self, cost: Amount, newest: bool) {
        self.tat = self.tat.map(|tat| self.before(tat, cost.get()));
        if newest {
            self.spread = Instant::START;
        } else if self.is_even() {
            self.tat = self.tat.map(|tat| tat.max(self.spread));
        }
    }

    /// Corrects a commit of `reserved` to the `used` units known at `now`. Usage beyond the reservation delays the next
    /// request.
    pub fn settle(&mut self, now: Instant, reserved: u32, used: u32) {
        self.tat = match used.saturating_sub(reserved) {
            0 => self.tat.map(|tat| self.before(tat, reserved - used)),
            beyond => Some(self.after(self.tat.unwrap_or_default().max(now), beyond.into())),
        };
    }

    /// Changes the rate from here on; sent requests stay sent.
    ///
    /// Even spacing continues at the new rate from the last request on, not from the next one.
    pub fn retune(&mut self, limit: &LimitSpec) {
        let before = std::mem::replace(self, Self::new(limit));
        (self.tat, self.spread) = (before.tat, before.spread);
        if before.is_even() && self.is_even() {
            self.tat = self.tat.map(|tat| self.after(before.before(tat, 1), 1));
            self.spread = self.spread.min(self.tat.unwrap_or_default());
        }
    }

    /// Replaces the limit `before` by `after` from `now` on, for a lane whose last request left at `last`.
    ///
    /// A pacing limit gets no fresh burst: a larger burst fills up from here on. A quota (a window longer than
    /// [`LONGEST_PACE`]) keeps its used amount.
    pub fn reconfigure(&mut self, before: &LimitSpec, after: &LimitSpec, last: Option<Instant>, now: Instant) {
        if before.burst() == NonZeroU32::MIN && after.burst() == NonZeroU32::MIN {
            return self.retune(after);
        }
        *self = Self::restored(after, self.tat);
        let Some((tat, last)) = self.tat.zip(last) else { return };
        let [old, new] = [before, after].map(|limit| nanos(limit.rate.interval()) as f64);
        let [had, has] = [before, after].map(|limit| f64::from(limit.burst().get()));
        let used = nanos(tat.since(now)) as f64 / old;
        let used = if after.rate.per <= LONGEST_PACE {
            used + has - had
        } else if used <= had {
            used.min(has)
        } else {
            used
        };
        // The last request keeps its distance, or its part of the burst.
        self.tat = Some(later(now, (used * new) as u64).max(self.after(last, 1)));
    }

    /// Charges the limit for units that were taken without it: each instant with its units, oldest first, the last at
    /// `last`. The limit did not hold for them: at most a whole burst is missing.
    pub fn charge_all(&mut self, taken: impl Iterator<Item = (Instant, u64)>, last: Option<Instant>) {
        let (Some(last), before) = (last, self.tat.unwrap_or_default()) else { return };
        let tat = taken.fold(before, |tat, (at, units)| self.after(tat.max(at), units));
        self.tat = Some(tat.min(self.after(last, self.quota.burst_size().get().into())).max(before));
    }

    /// Maximum number of requests that may have left between `from`, where the known state ends, and `until`.
    pub fn possible(&self, from: Instant, until: Instant) -> u64 {
        let unknown = until.since(self.tat.unwrap_or_default().max(from - CATCH_UP));
        nanos(unknown) / self.interval + u64::from(self.quota.burst_size().get())
    }

    /// When a request with `ahead` cost units before it would leave if only the spacing counted.
    pub fn project(&self, now: Instant, ahead: u64) -> Instant {
        let due = self.after(self.tat.unwrap_or_default().max(now), ahead);
        earlier(due, self.tolerance).max(now).max(self.spread)
    }

    /// Returns true if a fresh limiter would decide the same from now on.
    pub fn is_idle(&self, now: Instant) -> bool {
        self.tat.unwrap_or_default().max(self.spread) <= now
    }

    /// Governor's verdict on one request at `now`: the TAT after it, or the first instant at which the request may
    /// leave.
    fn decide(&self, now: Instant) -> Result<Instant, Instant> {
        let tat = Tat(Cell::new(self.tat.map(|tat| tat.as_nanos().into())));
        let limiter: RateLimiter<_, _, _, NoOpMiddleware<Nanos>> =
            RateLimiter::new(self.quota, tat, GivenTime::default());
        limiter.clock().0.set(now.as_nanos().into());
        let instant = |at: Nanos| Instant::from_nanos(at.as_u64());
        limiter.check().map_err(|not| instant(not.earliest_possible()))?;
        Ok(limiter.into_state_store().0.get().map_or(now, instant))
    }

    /// Returns true if there are no bursts.
    fn is_even(&self) -> bool {
        self.quota.burst_size() == NonZeroU32::MIN
    }

    /// The instant `units` later at the rate.
    fn after(&self, at: Instant, units: u64) -> Instant {
        later(at, self.interval.saturating_mul(units))
    }

    /// The instant `units` earlier at the rate.
    fn before(&self, at: Instant, units: u32) -> Instant {
        earlier(at, self.interval.saturating_mul(units.into()))
    }
}

fn later(at: Instant, nanos: u64) -> Instant {
    Instant::from_nanos(at.as_nanos().saturating_add(nanos))
}

fn earlier(at: Instant, nanos: u64) -> Instant {
    Instant::from_nanos(at.as_nanos().saturating_sub(nanos))
}

fn quota(limit: &LimitSpec) -> Quota {
    Quota::with_period(limit.rate.interval()).expect("intervals are never zero").allow_burst(limit.burst())
}

// === impl Tat ===

impl StateStore for Tat {
    type Key = NotKeyed;

    fn measure_and_replace<T, F, E>(&self, _: &NotKeyed, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let (outcome, tat) = decide(self.0.get())?;
        self.0.set(Some(tat));
        Ok(outcome)
    }
}

impl clock::Clock for GivenTime {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        self.0.get()
    }
}
