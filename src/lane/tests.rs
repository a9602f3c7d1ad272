//! The promises of the pacing engine, tested in virtual time.

mod bottleneck;
mod concurrency;
mod connecting;
mod costs;
mod full;
mod keeping;
mod late;
mod learning;
mod pausing;
mod predictions;
mod random;
mod reloading;
mod reserve;
mod returns;
mod steering;
mod sub_limits;

use std::{sync::Arc, time::Duration};

use andante_clock::{Clock, Instant};
use andante_hint as hint;
use andante_learn::{AnswerReport, RouteKey};
use andante_limit::{Cost, Limits, MarginSpec};
use andante_metrics::Metrics;
use andante_policy::{Origin, Policy, Rules, Scheme};
use http::StatusCode;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::{
    Admission, AdmitRequest, Lane, Lanes, Permit, Refusal,
    order::{Claim, ClientId, Turn},
};

// === the world: an API that counts, and workers that ask ===

struct World {
    lane: Arc<Lane>,
    clock: Clock,
}

impl World {
    fn new(limits: &str) -> Self {
        Self::with(limits, |_| {})
    }

    fn with(limits: &str, change: impl FnOnce(&mut Policy)) -> Self {
        let limits: Limits = limits.parse().unwrap();
        let mut policy = Policy::new("test", vec!["*".parse().unwrap()]);
        (policy.limits, policy.in_flight) = (limits.limits, limits.in_flight);
        change(&mut policy);
        let (clock, metrics) = (Clock::start(), Metrics::new());
        Self { lane: Arc::new(Lane::new("api.test".into(), policy.into(), metrics.rule("test"), clock)), clock }
    }

    fn ask(&self) -> Admission {
        self.ask_for(kind())
    }

    fn ask_for(&self, kind: RouteKey) -> Admission {
        self.lane.admit(ask(kind))
    }

    async fn permit(&self) -> Permit {
        self.permit_for(kind()).await
    }

    async fn permit_for(&self, kind: RouteKey) -> Permit {
        permitted(self.ask_for(kind)).await
    }

    /// Sends one request that is answered at once, and returns when it left.
    async fn send(&self) -> Duration {
        let mut permit = self.permit().await;
        permit.sent();
        permit.answered(&AnswerReport::SERVED, Instant::START);
        self.clock.now().since(Instant::START)
    }

    fn waiting(&self) -> usize {
        self.lane.snapshot().queue.waiting
    }
}

fn ms(of: u64) -> Duration {
    Duration::from_millis(of)
}

/// The kind of all requests, unless a test uses another one.
fn kind() -> RouteKey {
    RouteKey::new("GET", "/a")
}

/// A request without a deadline.
fn ask(kind: RouteKey) -> AdmitRequest {
    let (cost, claim, turn) = (Cost::MIN, Claim::USUAL, Turn::New);
    AdmitRequest { cost, kind, claim, deadline: Instant::FAR, turn, draws: None, port: 80 }
}

/// The permit of an admission, now or once its turn has come.
async fn permitted(admission: Admission) -> Permit {
    match admission {
        Admission::Send(permit) => permit,
        Admission::Wait(waiting) => waiting.await.unwrap(),
        Admission::Refuse(refusal) => panic!("refused: {refusal}"),
    }
}

/// Watches `lane`. The task panics if a request waits for a slot that matured long ago.
fn watch_for_lost_slots(lane: Arc<Lane>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut overdue = 0;
        loop {
            overdue = if lane.loses_slots() { overdue + 1 } else { 0 };
            assert!(overdue < 4, "somebody waits for a slot that matured {overdue} ms ago");
            tokio::time::sleep(ms(1)).await;
        }
    })
}

// === claims ===

#[tokio::test(start_paused = true)]
async fn requests_leave_evenly_and_in_order() {
    let world = World::new("10/s");
    let times = [world.send().await, world.send().await, world.send().await];
    assert_eq!(times, [ms(0), ms(100), ms(200)]);
}

#[tokio::test(start_paused = true)]
async fn the_first_to_ask_is_the_first_to_leave() {
    let world = World::new("10/s");
    let _first = world.permit().await;
    let order = Mutex::new(Vec::new());
    let wait = |name| {
        let Admission::Wait(waiting) = world.ask() else { panic!("the slot is taken") };
        let order = &order;
        async move {
            let _permit = waiting.await.unwrap();
            order.lock().push(name);
        }
    };
    let (one, two, three) = (wait(1), wait(2), wait(3));
    tokio::join!(three, one, two);
    assert_eq!(*order.lock(), [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn nobody_overtakes_those_who_wait() {
    let world = World::new("10/s");
    let _first = world.permit().await;
    let Admission::Wait(waiting) = world.ask() else { panic!("the slot is taken") };
    tokio::time::advance(ms(150)).await;
    // The slot has matured and belongs to the waiting request, even before that request notices.
    assert!(matches!(world.ask(), Admission::Wait(_)));
    drop(waiting);
}

#[tokio::test(start_paused = true)]
async fn a_ticket_that_is_left_costs_no_slot() {
    let world = World::new("10/s");
    drop(world.permit().await); // given back
    let _first = world.permit().await;
    let Admission::Wait(left) = world.ask() else { panic!("the slot is taken") };
    let Admission::Wait(stays) = world.ask() else { panic!("the slot is taken") };
    assert_eq!(world.waiting(), 2);
    drop(left);
    assert_eq!(world.waiting(), 1);
    let _permit = stays.await;
    assert_eq!(world.clock.now().since(Instant::START), ms(100));
}

#[tokio::test(start_paused = true)]
async fn a_permit_granted_to_somebody_who_has_just_left_goes_to_the_next() {
    let world = World::new("10/s");
    let _first = world.permit().await;
    let Admission::Wait(left) = world.ask() else { panic!("the slot is taken") };
    let Admission::Wait(stays) = world.ask() else { panic!("the slot is taken") };
    tokio::time::sleep(ms(100)).await; // the driver has granted it by now
    drop(left);
    let _permit = stays.await;
    assert_eq!(world.clock.now().since(Instant::START), ms(100));
}

#[tokio::test(start_paused = true)]
async fn a_permit_dropped_unsent_goes_back_and_a_sent_one_does_not() {
    let world = World::new("1/s");
    drop(world.permit().await);
    let mut sent = world.permit().await;
    assert_eq!(world.clock.now(), Instant::START);
    sent.sent();
    drop(sent);
    // The request may still be in transit, for as long as the margin says.
    assert_eq!(world.send().await, ms(1010));
}

#[tokio::test(start_paused = true)]
async fn what_is_written_late_counts_from_the_writing() {
    let world = World::new("1/s");
    let mut late = world.permit().await;
    late.sent();
    tokio::time::advance(ms(150)).await; // the process was stopped
    let written = world.clock.now();
    tokio::time::advance(ms(5)).await;
    late.answered(&AnswerReport::SERVED, written);
    assert_eq!(world.send().await, ms(1155));
}

#[tokio::test(start_paused = true)]
async fn what_comes_back_unseen_after_its_window_is_sent_anew_when_it_has_another_slot() {
    let world = World::new("10/s, in-flight 30");
    let mut unseen = Vec::new();
    for _ in 0..30 {
        let mut permit = world.permit().await;
        permit.sent();
        unseen.push(permit);
    }
    tokio::time::sleep(ms(1500)).await;
    let mut sent = Vec::new();
    for mut permit in unseen {
        // The upstream has processed none of them, and another connection has them at once.
        if !permit.recall() {
            permit = permitted(permit.renew(Instant::FAR)).await;
        }
        permit.sent();
        sent.push((world.clock.now(), 1));
        permit.answered(&AnswerReport::SERVED, Instant::START);
    }
    let worst = random::worst_window(&mut sent, ms(1000));
    assert!(worst <= 10, "{worst} in a second of 10/s");
    let closest = sent.windows(2).map(|pair| pair[1].0.since(pair[0].0)).min();
    assert!(closest >= Some(ms(90)), "{closest:?} apart");
    assert_eq!(world.lane.snapshot().in_flight.count, 0);
}

#[tokio::test(start_paused = true)]
async fn in_flight_is_a_limit_of_its_own() {
    let world = World::new("in-flight 2");
    let (one, _two) = (world.permit().await, world.permit().await);
    let Admission::Wait(third) = world.ask() else { panic!("two are under way") };
    tokio::time::advance(ms(500)).await;
    assert_eq!(world.waiting(), 1);
    drop(one);
    let _permit = third.await;
    assert_eq!(world.lane.snapshot().in_flight.count, 2);
}

#[tokio::test(start_paused = true)]
async fn a_strict_limit_waits_for_answers() {
    let world = World::new("1/s strict");
    let mut first = world.permit().await;
    first.sent();
    let Admission::Wait(second) = world.ask() else { panic!("the slot is taken") };
    tokio::time::advance(ms(5000)).await;
    assert_eq!(world.waiting(), 1);
    first.answered(&AnswerReport::SERVED, Instant::START);
    let _permit = second.await;
    assert_eq!(world.clock.now().since(Instant::START), ms(6000));
}

#[tokio::test(start_paused = true)]
async fn who_cannot_be_served_in_time_is_told_when_to_come_back() {
    let world = World::with("1/s", |policy| policy.max_wait = ms(2000));
    world.send().await;
    let _waiting: Vec<_> = (0..2).map(|_| world.ask()).collect();
    let Admission::Refuse(refusal) = world.ask() else { panic!("it would wait three seconds") };
    assert!(matches!(refusal, Refusal::TooLong { waiting: 2, .. }));
    assert_eq!(refusal.retry_after().as_millis(), 1000);
    tokio::time::sleep(refusal.retry_after()).await;
    assert!(matches!(world.ask(), Admission::Wait(_)));
}

#[tokio::test(start_paused = true)]
async fn impatience_shortens_the_wait_but_never_lengthens_it() {
    let world = World::with("1/s", |policy| policy.max_wait = ms(2000));
    world.send().await;
    let ask = |patience| world.lane.admit(AdmitRequest { deadline: world.clock.now() + patience, ..ask(kind()) });
    assert!(matches!(ask(ms(900)), Admission::Refuse(_)));
    let _waiting: Vec<_> = (0..2).map(|_| world.ask()).collect();
    assert!(matches!(ask(ms(60_000)), Admission::Refuse(_)));
}

#[tokio::test(start_paused = true)]
async fn the_queue_is_bounded() {
    let world = World::with("1/s", |policy| policy.max_waiting = 3);
    world.send().await;
    let _waiting: Vec<_> = (0..3).map(|_| world.ask()).collect();
    let Admission::Refuse(refusal) = world.ask() else { panic!("three wait already") };
    assert_eq!(refusal, Refusal::Full { waiting: 3, rule: None, retry_after: ms(1000) });
}

#[tokio::test(start_paused = true)]
async fn a_lane_is_forgotten_when_it_remembers_nothing() {
    let rule = || {
        let mut policy = Policy::new("any", vec!["*".parse().unwrap()]);
        policy.limits = vec!["10/s".parse().unwrap()];
        policy
    };
    let (clock, metrics) = (Clock::start(), Metrics::new());
    let lanes = Lanes::new(Rules::new(vec![rule()]), metrics, clock);
    let origin = |name: &str| Origin::parse(Scheme::Http, name, Some(80)).unwrap();
    let lane = lanes.find(&origin("a.test"));
    assert!(Arc::ptr_eq(&lane, &lanes.find(&origin("A.test.:8080"))), "one lane for all spellings");
    let Admission::Send(mut permit) = lane.admit(ask(kind())) else { panic!() };
    permit.sent();
    drop(permit);
    let remembered = Arc::downgrade(&lane);
    drop(lane);
    let crowd = |hosts| (0..hosts).for_each(|host| drop(lanes.find(&origin(&format!("h{host}.test")))));
    crowd(3000);
    assert!(remembered.upgrade().is_some(), "its window still counts a request");
    tokio::time::advance(ms(1100)).await;
    crowd(100_000);
    assert!(remembered.upgrade().is_none(), "it remembers nothing any more");
    assert!(lanes.len() < 3000, "{} lanes for hosts that nobody uses", lanes.len());
}

#[tokio::test(start_paused = true)]
async fn thousands_leave_at_once_and_the_next_slot_is_served() {
    let world = World::new("10/s");
    let _first = world.permit().await;
    let crowd: Vec<_> = (0..30_000).map(|_| world.ask()).collect();
    let Admission::Wait(last) = world.ask() else { panic!("the slot is taken") };
    assert_eq!(world.waiting(), 30_001);
    drop(crowd);
    assert_eq!(world.waiting(), 1);
    let _permit = last.await;
    assert_eq!(world.clock.now().since(Instant::START), ms(100));
}

#[tokio::test(start_paused = true)]
async fn who_has_passed_while_another_kind_pauses_owes_nothing_for_it() {
    let world = World::with("1000/s", |policy| policy.margin = MarginSpec::Fixed(ms(0)));
    let of = |client: u8, kind| {
        let claim = Claim { client: ClientId::of([10, 0, 0, client].into()), ..Claim::USUAL };
        world.lane.admit(AdmitRequest { claim, ..ask(kind) })
    };
    for _ in 0..20 {
        world.send().await;
    }
    let alone = RouteKey::new("POST", "/b");
    let mut refused = world.permit_for(alone).await;
    refused.sent();
    let fields = [("x-ratelimit-limit", "100"), ("x-ratelimit-remaining", "60")];
    let headers = fields.into_iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
    let (status, arrived) = (StatusCode::TOO_MANY_REQUESTS, Duration::from_secs(1_790_000_000));
    let hint = hint::read(&hint::Answer { status, headers: &headers, body: None, arrived });
    refused.answered(&AnswerReport { hint: &hint, failed: false, route: None }, Instant::START);
    let Admission::Wait(_paused) = of(1, alone) else { panic!("its kind pauses") };
    let answered = |mut permit: Permit| {
        permit.sent();
        permit.answered(&AnswerReport::SERVED, Instant::START);
    };
    for _ in 0..400 {
        tokio::time::sleep(ms(2)).await;
        let Admission::Send(permit) = of(1, kind()) else { panic!("other kinds do not pause") };
        answered(permit);
    }
    // Now two want more than there is.
    let (order, mut tasks) = (Arc::new(Mutex::new(Vec::new())), tokio::task::JoinSet::new());
    for n in 0..40 {
        // The flow that has not passed is the first to wait.
        let client = 2 - n % 2;
        match of(client, kind()) {
            Admission::Wait(waiting) => {
                let order = order.clone();
                tasks.spawn(async move {
                    answered(waiting.await.unwrap());
                    order.lock().push(client);
                });
            }
            Admission::Send(permit) => answered(permit),
            Admission::Refuse(refusal) => panic!("refused: {refusal}"),
        }
    }
    tasks.join_all().await;
    let first = order.lock()[..20].iter().filter(|client| **client == 1).count();
    assert!((9..=11).contains(&first), "{first} of the first 20");
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_comes_back_late_does_not_let_two_leave_at_once() {
    let world = World::new("10/s");
    let held = world.permit().await;
    tokio::time::sleep(ms(5000)).await;
    assert_eq!(world.send().await, ms(5000));
    let Admission::Wait(waiting) = world.ask() else { panic!("the slot is taken") };
    drop(held);
    let _permit = waiting.await.unwrap();
    assert_eq!(world.clock.now().since(Instant::START), ms(5075), "a quarter closer than evenly");
}
