//! Limits that change while requests leave.

mod forecast;

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{LONGEST_PACE, Limits};

const ONE: Cost = Cost::MIN;

fn at(ms: u64) -> Instant {
    Instant::START + Duration::from_millis(ms)
}

fn specs(text: &str) -> Vec<LimitSpec> {
    let mut limits = if text.is_empty() { Vec::new() } else { text.parse::<Limits>().unwrap().limits };
    crate::settle(&mut limits);
    limits
}

fn budget(limits: &str) -> Budget {
    Budget::new(&specs(limits), MarginSpec::Fixed(Duration::ZERO), Instant::START)
}

fn reconfigure(budget: &mut Budget, limits: &str, ms: u64) {
    budget.reconfigure(&specs(limits), MarginSpec::Fixed(Duration::ZERO), at(ms));
}

/// Sends as many requests as may leave at this very instant.
fn drain(budget: &mut Budget, ms: u64) -> u32 {
    (0..).take_while(|_| send(budget, at(ms))).count() as u32
}

fn send(budget: &mut Budget, now: Instant) -> bool {
    let leaves = budget.ready(now, &ONE, Scope::NONE).instant(now) <= now;
    if leaves {
        let charge = budget.take(now, now, ONE, Scope::NONE);
        budget.sent(charge, now);
        budget.answered(charge, now, now);
    }
    leaves
}

fn next(budget: &mut Budget, ms: u64) -> Instant {
    budget.ready(at(ms), &ONE, Scope::NONE).instant(at(ms))
}

/// Nine requests were answered and count no more; the tenth is still in flight.
#[test]
fn what_ends_is_all_there_again_but_for_what_is_under_way() {
    let mut budget = budget("10/h burst 10");
    let under_way = budget.take(at(0), at(0), ONE, Scope::NONE);
    budget.sent(under_way, at(0));
    assert_eq!(drain(&mut budget, 0), 9);
    budget.set_end(Source::Config, Some(at(5000)));
    assert_eq!(next(&mut budget, 1), at(5000));
    // Nine leave then. Later requests leave ten at a time, an hour apart, if the request in flight is answered by then.
    let ahead = |budget: &mut Budget, ahead: u64| budget.project(at(1), at(1), |_, _| ahead, ONE, Scope::NONE);
    assert_eq!([0, 8, 10, 25].map(|count| ahead(&mut budget, count)), [5000, 5000, 3_605_000, 7_205_000].map(at));
    assert_eq!(drain(&mut budget, 4999), 0);
    assert_eq!(drain(&mut budget, 5000), 9);
    budget.answered(under_way, at(0), at(6000));
    assert_eq!(next(&mut budget, 6000), at(3_605_000));
}

#[test]
fn a_lowered_limit_holds_at_once() {
    let mut budget = budget("10/s burst 10");
    assert_eq!(drain(&mut budget, 0), 10);
    reconfigure(&mut budget, "5/s burst 5", 500);
    assert_eq!(next(&mut budget, 500), at(1000), "what was sent fills the smaller window");
    assert_eq!(drain(&mut budget, 1000), 5, "at 0.5 s half of the ten were saved up again, which is a whole burst now");
}

#[test]
fn a_raised_limit_is_no_fresh_burst() {
    let mut budget = budget("10/s");
    assert_eq!(drain(&mut budget, 0), 1);
    reconfigure(&mut budget, "100/s burst 50", 200);
    // Capacity for one request was saved under the old limit.
    assert_eq!(drain(&mut budget, 200), 1);
    assert_eq!(next(&mut budget, 200), at(210), "from there on the new rate");
    // Capacity for 49 more is saved at 100/s.
    assert_eq!(drain(&mut budget, 5000), 50);
}

#[test]
fn a_raised_limit_is_used_at_once() {
    let mut budget = budget("1/s");
    assert_eq!(drain(&mut budget, 0), 1);
    reconfigure(&mut budget, "10/s", 0);
    assert_eq!(next(&mut budget, 0), at(100));
}

#[test]
fn a_raised_allowance_keeps_what_is_used_of_it() {
    let mut budget = budget("100/day");
    assert_eq!(drain(&mut budget, 0), 100);
    reconfigure(&mut budget, "150/day", 1000);
    assert_eq!(drain(&mut budget, 1000), 50);
}

#[test]
fn an_added_limit_knows_what_was_sent() {
    let mut budget = budget("10/s burst 10");
    assert_eq!((drain(&mut budget, 0), drain(&mut budget, 1000)), (10, 10));
    reconfigure(&mut budget, "10/s burst 10, 25/min", 2000);
    assert_eq!(drain(&mut budget, 2000), 5, "25 less 20");
    assert_eq!(next(&mut budget, 2000), at(60_000));
}

#[test]
fn a_limit_where_there_was_none_knows_what_was_sent() {
    let mut budget = budget("");
    (0..100).for_each(|n| assert!(send(&mut budget, at(n * 10))));
    reconfigure(&mut budget, "50/min burst 50", 1000);
    // Requests of the last half second fill the window; entries of the history span 100 ms.
    assert!(next(&mut budget, 1000) >= at(60_500) && next(&mut budget, 1000) <= at(60_600));
}

#[test]
fn a_limit_is_as_new_where_nothing_was_sent() {
    let mut budget = budget("10/s");
    reconfigure(&mut budget, "20/min burst 7", 1000);
    assert_eq!(drain(&mut budget, 1000), 7);
}

#[test]
fn a_removed_limit_holds_nothing_up() {
    let mut budget = budget("1/min");
    assert_eq!(drain(&mut budget, 0), 1);
    reconfigure(&mut budget, "", 10);
    assert_eq!(next(&mut budget, 10), at(10));
    reconfigure(&mut budget, "1/min", 20);
    assert_eq!(next(&mut budget, 20), at(60_000), "and one that comes back remembers");
}

#[test]
fn a_calendar_limit_keeps_what_was_used_of_it() {
    let limits = |text: &str| text.parse::<Limits>().unwrap().calendar;
    // 01:10 in the morning.
    let epoch = Duration::from_secs(100 * 86_400 + 4200);
    let mut budget = budget("").with_calendar(&limits("3/day in UTC"), epoch);
    assert_eq!(drain(&mut budget, 0), 3);
    budget.reconfigure_calendar(&limits("5/day in UTC"), epoch);
    assert_eq!(drain(&mut budget, 1000), 2);
    budget.reconfigure_calendar(&limits("6/h in UTC"), epoch);
    assert_eq!(drain(&mut budget, 2000), 1, "one that is new knows of the other five");
    assert!(next(&mut budget, 2000) >= at(50 * 60_000));
}

#[test]
fn what_is_under_way_is_settled_with_the_new_limits() {
    let mut budget = budget("10/s");
    let [held, sent] = [0, 100].map(|ms| budget.take(at(ms), at(ms), ONE, Scope::NONE));
    budget.sent(sent, at(100));
    reconfigure(&mut budget, "2/min burst 2 strict", 150);
    assert_eq!(next(&mut budget, 150), Instant::FAR, "neither has a time that counts under a strict limit");
    budget.return_unused(held);
    assert_eq!(next(&mut budget, 150), at(150));
    assert!(send(&mut budget, at(150)));
    budget.answered(sent, at(100), at(300));
    assert_eq!(next(&mut budget, 300), at(60_150));
}

#[test]
fn what_was_learned_stays() {
    let mut budget = budget("10/s");
    let learned: LimitSpec = "3/min burst 3".parse().unwrap();
    budget.learn(Source::Estimated, learned, &[]);
    assert_eq!((drain(&mut budget, 0), drain(&mut budget, 200), drain(&mut budget, 400)), (1, 1, 1));
    reconfigure(&mut budget, "20/s", 500);
    assert_eq!(budget.limit(Source::Estimated), Some(learned));
    assert_eq!(next(&mut budget, 500), at(60_000));
}

#[test]
fn what_another_lane_has_sent_counts_where_its_requests_go_now() {
    let (mut one, mut other) = (budget("10/min burst 10"), budget("100/s burst 100"));
    assert_eq!((drain(&mut one, 0), drain(&mut other, 1000)), (10, 100));
    reconfigure(&mut one, "25/min burst 25", 2000);
    one.absorb(&other, Instant::START, at(2000));
    assert_eq!(next(&mut one, 2000), at(61_000), "more than 25 of 110 left at 1 s");
}

/// Limits `count/per`, with or without a burst.
fn any_limits() -> impl Strategy<Value = Vec<LimitSpec>> {
    let one = |per: &'static str| {
        let limit = (1u32..30, 1u32..30, any::<bool>());
        proptest::option::of(limit.prop_map(move |(count, burst, bursts)| {
            let burst = if bursts { format!(" burst {}", burst.min(count)) } else { String::new() };
            format!("{count}/{per}{burst}")
        }))
    };
    [one("1s"), one("2s"), one("10s"), one("2h")].prop_map(|limits| {
        let mut limits: Vec<LimitSpec> = limits.into_iter().flatten().map(|text| text.parse().unwrap()).collect();
        crate::settle(&mut limits);
        limits
    })
}

proptest! {
    /// Under any earlier limits and departures, a request leaves only if the window of each current limit has room for
    /// it. So no window since a change has more than its limit. A window that spans a change has more only if it had
    /// more before.
    #[test]
    fn no_window_has_more_than_the_limits_that_hold(
        phases in proptest::collection::vec((any_limits(), 0u64..12_000, proptest::collection::vec(0u64..900, 1..60)), 2..6),
    ) {
        let mut budget = budget("");
        let (mut now, mut sent) = (Instant::START, Vec::<Instant>::new());
        for (limits, pause, gaps) in phases {
            now = now + Duration::from_millis(pause);
            budget.reconfigure(&limits, MarginSpec::Fixed(Duration::ZERO), now);
            let longest = limits.iter().map(|limit| limit.rate.per).max().unwrap_or_default();
            for gap in gaps {
                now = now + Duration::from_millis(gap);
                let at = budget.ready(now, &ONE, Scope::NONE).instant(now);
                prop_assert!(at <= now + longest, "held up for longer than the longest window");
                // Far slots are skipped, so that long windows are tested in the middle of their time.
                if at.since(now) > Duration::from_secs(30) {
                    continue;
                }
                now = at;
                prop_assert!(send(&mut budget, now));
                sent.push(now);
                for limit in &limits {
                    let counts = sent.iter().filter(|sent| **sent + limit.rate.per > now).count();
                    prop_assert!(counts <= limit.rate.count.get() as usize, "{} in a window of {}", counts, limit);
                }
            }
        }
    }

    /// Without further events, `Ready::At` names the first instant with room, for windows, spacing and calendars.
    #[test]
    fn known_instant_is_the_first_with_room(
        limits in any_limits(), renewed in proptest::option::of(1u32..9), gaps in proptest::collection::vec(0u64..900, 1..60),
    ) {
        let calendar: Vec<CalendarLimit> =
            renewed.into_iter().map(|count| format!("{count}/min in UTC").parse().unwrap()).collect();
        let epoch = Duration::from_secs(100 * 86_400 + 30);
        let mut budget =
            Budget::new(&limits, MarginSpec::Fixed(Duration::ZERO), Instant::START).with_calendar(&calendar, epoch);
        let mut now = Instant::START;
        for gap in gaps {
            now = now + Duration::from_millis(gap);
            match budget.ready(now, &ONE, Scope::NONE) {
                Ready::Now => prop_assert!(send(&mut budget, now)),
                Ready::At(at) => {
                    prop_assert!(at > now);
                    let mut later = budget.clone();
                    let before = at - Duration::from_nanos(1);
                    prop_assert_ne!(later.ready(before, &ONE, Scope::NONE), Ready::Now, "1 ns before");
                    prop_assert_eq!(later.ready(at, &ONE, Scope::NONE), Ready::Now);
                }
                Ready::OnEvent => prop_assert!(false, "all requests were answered"),
            }
        }
    }

    /// A change gives no more at its instant than the smallest burst before it.
    #[test]
    fn a_change_is_no_fresh_burst(
        before in any_limits(), after in any_limits(), gaps in proptest::collection::vec(0u64..500, 1..60),
    ) {
        // Only limits that pace: of a quota, all units may leave at once.
        let paces = |limits: &[LimitSpec]| -> Vec<LimitSpec> {
            limits.iter().filter(|limit| limit.rate.per <= LONGEST_PACE).copied().collect()
        };
        let (before, after) = (paces(&before), paces(&after));
        prop_assume!(!before.is_empty());
        let mut budget = Budget::new(&before, MarginSpec::Fixed(Duration::ZERO), Instant::START);
        let mut now = Instant::START;
        for gap in gaps {
            now = now + Duration::from_millis(gap);
            send(&mut budget, now);
        }
        // Same windows, larger bursts and counts.
        let raised: Vec<LimitSpec> = before.iter().map(|limit| {
            let other = after.iter().find(|after| after.rate.per == limit.rate.per);
            other.filter(|other| other.rate.count >= limit.rate.count).copied().unwrap_or(*limit)
        }).collect();
        let mut changed = budget.clone();
        changed.reconfigure(&raised, MarginSpec::Fixed(Duration::ZERO), now);
        let count = |budget: &mut Budget| (0..1000).take_while(|_| send(budget, now)).count();
        let burst = before.iter().map(|limit| limit.burst().get()).min().unwrap_or(u32::MAX);
        prop_assert!(count(&mut changed) <= burst as usize);
    }
}

#[test]
fn what_was_saved_of_a_unit_may_leave_at_once() {
    let budget = |limits: &str| budget(limits);
    let tokens = Unit::named("tokens").unwrap();
    let mut spent = budget("10/s burst 4, 600 tokens/min burst 60");
    assert_eq!((spent.saved(Unit::REQUESTS, at(0)), spent.saved(tokens, at(0))), (4, 60));
    assert_eq!(drain(&mut spent, 0), 4);
    assert_eq!((spent.saved(Unit::REQUESTS, at(0)), spent.saved(Unit::REQUESTS, at(100))), (0, 1));
    let charge = spent.take(at(1000), at(1000), Cost::MIN.with(tokens, 50), Scope::NONE);
    spent.sent(charge, at(1000));
    // Each token takes 100 ms.
    assert_eq!((spent.saved(tokens, at(1000)), spent.saved(tokens, at(2000))), (10, 20));
    assert_eq!(budget("10/s").saved(tokens, at(0)), 0, "nothing limits them");
}

#[test]
fn after_a_refusal_a_late_timer_brings_no_two_requests_closer_together() {
    let mut budget = budget("20/s");
    let at_pace = |budget: &mut Budget, ms: u64| {
        let now = budget.ready(at(ms), &ONE, Scope::NONE).instant(at(ms));
        assert!(send(budget, now));
        now
    };
    // Due at 50 and sent 7 ms late: the next one is due at 100 all the same.
    assert!(send(&mut budget, at(0)));
    let charge = budget.take(at(57), at(50), ONE, Scope::NONE);
    budget.sent(charge, at(57));
    assert_eq!(at_pace(&mut budget, 57), at(100));
    assert!(budget.catches_up());
    budget.keep_distance(at(100));
    assert!(!budget.catches_up());
    let charge = budget.take(at(157), at(150), ONE, Scope::NONE);
    budget.sent(charge, at(157));
    assert_eq!(at_pace(&mut budget, 157), at(207), "50 ms after the one that was late");
    // The request is taken at 257 and written at 260, on a new connection.
    let charge = budget.take(at(257), at(257), ONE, Scope::NONE);
    budget.sent(charge, at(260));
    assert_eq!(at_pace(&mut budget, 260), at(310), "50 ms after it was written");
    // A limit that is added later keeps its distance, too.
    reconfigure(&mut budget, "10/s", 310);
    assert!(!budget.catches_up());
    budget.observe(at(100 + 599_999), Duration::ZERO);
    assert!(!budget.catches_up());
    budget.observe(at(100 + 600_000), Duration::ZERO);
    assert!(budget.catches_up(), "ten minutes later it may be another matter");
}

#[test]
fn what_is_finely_spaced_or_may_burst_keeps_no_distance() {
    // A late timer may cost a 25th of 25 ms, and more of less.
    assert!(budget("40/s").catches_up());
    assert!(!budget("41/s").catches_up());
    assert!(!budget("20/s burst 20").catches_up());
}

/// Of 20/s, ten a second leave, or all: only a full window may have been too full at the API. An estimated limit
/// promises no window and gets no margin.
#[test]
fn a_refusal_widens_the_margin_of_a_full_window_alone() {
    let auto = || Budget::new(&specs("20/s"), MarginSpec::Auto, Instant::START);
    let (mut budget, margin) = (auto(), |budget: &Budget| budget.margin.of(Duration::from_secs(1)));
    let before = margin(&budget);
    (0..30).for_each(|slot| assert!(send(&mut budget, at(slot * 100))));
    budget.refused(at(2950), at(2940), ONE, false, None);
    assert_eq!(margin(&budget), before, "ten in a second");
    let mut budget = auto();
    let found = LimitSpec { burst: Some(NonZeroU32::MIN), ..specs("20/s")[0] };
    budget.learn(Source::Estimated, found, &[]);
    let mut now = at(0);
    while now < at(3000) {
        now = next(&mut budget, now.as_nanos() / 1_000_000 + 1);
        assert!(send(&mut budget, now));
    }
    budget.refused(now, now, ONE, false, None);
    assert_eq!(margin(&budget), before * 2);
    let usage = budget.usage(now);
    let margins: Vec<_> = usage.iter().map(|usage| (usage.source, usage.margin)).collect();
    assert_eq!(margins, [(Source::Config, before * 2), (Source::Estimated, Duration::ZERO)]);
}

/// Of 20/s, five requests of cost 4 leave each second. The last response arrives when the first left a window ago.
#[test]
fn a_window_is_full_if_what_was_refused_would_have_had_to_wait() {
    let four = Cost::new(4).unwrap();
    let mut budget = Budget::new(&specs("20/s"), MarginSpec::Auto, Instant::START);
    let before = budget.margin.of(Duration::from_secs(1));
    let mut now = at(0);
    while now < at(3000) {
        now = budget.ready(now, &four, Scope::NONE).instant(now);
        let charge = budget.take(now, now, four, Scope::NONE);
        budget.sent(charge, now);
        budget.answered(charge, now, now);
    }
    let answered = now + Duration::from_millis(220);
    assert_eq!(budget.used(Source::Config, answered), 16);
    budget.refused(answered, now, four, false, None);
    assert_eq!(budget.margin.of(Duration::from_secs(1)), before * 2);
}

#[test]
fn pace_is_the_least_of_the_limits_that_bound_a_few_seconds() {
    for (limits, expected) in [
        // Beside a shorter window, a longer one is no pace: it may be used up at once.
        ("10/s, 300/min", Some(10.0)),
        ("10/s, 300/min burst 1", Some(5.0)),
        ("300/min", Some(5.0)),
        ("10/s, 3600/h burst 3600", Some(10.0)),
        ("20/2s burst 20, 3600/h burst 3600", Some(10.0)),
        ("3600/h burst 3600", Some(1.0)),
        ("90000 tokens/min", None),
        ("", None),
    ] {
        assert_eq!(budget(limits).pace(), expected, "{limits}");
    }
}
