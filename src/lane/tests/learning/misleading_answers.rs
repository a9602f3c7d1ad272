//! Traps of real answers that concern pacing; `docs/hints.md` lists them with the tests' names.

use std::time::Duration;

use andante_learn::{Reason, RouteKey};
use andante_limit::Source;
use andante_policy::{Spend, Trust};

use super::{CannedAnswer, LATENCY, SERVED, World, kind, ms, s};
use crate::{Admission, Permit};

/// 100 per 10 seconds, `$left` of them left, in a window that has just begun.
macro_rules! left {
    ($left:literal) => {
        (200, &[("ratelimit", concat!("\"a\";r=", $left, ";t=10")), ("ratelimit-policy", "\"a\";q=100;w=10")])
    };
}

/// The rest of each budget.
fn left(world: &World) -> Vec<f64> {
    let mut left: Vec<_> = world.lane.snapshot().learned.quotas.iter().map(|budget| budget.left).collect();
    left.sort_by(f64::total_cmp);
    left
}

/// The learned rates.
fn learned(world: &World) -> Vec<String> {
    let limits = world.lane.snapshot().limits.into_iter();
    limits.filter(|usage| usage.source != Source::Config).map(|usage| usage.spec.rate.to_string()).collect()
}

/// Departure times of `count` requests, if all are asked for at once and the answers report nothing.
async fn leave(world: &World, count: usize) -> Vec<Duration> {
    let since = world.elapsed();
    let mut times = Vec::new();
    for _ in 0..count {
        let mut permit = world.permit().await;
        permit.sent();
        times.push(world.elapsed() - since);
        world.answer(permit, SERVED);
    }
    times
}

#[tokio::test(start_paused = true)]
async fn a_refusal_with_room_left_pauses_its_kind_and_not_the_lane() {
    let world = World::unlimited(|_| {});
    world.call((429, &[("x-ratelimit-limit", "100"), ("x-ratelimit-remaining", "60")])).await;
    assert_eq!(world.pause(kind()), Some(s(1)), "requests of this kind pause");
    assert!(matches!(world.ask_for(RouteKey::new("GET", "/b")), Admission::Send(_)));
    assert_eq!(world.lane.snapshot().queue.gate, None);
    // After that one request tries, and a served answer ends the pause.
    tokio::time::sleep(s(1)).await;
    let Admission::Send(mut tries) = world.ask() else { panic!("its pause is over") };
    assert_eq!(world.pause(kind()), Some(s(2)), "the others wait for what the first one finds");
    tries.sent();
    world.answer(tries, SERVED);
    assert_eq!(world.pause(kind()), None);
}

#[tokio::test(start_paused = true)]
async fn kinds_with_budgets_of_one_name_stop_only_themselves() {
    let world = World::unlimited(|_| {});
    let (users, tweets) = (RouteKey::new("GET", "/users"), RouteKey::new("GET", "/tweets"));
    let left = ["49", "48", "47", "46", "0"];
    for left in left {
        for (kind, limit, left, reset) in [(users, "900", "700", "1790000600"), (tweets, "50", left, "1790000300")] {
            let said = [("x-rate-limit-limit", limit), ("x-rate-limit-remaining", left), ("x-rate-limit-reset", reset)];
            world.call_for(kind, (200, &said)).await;
        }
    }
    let pause = world.pause(tweets).expect("nothing is left for these");
    assert!(pause > s(290), "{pause:?}");
    assert_eq!(world.pause(users), None);
    assert_eq!(world.lane.snapshot().queue.gate, None);
    // After the reset one request tries. If that was too early, the others wait for its answer.
    tokio::time::sleep(pause + ms(100)).await;
    let Admission::Send(mut tries) = world.ask_for(tweets) else { panic!("its reset is over") };
    assert!(world.pause(tweets).is_some());
    tries.sent();
    world.answer(tries, SERVED);
    assert_eq!(world.pause(tweets), None);
}

#[tokio::test(start_paused = true)]
async fn a_small_budget_of_one_kind_does_not_hold_a_large_one_up() {
    // The order of the announcements, and the rest of the budget.
    for (first, left) in [(true, "19"), (false, "19"), (false, "0")] {
        let world = World::unlimited(|policy| policy.spend = Spend::Greedy);
        let (users, export) = (RouteKey::new("GET", "/users"), RouteKey::new("POST", "/export"));
        let small =
            [("x-rate-limit-limit", "20"), ("x-rate-limit-remaining", left), ("x-rate-limit-reset", "1790003600")];
        for at in 0..200 {
            if at == if first { 0 } else { 50 } {
                world.call_for(export, (200, &small)).await;
                continue;
            }
            let left = (4999 - at).to_string();
            let said = [
                ("x-rate-limit-limit", "5000"),
                ("x-rate-limit-remaining", &left),
                ("x-rate-limit-reset", "1790003000"),
            ];
            world.call_for(users, (200, &said)).await;
        }
        assert!(world.elapsed() < LATENCY * 200 + s(1), "{first} {left}: {:?}", world.elapsed());
        assert_eq!(world.pause(users), None);
        assert_eq!(world.pause(export).is_none(), left != "0");
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_changes_for_all_kinds_stays_one() {
    let world = World::unlimited(|policy| policy.spend = Spend::Greedy);
    let kinds = ["/a", "/b", "/c"].map(|path| RouteKey::new("GET", path));
    // A limit that is no longer announced, while others of its name are, is dropped after 1.2 windows; a round takes a
    // second. Until then both hold, since two limits of one name may be two budgets.
    for (limit, rounds) in [("100", 10), ("400", 14), ("50", 14)] {
        // Ten are in flight at once, and requests sent before the change are answered after it with the old limit.
        for round in 0..rounds {
            let mut permits = Vec::new();
            for index in 0..10 {
                permits.push(world.permit_for(kinds[index % 3]).await);
            }
            permits.iter_mut().for_each(Permit::sent);
            for (index, permit) in permits.into_iter().enumerate() {
                tokio::time::sleep(ms(100)).await;
                let limit = if round == 0 && index % 2 == 0 { "100" } else { limit };
                let policy = format!("\"a\";q={limit};w=10");
                let said = [("ratelimit", "\"a\";r=40;t=10"), ("ratelimit-policy", policy.as_str())];
                world.answer(permit, (200, &said));
            }
        }
        assert_eq!(learned(&world), [format!("{limit}/10s")]);
    }
}

#[tokio::test(start_paused = true)]
async fn zero_is_never_at_once() {
    for fields in [&[("retry-after", "0")][..], &[("ratelimit", "\"a\";r=0;t=0")], &[("x-ratelimit-reset", "0")]] {
        let world = World::unlimited(|_| {});
        world.call((429, fields)).await;
        // The next one tries when an answer is due, and not before.
        assert!(world.call(SERVED).await >= LATENCY * 2, "{fields:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_zero_on_a_served_answer_holds_nothing_back() {
    let world = World::unlimited(|_| {});
    for _ in 0..20 {
        world.call((200, &[("x-ratelimit-limit", "0"), ("x-ratelimit-remaining", "0")])).await;
    }
    assert!(world.elapsed() < s(1), "{:?}", world.elapsed());
}

#[tokio::test(start_paused = true)]
async fn everybodys_numbers_do_not_stop_us_for_long() {
    let world = World::unlimited(|_| {});
    let said: CannedAnswer<'_> =
        (200, &[("x-ratelimit-limit", "1900"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "3600")]);
    for permit in world.send_all(10).await {
        tokio::time::sleep(ms(1)).await;
        world.answer(permit, said);
    }
    // The answer reports no rest, but ten were served.
    assert!(world.call(said).await < s(1));
}

/// Competing clients are as quick: a restored unit is used at once, and the client with the last one reads that none is
/// left. Refusals in between show that the limit is enforced.
#[tokio::test(start_paused = true)]
async fn what_refuses_when_nothing_is_left_counts_although_the_last_ones_are_served() {
    let world = World::unlimited(|_| {});
    let none_left: &[(&str, &str)] =
        &[("x-ratelimit-limit", "1900"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "3600")];
    let permits = world.send_all(10).await;
    for (permit, status) in permits.into_iter().zip([429].into_iter().chain([200; 9])) {
        tokio::time::sleep(ms(1)).await;
        world.answer(permit, (status, none_left));
    }
    let (reason, opens) = world.lane.snapshot().queue.gate.unwrap();
    assert_eq!(reason, Reason::Exhausted);
    assert!(opens > s(3590), "{opens:?}");
}

#[tokio::test(start_paused = true)]
async fn answers_that_overtake_each_other_do_not_give_anything_back() {
    let world = World::unlimited(|_| {});
    let [first, second, third] = <[_; 3]>::try_from(world.send_all(3).await).unwrap();
    tokio::time::sleep(LATENCY).await;
    world.answer(third, left!("61"));
    assert_eq!(left(&world), [61.0]);
    world.answer(first, left!("63"));
    world.answer(second, left!("62"));
    assert_eq!(left(&world), [61.0]);
}

#[tokio::test(start_paused = true)]
async fn what_is_under_way_is_counted_before_it_is_answered() {
    let world = World::unlimited(|policy| policy.spend = Spend::Greedy);
    let mut permits = world.send_all(10).await;
    tokio::time::sleep(LATENCY).await;
    world.answer(permits.pop().unwrap(), left!("12"));
    // Nine are in flight, and may not have been counted. This early, one leaves every 25 ms.
    assert!(leave(&world, 3).await.iter().all(|after| *after <= ms(75)));
    assert!(matches!(world.ask(), Admission::Wait(_)));
}

#[tokio::test(start_paused = true)]
async fn a_reset_in_whole_seconds_of_the_day_is_waited_for_to_its_end() {
    let world = World::unlimited(|_| {});
    // 9.63 seconds from now, or up to one second later.
    world
        .call((
            200,
            &[("x-ratelimit-limit", "60"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1790000010")],
        ))
        .await;
    let left = world.call(SERVED).await;
    assert!((ms(9630)..=ms(10_700)).contains(&left), "{left:?}");
    assert!(left >= ms(10_630), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn nothing_said_takes_nothing_back() {
    let world = World::unlimited(|_| {});
    world.call(left!("99")).await;
    assert_eq!(learned(&world), ["100/10s"]);
    for _ in 0..50 {
        world.call(SERVED).await;
    }
    world.call((304, &[])).await;
    assert_eq!(learned(&world), ["100/10s"]);
}

#[tokio::test(start_paused = true)]
async fn a_day_and_a_minute_are_kept_side_by_side() {
    let said = |day: &'static str| -> [(&str, &str); 2] {
        [("ratelimit", day), ("ratelimit-policy", "\"minute\";q=60;w=60, \"day\";q=1000;w=86400")]
    };
    let world = World::unlimited(|policy| policy.max_wait = Duration::MAX);
    world.call((200, &said("\"minute\";r=59;t=60, \"day\";r=900;t=40000"))).await;
    assert_eq!(left(&world), [59.0, 900.0]);
    assert_eq!(learned(&world).len(), 2, "{:?}", learned(&world));
    let times = leave(&world, 80).await;
    assert!((s(50)..s(80)).contains(times.last().unwrap()), "the minute sets the pace: {:?}", times.last());
    // The day is used up: nothing leaves until it is over, however much the minute has.
    world.call((200, &said("\"minute\";r=59;t=60, \"day\";r=0;t=39930"))).await;
    let now = world.elapsed();
    let snapshot = world.lane.snapshot();
    let (reason, pause) = snapshot.queue.gate.unwrap();
    assert_eq!(reason, Reason::Exhausted);
    assert!((s(39_900)..s(40_000)).contains(&pause), "{pause:?}");
    assert!(world.call(SERVED).await >= now + pause);
}

#[tokio::test(start_paused = true)]
async fn a_short_wait_for_a_days_quota_costs_one_try_each_time() {
    let world = World::new("50/s");
    let said: CannedAnswer<'_> = (429, &[("retry-after", "34")]);
    let times = [world.call(said).await, world.call(said).await, world.call(said).await];
    assert_eq!(times, [ms(0), ms(34_010), ms(68_020)]);
}

#[tokio::test(start_paused = true)]
async fn tokens_that_run_out_stop_us_before_they_have() {
    let tokens = |left: &'static str| -> [(&str, &str); 3] {
        [
            ("x-ratelimit-limit-tokens", "10000"),
            ("x-ratelimit-remaining-tokens", left),
            ("x-ratelimit-reset-tokens", "30s"),
        ]
    };
    let world = World::unlimited(|policy| policy.spend = Spend::Greedy);
    for left in ["9000", "8000", "7000", "6000", "5000", "4000", "3000", "2000", "1000", "300"] {
        world.call((200, &tokens(left))).await;
    }
    assert!(world.elapsed() < s(1), "nothing was held back while there was room: {:?}", world.elapsed());
    let Admission::Wait(next) = world.ask() else { panic!("a request costs about a thousand, and 300 are left") };
    drop(next.await);
    assert!(world.elapsed() > s(1), "{:?}", world.elapsed());
}

#[tokio::test(start_paused = true)]
async fn too_many_at_once_lowers_how_many_and_not_how_fast() {
    let world = World::unlimited(|_| {});
    let mut permits = world.send_all(20).await;
    tokio::time::sleep(LATENCY).await;
    let said: CannedAnswer<'_> = (429, &[("stripe-rate-limited-reason", "endpoint-concurrency")]);
    world.answer(permits.pop().unwrap(), said);
    assert_eq!(learned(&world), [""; 0]);
    assert_eq!(world.lane.snapshot().queue.gate, None);
    // The limit is one fewer than the number in flight.
    assert!(matches!(world.ask(), Admission::Wait(_)), "nineteen are under way, and twenty were too many");
    permits.truncate(7);
    assert!(matches!(world.ask(), Admission::Send(_)));
}

#[tokio::test(start_paused = true)]
async fn a_very_long_wait_is_kept_and_looked_at_anew_after_a_day() {
    for (asked, kept) in [("79892", 79_892), ("604800", 86_400)] {
        let world = World::unlimited(|policy| policy.max_wait = Duration::MAX);
        world.call((429, &[("retry-after", asked)])).await;
        assert_eq!(world.call(SERVED).await, s(kept) + LATENCY);
    }
}

#[tokio::test(start_paused = true)]
async fn what_we_refuse_ourselves_teaches_nothing() {
    let world = World::with("1/s", |policy| policy.max_wait = ms(500));
    world.call(SERVED).await;
    assert!(matches!(world.ask(), Admission::Refuse(_)));
    assert_eq!((world.lane.snapshot().queue.gate, learned(&world)), (None, vec![]));
}

#[tokio::test(start_paused = true)]
async fn of_an_api_that_is_not_trusted_only_waits_are_kept() {
    let world = World::unlimited(|policy| policy.trust = Trust::Waits);
    for _ in 0..3 {
        world.call(left!("0")).await;
    }
    assert!(world.elapsed() < s(1), "{:?}", world.elapsed());
    assert_eq!(learned(&world), [""; 0]);
    let now = world.elapsed();
    world.call((429, &[("retry-after", "7")])).await;
    assert_eq!(world.call(SERVED).await, now + LATENCY + s(7));
}

#[tokio::test(start_paused = true)]
async fn what_is_configured_holds_unless_the_api_is_trusted_more() {
    for (trust, last) in [(Trust::Stricter, s(10)), (Trust::Api, ms(0))] {
        let world = World::with("5/s", |policy| policy.trust = trust);
        world.call(left!("99")).await;
        let times = leave(&world, 51).await;
        assert!((last..last + ms(400)).contains(times.last().unwrap()), "{trust:?}: {:?}", times.last());
    }
}

#[tokio::test(start_paused = true)]
async fn an_allowance_is_spent_evenly_or_mostly_at_once_or_all_of_it() {
    for (spend, half, most) in
        [(Spend::Even, s(5), s(9)), (Spend::Mostly, ms(0), ms(400)), (Spend::Greedy, ms(0), ms(0))]
    {
        let world = World::unlimited(|policy| policy.spend = spend);
        world.call(left!("99")).await;
        let times = leave(&world, 99).await;
        let within = |at: Duration, time: Duration| time + ms(400) >= at && time <= at + ms(400);
        assert!(within(half, times[49]), "{spend:?}: half of it had left after {:?}", times[49]);
        assert!(times[96] >= most, "{spend:?}: nearly all had left after {:?}", times[96]);
        assert!(times[98] < s(11), "{spend:?}: and all of it after {:?}", times[98]);
    }
}

#[tokio::test(start_paused = true)]
async fn mostly_spreads_the_last_tenth_until_the_reset() {
    let world = World::unlimited(|_| {});
    world.call(left!("99")).await;
    let times = leave(&world, 99).await;
    assert!(times[97] >= s(7), "{:?}", times[97]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_a_connection_is_made_for_does_not_stop_the_last_tenth() {
    let left = async |held: bool| {
        let world = World::unlimited(|policy| policy.max_wait = s(7200));
        let said = [("ratelimit", "\"a\";r=9;t=10"), ("ratelimit-policy", "\"a\";q=100;w=10")];
        world.call((200, &said)).await;
        let mut first = world.permit().await;
        if !held {
            first.sent();
        }
        let (end, mut permits) = (world.clock.now() + s(8), Vec::new());
        while let Ok(mut permit) = tokio::time::timeout(end.since(world.clock.now()), world.permit()).await {
            permit.sent();
            permits.push(permit);
        }
        permits.len()
    };
    let (held, sent) = (left(true).await, left(false).await);
    assert!(sent >= 5 && held + 1 >= sent, "{held} left in 8 s while one was connected for, and {sent} otherwise");
}
