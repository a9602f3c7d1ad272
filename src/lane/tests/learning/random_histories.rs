//! Random histories: kinds, answers, departures, recalls and time in any order.

use std::{
    task::{Context, Poll, Waker},
    time::Duration,
};

use andante_clock::Instant;
use andante_learn::{AnswerReport, RouteKey};
use andante_policy::Spend;

use super::{super::random::worst_window, World, get, ms, s};
use crate::{Admission, Permit, QueueStatus, Waiting};

/// Kinds, answers, departures, recalls and time in any order: no slot is lost, and in the end every request is served.
#[test]
fn whatever_happens_everybody_is_served_in_the_end() {
    stories(false);
}

/// No request is overtaken by a later one of its kind for longer than classes stay unsorted.
#[test]
fn nobody_is_overtaken_by_his_own_kind() {
    stories(true);
}

fn stories(overtaking: bool) {
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(300u64);
    let mut wrong = Vec::new();
    for seed in 0..seeds {
        if let Err(why) = std::panic::catch_unwind(|| story(seed, overtaking)) {
            let why = why
                .downcast_ref::<String>()
                .cloned()
                .unwrap_or_else(|| why.downcast_ref::<&str>().map_or_else(String::new, |why| (*why).to_owned()));
            wrong.push(format!("seed {seed}: {why}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {seeds} stories:\n{}", wrong.len(), wrong.join("\n"));
}

fn story(seed: u64, overtaking: bool) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let limits = ["", "10/s", "30/s burst 5, 500/min", "20/s strict", "600/s, in-flight 7", "1000/min burst 1000"];
        let limits = limits[rng.usize(..limits.len())];
        let change = |policy: &mut andante_policy::Policy| {
            policy.max_wait = Duration::MAX;
            policy.spend = [Spend::Even, Spend::Mostly, Spend::Greedy][rng.usize(..3)];
            policy.breaker = rng.bool();
        };
        let world = if limits.is_empty() { World::unlimited(change) } else { World::with(limits, change) };
        let (mut log, recalls) = (Vec::new(), rng.bool());
        let kinds: Vec<_> = ["/a", "/b", "/search/x", "/search/y", "/users/1", "/z/z/z"].map(get).into();
        let mut queue: Vec<(RouteKey, std::pin::Pin<Box<Waiting>>)> = Vec::new();
        let (mut held, mut sent): (Vec<Permit>, Vec<Permit>) = (Vec::new(), Vec::new());
        let mut cx = Context::from_waker(Waker::noop());
        for step in 0..400 {
            match rng.u8(..12) {
                0..=3 => {
                    let kind = if rng.u8(..10) == 0 { RouteKey::NONE } else { kinds[rng.usize(..kinds.len())] };
                    match world.ask_for(kind) {
                        Admission::Send(permit) => held.push(permit),
                        Admission::Wait(waiting) => queue.push((kind, Box::pin(waiting))),
                        Admission::Refuse(refusal) => panic!("refused: {refusal}"),
                    }
                }
                4 if !queue.is_empty() => drop(queue.swap_remove(rng.usize(..queue.len()))),
                5 | 6 if !held.is_empty() => {
                    let mut permit = held.swap_remove(rng.usize(..held.len()));
                    permit.sent();
                    log.push((world.clock.now(), 1));
                    sent.push(permit);
                }
                7 if recalls && !sent.is_empty() && rng.u8(..4) == 0 => {
                    let mut permit = sent.swap_remove(rng.usize(..sent.len()));
                    // Without a slot it may not be sent.
                    if permit.recall() {
                        held.push(permit);
                    }
                }
                8 | 9 if !sent.is_empty() => {
                    let permit = sent.swap_remove(rng.usize(..sent.len()));
                    any_answer(&mut rng, &world, permit);
                }
                10 if rng.u8(..3) == 0 => {
                    let from = if rng.bool() { &mut held } else { &mut sent };
                    if !from.is_empty() {
                        let permit = from.swap_remove(rng.usize(..from.len()));
                        if rng.bool() {
                            permit.broke();
                        }
                        drop(permit);
                    }
                }
                11 => {
                    let wait = [ms(rng.u64(..5)), ms(rng.u64(..2000)), s(rng.u64(..100))][rng.usize(..3)];
                    tokio::time::sleep(wait).await;
                }
                _ => {}
            }
            let asked =
                (overtaking && !queue.is_empty() && rng.u8(..8) == 0).then(|| queue[rng.usize(..queue.len())].0);
            if asked.is_some() {
                tokio::time::sleep(ms(150)).await;
            }
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
            let mut at = 0;
            while at < queue.len() {
                match queue[at].1.as_mut().poll(&mut cx) {
                    Poll::Ready(permit) => {
                        held.push(permit.unwrap());
                        drop(queue.swap_remove(at));
                    }
                    Poll::Pending => at += 1,
                }
            }
            if let Some(kind) = asked.filter(|kind| queue.iter().any(|(waits, _)| waits == kind)) {
                let overtakes = matches!(world.ask_for(kind), Admission::Send(_));
                assert!(!overtakes, "{limits}: overtaken at step {step}, {:?}", world.elapsed());
            }
            let lost = async {
                for _ in 0..5 {
                    if !world.lane.loses_slots() {
                        return false;
                    }
                    tokio::time::sleep(ms(1)).await;
                }
                true
            };
            assert!(!lost.await, "{limits}: a slot is lost at step {step}, {:?}", world.elapsed());
        }
        // All requests in flight are answered, and from now on every request is.
        held.drain(..).for_each(drop);
        for mut permit in sent.drain(..) {
            permit.answered(&AnswerReport::SERVED, Instant::START);
        }
        let since = world.elapsed();
        while !queue.is_empty() {
            let mut moved = false;
            tokio::task::yield_now().await;
            let mut at = 0;
            while at < queue.len() {
                match queue[at].1.as_mut().poll(&mut cx) {
                    Poll::Ready(permit) => {
                        moved = true;
                        let mut permit = permit.unwrap();
                        permit.sent();
                        log.push((world.clock.now(), 1));
                        tokio::time::sleep(ms(1)).await;
                        permit.answered(&AnswerReport::SERVED, Instant::START);
                        drop(permit);
                        drop(queue.swap_remove(at));
                    }
                    Poll::Pending => at += 1,
                }
            }
            if !moved && !queue.is_empty() {
                let QueueStatus { waiting, next_slot: next } = world.lane.queue_status();
                assert!(
                    next != Instant::FAR,
                    "{limits}: {waiting} wait for an answer, and none is under way: {:?}",
                    world.lane.snapshot()
                );
                world.clock.sleep_until(next + ms(2)).await;
                let took = world.elapsed() - since;
                assert!(
                    took < s(40 * 86_400),
                    "{limits}: {waiting} still wait after {took:?}: {:?}",
                    world.lane.snapshot()
                );
            }
        }
        let end = world.lane.snapshot();
        assert_eq!((end.queue.waiting, end.in_flight.count), (0, 0), "something was left behind");
        // The driver dozes for a second at most.
        tokio::time::sleep(s(2)).await;
        assert_eq!(std::sync::Arc::strong_count(&world.lane), 1, "{limits}: a task holds the lane");
        for limit in world.lane.policy().limits.iter().filter(|_| !recalls) {
            let worst = worst_window(&mut log, limit.rate.per);
            assert!(worst <= limit.rate.count.get(), "{worst} in a window of {limit}");
        }
    });
}

fn any_answer(rng: &mut fastrand::Rng, world: &World, permit: Permit) {
    let status = [200, 200, 200, 200, 429, 429, 403, 503, 500][rng.usize(..9)];
    let number = |rng: &mut fastrand::Rng| ["0", "1", "5", "40", "100", "900", "1000000"][rng.usize(..7)];
    let time = |rng: &mut fastrand::Rng| ["0", "1", "3", "30", "600", "4000"][rng.usize(..6)];
    let date = ["0", "7", "30", "4000", "1790000100", "1790003000"][rng.usize(..6)];
    let resource = ["core", "search", "c"][rng.usize(..3)];
    let policy = format!("\"a\";q={};w={}", number(rng), time(rng));
    let left = format!("\"a\";r={};t={}", number(rng), time(rng));
    let (one, two, three, four) = (number(rng), number(rng), time(rng), time(rng));
    let mut fields: Vec<(&str, &str)> = Vec::new();
    match rng.u8(..6) {
        0 => fields.extend([("x-ratelimit-limit", one), ("x-ratelimit-remaining", two), ("x-ratelimit-reset", date)]),
        1 => fields.extend([
            ("x-ratelimit-limit", one),
            ("x-ratelimit-remaining", two),
            ("x-ratelimit-reset", date),
            ("x-ratelimit-resource", resource),
        ]),
        2 => fields.extend([("ratelimit", left.as_str()), ("ratelimit-policy", policy.as_str())]),
        3 => fields.extend([
            ("x-ratelimit-limit-tokens", "10000"),
            ("x-ratelimit-remaining-tokens", two),
            ("x-ratelimit-reset-tokens", three),
        ]),
        _ => {}
    }
    if rng.u8(..4) == 0 {
        fields.push(("retry-after", four));
    }
    if rng.u8(..8) == 0 {
        fields.push(("stripe-rate-limited-reason", "endpoint-concurrency"));
    }
    world.answer(permit, (status, &fields));
}
