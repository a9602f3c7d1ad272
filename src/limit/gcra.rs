//! Even spacing: the generic cell rate algorithm of `governor`, with the time passed in and decisions that can be
//! undone.
//!
//! GCRA (ITU-T I.371, annex A) remembers one number, the theoretical arrival time (TAT) of the next request. Governor
//! decides with it. This adapter owns it, so that a decision can be previewed, returned or restored.

#[cfg(test)]
mod tests;

use std::{cell::Cell, num::NonZeroU32, time::Duration};

use andante_clock::Instant;
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
    tat: Option<Nanos>,
    /// The earliest instant for a missed slot that keeps its distance to the last taken slot.
    spread: Instant,
    /// Each request leaves a whole interval after the one before: slots missed by a late timer are not caught up.
    keeps_distance: bool,
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
        Self { quota, interval, tolerance, tat: None, spread: Instant::START, keeps_distance: false }
    }

    /// Keeps the state and changes the spacing to that of `limit`.
    fn respace(&mut self, limit: &LimitSpec) {
        let Self { tat, spread, keeps_distance, .. } = *self;
        *self = Self { tat, spread, keeps_distance, ..Self::new(limit) };
    }

    /// Sets whether each request leaves a whole interval after the one before, or missed slots are caught up. Affects
    /// only even spacing with intervals of at least `COARSE`.
    pub fn keep_distance(&mut self, keeps: bool) {
        self.keeps_distance = keeps;
    }

    /// Resets the state to that before the first request.
    pub fn begin_anew(&mut self) {
        (self.tat, self.spread) = (None, Instant::START);
    }

    /// Returns true if missed slots are caught up although the spacing is coarse enough to do without.
    pub fn catches_up(&self) -> bool {
        !self.keeps_distance && self.may_keep_distance()
    }

    /// Records that a request of `cost` is written only at `at`, after a connection was made. The next request keeps
    /// its distance to `at`.
    pub fn sent(&mut self, at: Instant, cost: Amount) {
        if self.is_distant() {
            let next = at.as_nanos() + self.interval.saturating_mul(cost.get().into());
            self.tat = self.tat.map(|tat| tat.as_u64().max(next).into());
        }
    }

    /// The first instant, not before `now`, at which one more request keeps the spacing.
    pub fn earliest(&self, now: Instant) -> Instant {
        self.decide(now).map_or_else(|at| at, |_| now).max(self.spread)
    }

    /// Takes a slot that was due at `due`, considering everything it depends on. Late timers then do not push every
    /// later slot back. Call only when [`earliest`](Self::earliest) returns `now`.
    ///
    /// A request may cost more than the burst: it leaves like any other, and later requests wait for all of its cost.
    pub fn commit(&mut self, now: Instant, due: Instant, cost: Amount) {
        self.commit_late(now, due, Duration::ZERO, cost);
    }

    /// Like [`commit`](Self::commit), for a request that waited up to `late` for something that blocked other requests
    /// too. That wait is caught up as well.
    pub fn commit_late(&mut self, now: Instant, due: Instant, late: Duration, cost: Amount) {
        let matured = self.tat.filter(|_| !self.is_distant()).map_or(now, |tat| {
            let free = Instant::from_nanos(tat.as_u64().saturating_sub(self.tolerance));
            // A slot that waited only for its distance had been missed before, and still has to be caught up.
            if due <= self.spread { free } else { free.max(due).max(now - CATCH_UP - late).min(now) }
        });
        let tat = self.decide(matured).unwrap_or_else(|at| {
            // The request may not leave yet: charge it nevertheless, so that a caller's mistake cannot raise the rate.
            (at.as_nanos() + self.tolerance + self.interval).into()
        });
        self.tat = Some(tat);
        self.shift(i64::from(cost.get()) - 1);
        // A burst has no distance to keep, and a whole interval leaves nothing to catch up.
        if self.tolerance == 0 && !self.is_distant() {
            let interval = self.quota.replenish_interval();
            let distance = interval.saturating_sub(CLOSER.max(interval / 4));
            self.spread = (now + distance).min(Instant::from_nanos(tat.as_u64()) + SPREAD);
        }
    }

    /// Undoes one [`commit`](Self::commit) of `cost`: its slots are free again. Unless that commit was the `newest`,
    /// requests that left after it keep their distance.
    pub fn return_unused(&mut self, cost: Amount, newest: bool) {
        self.shift(-i64::from(cost.get()));
        if newest {
            self.spread = Instant::START;
        } else if self.is_even() {
            self.tat = self.tat.map(|tat| tat.as_u64().max(self.spread.as_nanos()).into());
        }
    }

    /// Corrects a commit of `reserved` to the `used` units known at `now`. Usage beyond the reservation delays the next
    /// request.
    pub fn settle(&mut self, now: Instant, reserved: u32, used: u32) {
        if used > reserved {
            let tat = self.tat.map_or(0, |tat| tat.as_u64()).max(now.as_nanos());
            self.tat = Some(tat.into());
        }
        self.shift(i64::from(used) - i64::from(reserved));
    }

    /// The state, for storage elsewhere.
    pub fn tat(&self) -> Option<Instant> {
        self.tat.map(|tat| Instant::from_nanos(tat.as_u64()))
    }

    /// Restores a state that was stored elsewhere.
    pub fn restore(&mut self, tat: Option<Instant>) {
        self.tat = tat.map(|at| at.as_nanos().into());
    }

    /// Changes the rate from here on; sent requests stay sent.
    ///
    /// Even spacing continues at the new rate from the last request on, not from the next one.
    pub fn retune(&mut self, limit: &LimitSpec) {
        let (even, interval) = (self.is_even(), self.interval);
        self.respace(limit);
        if even && self.is_even() {
            let tat = self.tat.map(|tat| tat.as_u64().saturating_sub(interval).saturating_add(self.interval));
            self.tat = tat.map(Into::into);
            self.spread = self.spread.min(Instant::from_nanos(tat.unwrap_or_default()));
        }
    }

    /// Replaces the limit `before` by `after` from `now` on, for a lane whose last request left at `last`.
    ///
    /// A pacing limit gets no fresh burst: a larger burst fills up from here on. A quota (a window longer than
    /// [`LONGEST_PACE`]) keeps its used amount.
    pub fn reconfigure(&mut self, before: &LimitSpec, after: &LimitSpec, last: Option<Instant>, now: Instant) {
        let (even, paces) = (NonZeroU32::MIN, after.rate.per <= LONGEST_PACE);
        if before.burst() == even && after.burst() == even {
            return self.retune(after);
        }
        self.respace(after);
        self.spread = Instant::START;
        let (Some(tat), Some(last)) = (self.tat, last) else { return };
        let (old, new) = (before.rate.interval(), after.rate.interval());
        // The used part of the burst, as time at the new rate.
        let used = u128::from(nanos(Instant::from_nanos(tat.as_u64()).since(now))) * u128::from(nanos(new))
            / u128::from(nanos(old).max(1));
        let mut used = i128::try_from(used).unwrap_or(i128::MAX);
        let burst = |limit: &LimitSpec| i128::from(limit.burst().get()) * i128::from(nanos(new));
        if paces {
            used += burst(after) - burst(before);
        } else if used <= burst(before) {
            used = used.min(burst(after));
        }
        let at = now + Duration::from_nanos(u64::try_from(used.max(0)).unwrap_or(u64::MAX));
        // The last request keeps its distance, or its part of the burst.
        self.tat = Some(at.max(last + new).as_nanos().into());
    }

    /// Charges a new limit for units taken before: each instant with its units, oldest first, the last at `last`.
    pub fn charge_all(&mut self, taken: impl Iterator<Item = (Instant, u64)>, last: Option<Instant>) {
        let Some(last) = last else { return };
        let interval = self.interval;
        let tat = taken.fold(self.tat.map_or(0, |tat| tat.as_u64()), |tat, (at, units)| {
            tat.max(at.as_nanos()).saturating_add(interval.saturating_mul(units))
        });
        // The limit did not hold yet: at most a whole burst is missing.
        let emptied = last.as_nanos().saturating_add(interval.saturating_mul(self.quota.burst_size().get().into()));
        self.tat = Some(tat.min(emptied).into());
    }

    /// Maximum number of requests that may have left between `from`, where the known state ends, and `until`.
    pub fn possible(&self, from: Instant, until: Instant) -> u64 {
        let free = self.known_from(from);
        until.as_nanos().saturating_sub(free) / self.interval + u64::from(self.quota.burst_size().get())
    }

    /// Charges `units`, but at most a burst, as if they had left right before `until`.
    pub fn presume(&mut self, units: u32, until: Instant) {
        let interval = self.interval;
        let units = units.min(self.quota.burst_size().get());
        let emptied = until.as_nanos().saturating_add(interval.saturating_mul(self.quota.burst_size().get().into()));
        let tat = self.tat.map_or(0, |tat| tat.as_u64()).max(until.as_nanos());
        let charged = tat.saturating_add(interval.saturating_mul(units.into())).min(emptied.max(tat));
        (self.tat, self.spread) = (Some(charged.into()), Instant::START);
    }

    /// When the next request was due at `from`, or could still have been caught up.
    fn known_from(&self, from: Instant) -> u64 {
        self.tat.map_or(0, |tat| tat.as_u64()).max((from - CATCH_UP).as_nanos())
    }

    /// When a request with `ahead` cost units before it would leave if only the spacing counted.
    pub fn project(&self, now: Instant, ahead: u64) -> Instant {
        let tat = self.tat.map_or(0, |tat| tat.as_u64()).max(now.as_nanos());
        let due = tat.saturating_add(ahead.saturating_mul(self.interval)).saturating_sub(self.tolerance);
        Instant::from_nanos(due).max(now).max(self.spread)
    }

    /// Returns true if a fresh limiter would decide the same from now on.
    pub fn is_idle(&self, now: Instant) -> bool {
        self.tat.is_none_or(|tat| tat.as_u64() <= now.as_nanos()) && self.spread <= now
    }

    /// Governor's verdict on one request at `now`: the TAT after it, or the first instant at which the request may
    /// leave.
    fn decide(&self, now: Instant) -> Result<Nanos, Instant> {
        let limiter: RateLimiter<_, _, _, NoOpMiddleware<Nanos>> =
            RateLimiter::new(self.quota, Tat(Cell::new(self.tat)), GivenTime::default());
        limiter.clock().0.set(now.as_nanos().into());
        match limiter.check() {
            Ok(()) => Ok(limiter.into_state_store().0.get().expect("governor stored what it allowed")),
            Err(not) => Err(Instant::from_nanos(not.earliest_possible().as_u64())),
        }
    }

    /// Returns true if there are no bursts.
    fn is_even(&self) -> bool {
        self.quota.burst_size() == NonZeroU32::MIN
    }

    fn is_distant(&self) -> bool {
        self.keeps_distance && self.may_keep_distance()
    }

    fn may_keep_distance(&self) -> bool {
        self.is_even() && self.quota.replenish_interval() >= COARSE
    }

    fn shift(&mut self, cells: i64) {
        let Some(tat) = self.tat else { return };
        let by = self.interval.saturating_mul(cells.unsigned_abs());
        let tat = if cells < 0 { tat.as_u64().saturating_sub(by) } else { tat.as_u64().saturating_add(by) };
        self.tat = Some(tat.into());
    }
}

fn quota(limit: &LimitSpec) -> Quota {
    Quota::with_period(limit.rate.interval()).expect("intervals are never zero").allow_burst(limit.burst())
}

fn nanos(of: Duration) -> u64 {
    andante_clock::nanos(of)
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
