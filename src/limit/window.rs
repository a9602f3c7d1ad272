//! The promise itself: never more than N in any window W, as the API counts.
//!
//! Spacing alone cannot keep the promise: requests sent apart arrive closer. So every limit remembers the requests of
//! the last window. The next request may leave only when enough of them are certainly out of the window *at the API*.
//! The API counts a request between its sending and its response. If the way takes at most J longer than the shortest
//! way, the API counts it at most J after its sending. So "certainly out" is `W + min(sent + J, answered)`. A strict
//! limit does not trust J: there "certainly out" is `W + answered`.
//!
//! Up to [`BUCKETS`] requests are recorded one by one. Larger limits share buckets, each counted until its last request
//! is out. Buckets err on the safe side and cost at most 1/[`BUCKETS`] of the limit.
//!
//! Each unit is in exactly one state (held, unanswered, answered), and every event moves exactly its own units. So a
//! bucket's counters stay right however the lives of its requests overlap.

mod bucket;
mod lingering;
#[cfg(test)]
mod tests;

use std::{collections::VecDeque, time::Duration};

use andante_clock::Instant;
use smallvec::SmallVec;

use self::bucket::UnitBucket;
pub(super) use self::{bucket::WindowEntry, lingering::Lingering};
use super::{Amount, LimitSpec, Ready, Seq};

/// Maximum number of buckets per window: 10 KiB of memory for a limit in full use.
const BUCKETS: u32 = 256;

/// The requests of the last window of one limit.
#[derive(Clone, Debug)]
pub struct Window {
    count: u32,
    per: Duration,
    strict: bool,
    /// Buckets in the order of their first units. Units are numbered through the whole life of a lane.
    buckets: VecDeque<UnitBucket>,
    /// Units that count at the moment: the sum over all buckets.
    used: u64,
    /// Units below this may have left the window already, while later events still name them. No bucket is widened over
    /// such units: their events would change other units' counters.
    left_below: Seq,
    /// Present if the limit is shared with other processes.
    shared: Option<Box<Lingering>>,
}

// === impl Window ===

impl Window {
    /// An empty window of `limit`.
    pub fn new(limit: &LimitSpec) -> Self {
        Self {
            count: limit.rate.count.get(),
            per: limit.rate.per,
            strict: limit.strict,
            buckets: VecDeque::new(),
            used: 0,
            left_below: 0,
            shared: None,
        }
    }

    /// When `cost` more fit, as far as is known now. A response under a strict limit has no known time.
    pub fn ready(&mut self, now: Instant, cost: Amount, margin: Duration) -> Ready {
        if self.used == 0 {
            return Ready::Now;
        }
        self.forget(now, margin);
        // A request that costs more than the whole limit fits an empty window.
        match self.lacking(u64::from(cost.get())).min(self.used) {
            0 => Ready::Now,
            lacking => self.freed(lacking, margin).map_or(Ready::OnEvent, |at| Ready::from(at, now)),
        }
    }

    /// Returns true if `cost` more fit and leave more than `reserve`, even if no unit has left the window since the
    /// last look. Always false for a shared window, which must be looked at: units that left it are given back.
    pub fn has_plenty(&self, cost: Amount, reserve: u32) -> bool {
        let taken = self.used + u64::from(cost.get()) + u64::from(reserve);
        self.shared.is_none() && taken < u64::from(self.count)
    }

    /// When a request with `ahead` cost units before it leaves if the last `reserve` units are spread over the time
    /// until the next unit is free. Spreading loses no units. The last unit was taken at `taken`.
    pub fn spread(&self, now: Instant, ahead: u64, reserve: u32, margin: Duration, taken: Instant) -> Instant {
        let left = self.count.saturating_sub(u32::try_from(self.used).unwrap_or(u32::MAX));
        let Some(last) = self.buckets.back().filter(|_| left <= reserve) else { return now };
        // A held request may leave at any moment. Later requests keep their distance to when it could have left.
        let since = if last.held > 0 { taken.max(last.last_sent) } else { last.last_sent };
        // A request that is not sent yet frees its units a window after it leaves.
        let back = self.freed(1, margin).unwrap_or(now + self.per);
        let place = ahead.min(left.into()) as u32 + 1;
        since + back.since(since) / (left + 1) * place
    }

    /// Counts `cost` units, numbered from `first`, as taken but not yet sent. Units are numbered upwards.
    pub fn take(&mut self, first: Seq, cost: Amount) {
        // A request that costs more than the whole limit has at most [`BUCKETS`] buckets too.
        let per_bucket = self.per_bucket().max(cost.get().div_ceil(BUCKETS));
        let (mut first, mut left) = (first, cost.get());
        self.used += u64::from(left);
        self.shared.iter_mut().for_each(|lingering| lingering.take(left));
        while left > 0 {
            let room = self.buckets.back().and_then(|last| {
                let room = per_bucket.saturating_sub(last.used).min(left);
                (room > 0 && last.end() >= self.left_below && last.covers_up_to(first + u64::from(room)))
                    .then_some(room)
            });
            let part = room.unwrap_or_else(|| {
                if self.buckets.is_empty() {
                    // Most keyed budgets are used once.
                    self.buckets.reserve_exact(1);
                }
                self.buckets.push_back(UnitBucket::starting(first));
                left.min(per_bucket)
            });
            let bucket = self.buckets.back_mut().expect("there is one with room, or a new one");
            first += u64::from(part);
            bucket.span = (first - bucket.first) as u32;
            bucket.used += part;
            bucket.held += part;
            left -= part;
        }
    }

    /// Marks held units as sent to the API at `at`.
    pub fn sent(&mut self, first: Seq, cost: Amount, at: Instant) {
        self.each(first, cost, |bucket, units| {
            lessen(&mut bucket.held, units);
            bucket.unanswered += units;
            bucket.last_sent = bucket.last_sent.max(at);
        });
    }

    /// Marks sent units as held again because they were not sent after all. Returns true if all of them count. Units
    /// that have left the window do not count, and must be taken again before they are sent.
    pub fn recall(&mut self, first: Seq, cost: Amount) -> bool {
        let mut held = 0;
        self.each(first, cost, |bucket, units| {
            lessen(&mut bucket.unanswered, units);
            bucket.held += units;
            held += units;
        });
        held == cost.get()
    }

    /// Marks units as answered at `at`: the API cannot count them later than that. `sent` is the corrected time of
    /// sending.
    pub fn answered(&mut self, first: Seq, cost: Amount, sent: Instant, at: Instant) {
        self.each(first, cost, |bucket, units| {
            lessen(&mut bucket.unanswered, units);
            bucket.last_sent = bucket.last_sent.max(sent);
            bucket.last_answered = bucket.last_answered.max(at);
        });
    }

    /// Removes held units that will not be sent. Returns true if all of them have counted until now.
    pub fn return_unused(&mut self, first: Seq, cost: Amount) -> bool {
        let mut freed = 0;
        self.each(first, cost, |bucket, units| {
            lessen(&mut bucket.held, units);
            lessen(&mut bucket.used, units);
            freed += units;
        });
        self.freed_units(freed);
        self.tidy(first, cost);
        freed == cost.get()
    }

    /// Removes answered units that turned out to be unused.
    pub fn refund(&mut self, first: Seq, cost: Amount) {
        let mut freed = 0;
        self.each(first, cost, |bucket, units| {
            // Units forgotten since their response do not count any more.
            let units = units.min(bucket.used - bucket.held - bucket.unanswered);
            lessen(&mut bucket.used, units);
            freed += units;
        });
        self.freed_units(freed);
        self.tidy(first, cost);
    }

    /// Records that `units` fewer units count.
    fn freed_units(&mut self, units: u32) {
        self.used -= u64::from(units);
        self.shared.iter_mut().for_each(|lingering| lingering.give_back(units));
    }

    /// Changes the rate from here on; sent requests stay sent.
    pub fn retune(&mut self, limit: &LimitSpec) {
        (self.count, self.per, self.strict) = (limit.rate.count.get(), limit.rate.per, limit.strict);
    }

    /// When a request with `ahead` cost units before it would fit if only the window counted, and nothing left before `from`.
    pub fn project(&mut self, now: Instant, from: Instant, ahead: u64, cost: Amount, margin: Duration) -> Instant {
        self.forget(now, margin);
        match self.lacking(ahead + u64::from(cost.get())) {
            0 => from,
            lacking => {
                // Requests sent from here on leave the window in their turn: the pattern repeats every window. Units
                // beyond the limit are not part of the pattern.
                let beyond = self.used.saturating_sub(self.count.into());
                let lacking = lacking - beyond - 1;
                let count = u64::from(self.count.max(1));
                let (rounds, rest) = (lacking / count, lacking % count + 1);
                // Without a known time, the request takes the place of a unit that is sent from then on.
                let known = self.freed(rest + beyond, margin).filter(|_| rest <= self.used);
                let first = known.map_or(from + self.per, |at| at.max(from));
                first + self.per.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX))
            }
        }
    }

    /// Units that count at `now`.
    pub fn used(&mut self, now: Instant, margin: Duration) -> u32 {
        self.forget(now, margin);
        u32::try_from(self.used).unwrap_or(u32::MAX)
    }

    /// When the first of the units that count at `now` counts no more, and when none does; `None` if none counts, or if that
    /// depends on an answer.
    pub fn freed_at(&mut self, now: Instant, margin: Duration) -> [Option<Instant>; 2] {
        self.forget(now, margin);
        [1, self.used].map(|units| self.freed(units, margin).filter(|_| self.used > 0))
    }

    /// Forgets all units but those that are held or on their way, which count from now on as if they had left at `last` or
    /// later. Returns how many these are.
    pub fn forget_answered(&mut self, last: Instant) -> u32 {
        self.left_below = self.buckets.back().map_or(self.left_below, |last| last.end().max(self.left_below));
        self.buckets.retain_mut(|bucket| {
            bucket.used = bucket.held + bucket.unanswered;
            bucket.last_sent = bucket.last_sent.max(last);
            bucket.used > 0
        });
        self.used = self.buckets.iter().map(|bucket| u64::from(bucket.used)).sum();
        u32::try_from(self.used).unwrap_or(u32::MAX)
    }

    /// Limits this process to its share of `count` units. Units that have left the window may go to other processes
    /// `lingers` later. `per` is the window's length, including the possible difference of clocks.
    pub fn share(&mut self, count: u32, per: Duration, lingers: Duration) {
        (self.count, self.per) = (count, per);
        self.shared.get_or_insert_default().last_for(lingers);
    }

    /// Sets the number of units in the window.
    pub fn set_count(&mut self, count: u32) {
        self.count = count;
    }

    /// Number of units in the window.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Number of units that have left the window but may not go to others yet, and when the next unit may.
    pub fn lingering(&mut self, now: Instant, margin: Duration) -> (u32, Option<Instant>) {
        self.forget(now, margin);
        let next = self.freed(1, margin).filter(|_| self.used > 0);
        let Some(lingering) = &mut self.shared else { return (0, next) };
        (lingering.count(now), lingering.next_after(next))
    }

    /// Units that count at `now`, by bucket.
    pub(crate) fn record(&mut self, now: Instant, margin: Duration) -> Vec<WindowEntry> {
        self.forget(now, margin);
        self.buckets.iter().filter(|bucket| bucket.used > 0).map(UnitBucket::record).collect()
    }

    /// Counts the units of `record`, numbered from `next` on. Responses to requests that were in flight will not
    /// arrive: the API counted such a request at most `late` after it was sent.
    pub(crate) fn restore(&mut self, record: &[WindowEntry], now: Instant, late: Duration, next: &mut Seq) {
        for &WindowEntry(units, sent, answered) in record {
            let Some(cost) = Amount::new(units) else { continue };
            let sent = sent.map_or(now, |sent| sent.min(now));
            let answered = answered.unwrap_or(if self.strict { now } else { sent } + late);
            self.count_answered(*next, cost, sent, answered);
            *next += u64::from(units);
        }
    }

    /// Counts units, numbered from `first`, that were sent at `sent` and answered at `answered`.
    pub fn count_answered(&mut self, first: Seq, cost: Amount, sent: Instant, answered: Instant) {
        self.take(first, cost);
        self.sent(first, cost, sent);
        self.answered(first, cost, sent, answered);
    }

    /// Number of `units` more that do not fit at the moment.
    fn lacking(&self, units: u64) -> u64 {
        (self.used + units).saturating_sub(u64::from(self.count))
    }

    /// When `units` of the units that count now will have left the window; `None` if an event must come first.
    fn freed(&self, units: u64, margin: Duration) -> Option<Instant> {
        let units = units.min(self.used);
        let (mut leaving, mut sum, mut latest) = (SmallVec::<[(Instant, u32); 8]>::new(), 0, Instant::START);
        for bucket in &self.buckets {
            // A request without a response must not block later requests: the result is when *enough* units are out.
            let Some(counted) = bucket.counted_by(self.strict, margin) else { continue };
            // A bucket sent after the API counted all buckets found so far cannot leave before them. A later bucket can:
            // buckets are in the order of taking, not of sending.
            if sum < units || bucket.last_sent < latest {
                leaving.push((counted, bucket.used));
                sum += u64::from(bucket.used);
                latest = latest.max(counted);
            }
        }
        leaving.sort_unstable();
        let mut left = units;
        let last = leaving.iter().find(|(_, used)| {
            left = left.saturating_sub(u64::from(*used));
            left == 0
        });
        last.map(|(counted, _)| *counted + self.per)
    }

    /// Units per bucket.
    fn per_bucket(&self) -> u32 {
        self.count.div_ceil(BUCKETS)
    }

    /// Drops buckets that are out of the window. Buckets behind one that waits for an event are dropped as well.
    fn forget(&mut self, now: Instant, margin: Duration) {
        let Self { buckets, used, left_below, shared, strict, per, .. } = self;
        let mut leaves = |bucket: &UnitBucket| {
            let out = bucket.counted_by(*strict, margin).map(|counted| counted + *per).filter(|out| *out <= now);
            if let Some(out) = out {
                *used -= u64::from(bucket.used);
                *left_below = (*left_below).max(bucket.end());
                shared.iter_mut().for_each(|lingering| lingering.add(bucket.used, out));
            }
            out.is_some()
        };
        while buckets.front().is_some_and(&mut leaves) {
            buckets.pop_front();
        }
        if buckets.len() > 1 && buckets[0].counted_by(*strict, margin).is_none() {
            buckets.retain(|bucket| !leaves(bucket));
        }
    }

    /// Removes buckets that returned units have left empty, and joins nearly empty ones: requests that are never sent
    /// leave nothing behind.
    fn tidy(&mut self, first: Seq, cost: Amount) {
        let end = first + u64::from(cost.get());
        let mut at = self.buckets.partition_point(|bucket| bucket.end() <= first);
        while self.buckets.get(at).is_some_and(|bucket| bucket.first < end) {
            if self.buckets[at].used == 0 {
                self.buckets.remove(at);
            } else {
                at += 1;
            }
        }
        for at in [at, at.saturating_sub(1)] {
            if at > 0 && at < self.buckets.len() && self.may_join(at - 1) {
                let later = self.buckets.remove(at).expect("it is one of them");
                self.buckets[at - 1].join(later);
            }
        }
    }

    /// Returns true if the bucket at `at` may take in the next one.
    fn may_join(&self, at: usize) -> bool {
        let (earlier, later) = (&self.buckets[at], &self.buckets[at + 1]);
        earlier.used + later.used <= self.per_bucket()
            && (earlier.end() == later.first || earlier.end() >= self.left_below)
            && earlier.covers_up_to(later.end())
    }

    /// Runs `change` on every bucket that holds some of these units, with their number. Units whose bucket has left the
    /// window are skipped.
    fn each(&mut self, first: Seq, cost: Amount, mut change: impl FnMut(&mut UnitBucket, u32)) {
        let end = first + u64::from(cost.get());
        let start = self.buckets.partition_point(|bucket| bucket.end() <= first);
        for bucket in self.buckets.range_mut(start..) {
            let (from, to) = (bucket.first.max(first), bucket.end().min(end));
            if from >= to {
                break;
            }
            change(bucket, (to - from) as u32);
        }
    }
}

/// Subtracts `units` from a counter that holds at least as many.
fn lessen(counter: &mut u32, units: u32) {
    debug_assert!(*counter >= units, "{units} units leave a state that {counter} are in");
    *counter = counter.saturating_sub(units);
}
