//! Pauses: nothing leaves until they are over, one request probes, and then the lane continues at the known pace.

use std::sync::Arc;

use andante_learn::Reason;
use parking_lot::Mutex;

use super::{CannedAnswer, FOREVER, LATENCY, SERVED, World, ms, s, waits};
use crate::{Admission, Lane};
use std::time::Duration;

const SLOW_DOWN: CannedAnswer<'static> = (429, &[("retry-after", "5")]);

/// When requests left one lane, and how many were served.
#[derive(Default)]
struct Log {
    left: Vec<Duration>,
    served: usize,
}

/// Sends `count` requests until they are served; the answer to number `bad` is [`SLOW_DOWN`].
async fn crowd(world: &Arc<World>, count: usize, bad: Option<usize>) -> Log {
    let log = Arc::new(Mutex::new(Log::default()));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..count {
        let (world, log) = (world.clone(), log.clone());
        tasks.spawn(async move {
            loop {
                let mut permit = world.permit().await;
                permit.sent();
                let number = {
                    let mut log = log.lock();
                    log.left.push(world.elapsed());
                    log.left.len()
                };
                tokio::time::sleep(LATENCY).await;
                if Some(number) != bad {
                    world.answer(permit, SERVED);
                    log.lock().served += 1;
                    return;
                }
                world.answer(permit, SLOW_DOWN);
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    std::mem::take(&mut *log.lock())
}

async fn pauses(limits: &str, spacing: Option<Duration>) {
    let (world, other) = (Arc::new(World::new(limits)), Arc::new(World::new("50/s")));
    let both = (crowd(&world, 5000, Some(100)), crowd(&other, 1000, None));
    let (log, untouched) = tokio::join!(both.0, both.1);
    assert_eq!((log.served, log.left.len()), (5000, 5001), "one was sent twice, and none was lost");
    let closed = log.left[99] + LATENCY;
    let pause = log.left.iter().filter(|at| (closed..closed + s(5)).contains(*at)).count();
    assert_eq!(pause, 0, "{limits}: left in spite of the pause");
    let after: Vec<_> = log.left.iter().filter(|at| **at >= closed + s(5)).collect();
    assert!(*after[0] < closed + ms(5010), "{limits}: the first one left at {:?}", after[0]);
    assert!(*after[1] >= *after[0] + LATENCY, "{limits}: more than one tried");
    match spacing {
        Some(spacing) => {
            let least = after.windows(2).map(|pair| *pair[1] - *pair[0]).min().unwrap();
            assert!(least >= spacing / 2, "{limits}: a gap of {least:?}");
        }
        // First one request leaves, and then twice as many after each answer.
        None => assert!((0..5).all(|turn| *after[(2 << turn) - 1] >= *after[0] + LATENCY * (turn + 1)), "{limits}"),
    }
    let gaps = untouched.left.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(gaps.max().unwrap() <= ms(25), "another lane was held up");
}

#[tokio::test(start_paused = true)]
async fn for_as_long_as_an_api_asks_nothing_leaves_and_afterwards_the_pace_is_even() {
    pauses("50/s", Some(ms(20))).await;
}

#[tokio::test(start_paused = true)]
async fn after_a_pause_a_limit_with_burst_does_not_stampede() {
    pauses("50/s burst 50", None).await;
}

fn gate(lane: &Lane) -> Option<(Reason, Duration)> {
    lane.snapshot().queue.gate
}

#[tokio::test(start_paused = true)]
async fn who_leaves_while_trying_whether_it_may_costs_nothing() {
    let world = World::new("50/s");
    world.call(SLOW_DOWN).await;
    let probe = world.permit().await;
    assert_eq!(world.elapsed(), ms(5010));
    let Admission::Wait(next) = world.ask() else { panic!("one tries already") };
    drop(probe);
    let next = next.await;
    assert_eq!(world.elapsed(), ms(5010));
    drop(next);
    // The outcome does not change if the request leaves before it has noticed its turn.
    let Admission::Send(probe) = world.ask() else { panic!("nobody tries") };
    let (Admission::Wait(left), Admission::Wait(stays)) = (world.ask(), world.ask()) else { panic!("one tries") };
    drop(probe);
    drop(left);
    drop(stays.await);
    assert_eq!(world.elapsed(), ms(5010));
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_was_sent_and_is_never_answered_makes_room_for_another() {
    let world = World::new("50/s");
    world.call(SLOW_DOWN).await;
    let mut probe = world.permit().await;
    probe.sent();
    let Admission::Wait(next) = world.ask() else { panic!("one tries already") };
    tokio::time::sleep(s(3)).await;
    drop(probe);
    drop(next.await);
    assert_eq!(world.elapsed(), ms(8010));
}

#[tokio::test(start_paused = true)]
async fn a_refused_probe_prolongs_the_pause_and_nobody_else_is_sent() {
    let world = Arc::new(World::new("50/s"));
    world.call(SLOW_DOWN).await;
    assert_eq!(world.call(SLOW_DOWN).await, ms(5010));
    assert_eq!(world.call(SERVED).await, ms(10_020));
    assert_eq!(gate(&world.lane), None);
}

#[tokio::test(start_paused = true)]
async fn refusals_of_what_was_under_way_prolong_nothing_beyond_what_they_ask() {
    let world = World::unlimited(|_| {});
    let permits = world.send_all(20).await;
    for permit in permits {
        world.answer(permit, (429, &[]));
    }
    let (_, pause) = gate(&world.lane).unwrap();
    assert!(
        pause <= ms(100),
        "twenty refusals of one moment are one, and one waits for what an answer takes: {pause:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn refusals_that_name_no_time_make_longer_and_longer_pauses() {
    let world = World::unlimited(|_| {});
    let mut tries = 0;
    while world.elapsed() < s(3600) {
        world.call((429, &[])).await;
        let (elapsed, pause) = (world.elapsed(), gate(&world.lane).unwrap().1);
        // The pause is a quarter of the elapsed time, or an answer's latency. Common windows may end earlier, or a
        // twentieth of the next such quarter later.
        assert!(pause <= (elapsed / 4).max(ms(100)).mul_f64(1.0625) + ms(1), "a pause of {pause:?} after {elapsed:?}");
        assert!(pause >= LATENCY / 2 && pause <= s(300), "a pause of {pause:?} after {elapsed:?}");
        tries += 1;
    }
    assert!(tries <= 80, "{tries} tries in an hour");
}

#[tokio::test(start_paused = true)]
async fn who_cannot_wait_for_the_end_of_a_pause_is_told_so_at_once() {
    let world = World::with("50/s", |policy| policy.max_wait = s(60));
    world.call((429, &[("retry-after", "3600")])).await;
    let Admission::Refuse(refusal) = world.ask() else { panic!("the pause is longer than it may wait") };
    assert_eq!(refusal.retry_after(), s(3540));
    assert!(gate(&world.lane).is_some(), "and it is the lane that pauses, not the kind of request");
}

#[tokio::test(start_paused = true)]
async fn requests_that_hang_do_not_stop_a_lane_after_a_pause() {
    for hang in 1..4 {
        let world = World::unlimited(|policy| policy.max_wait = FOREVER);
        world.call(SERVED).await;
        let hanging = world.send_all(hang).await;
        world.call((429, &[("retry-after", "1")])).await;
        world.call(SERVED).await;
        let since = world.elapsed();
        let next = tokio::time::timeout(s(600), world.permit()).await;
        assert!(next.is_ok(), "{hang} hang: nothing leaves for {:?}", world.elapsed() - since);
        drop(hanging);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_is_over_does_not_hide_that_nothing_is_left() {
    let world = World::unlimited(|policy| policy.max_wait = FOREVER);
    let said: CannedAnswer<'_> = (
        429,
        &[
            ("retry-after", "1"),
            ("x-ratelimit-limit-tokens", "10000"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "600s"),
        ],
    );
    world.call(said).await;
    tokio::time::sleep(s(3)).await;
    let ask = crate::AdmitRequest { deadline: world.clock.now() + s(10), ..super::ask(super::kind()) };
    let refused = matches!(world.lane.admit(ask), Admission::Refuse(_));
    let next = world.lane.snapshot().queue.next_slot;
    assert!(refused, "let in to wait for 10 s; closed for {:?}, the next slot in {next:?}", world.lane.closed_for());
}

#[tokio::test(start_paused = true)]
async fn a_pause_whose_probe_fails_does_not_end_in_a_stampede() {
    let world = World::unlimited(|policy| policy.max_wait = FOREVER);
    world.call(SERVED).await;
    tokio::time::sleep(s(5)).await;
    world.call((429, &[("retry-after", "5")])).await;
    let queue: Vec<_> = (0..1000).map(|_| waits(world.ask())).collect();
    let mut queue = queue.into_iter();
    let mut probe = queue.next().unwrap().await.unwrap();
    probe.sent();
    tokio::time::sleep(LATENCY).await;
    world.answer(probe, (500, &[]));
    tokio::time::sleep(ms(1)).await;
    let left = 999 - world.waiting();
    assert!(left <= 10, "{left} leave at once after the first try was answered with 500");
    drop(queue);
}

#[tokio::test(start_paused = true)]
async fn who_waits_behind_a_pause_is_told_of_the_pause_and_of_those_before_him() {
    let world = World::with("10/s", |policy| policy.max_wait = FOREVER);
    world.call((429, &[("retry-after", "100")])).await;
    let queue: Vec<_> = (0..1000).map(|_| waits(world.ask())).collect();
    // 100 s of pause, and then a thousand at ten a second.
    let expected = waits(world.ask()).expected.since(world.clock.now());
    assert!((s(199)..s(202)).contains(&expected), "{expected:?}");
    let drain = world.lane.snapshot().queue.drain.unwrap();
    assert!((s(199)..s(202)).contains(&drain), "{drain:?}");
    drop(queue);
}
