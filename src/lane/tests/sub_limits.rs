//! Sub-limits in a lane: each keeps its limit, all of them are used, and no request waits for a budget that it does not
//! need.

mod several;

use std::{sync::Arc, time::Duration};

use andante_clock::Instant;
use andante_hint as hint;
use andante_learn::AnswerReport;
use andante_limit::{Limits, MarginSpec, Unit};
use andante_order::Claim;
use andante_policy::{Added, Policy};
use http::{HeaderMap, StatusCode, header::RETRY_AFTER};
use parking_lot::Mutex;
use proptest::prelude::*;

use super::{World, ask, kind, ms, permitted, random::worst_window, watch_for_lost_slots};
use crate::{Admission, AdmitRequest, Draw, Draws, Lane, Permit};

/// A rule for some of the lane's requests.
fn rule(name: &str, limits: &str, change: impl FnOnce(&mut Policy)) -> Arc<Policy> {
    let limits: Limits = limits.parse().unwrap();
    let mut policy = Policy::new(name, vec!["*".parse().unwrap()]);
    (policy.limits, policy.in_flight) = (limits.limits, limits.in_flight);
    policy.added = Some(Added::default());
    change(&mut policy);
    policy.into()
}

fn draws(of: &[(u64, &Arc<Policy>)]) -> Draws {
    Some(of.iter().map(|(budget, rule)| Draw::new(*budget, Arc::clone(rule))).collect())
}

fn draw(draws: &Draws) -> AdmitRequest {
    AdmitRequest { draws: draws.clone(), ..ask(kind()) }
}

fn send(mut permit: Permit) {
    permit.sent();
    permit.answered(&AnswerReport::SERVED, Instant::START);
}

/// When each of these requests leaves, if all ask at once.
async fn run(world: &World, requests: impl IntoIterator<Item = Draws>) -> Vec<Instant> {
    run_with(world, requests, |_| Claim::USUAL).await
}

/// When each of these requests leaves, if all ask at once with the claim for its number.
async fn run_with(
    world: &World,
    requests: impl IntoIterator<Item = Draws>,
    claim: impl Fn(usize) -> Claim,
) -> Vec<Instant> {
    run_at(world, requests, claim, |_| ms(20)).await
}

/// When each of these requests leaves from an API that takes the given time to answer each.
async fn run_at(
    world: &World,
    requests: impl IntoIterator<Item = Draws>,
    claim: impl Fn(usize) -> Claim,
    takes: impl Fn(usize) -> Duration,
) -> Vec<Instant> {
    let mut tasks = tokio::task::JoinSet::new();
    for (number, draws) in requests.into_iter().enumerate() {
        let request = AdmitRequest { claim: claim(number), ..draw(&draws) };
        let (admission, clock, takes) = (world.lane.admit(request), world.clock, takes(number));
        tasks.spawn(async move {
            let mut permit = permitted(admission).await;
            let at = clock.now();
            permit.sent();
            tokio::time::sleep(takes).await;
            permit.answered(&AnswerReport::SERVED, Instant::START);
            (number, at)
        });
    }
    let mut left: Vec<_> = tasks.join_all().await;
    left.sort_unstable();
    left.into_iter().map(|(_, at)| at).collect()
}

fn last<'a>(left: impl Iterator<Item = &'a Instant>) -> f64 {
    left.max().unwrap().since(Instant::START).as_secs_f64()
}

#[tokio::test(start_paused = true)]
async fn a_host_and_a_search_beside_it_are_both_used_up_and_kept() {
    let search = rule("search", "5/s", |_| {});
    let post = |number: usize| if number % 20 == 19 { draws(&[(1, &search)]) } else { None };
    // 500 of 10,000 requests, spread among the others.
    let alike = last(run(&World::new("100/s"), (0..10_000).map(|_| None)).await.iter());
    let world = World::new("100/s");
    let left = run(&world, (0..10_000).map(post)).await;
    let of = |sub_limit: bool| {
        left.iter().enumerate().filter(move |(n, _)| post(*n).is_some() == sub_limit).map(|(_, at)| at)
    };
    let (all, posts, gets) = (last(left.iter()), last(of(true)), last(of(false)));
    assert!(9_999.0 / 100.0 / all >= 0.99, "the host: {all} s");
    assert!(499.0 / 5.0 / posts >= 0.99, "the search: {posts} s");
    assert!(gets <= alike + 0.02, "{gets} s instead of {alike} s if all were alike");
    for (sub_limit, limit, per) in [(true, 5, 1000), (false, 100, 1000)] {
        let mut arrivals: Vec<_> =
            left.iter().enumerate().filter(|(n, _)| !sub_limit || post(*n).is_some()).map(|(_, at)| (*at, 1)).collect();
        assert!(worst_window(&mut arrivals, ms(per)) <= limit);
    }
}

#[tokio::test(start_paused = true)]
async fn what_floods_a_search_holds_up_nobody_else() {
    let world = World::new("100/s");
    let search = rule("search", "5/s", |_| {});
    // 2,000 of each: the search takes 400 s, and no more of the host than 5/s.
    let post = |number: usize| if number < 2_000 { draws(&[(1, &search)]) } else { None };
    let left = run(&world, (0..4_000).map(post)).await;
    let (posts, gets) = (last(left[..2_000].iter()), last(left[2_000..].iter()));
    assert!(1_999.0 / 5.0 / posts >= 0.99, "{posts} s");
    assert!((2_000.0 / 95.0 - gets).abs() <= 0.02 * gets, "{gets} s");
}

#[tokio::test(start_paused = true)]
async fn a_budget_under_a_slow_one_loses_nothing_to_it() {
    // Each of its slots matures while the host's next one is up to a second off.
    let world = World::new("60/min");
    let half = rule("half", "30/min", |_| {});
    let post = |number: usize| if number % 2 == 1 { draws(&[(1, &half)]) } else { None };
    let left = run(&world, (0..400).map(post)).await;
    let (all, half) = (last(left.iter()), last(left.iter().skip(1).step_by(2)));
    assert!(399.0 / all >= 0.99 && 199.0 * 2.0 / half >= 0.99, "{all} s, and {half} s of the half");
}

#[tokio::test(start_paused = true)]
async fn a_thousand_tenants_share_a_host_and_none_waits_for_another() {
    let world = World::new("200/s");
    let tenant = rule("tenant", "50/min", |_| {});
    let crowd = (0..1_000).map(|_| 0u64).chain((1..1_000).flat_map(|tenant| [tenant; 3]));
    let of: Vec<u64> = crowd.collect();
    let left = run(&world, of.iter().map(|budget| draws(&[(*budget, &tenant)]))).await;
    let others = left.iter().zip(&of).filter(|(_, budget)| **budget != 0).map(|(at, _)| at);
    // 2,997 requests beside 50 a minute of the crowded tenant; the last tenant to begin needs 2.4 s for its three.
    let others = last(others);
    assert!(others <= (2_997.0 + 15.0) / 200.0 * 1.01 + 2.4, "{others} s: they had to wait for the crowd");
    for budget in [0, 1, 500] {
        let mut arrivals: Vec<_> =
            left.iter().zip(&of).filter(|(_, of)| **of == budget).map(|(at, _)| (*at, 1)).collect();
        assert!(worst_window(&mut arrivals, ms(60_000)) <= 50);
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_one_budget_has_taken_nothing_of_another() {
    let world = World::new("10/s burst 10");
    let (one, two) = (rule("one", "1/min", |_| {}), rule("two", "5/s burst 5", |_| {}));
    let both = draws(&[(1, &one), (2, &two)]);
    send(permitted(world.lane.admit(draw(&both))).await);
    let _waits: Vec<_> = (0..5).map(|_| world.lane.admit(draw(&both))).collect();
    assert_eq!(world.waiting(), 5);
    // Four of `two` are left, and nine of the lane's own.
    for left in 0..4 {
        assert!(matches!(world.lane.admit(draw(&draws(&[(2, &two)]))), Admission::Send(_)), "{left}");
    }
    for left in 0..5 {
        assert!(matches!(world.ask(), Admission::Send(_)), "{left}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_leaves_the_limits_of_the_lane_alone() {
    let world = World::new("1/min, in-flight 1");
    let alone = rule("alone", "10/s", |policy| policy.added.as_mut().unwrap().only = true);
    let only = draws(&[(1, &alone)]);
    let _holds = world.permit().await;
    let Admission::Wait(_own) = world.ask() else { panic!("one a minute") };
    let left = run(&world, (0..50).map(|_| only.clone())).await;
    assert!((last(left.iter()) - 4.9).abs() < 0.02, "as if the others were not there");
    assert_eq!(world.waiting(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_rules_own_bounds_on_waiting_hold_and_refusals_name_it() {
    let world = World::new("100/s");
    let patient = rule("patient", "1/s", |policy| policy.max_wait = ms(2500));
    let short = rule("short", "1/s", |policy| policy.max_waiting = 2);
    let (patient, short) = (draws(&[(1, &patient)]), draws(&[(2, &short)]));
    let refused = |draws: &Draws, most: usize| -> String {
        let mut waits: Vec<_> = (0..most).map(|_| world.lane.admit(draw(draws))).collect();
        assert!(!waits.iter().any(|admission| matches!(admission, Admission::Refuse(_))));
        waits.push(world.lane.admit(draw(draws)));
        match waits.pop() {
            Some(Admission::Refuse(refusal)) => refusal.to_string(),
            other => panic!("{other:?}"),
        }
    };
    // Slots: one at once, and after 1 s and 2 s.
    assert_eq!(
        refused(&patient, 3),
        "it would wait 3.0s behind 2 others for rule \"patient\", longer than the 2.5s it may"
    );
    assert_eq!(refused(&short, 3), "2 requests wait for rule \"short\" already, and no place is free");
}

#[tokio::test(start_paused = true)]
async fn places_in_flight_are_a_budgets_own() {
    let world = World::new("100/s burst 100");
    let two = rule("two", "in-flight 2", |_| {});
    let draws = draws(&[(1, &two)]);
    let held = [permitted(world.lane.admit(draw(&draws))).await, permitted(world.lane.admit(draw(&draws))).await];
    let Admission::Wait(third) = world.lane.admit(draw(&draws)) else { panic!("two are under way") };
    assert!(matches!(world.ask(), Admission::Send(_)), "others have room");
    held.into_iter().for_each(drop);
    drop(tokio::time::timeout(ms(1), third).await.expect("a place is free"));
}

#[tokio::test(start_paused = true)]
async fn a_crowded_tenant_does_not_have_others_refused() {
    let world = World::new("100/s");
    let tenant = rule("tenant", "1/min", |_| {});
    let _crowd: Vec<_> = (0..2_000).map(|_| world.lane.admit(draw(&draws(&[(1, &tenant)])))).collect();
    let _busy: Vec<_> = (0..10).map(|_| world.ask()).collect();
    let ask = AdmitRequest { deadline: world.clock.now() + ms(500), ..draw(&draws(&[(2, &tenant)])) };
    assert!(!matches!(world.lane.admit(ask), Admission::Refuse(_)), "it leaves within 200 ms");
}

#[tokio::test(start_paused = true)]
async fn a_budget_is_forgotten_when_it_remembers_nothing() {
    let world = World::new("in-flight 1000");
    let tenant = rule("tenant", "50/min", |_| {});
    for budget in 0..1_000 {
        send(permitted(world.lane.admit(draw(&draws(&[(budget, &tenant)])))).await);
    }
    world.lane.forget_idle();
    assert_eq!(world.lane.sub_limits(), 1_000, "they count for a minute");
    tokio::time::sleep(ms(61_000)).await;
    world.lane.forget_idle();
    assert_eq!(world.lane.sub_limits(), 0);
    send(permitted(world.lane.admit(draw(&draws(&[(1_000, &tenant)])))).await);
    let sub_limit = &world.lane.snapshot().sub_limits[0];
    assert_eq!(
        (sub_limit.budgets, sub_limit.used.of(Unit::REQUESTS)),
        (1, 1_001),
        "of those that are forgotten as well"
    );
}

/// Refuses the request with 429, and asks for `retry_after` seconds.
pub(super) fn refuse(mut permit: Permit, retry_after: u32) {
    permit.sent();
    let headers = HeaderMap::from_iter([(RETRY_AFTER, retry_after.into())]);
    let status = StatusCode::TOO_MANY_REQUESTS;
    let hint = hint::read(&hint::Answer { status, headers: &headers, body: None, arrived: Duration::ZERO });
    permit.answered(&AnswerReport { hint: &hint, failed: false, route: None }, Instant::START);
}

/// A request that draws on a tenant's budget, and has a kind of its own for that.
fn of_tenant(tenant: u64, rule: &Arc<Policy>) -> AdmitRequest {
    AdmitRequest { kind: kind().with_budget(tenant), ..draw(&draws(&[(tenant, rule)])) }
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_within_its_budget_pauses_alone() {
    let world = World::new("1000/s");
    let tenant = rule("tenant", "500/s", |_| {});
    for number in 0..50 {
        send(permitted(world.lane.admit(of_tenant(number % 3 + 1, &tenant))).await);
        tokio::time::sleep(ms(5)).await;
    }
    refuse(permitted(world.lane.admit(of_tenant(1, &tenant))).await, 10);
    let Admission::Wait(paused) = world.lane.admit(of_tenant(1, &tenant)) else { panic!("its budget is short") };
    for number in 0..50 {
        tokio::time::sleep(ms(5)).await;
        let Admission::Send(other) = world.lane.admit(of_tenant(number % 2 + 2, &tenant)) else {
            panic!("another tenant waits, too")
        };
        send(other);
    }
    let own = &world.lane.snapshot().learned.own_limits;
    assert_eq!(own.iter().map(|own| own.group.to_string()).collect::<Vec<_>>(), ["a budget of tenant"]);
    let (begun, _permit) = (world.clock.now(), paused.await);
    assert!(world.clock.now().since(begun) >= ms(9_500), "as long as the API asks");
}

#[tokio::test(start_paused = true)]
async fn where_all_budgets_are_refused_the_lane_pauses() {
    let world = World::new("1000/s");
    let tenant = rule("tenant", "500/s", |_| {});
    for number in 0..50 {
        send(permitted(world.lane.admit(of_tenant(number % 5 + 1, &tenant))).await);
        tokio::time::sleep(ms(5)).await;
    }
    let mut under_way = Vec::new();
    for number in 1..=3 {
        under_way.push(permitted(world.lane.admit(of_tenant(number, &tenant))).await);
        tokio::time::sleep(ms(5)).await;
    }
    under_way.into_iter().for_each(|permit| refuse(permit, 10));
    let Admission::Wait(_) = world.lane.admit(of_tenant(5, &tenant)) else { panic!("it is the lane that is short") };
    assert!(world.lane.closed_for() >= ms(9_000));
}

/// A request: its time of arrival, its budgets, the latency and the outcome.
type Job = (u64, u8, u64, u8);

fn simulate(jobs: Vec<Job>) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let world = World::with("20/s, 200/min", |policy| policy.margin = MarginSpec::Fixed(ms(20)));
        let rule = |name: &str, limits| rule(name, limits, |policy| policy.margin = MarginSpec::Fixed(ms(20)));
        let rules = [rule("a", "5/s"), rule("b", "7/2s burst 3"), rule("c", "30/min"), rule("d", "3/s strict")];
        let limits = [(5, 1_000), (7, 2_000), (30, 60_000), (3, 1_000)];
        let arrivals: Arc<Mutex<Vec<(Instant, u8)>>> = Arc::default();
        let mut tasks = tokio::task::JoinSet::new();
        for (at, mask, latency, fate) in jobs {
            let of: Vec<_> = (0..4).filter(|bit| mask & (1 << bit) != 0).map(|n| (n as u64, &rules[n])).collect();
            let draws = draws(&of);
            let (lane, clock, arrivals): (Arc<Lane>, _, _) = (world.lane.clone(), world.clock, arrivals.clone());
            tasks.spawn(async move {
                tokio::time::sleep(ms(at)).await;
                let admission = lane.admit(draw(&draws));
                let mut permit = match fate {
                    0 => match tokio::time::timeout(ms(latency * 10), permitted(admission)).await {
                        Ok(permit) => permit,
                        Err(_) => return,
                    },
                    _ => permitted(admission).await,
                };
                if fate == 1 {
                    return;
                }
                permit.sent();
                // Up to 20 ms in transit.
                tokio::time::sleep(ms(latency % 20)).await;
                arrivals.lock().push((clock.now(), mask));
                tokio::time::sleep(ms(latency)).await;
                permit.answered(&AnswerReport::SERVED, Instant::START);
            });
        }
        let watch = watch_for_lost_slots(world.lane.clone());
        tasks.join_all().await;
        prop_assert!(!watch.is_finished(), "slots were lost");
        let end = world.lane.snapshot();
        prop_assert_eq!((end.queue.waiting, end.in_flight.count), (0, 0), "something was left behind");
        let arrivals = arrivals.lock();
        for (bit, (most, per)) in limits.into_iter().enumerate() {
            let of = arrivals.iter().filter(|(_, mask)| mask & (1 << bit) != 0);
            let mut of: Vec<_> = of.map(|(at, _)| (*at, 1)).collect();
            let worst = worst_window(&mut of, ms(per));
            prop_assert!(worst <= most, "{worst} of {most} in {per} ms");
        }
        let mut all: Vec<_> = arrivals.iter().map(|(at, _)| (*at, 1)).collect();
        prop_assert!(worst_window(&mut all.clone(), ms(1_000)) <= 20 && worst_window(&mut all, ms(60_000)) <= 200);
        Ok(())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// In any history of requests, no budget grants more than its limit in any window, and no slot is lost.
    #[test]
    fn every_budget_keeps_its_limit(
        jobs in proptest::collection::vec((0u64..6_000, 0u8..16, 0u64..200, 0u8..8), 1..150),
    ) {
        simulate(jobs)?;
    }
}

#[tokio::test(start_paused = true)]
async fn flows_share_a_narrower_budget_by_their_weights() {
    use andante_order::{Claim, FlowId, Weight};

    let world = World::new("100/s");
    let search = draws(&[(1, &rule("search", "5/s", |_| {}))]);
    let ask = |flow: u64| {
        let flow_weight = Weight((flow as u16).try_into().unwrap());
        AdmitRequest { claim: Claim { flow: FlowId(flow), flow_weight, ..Claim::USUAL }, ..draw(&search) }
    };
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..120 {
        let flow = number % 2 + 1;
        let (admission, clock) = (world.lane.admit(ask(flow)), world.clock);
        tasks.spawn(async move {
            send(permitted(admission).await);
            (clock.now().since(Instant::START), flow)
        });
    }
    let mut left = tasks.join_all().await;
    left.sort_unstable();
    // Of each three slots, one goes to weight 1, and two go to weight 2.
    let heavy = left[..60].iter().filter(|(_, flow)| *flow == 2).count();
    assert!((39..=41).contains(&heavy), "{heavy} of 60");
}
