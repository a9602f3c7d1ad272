//! Classes of requests that different limits block: their cost, and the number of requests ahead of each.

use super::{CannedAnswer, FOREVER, LATENCY, SERVED, World, ask, get, s, waits};
use crate::{Admission, AdmitRequest};

/// An API that announces two budgets in turn, for requests of one kind.
#[tokio::test(start_paused = true)]
async fn an_answer_does_not_move_all_that_wait_from_line_to_line() {
    const WAITING: usize = 20_000;
    // The number moved under the lock at once equals the number of slots granted at once: when an answer is processed,
    // and when its request ends.
    const MOST: usize = 2 * 64;
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
    // The rest is moved all at once, and not over and over again.
    tokio::time::sleep(s(1)).await;
    let moved = world.lane.moved() - before;
    assert!(moved < 50 * MOST, "{moved} of {WAITING} were moved one by one");
    drop(queue);
}

#[tokio::test(start_paused = true)]
async fn those_whose_pause_is_over_are_counted_among_those_ahead() {
    let world = World::with("1/s", |policy| policy.max_wait = FOREVER);
    let (paused, other) = (get("/a"), get("/b"));
    let room: CannedAnswer<'_> = (429, &[("x-ratelimit-limit", "100"), ("x-ratelimit-remaining", "60")]);
    world.call_for(paused, room).await;
    let mut queue: Vec<_> = (0..50).map(|_| waits(world.ask_for(paused))).collect();
    let mut first = queue.remove(0).await.unwrap();
    first.sent();
    world.answer(first, SERVED);
    let Admission::Refuse(refusal) =
        world.lane.admit(AdmitRequest { deadline: world.clock.now() + s(10), ..ask(other) })
    else {
        panic!("49 are before it, at one a second");
    };
    assert_eq!(refusal.retry_after().as_secs(), 49 + 1 - 10);
    drop(queue);
}
