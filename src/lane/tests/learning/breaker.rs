//! An upstream that fails is left alone, probed from time to time, and back at full pace soon after its return.

use std::{sync::Arc, time::Duration};

use andante_learn::Reason;
use parking_lot::Mutex;

use super::{LATENCY, SERVED, World, ms, s};
use crate::Admission;

/// How an upstream fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outage {
    /// No connection succeeds.
    Unreached,
    /// The upstream answers 503, and such requests may be resent as far as the lane allows.
    Failing,
}

#[derive(Default)]
struct Log {
    /// Times of attempts.
    tries: Vec<Duration>,
    served: Vec<Duration>,
    /// Requests whose clients received the failure.
    told: usize,
}

const ARRIVING: u64 = 14_000;
const DOWN: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(40));

/// 200 requests arrive per second, for 70 seconds.
async fn outage(outage: Outage) -> Log {
    let (world, log) = (Arc::new(World::unlimited(|_| {})), Arc::new(Mutex::new(Log::default())));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..ARRIVING {
        let (world, log) = (world.clone(), log.clone());
        tasks.spawn(async move {
            tokio::time::sleep(ms(number * 5)).await;
            while !attempt(&world, &log, outage).await {
                if outage == Outage::Failing && !world.lane.may_retry() {
                    log.lock().told += 1;
                    return;
                }
                tokio::time::sleep(ms(fastrand::u64(50..250))).await;
            }
            log.lock().served.push(world.elapsed());
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    std::mem::take(&mut *log.lock())
}

async fn attempt(world: &World, log: &Mutex<Log>, outage: Outage) -> bool {
    let mut permit = world.permit().await;
    let down = (DOWN.0..DOWN.1).contains(&world.elapsed());
    log.lock().tries.push(world.elapsed());
    if down && outage == Outage::Unreached {
        tokio::time::sleep(LATENCY).await;
        permit.broke();
        return false;
    }
    permit.sent();
    tokio::time::sleep(LATENCY).await;
    world.answer(permit, if down { (503, &[]) } else { SERVED });
    !down
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_not_multiplied_and_ends_when_it_ends() {
    for kind in [Outage::Unreached, Outage::Failing] {
        let log = outage(kind).await;
        assert_eq!(log.served.len() + log.told, ARRIVING as usize, "{kind:?}: all came to an end");
        let extra = log.tries.len() - ARRIVING as usize;
        assert!(extra <= ARRIVING as usize / 5, "{kind:?}: {extra} extra tries");
        // Far fewer, since only a probe is sent from time to time.
        let tried = log.tries.iter().filter(|at| (DOWN.0..DOWN.1).contains(*at)).count();
        assert!(tried <= 100, "{kind:?}: tried {tried} times while it was down");
        assert!(log.told <= 30, "{kind:?}: {} were told", log.told);
        let back = log.served.iter().find(|at| **at >= DOWN.1).unwrap();
        assert!(*back <= DOWN.1 + s(4), "{kind:?}: the first was served at {back:?}");
        let pace = log.served.iter().filter(|at| (DOWN.1 + s(4)..DOWN.1 + s(5)).contains(*at)).count();
        assert!(pace >= 200, "{kind:?}: {pace} in the fifth second after its return");
        // The 6,000 requests that had waited are served, too.
        let late = log.served.iter().filter(|at| **at < DOWN.1 + s(10)).count();
        assert!(late >= 9_500, "{kind:?}: {late} within ten seconds of its return");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_has_never_answered_does_not_make_anybody_wait() {
    let world = World::unlimited(|_| {});
    for _ in 0..100 {
        let Admission::Send(permit) = world.ask() else { panic!("held back at {:?}", world.elapsed()) };
        permit.broke();
        drop(permit);
        tokio::time::sleep(ms(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_few_failures_are_nobodys_business() {
    let world = World::unlimited(|_| {});
    for number in 0..300 {
        world.call(if number % 3 == 0 { (500, &[]) } else { SERVED }).await;
        assert_eq!(world.lane.snapshot().queue.gate, None);
    }
}

#[tokio::test(start_paused = true)]
async fn it_can_be_off() {
    let world = World::unlimited(|policy| policy.breaker = false);
    world.call(SERVED).await;
    for _ in 0..100 {
        world.call((502, &[])).await;
        assert!(!world.lane.is_broken());
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_teaches_no_rate() {
    let world = World::unlimited(|_| {});
    for _ in 0..50 {
        world.call(SERVED).await;
    }
    while !world.lane.is_broken() {
        world.call((502, &[])).await;
    }
    assert_eq!(world.lane.snapshot().queue.gate.unwrap().0, Reason::Breaker);
    world.call(SERVED).await;
    assert!(world.lane.snapshot().limits.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_503_after_a_while_without_requests_is_a_refusal_still() {
    let world = World::unlimited(|_| {});
    world.call(SERVED).await;
    tokio::time::sleep(s(11)).await;
    world.call((503, &[])).await;
    let gate = world.lane.snapshot().queue.gate.expect("it pauses");
    assert_eq!(gate.0, Reason::Refused, "of an API that serves requests");
}
