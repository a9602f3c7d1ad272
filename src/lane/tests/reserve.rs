//! A reserve for urgent requests: other requests never take more than the rest, and urgent ones find a slot in the
//! reserve.

use std::{sync::Arc, time::Duration};

use andante_clock::{Clock, Instant};
use andante_learn::AnswerReport;
use andante_limit::{Cost, Limits, MarginSpec, Unit, settle};
use andante_metrics::Metrics;
use andante_order::{Claim, Urgency};
use andante_policy::{Origin, Policy, Reserve, Rules, Scheme};
use parking_lot::Mutex;
use proptest::prelude::*;

use super::{World, ask, kind, ms, permitted, random::worst_window, watch_for_lost_slots};
use crate::{Admission, AdmitRequest, Draw, Draws, Lane, Lanes, Permit, Refusal};

/// The rule, with a tenth of its limits reserved.
fn reserving(limits: &str) -> Policy {
    let mut limits: Limits = limits.parse().unwrap();
    settle(&mut limits.limits);
    let mut policy = Policy::new("test", vec!["*".parse().unwrap()]);
    (policy.limits, policy.calendar) = (limits.limits, limits.calendar);
    policy.margin = MarginSpec::Fixed(ms(20));
    policy.turns.reserve = Reserve::new(10);
    policy
}

fn world(limits: &str) -> World {
    let policy = reserving(limits);
    World::with("in-flight 10000", |used| *used = policy)
}

/// A request of this urgency to `lane`, with the budgets that it draws on.
fn of(lane: &Lane, urgency: u8) -> AdmitRequest {
    let rest = lane.policy().besides_reserve().filter(|_| urgency >= Reserve::PATIENT);
    let draws: Draws = rest.map(|rule| [Draw::new(1, rule)].into());
    let claim = Claim { urgency: Urgency::new(urgency).unwrap(), ..Claim::USUAL };
    AdmitRequest { claim, draws, ..ask(kind()) }
}

fn send(mut permit: Permit) {
    permit.sent();
    permit.answered(&AnswerReport::SERVED, Instant::START);
}

/// Number of requests that leave at once, one after the other.
fn leaving(lane: &Arc<Lane>, urgency: u8, count: usize) -> usize {
    let permits = (0..count).filter_map(|_| match lane.admit(of(lane, urgency)) {
        Admission::Send(permit) => Some(permit),
        _ => None,
    });
    permits.map(send).count()
}

#[tokio::test(start_paused = true)]
async fn an_urgent_request_leaves_at_once_when_the_rest_is_used_up() {
    let world = world("10/s burst 10");
    assert_eq!(leaving(&world.lane, 3, 9), 9);
    let Admission::Wait(_usual) = world.lane.admit(of(&world.lane, 3)) else { panic!("nine of ten are for all") };
    let Admission::Wait(_nearly) = world.lane.admit(of(&world.lane, 2)) else { panic!("2 is not urgent enough") };
    assert_eq!(leaving(&world.lane, 1, 2), 1, "one of ten is kept");
}

#[tokio::test(start_paused = true)]
async fn an_urgent_request_leaves_although_a_quota_of_months_is_used_up_by_others() {
    let world = world("10/month in UTC");
    assert_eq!(leaving(&world.lane, 3, 9), 9);
    // Refused, or waiting in the last two hours of a month.
    assert_eq!(leaving(&world.lane, 3, 1), 0);
    assert_eq!(leaving(&world.lane, 0, 2), 1);
}

#[tokio::test(start_paused = true)]
async fn units_are_kept_as_requests_are() {
    let world = world("1000 tokens/min burst 1000");
    let of = |urgency, tokens| {
        let cost = Cost::MIN.with(Unit::named("tokens").unwrap(), tokens);
        world.lane.admit(AdmitRequest { cost, ..of(&world.lane, urgency) })
    };
    let Admission::Send(usual) = of(3, 900) else { panic!("all of the rest") };
    send(usual);
    let Admission::Wait(_usual) = of(3, 1) else { panic!("nothing of the rest is left") };
    let Admission::Send(urgent) = of(0, 100) else { panic!("the reserve") };
    send(urgent);
    let Admission::Wait(_urgent) = of(0, 1) else { panic!("1,000 are all") };
}

#[tokio::test(start_paused = true)]
async fn others_keep_nine_tenths_of_the_pace_and_an_urgent_one_finds_the_next_slot() {
    let world = world("10/s");
    let mut usual = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let (admission, clock) = (world.lane.admit(of(&world.lane, 3)), world.clock);
        usual.spawn(async move {
            send(permitted(admission).await);
            clock.now()
        });
    }
    for _ in 0..9 {
        tokio::time::sleep(ms(2050)).await;
        let asked = world.clock.now();
        send(permitted(world.lane.admit(of(&world.lane, 0))).await);
        let waited = world.clock.now().since(asked);
        assert!(waited <= ms(101), "{waited:?} for a slot of the host's");
    }
    let last = usual.join_all().await.into_iter().max().unwrap().since(Instant::START).as_secs_f64();
    // With the margin of 20 ms: nine in 1.02 s.
    let expected = 199.0 / 9.0 * 1.02;
    assert!((199.0 / 9.0..expected * 1.02).contains(&last), "{last} s in the place of {expected} s");
}

fn origin() -> Origin {
    Origin::parse(Scheme::Http, "api.test", Some(80)).unwrap()
}

/// Ten a minute at once, by a rule of this name, with this reserve.
fn named(name: &str, reserve: Option<Reserve>) -> Rules {
    let mut policy = Policy { name: name.into(), ..reserving("10/min burst 10") };
    policy.turns.reserve = reserve;
    Rules::new(vec![policy])
}

#[tokio::test(start_paused = true)]
async fn a_reload_keeps_what_it_remembers() {
    let lanes = Lanes::new(named("one", Reserve::new(10)), Metrics::new(), Clock::start());
    assert_eq!(leaving(&lanes.find(&origin()), 3, 10), 9);
    lanes.reload(named("two", Reserve::new(10)));
    let two = lanes.find(&origin());
    assert_eq!(leaving(&two, 3, 1), 0, "nine have left, whatever the rule was called");
    let drawn = lanes.added(&origin());
    assert_eq!(drawn.iter().map(|rule| &*rule.policy.name).collect::<Vec<_>>(), ["two, all but the reserve"]);
    lanes.reload(named("two", None));
    assert_eq!(leaving(&lanes.find(&origin()), 3, 2), 1, "nothing is kept any more");
    lanes.reload(named("two", Reserve::new(50)));
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(leaving(&lanes.find(&origin()), 3, 10), 5);
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_before_there_was_a_reserve_counts() {
    let rules = |reserve| named("test", reserve);
    let lanes = Lanes::new(rules(None), Metrics::new(), Clock::start());
    assert_eq!(leaving(&lanes.find(&origin()), 3, 9), 9);
    lanes.reload(rules(Reserve::new(10)));
    let lane = lanes.find(&origin());
    lane.preview(&of(&lane, 3));
    assert_eq!((leaving(&lane, 3, 1), leaving(&lane, 0, 2)), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_while_there_was_no_reserve_counts_when_there_is_one_again() {
    let rules = |reserve| named("test", reserve);
    let lanes = Lanes::new(rules(Reserve::new(10)), Metrics::new(), Clock::start());
    assert_eq!(leaving(&lanes.find(&origin()), 3, 5), 5);
    tokio::time::sleep(ms(5000)).await;
    lanes.reload(rules(None));
    assert_eq!(leaving(&lanes.find(&origin()), 3, 3), 3);
    lanes.reload(rules(Reserve::new(10)));
    let lane = lanes.find(&origin());
    assert_eq!((leaving(&lane, 3, 2), leaving(&lane, 0, 2)), (1, 1), "nine of ten are for all, and eight have left");
}

#[tokio::test(start_paused = true)]
async fn who_cannot_wait_is_told_when_the_rest_has_room() {
    let world = world("10/min burst 10");
    assert_eq!(leaving(&world.lane, 3, 9), 9);
    let hurry = |urgency| {
        let deadline = world.clock.now() + ms(1000);
        world.lane.admit(AdmitRequest { deadline, ..of(&world.lane, urgency) })
    };
    // All were answered when they left, so that they leave the window after a minute.
    let Admission::Refuse(Refusal::TooLong { wait, .. }) = hurry(3) else { panic!("the rest is used up") };
    assert_eq!(wait, ms(60_000));
    assert!(matches!(hurry(1), Admission::Send(_)));
}

/// A request: its time of arrival, its urgency, and the latency of its answer.
type Job = (u64, u8, u64);

fn simulate(jobs: Vec<Job>) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let world = world("20/s burst 7, 200/min burst 200");
        let arrivals: Arc<Mutex<Vec<(Instant, u8)>>> = Arc::default();
        let mut tasks = tokio::task::JoinSet::new();
        for (at, urgency, latency) in jobs {
            let (lane, clock, arrivals) = (world.lane.clone(), world.clock, arrivals.clone());
            tasks.spawn(async move {
                tokio::time::sleep(ms(at)).await;
                let mut permit = permitted(lane.admit(of(&lane, urgency))).await;
                if latency == 0 {
                    return;
                }
                permit.sent();
                // Up to 20 ms in transit.
                tokio::time::sleep(ms(latency % 20)).await;
                arrivals.lock().push((clock.now(), urgency));
                tokio::time::sleep(ms(latency)).await;
                permit.answered(&AnswerReport::SERVED, Instant::START);
            });
        }
        let watch = watch_for_lost_slots(world.lane.clone());
        tasks.join_all().await;
        prop_assert!(!watch.is_finished(), "slots were lost");
        let arrivals = arrivals.lock();
        let worst = |least: u8, per| {
            let of = arrivals.iter().filter(|(_, urgency)| *urgency >= least);
            worst_window(&mut of.map(|(at, _)| (*at, 1)).collect::<Vec<_>>(), ms(per))
        };
        let (others, all) = ([worst(2, 1_000), worst(2, 60_000)], [worst(0, 1_000), worst(0, 60_000)]);
        prop_assert!(others[0] <= 18 && others[1] <= 180, "{others:?} of 18 and 180");
        prop_assert!(all[0] <= 20 && all[1] <= 200, "{all:?} of 20 and 200");
        Ok(())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Requests outside the reserve never take more than nine tenths of a window, and all together never more than the
    /// whole.
    #[test]
    fn nothing_but_urgent_requests_takes_the_reserve(
        jobs in proptest::collection::vec((0u64..20_000, 0u8..8, 0u64..200), 1..300),
    ) {
        simulate(jobs)?;
    }
}
