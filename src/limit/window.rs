//! The promise itself: never more than N in any window W, as the API counts.
//!
//! Spacing alone cannot keep it: requests sent apart arrive closer. So every limit remembers the requests of the last
//! window, and the next may leave only when enough of them are certainly out of the window *at the API*. The API counts
//! a request somewhere between its sending and its answer, and, if the way takes at most J longer than the shortest way,
//! at most J after its sending. So "certainly out" is `W + min(sent + J, answered)`; for a strict limit, which believes
//! in no J, it is `W + answered`.
//!
//! Up to [`BUCKETS`] requests are kept one by one. Larger limits share buckets, each counted until its last request is
//! out, which errs on the safe side and costs at most 1/[`BUCKETS`] of the allowance.
//!
//! Each unit is in exactly one state (held, unanswered, answered), and every event moves exactly the units that it is
//! about. So a bucket's counters stay right however the lives of its requests overlap.

use std::{collections::VecDeque, time::Duration};

use smallvec::SmallVec;

use super::{Cost, LimitSpec, Unit};
use crate::clock::Instant;

/// How many buckets a window is kept in at most: 10 KiB of memory for a limit in full use.
const BUCKETS: u32 = 256;

/// The requests of the last window of one limit.
#[derive(Clone, Debug)]
pub struct Window {
    count: u32,
    per: Duration,
    strict: bool,
    /// In order of their first unit. Units are numbered through the whole life of a lane.
    buckets: VecDeque<Bucket>,
    /// Units that count at the moment: the sum over all buckets.
    used: u32,
    /// Units below this may have left the window already, while later events still name them. No bucket is widened over
    /// such units: their events would change somebody else's counters.
    left_below: Unit,
}

/// Units that were taken one after the other, and leave the window together.
#[derive(Clone, Debug)]
struct Bucket {
    first: Unit,
    /// How many numbers it covers from `first` on, including those of units that were given back, or never taken of this
    /// limit.
    span: u32,
    /// Units that count.
    used: u32,
    /// Of these: taken, but not on their way yet. Nobody knows when the API will count them.
    held: u32,
    /// Of these: on their way, not answered yet.
    unanswered: u32,
    last_sent: Instant,
    last_answered: Instant,
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
        }
    }

    /// The first instant from which `cost` more fit, as far as is known now: [`Instant::FAR`] if that depends on
    /// something that has no time yet, such as an answer under a strict limit.
    pub fn earliest(&mut self, now: Instant, cost: Cost, margin: Duration) -> Instant {
        if self.used == 0 {
            return now;
        }
        self.forget(now, margin);
        match self.lacking(u64::from(cost.get())) {
            0 => now,
            lacking => self.freed(lacking, margin).max(now),
        }
    }

    /// When a request with `ahead` cost units before it leaves if the last `reserve` units are spread over the time until
    /// something comes back. Nothing that comes back is lost by that.
    pub fn spread(&self, now: Instant, ahead: u64, reserve: u32, margin: Duration) -> Instant {
        let left = self.count.saturating_sub(self.used);
        let Some(last) = self.buckets.back().filter(|_| left <= reserve) else { return now };
        let since = if last.held > 0 { now } else { last.last_sent };
        let back = match self.freed(1, margin) {
            // What is not on its way yet comes back a window after it has left.
            Instant::FAR => now + self.per,
            back => back,
        };
        let place = ahead.min(left.into()) as u32 + 1;
        since + back.since(since) / (left + 1) * place
    }

    /// Counts `cost` units, numbered from `first`, as taken but not yet on their way. Units are numbered upwards.
    pub fn take(&mut self, first: Unit, cost: Cost) {
        let per_bucket = self.per_bucket();
        let (mut first, mut left) = (first, cost.get());
        self.used += left;
        while left > 0 {
            let room = self.buckets.back().and_then(|last| {
                let room = per_bucket.saturating_sub(last.used).min(left);
                (room > 0 && last.end() >= self.left_below && last.covers_up_to(first + u64::from(room)))
                    .then_some(room)
            });
            let part = room.unwrap_or_else(|| {
                self.buckets.push_back(Bucket::starting(first));
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

    /// These units, held until now, left for the API at `at`.
    pub fn sent(&mut self, first: Unit, cost: Cost, at: Instant) {
        self.each(first, cost, |bucket, units| {
            lessen(&mut bucket.held, units);
            bucket.unanswered += units;
            bucket.last_sent = bucket.last_sent.max(at);
        });
    }

    /// These units, sent until now, are not on their way after all: they are held again.
    pub fn recall(&mut self, first: Unit, cost: Cost) {
        self.each(first, cost, |bucket, units| {
            lessen(&mut bucket.unanswered, units);
            bucket.held += units;
        });
    }

    /// The API has answered these units at `at`: it cannot count them later than that. They left at `sent`, as is known
    /// now.
    pub fn answered(&mut self, first: Unit, cost: Cost, sent: Instant, at: Instant) {
        self.each(first, cost, |bucket, units| {
            lessen(&mut bucket.unanswered, units);
            bucket.last_sent = bucket.last_sent.max(sent);
            bucket.last_answered = bucket.last_answered.max(at);
        });
    }

    /// These units, held until now, will not be sent.
    pub fn give_back(&mut self, first: Unit, cost: Cost) {
        let mut freed = 0;
        self.each(first, cost, |bucket, units| {
            lessen(&mut bucket.held, units);
            lessen(&mut bucket.used, units);
            freed += units;
        });
        self.used -= freed;
        self.tidy(first, cost);
    }

    /// Another rate from here on; what was sent already stays sent.
    pub fn retune(&mut self, limit: &LimitSpec) {
        (self.count, self.per, self.strict) = (limit.rate.count.get(), limit.rate.per, limit.strict);
    }

    /// When a request with `ahead` cost units before it would fit, if only the window counted.
    pub fn project(&mut self, now: Instant, ahead: u64, cost: Cost, margin: Duration) -> Instant {
        self.forget(now, margin);
        match self.lacking(ahead + u64::from(cost.get())) {
            0 => now,
            lacking => {
                // What is sent from here on leaves the window in its turn: the pattern repeats every window.
                let (rounds, rest) = ((lacking - 1) / u64::from(self.count), (lacking - 1) % u64::from(self.count) + 1);
                let first = match self.freed(rest, margin) {
                    Instant::FAR => now + self.per,
                    at => at.max(now),
                };
                first + self.per.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX))
            }
        }
    }

    /// How many units count at `now`.
    pub fn used(&mut self, now: Instant, margin: Duration) -> u32 {
        self.forget(now, margin);
        self.used
    }

    /// How many of `units` more do not fit at the moment. What costs more than the whole limit fits an empty window.
    fn lacking(&self, units: u64) -> u64 {
        (u64::from(self.used) + units).saturating_sub(u64::from(self.count)).min(u64::from(self.used).max(units))
    }

    /// When `units` of those that count now will have left the window.
    fn freed(&self, units: u64, margin: Duration) -> Instant {
        let units = units.min(u64::from(self.used));
        let (mut leaving, mut sum, mut latest) = (SmallVec::<[(Instant, u32); 8]>::new(), 0, Instant::START);
        for bucket in &self.buckets {
            match bucket.counted_by(self.strict, margin) {
                // A request without an answer must not hold up those behind it: what is asked is when *enough* are out.
                Instant::FAR => {}
                // Nothing from here on can have been counted before those that we have.
                _ if sum >= units && bucket.last_sent >= latest => break,
                counted => {
                    leaving.push((counted, bucket.used));
                    sum += u64::from(bucket.used);
                    latest = latest.max(counted);
                }
            }
        }
        leaving.sort_unstable();
        let mut left = units;
        let last = leaving.iter().find(|(_, used)| {
            left = left.saturating_sub(u64::from(*used));
            left == 0
        });
        last.map_or(Instant::FAR, |(counted, _)| *counted + self.per)
    }

    /// How many units share a bucket.
    fn per_bucket(&self) -> u32 {
        self.count.div_ceil(BUCKETS)
    }

    fn forget(&mut self, now: Instant, margin: Duration) {
        let (strict, per) = (self.strict, self.per);
        let out = |bucket: &Bucket| match bucket.counted_by(strict, margin) {
            Instant::FAR => false,
            counted => counted + per <= now,
        };
        while let Some(front) = self.buckets.front()
            && out(front)
        {
            self.used -= front.used;
            self.left_below = self.left_below.max(front.end());
            self.buckets.pop_front();
        }
        // Something without a time stands in front: those behind it leave all the same.
        if self.buckets.len() > 1
            && self.buckets.front().is_some_and(|front| front.counted_by(strict, margin) == Instant::FAR)
        {
            let (used, left_below) = (&mut self.used, &mut self.left_below);
            self.buckets.retain(|bucket| {
                let gone = out(bucket);
                if gone {
                    *used -= bucket.used;
                    *left_below = (*left_below).max(bucket.end());
                }
                !gone
            });
        }
    }

    /// Removes the buckets that these units, which were given back, have left empty, and joins those that are nearly so:
    /// requests that are never sent leave nothing behind.
    fn tidy(&mut self, first: Unit, cost: Cost) {
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

    /// Whether the bucket at `at` may take in the next one.
    fn may_join(&self, at: usize) -> bool {
        let (earlier, later) = (&self.buckets[at], &self.buckets[at + 1]);
        earlier.used + later.used <= self.per_bucket()
            && (earlier.end() == later.first || earlier.end() >= self.left_below)
            && earlier.covers_up_to(later.end())
    }

    /// Runs `change` on every bucket that holds some of these units, with how many. Units whose bucket has left the
    /// window already concern nobody.
    fn each(&mut self, first: Unit, cost: Cost, mut change: impl FnMut(&mut Bucket, u32)) {
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

// === impl Bucket ===

impl Bucket {
    fn starting(first: Unit) -> Self {
        Self {
            first,
            span: 0,
            used: 0,
            held: 0,
            unanswered: 0,
            last_sent: Instant::START,
            last_answered: Instant::START,
        }
    }

    /// The first number behind those that it covers.
    fn end(&self) -> Unit {
        self.first + u64::from(self.span)
    }

    /// Whether it can be widened to cover all numbers below `end`.
    fn covers_up_to(&self, end: Unit) -> bool {
        u32::try_from(end - self.first).is_ok()
    }

    /// Takes in the bucket that follows. Both count until the last of their units is out.
    fn join(&mut self, later: Self) {
        self.span = (later.end() - self.first) as u32;
        self.used += later.used;
        self.held += later.held;
        self.unanswered += later.unanswered;
        self.last_sent = self.last_sent.max(later.last_sent);
        self.last_answered = self.last_answered.max(later.last_answered);
    }

    /// The last instant at which the API may have counted any of these.
    fn counted_by(&self, strict: bool, margin: Duration) -> Instant {
        let by_margin = self.last_sent + margin;
        match (self.held, self.unanswered, strict) {
            (1.., _, _) | (_, 1.., true) => Instant::FAR,
            (0, 1.., false) => by_margin,
            (0, 0, false) => by_margin.min(self.last_answered),
            (0, 0, true) => self.last_answered,
        }
    }
}

/// Takes `units` off a counter that holds at least as many.
fn lessen(counter: &mut u32, units: u32) {
    debug_assert!(*counter >= units, "{units} units leave a state that {counter} are in");
    *counter = counter.saturating_sub(units);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ONE: Cost = Cost::MIN;
    const J: Duration = Duration::from_millis(5);

    fn window(limit: &str) -> Window {
        Window::new(&limit.parse().unwrap())
    }

    fn ms(of: u64) -> Instant {
        Instant::START + Duration::from_millis(of)
    }

    fn send(window: &mut Window, unit: Unit, at: Instant) {
        window.take(unit, ONE);
        window.sent(unit, ONE, at);
    }

    #[test]
    fn the_next_waits_until_the_first_is_out_of_the_window() {
        let mut window = window("2/s");
        send(&mut window, 0, ms(0));
        send(&mut window, 1, ms(500));
        assert_eq!(window.earliest(ms(600), ONE, J), ms(1005));
        // The answer came 2 ms after sending, so 2 ms are all that the way can have taken.
        window.answered(0, ONE, ms(0), ms(2));
        assert_eq!(window.earliest(ms(600), ONE, J), ms(1002));
        assert_eq!(window.earliest(ms(1002), ONE, J), ms(1002));
    }

    #[test]
    fn a_late_answer_counts_only_as_far_as_the_margin_goes() {
        let mut window = window("1/s");
        send(&mut window, 0, ms(0));
        window.answered(0, ONE, ms(0), ms(300));
        assert_eq!(window.earliest(ms(300), ONE, J), ms(1005));
    }

    #[test]
    fn a_strict_limit_counts_from_the_answer() {
        let mut window = window("1/s strict");
        send(&mut window, 0, ms(0));
        assert_eq!(window.earliest(ms(900), ONE, J), Instant::FAR);
        window.answered(0, ONE, ms(0), ms(900));
        assert_eq!(window.earliest(ms(900), ONE, J), ms(1900));
    }

    #[test]
    fn one_hanging_request_holds_up_one_slot_only() {
        let mut window = window("2/s strict");
        send(&mut window, 0, ms(0)); // never answered
        for unit in 1..50 {
            let now = ms(unit * 1000);
            assert_eq!(window.earliest(now, ONE, J), now);
            send(&mut window, unit, now);
            window.answered(unit, ONE, now, now);
        }
        assert_eq!(window.used(ms(49_500), J), 2);
        assert!(window.buckets.len() <= 3);
    }

    #[test]
    fn a_permit_not_yet_sent_counts_without_end() {
        let mut window = window("1/s");
        window.take(0, ONE);
        assert_eq!(window.earliest(ms(60_000), ONE, J), Instant::FAR);
        window.give_back(0, ONE);
        assert_eq!(window.earliest(ms(60_000), ONE, J), ms(60_000));
    }

    #[test]
    fn a_cost_may_span_buckets_and_exceed_the_limit() {
        let mut window = window("600/s");
        let cost = Cost::new(601).unwrap();
        window.take(0, cost);
        window.sent(0, cost, ms(0));
        assert_eq!(window.used(ms(0), J), 601);
        assert_eq!(window.earliest(ms(1), Cost::new(700).unwrap(), J), ms(1005));
        window.answered(0, cost, ms(0), ms(1));
        assert_eq!(window.earliest(ms(1), ONE, J), ms(1001));
    }

    #[test]
    fn a_large_limit_stays_small() {
        let mut window = window("1000000/h");
        for unit in 0..1_000_000 {
            send(&mut window, unit, ms(unit / 1000));
        }
        assert!(window.buckets.len() <= 257);
        assert_eq!(size_of::<Bucket>(), 40);
    }

    #[test]
    fn what_is_sent_moves_nobody_elses_units() {
        // 500 share buckets of two.
        let mut window = window("500/min strict");
        window.take(0, ONE);
        window.take(1, ONE);
        // One is sent and answered while its neighbour is still being connected for, and then given back.
        window.sent(0, ONE, ms(0));
        window.answered(0, ONE, ms(0), ms(5));
        window.give_back(1, ONE);
        assert_eq!(window.used(ms(10), J), 1);
        assert_eq!(window.used(ms(60_005), J), 0);
    }

    #[test]
    fn what_dials_for_longer_than_a_window_counts_from_its_sending() {
        let mut window = window("500/s");
        window.take(0, ONE);
        window.take(1, ONE);
        window.sent(1, ONE, ms(0));
        window.answered(1, ONE, ms(0), ms(1));
        assert_eq!(window.used(ms(5000), J), 2, "one of the two may leave at any moment");
        window.sent(0, ONE, ms(5000));
        assert_eq!(window.used(ms(5999), J), 2);
        assert_eq!(window.used(ms(6005), J), 0);
    }

    #[test]
    fn what_is_never_sent_leaves_nothing_behind() {
        for (limit, rounds) in [("100/h", 9), ("5000/h", 400)] {
            let mut window = window(limit);
            send(&mut window, 0, ms(0));
            for unit in 1..100_000 {
                window.take(unit, ONE);
                window.give_back(unit, ONE);
            }
            assert_eq!(window.buckets.len(), 1, "{limit}");
            // The same with many at a time, of which every third is sent.
            for round in 0..rounds {
                let first = 100_000 + round * 30;
                (first..first + 30).for_each(|unit| window.take(unit, ONE));
                for unit in first..first + 30 {
                    if unit % 3 == 0 { window.sent(unit, ONE, ms(round)) } else { window.give_back(unit, ONE) }
                }
            }
            assert_eq!(window.used(ms(1000), J), 1 + 10 * rounds as u32, "{limit}");
            let most = 2 * (1 + 10 * rounds as usize).div_ceil(window.per_bucket() as usize) + 1;
            assert!(window.buckets.len() <= most, "{limit}: {} buckets", window.buckets.len());
        }
    }

    /// One request's life, as the window is told of it.
    #[derive(Clone, Debug)]
    struct Life {
        taken: u64,
        /// How long it is held, and how long until it is answered.
        held: u64,
        answered: u64,
        fate: Fate,
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Fate {
        Answered,
        Recalled,
        GivenBack,
        Unknown,
    }

    fn lives() -> impl Strategy<Value = Vec<Life>> {
        let fate = prop_oneof![
            5 => Just(Fate::Answered), 1 => Just(Fate::Recalled), 3 => Just(Fate::GivenBack), 1 => Just(Fate::Unknown)
        ];
        let held = prop_oneof![4 => 0u64..50, 1 => 0u64..4000];
        let life = (0u64..6000, held, 0u64..2000, fate);
        let life = life.prop_map(|(taken, held, answered, fate)| Life { taken, held, answered, fate });
        proptest::collection::vec(life, 1..300)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

        /// However the lives of requests overlap, and however they share buckets: each counts at least as long as it must,
        /// by a book that keeps every request apart, and nothing stays behind.
        #[test]
        fn every_request_counts_until_it_is_out_and_not_for_ever(
            lives in lives(), limit in prop::sample::select(&["40/s", "700/s", "700/s strict", "3000/s"][..])
        ) {
            let mut window = window(limit);
            // When something happens: taken in the order of units, everything else in any.
            let mut lives = lives;
            lives.sort_by_key(|life| life.taken);
            let mut events = Vec::new();
            for (unit, life) in lives.iter().enumerate() {
                let sent = life.taken + life.held;
                let end = sent + life.answered;
                events.push((life.taken, 0, unit));
                match life.fate {
                    Fate::Answered => events.extend([(sent, 1, unit), (end, 2, unit)]),
                    Fate::Recalled => events.extend([(sent, 1, unit), (end, 3, unit), (end + 5, 4, unit)]),
                    Fate::GivenBack => events.push((sent, 4, unit)),
                    Fate::Unknown => events.push((sent, 1, unit)),
                }
            }
            events.sort_unstable();
            // By unit: until when it counts at least; `FAR` while that is not known.
            let mut book = vec![None; lives.len()];
            for (at, event, unit) in events {
                let (now, id) = (ms(at), unit as Unit);
                let sent = lives[unit].taken + lives[unit].held;
                match event {
                    0 => {
                        window.take(id, ONE);
                        book[unit] = Some(Instant::FAR);
                    }
                    1 => {
                        window.sent(id, ONE, now);
                        book[unit] = Some(if window.strict { Instant::FAR } else { now + J + window.per });
                    }
                    2 => {
                        window.answered(id, ONE, ms(sent), now);
                        book[unit] = Some(if window.strict { now } else { now.min(ms(sent) + J) } + window.per);
                    }
                    // Not written after all, and so soon that it is still known.
                    3 if window.strict || lives[unit].answered < 1000 => {
                        window.recall(id, ONE);
                        book[unit] = Some(Instant::FAR);
                    }
                    4 if lives[unit].fate == Fate::GivenBack || window.strict || lives[unit].answered < 1000 => {
                        window.give_back(id, ONE);
                        book[unit] = None;
                    }
                    _ => {}
                }
                let counted = book.iter().flatten().filter(|until| **until > now).count();
                prop_assert!(window.used(now, J) as usize >= counted, "{} of {counted} count", window.used(now, J));
                let sum: u32 = window.buckets.iter().map(|bucket| bucket.used).sum();
                prop_assert_eq!(sum, window.used);
            }
            // Once all that has an end is over, only what was sent and never answered can still count, if strict.
            let unknown = lives.iter().filter(|life| life.fate == Fate::Unknown).count();
            let left = window.used(ms(20_000), J) as usize;
            let most = if window.strict { unknown * window.per_bucket() as usize } else { 0 };
            prop_assert!(left <= most, "{left} count for ever, and {unknown} have no end");
        }
    }
}
