//! What was used of a limit that a calendar renews.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{CalendarLimit, Period};
use crate::{
    clock::{Instant, nanos},
    limit::{Amount, Seq, Unit},
};

/// The API's clock and ours are taken to differ by this at most, in nanoseconds. What leaves so close to a renewal counts
/// on both sides of it. Nothing is lost by that: what is left of a limit then can still be used right after.
const SKEW: u64 = 2_000_000_000;

/// The number of periods that are kept: the system's clock may be set back into an earlier one.
const KEPT: usize = 4;

/// The number of renewals that are looked up one by one; later ones are taken to be as far apart as the last two.
const LOOKED_UP: u32 = 8;

/// How far a limit is used.
#[derive(Clone, Debug)]
pub struct CalendarCount {
    limit: CalendarLimit,
    /// When [`Instant::START`] was, in nanoseconds since 1970.
    epoch: u64,
    /// In no order.
    counts: Vec<PeriodCount>,
    /// The place of the tally that was asked for last.
    last: usize,
}

/// How far a limit is used, for people to look at.
#[derive(Clone, Debug)]
pub struct CalendarUsage {
    /// The limit.
    pub limit: CalendarLimit,
    /// Units used since it was renewed.
    pub used: u32,
    /// Until it is renewed again.
    pub renewed_in: Duration,
    /// From renewal to renewal.
    pub period: Duration,
}

/// A calendar limit as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CalendarRecord {
    /// As it is written in a configuration.
    limit: String,
    /// From when to when, in nanoseconds since 1970, how many were used.
    periods: Vec<(u64, u64, u32)>,
}

/// What was used in one period.
#[derive(Clone, Debug)]
struct PeriodCount {
    period: Period,
    used: u32,
    /// The numbers of the units that count here: from this one on,
    first: Seq,
    /// and up to, but without, this one.
    end: Seq,
    /// Charges that were taken before this period and left in it, by the first number of each.
    late: Vec<Seq>,
}

// === impl CalendarCount ===

impl CalendarCount {
    /// What the limit counts.
    pub(in crate::limit) fn unit(&self) -> Unit {
        self.limit.unit
    }

    /// Nothing used yet. `epoch` is the time since 1970 at [`Instant::START`].
    pub fn new(limit: CalendarLimit, epoch: Duration) -> Self {
        Self { limit, epoch: nanos(epoch), counts: Vec::new(), last: 0 }
    }

    /// As it is written down.
    pub fn record(&self) -> CalendarRecord {
        let used = self.counts.iter().filter(|counted| counted.used > 0);
        let periods = used.map(|PeriodCount { period, used, .. }| (period.start, period.end, *used)).collect();
        CalendarRecord { limit: self.limit.to_string(), periods }
    }

    /// As it was written down; `None` if that limit cannot be read.
    pub fn restored(record: &CalendarRecord, epoch: Duration) -> Option<Self> {
        let period = |&(start, end, used): &_| PeriodCount { used, ..PeriodCount::new(Period { start, end }) };
        let counts = record.periods.iter().take(KEPT).map(period).collect();
        Some(Self { counts, ..Self::new(record.limit.parse().ok()?, epoch) })
    }

    /// How many units a period has.
    pub fn count(&self) -> Amount {
        self.limit.count
    }

    /// What was used, under `limit`, if that is renewed at the same times.
    pub fn respecified(&self, limit: &CalendarLimit) -> Option<Self> {
        let same = CalendarLimit { count: limit.count, ..self.limit.clone() } == *limit;
        same.then(|| Self { limit: limit.clone(), ..self.clone() })
    }

    /// The system's clock was set: by what it says now, [`Instant::START`] was at `epoch`.
    pub fn set_epoch(&mut self, epoch: Duration) {
        self.epoch = nanos(epoch);
    }

    /// The first instant, not before `now`, at which `cost` more fit. What costs more than the whole limit fits one that
    /// nothing was used of.
    pub fn earliest(&mut self, now: Instant, cost: Amount) -> Instant {
        let (mut at, count) = (self.unix(now), self.limit.count);
        for _ in 0..KEPT {
            let sides = [at.saturating_sub(SKEW), at.saturating_add(SKEW)];
            let renewed = sides.into_iter().filter_map(|side| self.period_count(side).renewed_for(cost, count));
            match renewed.max() {
                Some(renewed) => at = renewed.saturating_add(SKEW),
                None => break,
            }
        }
        self.instant(at).max(now)
    }

    /// Counts `cost` units, numbered from `first`, that are taken at `now`.
    pub fn take(&mut self, now: Instant, first: Seq, cost: Amount) {
        self.near(now, |counted| counted.take(first, cost));
    }

    /// These units leave at `at`: if a renewal came since they were taken, they count after it as well.
    pub fn sent(&mut self, at: Instant, first: Seq, cost: Amount) {
        self.near(at, |counted| {
            if !counted.holds(first) {
                counted.used = counted.used.saturating_add(cost.get());
                counted.late.push(first);
            }
        });
    }

    /// These units were never sent.
    pub fn return_unused(&mut self, first: Seq, cost: Amount) {
        for counted in self.counts.iter_mut().filter(|counted| counted.holds(first)) {
            counted.used = counted.used.saturating_sub(cost.get());
            counted.late.retain(|late| *late != first);
        }
    }

    /// When a request with `ahead` cost units before it fits, if nothing leaves before `from`.
    pub fn project(&self, from: Instant, ahead: u64, cost: Amount) -> Instant {
        let (mut at, mut ahead) = (self.unix(from), ahead);
        let count = u64::from(self.limit.count.get());
        for _ in 0..LOOKED_UP {
            let covering = self.counts.iter().find(|counted| counted.period.covers(at));
            let (period, used) =
                covering.map_or_else(|| (self.limit.period(at), 0), |counted| (counted.period, counted.used));
            let room = count.saturating_sub(used.into());
            // What costs more than the whole limit takes all of one.
            if ahead + u64::from(cost.get()).min(count) <= room {
                return self.instant(at).max(from);
            }
            ahead = ahead.saturating_sub(room);
            at = period.end.saturating_add(SKEW);
        }
        let Period { start, end } = self.limit.period(at);
        self.instant(at.saturating_add((end - start).saturating_mul(ahead / count)))
    }

    /// Whether nothing that was sent counts any more.
    pub fn is_idle(&self, now: Instant) -> bool {
        let now = self.unix(now);
        self.counts.iter().all(|counted| counted.used == 0 || counted.period.end.saturating_add(SKEW) <= now)
    }

    /// How far it is used.
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

    /// The tally of the period that `at` is in, in nanoseconds since 1970.
    fn period_count(&mut self, at: u64) -> &mut PeriodCount {
        let covers = |counted: &PeriodCount| counted.period.covers(at);
        if !self.counts.get(self.last).is_some_and(covers) {
            self.last = self.counts.iter().position(covers).unwrap_or_else(|| self.open(at));
        }
        &mut self.counts[self.last]
    }

    fn open(&mut self, at: u64) -> usize {
        if self.counts.len() == KEPT {
            // One that nothing was used in tells nothing.
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

    /// When this period is over, if `cost` more do not fit into it.
    fn renewed_for(&self, cost: Amount, count: Amount) -> Option<u64> {
        let needed = u64::from(self.used) + u64::from(cost.get());
        (self.used > 0 && needed > count.get().into()).then_some(self.period.end)
    }

    fn take(&mut self, first: Seq, cost: Amount) {
        // What was taken before the renewal and left after it is used, and has no number here.
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
