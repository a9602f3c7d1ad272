//! A process that restores a record never exceeds a limit, whenever the record was written and whatever was lost since.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{Cost, Limits, Scope, settle};

const ONE: Cost = Cost::MIN;
/// 2026-01-01T00:00Z.
const EPOCH: Duration = Duration::from_secs(1_767_225_600);

fn at(ms: u64) -> Instant {
    Instant::START + Duration::from_millis(ms)
}

fn limits(text: &str) -> Limits {
    let mut limits: Limits = text.parse().unwrap();
    settle(&mut limits.limits);
    limits
}

/// A budget whose long limits are persisted in blocks.
fn kept(text: &str) -> Budget {
    let Limits { limits, calendar, .. } = limits(text);
    let mut budget = Budget::new(&limits, MARGIN, Instant::START).with_calendar(&calendar, EPOCH);
    budget.set_kept(true);
    budget
}

/// The API of these tests counts at the very instant of sending.
const MARGIN: MarginSpec = MarginSpec::Fixed(Duration::ZERO);

/// A store's content, and a process that writes to it.
struct World {
    limits: &'static str,
    budget: Budget,
    stored: Vec<u8>,
    /// The store knows everything before this instant.
    stamp: Instant,
    sent: Vec<Instant>,
}

impl World {
    fn new(limits: &'static str) -> Self {
        let mut world =
            Self { limits, budget: kept(limits), stored: Vec::new(), stamp: Instant::START, sent: Vec::new() };
        world.write(Instant::START, false);
        world
    }

    fn write(&mut self, now: Instant, last: bool) {
        self.stored = serde_json::to_vec(&self.budget.record(now, last)).unwrap();
        self.stamp = now;
        self.budget.written();
    }

    /// Sends every request that may leave, with a `pause` after each.
    fn run(&mut self, from: Instant, until: Instant, pause: Duration) {
        let mut now = from;
        while now <= until {
            if self.budget.asks_for_block() {
                let stamp = self.stamp;
                self.write(now, false);
                // A block of this lane does not persist other lanes' seconds.
                self.stamp = stamp;
            }
            match self.budget.ready(now, &ONE, Scope::NONE).instant(now) {
                at if at <= now => {
                    let charge = self.budget.take(now, now, ONE, Scope::NONE);
                    self.budget.sent(charge, now);
                    // Every other request stays unanswered.
                    if self.sent.len().is_multiple_of(2) {
                        self.budget.answered(charge, now, now);
                    } else {
                        self.budget.abandoned(charge, now);
                    }
                    self.sent.push(now);
                    now = now + pause;
                }
                Instant::FAR if self.budget.asks_for_block() => unreachable!("it is written down at once"),
                Instant::FAR => {}
                at => now = at,
            }
        }
    }

    /// Starts another process at `now`. If the one before was `killed`, its actions since the last stamp are unknown.
    fn restart(&mut self, now: Instant, killed: bool) {
        let record: BudgetRecord = serde_json::from_slice(&self.stored).unwrap();
        let gap = killed.then_some(Gap { from: Some(self.stamp), until: now });
        let Limits { limits, calendar, .. } = limits(self.limits);
        self.budget = Budget::restored(&record, MARGIN, gap, now, EPOCH);
        self.budget.reconfigure(&limits, MARGIN, now);
        self.budget.reconfigure_calendar(&calendar, EPOCH);
        self.budget.set_kept(true);
    }

    /// Checks that no window of any limit holds too many requests.
    fn assert_kept(&self) {
        for limit in &limits(self.limits).limits {
            let (count, per) = (limit.rate.count.get() as usize, limit.rate.per);
            for (first, from) in self.sent.iter().enumerate() {
                let inside = self.sent[first..].iter().take_while(|at| at.since(*from) < per).count();
                assert!(inside <= count, "{inside} from {from:?} on, of {limit}");
            }
        }
    }
}

const LISTS: [&str; 8] = [
    "10/s",
    "20/10s burst 20",
    "3/s burst 3, 20/min burst 20",
    "5/s strict",
    "700/20s burst 300",
    "5/s burst 5, 40/h burst 40",
    "40/h burst 40",
    "5/s, 30/day in UTC",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 300 } else { 3000 }))]

    /// Any number of kills and clean ends, each at any time after the last write of a second.
    #[test]
    fn no_restart_exceeds_a_limit(
        list in 0..LISTS.len(), pause in 0u64..400,
        lives in proptest::collection::vec((0u64..4000, 0u64..1500, 0u64..3000, any::<bool>()), 1..5),
    ) {
        let mut world = World::new(LISTS[list]);
        let mut now = at(5);
        for (written, more, gone, killed) in lives {
            let (written, pause) = (now + Duration::from_millis(written), Duration::from_millis(pause));
            world.run(now, written, pause);
            world.write(written, false);
            let end = written + Duration::from_millis(more);
            world.run(written, end, pause);
            if !killed {
                world.write(end, true);
            }
            now = end + Duration::from_millis(gone);
            world.restart(now, killed);
        }
        world.run(now, now + Duration::from_secs(30), Duration::ZERO);
        world.assert_kept();
        prop_assert!(world.budget.calendar(now).iter().all(|usage| world.sent.len() <= usage.limit.count.get() as usize));
    }

    /// Without a gap, a restored budget behaves as before: no request leaves sooner, and none later than buckets cause.
    #[test]
    fn what_goes_on_allows_no_more_and_hardly_less(
        list in 0..LISTS.len(), pause in 0u64..400, runs in 0u64..8000, gone in 0u64..3000,
    ) {
        let mut world = World::new(LISTS[list]);
        world.run(at(5), at(5 + runs), Duration::from_millis(pause));
        world.write(at(5 + runs), false);
        let now = at(5 + runs + gone);
        let before = world.sent.len();
        let mut same = World { sent: world.sent.clone(), stored: Vec::new(), budget: world.budget.clone(), ..world };
        // A promise that was not withdrawn counts as taken: the next test covers that.
        world.write(at(5 + runs), true);
        world.restart(now, false);
        for world in [&mut world, &mut same] {
            world.run(now, now + Duration::from_secs(20), Duration::ZERO);
        }
        prop_assert!(world.sent.len() <= same.sent.len());
        for (one, other) in world.sent[before..].iter().zip(&same.sent[before..]) {
            prop_assert!(one >= other, "{one:?} sooner than {other:?}");
        }
        let lost = same.sent.len() - world.sent.len();
        prop_assert!(lost <= 1 + same.sent.len() / 50, "{lost} of {}", same.sent.len());
    }
}

#[test]
fn a_kill_costs_no_more_than_the_second_that_was_not_written() {
    let mut world = World::new("100/s");
    world.run(at(0), at(5000), Duration::ZERO);
    world.write(at(5000), false);
    world.run(at(5000), at(5900), Duration::ZERO);
    let before = world.sent.len();
    world.restart(at(6000), true);
    world.run(at(6000), at(9000), Duration::ZERO);
    assert!(world.sent[before].since(at(6000)) <= Duration::from_millis(1010), "{:?}", world.sent[before]);
    assert!(world.sent.len() - before >= 200, "{} of the 300 in the next 3 s", world.sent.len() - before);
    world.assert_kept();
}

#[test]
fn a_burst_is_not_sent_twice() {
    let mut world = World::new("100/10s burst 100");
    world.run(at(0), at(0), Duration::ZERO);
    assert_eq!(world.sent.len(), 100, "the store knows of none of them");
    world.restart(at(1000), true);
    world.run(at(1000), at(30_000), Duration::ZERO);
    assert_eq!(world.sent[100], at(11_000), "as if they had left right before the restart");
    world.assert_kept();
}

#[test]
fn each_kill_costs_one_block_of_a_long_quota_at_most() {
    for limits in ["100/s burst 100, 10000/month", "100/s burst 100, 10000/month in UTC"] {
        let mut world = World::new(limits);
        let mut now = at(0);
        for _ in 0..20 {
            world.run(now, now + Duration::from_millis(1700), Duration::from_millis(20));
            now = now + Duration::from_secs(4);
            world.restart(now, true);
        }
        let used = match &world.budget.calendar(now)[..] {
            [] => world.budget.usage(now).iter().find(|usage| usage.spec.rate.count.get() == 10_000).unwrap().used,
            [usage, ..] => usage.used,
        };
        let lost = used as usize - world.sent.len();
        assert!(world.sent.len() > 500 && lost <= 20 * 100 && lost > 0, "{lost} of {}", world.sent.len());
        world.run(now, now + Duration::from_secs(600), Duration::ZERO);
        assert!((8000..=10_000).contains(&world.sent.len()), "{limits}: {} in all", world.sent.len());
    }
}

#[test]
fn a_memory_that_is_lost_counts_as_used_up() {
    let Limits { limits, calendar, .. } = limits("10/s burst 10, 50/h burst 50, 100/day in UTC");
    let mut budget = Budget::new(&limits, MARGIN, at(0)).with_calendar(&calendar, EPOCH);
    budget.presume(Gap::lost(at(1000)));
    assert_eq!(
        budget.ready(at(1000), &ONE, Scope::NONE).instant(at(1000)),
        at(86_402_000),
        "the day after, and the clocks' difference"
    );
    assert!(budget.usage(at(1000)).iter().all(|usage| usage.used == usage.spec.rate.count.get()));
}

#[test]
fn another_configuration_goes_on_with_what_was_written_for_the_last_one() {
    let mut world = World::new("20/10s burst 20");
    world.run(at(0), at(0), Duration::ZERO);
    world.write(at(1), true);
    world.limits = "10/5s burst 10, 30/20s burst 30";
    world.restart(at(2), false);
    assert!(world.budget.ready(at(2), &ONE, Scope::NONE).instant(at(2)) >= at(5000));
}

#[test]
fn a_margin_is_remembered() {
    let mut budget = Budget::new(&limits("10/s").limits, MarginSpec::Auto, at(0));
    budget.refused(at(2010), at(2000), ONE, true, None);
    let margin = budget.usage(at(2010))[0].margin;
    let record = budget.record(at(2010), true);
    let mut restored = Budget::restored(&record, MarginSpec::Auto, None, at(3000), EPOCH);
    assert_eq!(restored.usage(at(3000))[0].margin, margin);
}
