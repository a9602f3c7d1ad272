//! How long lanes are kept, and the tasks that drive them: nothing is lost that was promised, and nothing stays for ever.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, StatusCode};

use super::{World, ask, kind, ms};
use crate::{
    clock::{Clock, Instant},
    hint::{self, Hint},
    lane::{Admission, Lane, Lanes},
    learn::{AnswerReport, RouteKey},
    metrics::Metrics,
    policy::{Origin, Policy, Rules, Scheme},
};

/// Lanes of any host, without limits.
fn lanes() -> Lanes {
    Lanes::new(Rules::new(vec![Policy::new("any", vec!["*".parse().unwrap()])]), Metrics::new(), Clock::start())
}

fn find(lanes: &Lanes, name: &str) -> Arc<Lane> {
    lanes.find(&Origin::parse(Scheme::Http, name, Some(80)).unwrap())
}

/// Enough other lanes for those that remember nothing to be forgotten.
fn crowd(lanes: &Lanes) {
    (0..5000).for_each(|host| drop(find(lanes, &format!("crowd{host}.test"))));
    lanes.sweep();
}

/// One request to `lane`, answered with `status` and `fields`.
fn call(lane: &Arc<Lane>, kind: RouteKey, status: u16, fields: &[(&'static str, &str)]) {
    let Admission::Send(mut permit) = lane.admit(ask(kind)) else { panic!("it may not leave") };
    permit.sent();
    let mut headers = HeaderMap::new();
    fields.iter().for_each(|(name, value)| drop(headers.insert(*name, value.parse().unwrap())));
    let status = StatusCode::from_u16(status).unwrap();
    let arrived = Duration::from_secs(1_790_000_000);
    let hint: Hint = hint::read(&hint::Answer { status, headers: &headers, body: None, arrived });
    permit.answered(&AnswerReport { hint: &hint, failed: false, route: None }, Instant::START);
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_remembered_until_it_is_over_however_many_lanes_there_are() {
    let (lanes, hour) = (lanes(), ms(3_600_000));
    call(&find(&lanes, "closed.test"), kind(), 429, &[("retry-after", "80000")]);
    let refusal = [("x-ratelimit-limit", "100"), ("x-ratelimit-remaining", "60"), ("retry-after", "9000")];
    call(&find(&lanes, "one-kind.test"), kind(), 429, &refusal);
    tokio::time::advance(hour * 2).await;
    crowd(&lanes);
    assert!(matches!(find(&lanes, "closed.test").admit(ask(kind())), Admission::Wait(_) | Admission::Refuse(_)));
    assert!(matches!(find(&lanes, "one-kind.test").admit(ask(kind())), Admission::Wait(_) | Admission::Refuse(_)));
    tokio::time::advance(hour * 24).await;
    crowd(&lanes);
    assert!(lanes.len() < 5000, "they are over, and forgotten: {}", lanes.len());
}

#[tokio::test(start_paused = true)]
async fn lanes_that_have_learned_something_are_bounded_in_number() {
    let lanes = lanes();
    let said = [("x-ratelimit-limit", "100"), ("x-ratelimit-remaining", "60"), ("x-ratelimit-reset", "40")];
    for host in 0..60_000 {
        call(&find(&lanes, &format!("h{host}.test")), kind(), 200, &said);
    }
    assert!(lanes.len() < 35_000, "{}", lanes.len());
    assert!(!find(&lanes, "h59999.test").snapshot().budgets.is_empty(), "those that were used last are kept");
}

#[tokio::test(start_paused = true)]
async fn the_task_that_drives_a_lane_ends_when_nobody_waits_any_more() {
    // With all slots in flight it would sleep for ever, and else until the next slot.
    for limits in ["in-flight 1", "1/1000s"] {
        let World { lane, .. } = World::new(limits);
        let Admission::Send(mut first) = lane.admit(ask(kind())) else { panic!("nothing was sent yet") };
        first.sent();
        let Admission::Wait(waiting) = lane.admit(ask(kind())) else { panic!("there is no slot") };
        tokio::task::yield_now().await;
        drop(waiting);
        drop(first);
        tokio::time::sleep(ms(10)).await;
        assert_eq!(Arc::strong_count(&lane), 1, "{limits}: a task still holds the lane");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_to_a_lane_whose_driver_is_late_gives_what_has_matured() {
    let world = World::new("10/s");
    let _first = world.permit().await;
    let Admission::Wait(second) = world.ask() else { panic!("the slot is taken") };
    // The driver's thread is busy: nothing runs while time goes on.
    tokio::time::advance(ms(150)).await;
    let Admission::Wait(third) = world.ask() else { panic!("another one is before it") };
    assert_eq!((world.waiting(), world.lane.snapshot().in_flight), (1, 2), "the second has its permit");
    drop((second, third));
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_given_out_in_pieces_and_whole() {
    let world = World::new("5000/s burst 5000, in-flight 1");
    let first = world.permit().await;
    let waiting: Vec<_> = (0..3000).map(|_| world.ask()).collect();
    drop(first);
    // One in flight: each that is dropped lets the next go, and none is forgotten.
    for waiting in waiting {
        match waiting {
            Admission::Wait(waiting) => drop(waiting.await),
            other => panic!("one is in flight: {other:?}"),
        }
    }
    let gate = World::new("1000000/s burst 100000");
    call(&gate.lane, kind(), 429, &[("retry-after", "5")]);
    let waiting: Vec<_> = (0..3000).map(|_| gate.ask()).collect();
    let mut permits = Vec::new();
    for waiting in waiting {
        let Admission::Wait(waiting) = waiting else { panic!("the gate is closed") };
        let mut permit = waiting.await;
        permit.sent();
        permit.answered(&AnswerReport::SERVED, Instant::START);
        permits.push(permit);
    }
    assert_eq!(permits.len(), 3000);
}

#[tokio::test(start_paused = true)]
async fn however_many_leave_before_they_are_handed_their_permits_the_next_one_has_one() {
    let world = World::with("in-flight 1", |policy| policy.max_waiting = 200_000);
    let first = world.permit().await;
    let Admission::Wait(second) = world.ask() else { panic!("one is in flight") };
    let mut left: Vec<_> = (0..100_000).map(|_| world.ask()).collect();
    for admission in &mut left {
        let Admission::Wait(waiting) = admission else { panic!("one is in flight") };
        // As if it left between the moment in which it is given a slot and that in which it is told.
        waiting.grant.close();
    }
    let Admission::Wait(last) = world.ask() else { panic!("one is in flight") };
    drop(first);
    drop(second.await);
    let _permit = last.await;
    let end = world.lane.snapshot();
    assert_eq!((end.waiting, end.in_flight), (0, 1));
    drop(left);
}
