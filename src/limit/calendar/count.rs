//! Usage of a limit that a calendar renews.

use std::time::Duration;

use andante_clock::{Instant, nanos};
use serde::{Deserialize, Serialize};

use super::{CalendarLimit, Period};
use crate::{Amount, Ready, Seq, Unit};

/// Maximum difference between the API's clock and ours, in nanoseconds. Requests this close to a renewal count on both
/// sides of it. No units are lost by that: the rest of a limit can still be used right after.
const SKEW: u64 = 2_000_000_000;

/// Number of retained periods: the system's clock may be set back into an earlier one.
const KEPT: usize = 4;

/// Number of renewals that are looked up one by one; later ones are assumed to be as far apart as the last two.
const LOOKED_UP: u32 = 8;

/// Usage of one limit.
#[derive(Clone, Debug)]
pub struct CalendarCount {
    limit: CalendarLimit,
    /// When [`Instant::START`] was, in nanoseconds since 1970.
    epoch: u64,
    /// Counts of periods, in no order.
    counts: Vec<PeriodCount>,
    /// Index of the count that was used last.
    last: usize,
}

/// Usage of a limit, for display.
#[derive(Clone, Debug)]
pub struct CalendarUsage {
    /// The limit.
    pub limit: CalendarLimit,
    /// Units used since the last renewal.
    pub used: u32,
    /// Time until the next renewal.
    pub renewed_in: Duration,
    /// Time from renewal to renewal.
    pub period: Duration,
}

/// The persisted form of a calendar limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CalendarRecord {
    /// The limit as configured.
    limit: String,
    /// Start and end of each period, in nanoseconds since 1970, and the units used in it.
    periods: Vec<(u64, u64, u32)>,
}

/// Units used in one period.
#[derive(Clone, Debug)]
struct PeriodCount {
    period: Period,
    used: u32,
    /// Number of the first unit that counts here.
    first: Seq,
    /// Number behind the last unit that counts here.
    end: Seq,
    /// First numbers of charges that were taken before this period and left in it.
    late: Vec<Seq>,
}

// === impl CalendarCount ===

impl CalendarCount {
    /// Unit that the limit counts.
    pub(crate) fn unit(&self) -> Unit {
        self.limit.unit
    }

    /// A count with nothing used. `epoch` is the time since 1970 at [`Instant::START`].
    pub fn new(limit: CalendarLimit, epoch: Duration) -> Self {
        Self { limit, epoch: nanos(epoch), counts: Vec::new(), last: 0 }
    }

    /// The form to persist.
    pub fn record(&self) -> CalendarRecord {
        let used = self.counts.iter().filter(|counted| counted.used > 0);
        let periods = used.map(|PeriodCount { period, used, .. }| (period.start, period.end, *used)).collect();
        CalendarRecord { limit: self.limit.to_string(), periods }
    }

    /// Restores a persisted record; `None` if its limit cannot be parsed.
    pub fn restored(record: &CalendarRecord, epoch: Duration) -> Option<Self> {
        let period = |&(start, end, used): &_| PeriodCount { used, ..PeriodCount::new(Period { start, end }) };
        let counts = record.periods.iter().take(KEPT).map(period).collect();
        Some(Self { counts, ..Self::new(record.limit.parse().ok()?, epoch) })
    }

    /// Units per period.
    pub fn count(&self) -> Amount {
        self.limit.count
    }

    /// This usage under `limit`, if `limit` differs only in its count.
    pub fn respecified(&self, limit: &CalendarLimit) -> Option<Self> {
        let same = CalendarLimit { count: limit.count, ..self.limit.clone() } == *limit;
        same.then(|| Self { limit: limit.clone(), ..self.clone() })
    }

    /// Updates the epoch after the system's clock was set: [`Instant::START`] was at `epoch`.
    pub fn set_epoch(&mut self, epoch: Duration) {
        self.epoch = nanos(epoch);
    }

    /// When `cost` more fit. A request that costs more than the whole limit fits an unused period.
    pub fn ready(&mut self, now: Instant, cost: Amount) -> Ready {
        let (mut at, count) = (self.unix(now), self.limit.count);
        for _ in 0..KEPT {
            let sides = [at.saturating_sub(SKEW), at.saturating_add(SKEW)];
            let renewed = sides.into_iter().filter_map(|side| self.period_count(side).renewed_for(cost, count));
            match renewed.max() {
                Some(renewed) => at = renewed.saturating_add(SKEW),
                None => break,
            }
        }
        Ready::from(self.instant(at), now)
    }

    /// Counts `cost` units, numbered from `first`, that are taken at `now`.
    pub fn take(&mut self, now: Instant, first: Seq, cost: Amount) {
        self.near(now, |counted| counted.take(first, cost));
    }

    /// Records that units leave at `at`: if a renewal came since they were taken, they count after it as well.
    pub fn sent(&mut self, at: Instant, first: Seq, cost: Amount) {
        self.near(at, |counted| {
            if !counted.holds(first) {
                counted.used = counted.used.saturating_add(cost.get());
                counted.late.push(first);
            }
        });
    }

    /// Gives back units that were never sent.
    pub fn return_unused(&mut self, first: Seq, cost: Amount) {
        for counted in self.counts.iter_mut().filter(|counted| counted.holds(first)) {
            counted.used = counted.used.saturating_sub(cost.get());
            counted.late.retain(|late| *late != first);
        }
    }

    /// When a request with `ahead` cost units before it fits, if no request leaves before `from`.
    pub fn project(&self, from: Instant, ahead: u64, cost: Amount) -> Instant {
        let (mut at, mut ahead) = (self.unix(from), ahead);
        let count = u64::from(self.limit.count.get());
        for _ in 0..LOOKED_UP {
            let covering = self.counts.iter().find(|counted| counted.period.covers(at));
            let (period, used) =
                covering.map_or_else(|| (self.limit.period(at), 0), |counted| (counted.period, counted.used));
            let room = count.saturating_sub(used.into());
            // A request that costs more than the whole limit takes all of one period.
            if ahead + u64::from(cost.get()).min(count) <= room {
                return self.instant(at).max(from);
            }
            ahead = ahead.saturating_sub(room);
            at = period.end.saturating_add(SKEW);
        }
        let Period { start, end } = self.limit.period(at);
        self.instant(at.saturating_add((end - start).saturating_mul(ahead / count)))
    }

    /// Returns true if no sent request counts any more.
    pub fn is_idle(&self, now: Instant) -> bool {
        let now = self.unix(now);
        self.counts.iter().all(|counted| counted.used == 0 || counted.period.end.saturating_add(SKEW) <= now)
    }

    /// Usage at `now`.
    pub fn usage(&mut self, now: Instant) -> CalendarUsage {
        let at = self.unix(now);
        let &mut PeriodCount { period, used, .. } = self.period_count(at);
        CalendarUsage {
            limit: self.limit.clone(),
            used,
            renewed_in: Duration::from_nanos(period.end - at),
            period: Duration::from_nanos(period.end - period.start),
        }
    }

    /// Runs `change` on the period of `at`, and on one that begins or ends close to it.
    fn near(&mut self, at: Instant, mut change: impl FnMut(&mut PeriodCount)) {
        let at = self.unix(at);
        let earlier = self.period_count(at.saturating_sub(SKEW));
        let period = earlier.period;
        change(earlier);
        let later = self.period_count(at.saturating_add(SKEW));
        if later.period != period {
            change(later);
        }
    }

    /// The count of the period that contains `at`, in nanoseconds since 1970.
    fn period_count(&mut self, at: u64) -> &mut PeriodCount {
        let covers = |counted: &PeriodCount| counted.period.covers(at);
        if !self.counts.get(self.last).is_some_and(covers) {
            self.last = self.counts.iter().position(covers).unwrap_or_else(|| self.open(at));
        }
        &mut self.counts[self.last]
    }

    fn open(&mut self, at: u64) -> usize {
        if self.counts.len() == KEPT {
            // Replace an unused period first, then the oldest: an unused period holds no information.
            let told = |index: &usize| (self.counts[*index].used > 0, self.counts[*index].period.end);
            self.counts.swap_remove((0..KEPT).min_by_key(told).unwrap_or_default());
        }
        self.counts.push(PeriodCount::new(self.limit.period(at)));
        self.counts.len() - 1
    }

    fn unix(&self, at: Instant) -> u64 {
        self.epoch.saturating_add(at.as_nanos())
    }

    fn instant(&self, unix: u64) -> Instant {
        Instant::from_nanos(unix.saturating_sub(self.epoch))
    }
}

// === impl PeriodCount ===

impl PeriodCount {
    fn new(period: Period) -> Self {
        Self { period, used: 0, first: 0, end: 0, late: Vec::new() }
    }

    /// The end of this period, if `cost` more do not fit into it.
    fn renewed_for(&self, cost: Amount, count: Amount) -> Option<u64> {
        let needed = u64::from(self.used) + u64::from(cost.get());
        (self.used > 0 && needed > count.get().into()).then_some(self.period.end)
    }

    fn take(&mut self, first: Seq, cost: Amount) {
        // Units taken before the renewal that left after it are used, and have no numbers here.
        if self.used == 0 || self.end == 0 {
            self.first = first;
        }
        self.end = first + u64::from(cost.get());
        self.used = self.used.saturating_add(cost.get());
    }

    fn holds(&self, unit: Seq) -> bool {
        (self.first..self.end).contains(&unit) || self.late.contains(&unit)
    }
}
