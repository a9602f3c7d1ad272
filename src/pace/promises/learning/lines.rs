//! Those that different things hold up stand in lines of their own: what that costs.

use std::time::Duration;

use super::{LATENCY, World, s};
use crate::{
    learn::RouteKey,
    pace::{Admission, Waiting},
};

/// Nobody is sent away for having to wait too long.
const FOREVER: Duration = Duration::from_secs(7200);

fn get(path: &str) -> RouteKey {
    RouteKey::new("GET", path)
}

fn waits(admission: Admission) -> Waiting {
    match admission {
        Admission::Wait(waiting) => waiting,
        other => panic!("it should wait: {other:?}"),
    }
}

/// An API that tells of two budgets by turns, for requests of one kind.
#[tokio::test(start_paused = true)]
async fn an_answer_does_not_move_all_that_wait_from_line_to_line() {
    const WAITING: usize = 20_000;
    // As many are moved under the lock at once as are given slots at once.
    const MOST: usize = 64;
    let world = World::unlimited(|policy| (policy.max_wait, policy.max_waiting) = (FOREVER, 2 * WAITING));
    let mut permits = world.send_all(41).await;
    let mut other = world.permit_for(get("/two")).await;
    other.sent();
    let said = |limit| [("x-ratelimit-limit", limit), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "3000")];
    tokio::time::sleep(LATENCY).await;
    world.answer(permits.pop().unwrap(), (200, &said("100")));
    world.answer(other, (200, &said("100")));
    let queue: Vec<_> = (0..WAITING).map(|_| waits(world.ask())).collect();
    let (before, mut most) = (world.lane.moved(), 0);
    for (number, permit) in permits.into_iter().enumerate() {
        let before = world.lane.moved();
        world.answer(permit, (200, &said(if number % 2 == 0 { "200" } else { "100" })));
        most = most.max(world.lane.moved() - before);
    }
    assert!((1..=MOST).contains(&most), "{most} of {WAITING} were moved for one answer");
    // What is left of it is done all at once, and not over and over again.
    tokio::time::sleep(s(1)).await;
    let moved = world.lane.moved() - before;
    assert!(moved < 100 * MOST, "{moved} of {WAITING} were moved one by one");
    drop(queue);
}
