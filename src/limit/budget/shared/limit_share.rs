//! A single limit that is shared with other processes.

use std::{fmt::Write, sync::Arc, time::Duration};

use andante_clock::Instant;
use andante_fleet::{Entry, Lease, Share, Stock, micros, stretched};

use super::{Limit, NO_NEED, ShareUsage, duration, entry, usage, way};
use crate::{Amount, LONGEST_PACE, LimitSpec, Margin, Unit};

// === impl Limit ===

impl Limit {
    /// Returns true if the limit is shared by tokens. A longer window would miss a dead member's tokens for too long.
    pub(super) fn is_short(&self) -> bool {
        self.spec.rate.per <= LONGEST_PACE
    }

    /// An empty share of the tokens in `pool`.
    pub(super) fn nothing_of(&self, pool: Arc<str>, lease: &Lease) -> Share {
        Share::new(pool, lease.lendable(self.spec.rate.count.get()), self.spec.rate.per)
    }

    /// Fits the window and the spacing to the usable units.
    pub(super) fn refit(&mut self, now: Instant, margin: &Margin, lease: &Lease) {
        let (clears, count) = (self.clears(margin), self.spec.rate.count.get());
        let Some(share) = &mut self.share else { return };
        share.set_own(lease.own(now, count, clears), count - lease.lendable(count));
        let leased = lease.holds(now);
        share.set_opens(now, lease.opens(self.spec.rate.per));
        let used = self.window.used(now, margin.of(self.spec.rate.per));
        let usable = if leased { share.usable(now, used) } else { lease.alone(now, count, clears) };
        let per = duration(stretched(micros(self.spec.rate.per)));
        self.window.share(usable, per, way(margin));
        // While no unit may be used at all, predictions are for the time after that.
        let pace = if leased || usable == 0 { share.pace() } else { usable }.clamp(1, count);
        let part = |of: Amount| {
            Amount::new((u64::from(of.get()) * u64::from(pace) / u64::from(self.spec.rate.count.get())) as u32)
        };
        // An amount that does not fit is no smaller when the limit is shared.
        let whole = self.spec.has_slack();
        let burst = self.spec.burst.map(|burst| if whole { burst } else { part(burst).unwrap_or(Amount::MIN) });
        let mut spec = LimitSpec { burst, ..self.spec };
        spec.rate.count = Amount::new(pace).unwrap_or(Amount::MIN);
        self.gcra.retune(&spec);
    }

    /// When a request with `ahead` units before it would leave if only the window counted, and none left before `from`.
    pub(in crate::budget) fn project(
        &mut self,
        now: Instant,
        from: Instant,
        ahead: u64,
        amount: Amount,
        margin: Duration,
    ) -> Instant {
        let whole = self.whole(amount);
        let Some(share) = &self.share else { return self.window.project(now, from, ahead, whole, margin) };
        // The prediction rests on the due share, not on the tokens that are here at the moment.
        let (held, pace) = (self.window.count(), share.pace());
        self.window.set_count(pace);
        let at = self.window.project(now, from, ahead, whole, margin);
        self.window.set_count(held);
        at
    }

    /// Time after which a taken unit counts for no member any more.
    pub(super) fn clears(&self, margin: &Margin) -> Duration {
        duration(stretched(micros(self.spec.rate.per))) + self.late(margin) + way(margin)
    }

    /// Returns true if the next request, as far as it is known to wait for this limit, still has to wait.
    pub(super) fn lacks(&mut self, now: Instant, margin: &Margin) -> bool {
        let Some(cost) = self.share.as_ref().and_then(|share| Amount::new(share.lacks())) else { return false };
        let (whole, used) = (self.whole(cost).get(), self.window.used(now, margin.of(self.spec.rate.per)));
        used.saturating_add(whole) > self.window.count()
    }

    /// Demand for the limit while `backlog` units wait for it.
    pub(super) fn stock(&mut self, now: Instant, backlog: u32, margin: &Margin, took: Option<Duration>) -> Stock {
        let again = took.map_or(u32::MAX, |took| self.spec.rate.per.div_duration_f64(took).ceil() as u32);
        let margin = margin.of(self.spec.rate.per);
        let (lingering, _) = self.window.lingering(now, margin);
        let cost = self.share.as_mut().map_or(0, |share| share.lacking(backlog));
        let used = self.window.used(now, margin);
        // Usage beyond reservations is requested together with the next request: otherwise no request would pay it.
        // Usage that the whole limit cannot pay waits for its window, and blocks no other member.
        let debt = match (&self.share, cost) {
            (Some(share), 1..) if used.saturating_add(cost) <= share.limit() => {
                used.saturating_sub(share.held().saturating_add(share.own()))
            }
            _ => 0,
        };
        let (cost, backlog) = (cost.saturating_add(debt), backlog.saturating_add(debt));
        let cost = self.whole(Amount::new(cost).unwrap_or(Amount::MIN)).get().min(cost);
        Stock { used, lingering, lately: 0, most: u32::MAX, backlog, again, cost }
    }

    /// Updates the pool for the lane's `name` and the limit's rank (`number`) among limits with its window. The share
    /// of another pool ends.
    pub(super) fn rename(
        &mut self,
        now: Instant,
        name: &str,
        number: usize,
        margin: &Margin,
        lease: &Lease,
    ) -> Option<(Entry, Instant)> {
        let mut pool = format!("{name}\n{}", micros(self.spec.rate.per));
        // No unit's name is a number, so pool names are unique.
        let (unit, number) =
            (Some(self.spec.unit).filter(|unit| *unit != Unit::REQUESTS), Some(number).filter(|n| *n > 0));
        unit.into_iter().for_each(|unit| _ = write!(pool, "\n{unit}"));
        number.into_iter().for_each(|number| _ = write!(pool, "\n{number}"));
        let share = self.share.as_ref()?;
        if *share.pool == *pool {
            return None;
        }
        let ended = self.end(now, margin, lease);
        self.share = Some(Box::new(self.nothing_of(pool.into(), lease)));
        ended
    }

    /// Ends the share: its tokens are not used any more. Returns when others may use them, if the store knows of the
    /// share.
    pub(super) fn end(&mut self, now: Instant, margin: &Margin, lease: &Lease) -> Option<(Entry, Instant)> {
        let share = self.share.take().filter(|share| !share.is_over())?;
        let per = self.spec.rate.per;
        let late = self.late(margin) + way(margin);
        let (lingering, _) = self.window.lingering(now, margin.of(per));
        let counts = lingering > 0 || self.window.used(now, margin.of(per)) > 0;
        let free = if counts { now + self.clears(margin) } else { now };
        let entry = entry(&share, lease.lendable(self.spec.rate.count.get()), per, late, NO_NEED);
        Some((entry, free))
    }

    pub(in crate::budget) fn share_usage(&mut self, now: Instant, margin: Duration) -> Option<ShareUsage> {
        let used = self.window.used(now, margin);
        let share = self.share.as_ref()?;
        Some(usage(share, used, now, share.opens()))
    }
}
