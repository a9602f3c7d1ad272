//! Lifetimes of lanes and of the tasks that drive them: no promise is lost, and no state stays without end.

use std::{sync::Arc, time::Duration};

use andante_clock::{Clock, Instant};
use andante_hint::{self as hint, Hint};
use andante_learn::{AnswerReport, RouteKey};
use andante_limit::Limits;
use andante_metrics::Metrics;
use andante_order::ClientId;
use andante_policy::{Added, Origin, Policy, Rules, Scheme, Trust};
use http::{HeaderMap, StatusCode};

use super::{World, ask, kind, ms};
use crate::{
    Admission, AdmitRequest, Draw, KeptLanes, Lane, Lanes, Past, UnreadLane,
    state::{Decision, State},
    write_down,
};

/// Lanes of any host, without limits.
fn lanes() -> Lanes {
    Lanes::new(Rules::new(vec![Policy::new("any", vec!["*".parse().unwrap()])]), Metrics::new(), Clock::start())
}

fn find(lanes: &Lanes, name: &str) -> Arc<Lane> {
    lanes.find(&Origin::parse(Scheme::Http, name, Some(80)).unwrap())
}

/// Opens so many other lanes that those without state are forgotten.
fn crowd(lanes: &Lanes) {
    (0..5000).for_each(|host| drop(find(lanes, &format!("crowd{host}.test"))));
    lanes.sweep();
}

#[tokio::test(start_paused = true)]
async fn returns_of_refused_requests_are_forgotten_in_a_lane_without_sub_limits() {
    let limits: Limits = "1/s burst 1".parse().unwrap();
    let mut policy = Policy::new("any", vec!["*".parse().unwrap()]);
    (policy.limits, policy.max_waiting) = (limits.limits, 0);
    let lanes = Lanes::new(Rules::new(vec![policy]), Metrics::new(), Clock::start());
    let lane = find(&lanes, "api.test");
    call(&lane, kind(), 200, &[]);
    for client in 0..100 {
        let mut ask = ask(kind());
        ask.claim.client = ClientId::of([10, 0, 0, client].into());
        assert!(matches!(lane.admit(ask), Admission::Refuse(_)), "the queue has no room");
    }
    assert!(lane.remembered_returns() >= 100, "each client has its second");
    tokio::time::sleep(Duration::from_secs(200)).await;
    lanes.sweep();
    assert_eq!(lane.remembered_returns(), 0);
}

/// Sends one request to `lane`, answered with `status` and `fields`.
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
    assert!(!find(&lanes, "h59999.test").snapshot().learned.quotas.is_empty(), "those that were used last are kept");
}

#[tokio::test(start_paused = true)]
async fn the_task_that_drives_a_lane_ends_when_nobody_waits_any_more() {
    // With all slots in flight the task would sleep without end, and otherwise until the next slot.
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
    // The driver's thread is busy: time passes, and no task runs.
    tokio::time::advance(ms(150)).await;
    let Admission::Wait(third) = world.ask() else { panic!("another one is before it") };
    assert_eq!((world.waiting(), world.lane.snapshot().in_flight.count), (1, 2), "the second has its permit");
    drop((second, third));
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_given_out_in_pieces_and_whole() {
    let world = World::new("5000/s burst 5000, in-flight 1");
    let first = world.permit().await;
    let waiting: Vec<_> = (0..3000).map(|_| world.ask()).collect();
    drop(first);
    // With one request in flight, each dropped permit admits the next one, and none is forgotten.
    for waiting in waiting {
        match waiting {
            Admission::Wait(waiting) => drop(waiting.await.unwrap()),
            other => panic!("one is in flight: {other:?}"),
        }
    }
    let gate = World::new("1000000/s burst 100000");
    call(&gate.lane, kind(), 429, &[("retry-after", "5")]);
    let waiting: Vec<_> = (0..3000).map(|_| gate.ask()).collect();
    let mut permits = Vec::new();
    for waiting in waiting {
        let Admission::Wait(waiting) = waiting else { panic!("the gate is closed") };
        let mut permit = waiting.await.unwrap();
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
        // Simulates a client that leaves between the grant of its slot and the notification.
        waiting.grant.close();
    }
    let Admission::Wait(last) = world.ask() else { panic!("one is in flight") };
    drop(first);
    drop(second.await);
    let _permit = last.await;
    let end = world.lane.snapshot();
    assert_eq!((end.queue.waiting, end.in_flight.count), (0, 1));
    drop(left);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_another_to_be_written_leaves_when_that_is_out_of_the_window() {
    // Requests that a trusted API blocks stand in a class of their own.
    let world = World::with("1/s", |policy| policy.trust = Trust::Api);
    let mut first = world.permit().await;
    let Admission::Wait(second) = world.ask() else { panic!("the slot is taken") };
    first.sent();
    let answer = tokio::spawn(async move {
        tokio::time::sleep(ms(30_000)).await;
        drop(first);
    });
    let _permit = second.await;
    assert_eq!(world.clock.now().since(Instant::START), ms(1010), "its answer takes longer");
    answer.abort();
}

#[test]
fn who_waits_for_a_renewal_leaves_when_the_clock_is_set_beyond_it() {
    let hour = Duration::from_secs(3600);
    let calendar = vec!["1/day in UTC".parse().unwrap()];
    let policy = Policy { trust: Trust::Api, calendar, ..Policy::unruled() };
    let (now, ask) = (Instant::START, ask(kind()));
    let mut state = State::new(policy.into(), now, hour * 23);
    assert!(matches!(state.asked(now, &ask), Decision::Send(_)));
    let Decision::Wait(offer) = state.asked(now, &ask) else { panic!("one a day") };
    state.enqueued(now, &ask, offer, ());
    assert_eq!(state.effects(now).grants.len(), 0);
    state.clock_read(hour * 25);
    assert_eq!(state.effects(now).grants.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_of_a_lane_counts_as_used_up() {
    let limits = |policy: Policy| Policy { limits: vec!["5/min burst 5".parse().unwrap()], ..policy };
    let rules = Rules::new(vec![limits(Policy::new("api", vec!["*".parse().unwrap()]))]);
    let clock = Clock::resume(ms(5000));
    let stored = [("api\nbad.test", &b"{\"budget\": 1}"[..])];
    let (kept, unread) = read(&stored, clock);
    assert_eq!(unread.len(), 1);
    let lanes = Lanes::new(rules, Metrics::new(), clock).keeping(kept);
    assert!(matches!(find(&lanes, "good.test").admit(ask(kind())), Admission::Send(_)));
    let bad = find(&lanes, "bad.test");
    assert!(matches!(bad.admit(ask(kind())), Admission::Wait(_)));
    tokio::time::advance(ms(61_000)).await;
    assert!(matches!(bad.admit(ask(kind())), Admission::Send(_)));
}

/// The persisted lanes, as after an orderly end.
fn read(stored: &[(&str, &[u8])], clock: Clock) -> (KeptLanes, Vec<UnreadLane>) {
    let now = clock.now();
    let past = Past { until: Some(now), ..Past::default() };
    KeptLanes::read(stored.iter().copied(), past, now, std::sync::mpsc::channel().0)
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_counts_as_used_up_once_and_not_at_each_start() {
    const DAY: Duration = Duration::from_secs(86_400);
    let policy = Policy::new("api", vec!["*".parse().unwrap()]);
    let rules = || Rules::new(vec![Policy { calendar: vec!["3/day in UTC".parse().unwrap()], ..policy.clone() }]);
    let (mut clock, mut text) = (Clock::resume(DAY), b"{\"budget\": 1}".to_vec());
    // No request asks for it: the replacement record stays as written.
    for restart in 0..3 {
        let (_, unread) = read(&[("api\nbad.test", &text)], clock);
        assert_eq!(unread.len(), usize::from(restart == 0));
        if let Some(unread) = unread.into_iter().next() {
            text = unread.text;
        }
        tokio::time::advance(ms(1000)).await;
        clock = Clock::resume(DAY + ms(1000) * restart);
    }
    let lanes = |clock| {
        let (kept, _) = read(&[("api\nbad.test", &text)], clock);
        Lanes::new(rules(), Metrics::new(), clock).keeping(kept)
    };
    let sends = |lanes: &Lanes| {
        let bad = find(lanes, "bad.test");
        let written: Vec<_> = write_down([&bad].into_iter(), false, false).collect();
        assert_eq!(written.len(), 1, "it is written down as any other");
        // A block of the day is written before any of it is spent.
        written.iter().for_each(|lane| lane.done(true));
        matches!(bad.admit(ask(kind())), Admission::Send(_))
    };
    assert!(!sends(&lanes(clock)), "the day was used up");
    assert!(sends(&lanes(Clock::resume(DAY * 3))), "that day is over, whatever happened since");
}

#[tokio::test(start_paused = true)]
async fn lanes_whose_windows_are_long_are_bounded_in_number() {
    let policy = Policy::new("any", vec!["*".parse().unwrap()]);
    let rules = Rules::new(vec![Policy { limits: vec!["1/month".parse().unwrap()], ..policy }]);
    let lanes = Lanes::new(rules, Metrics::new(), Clock::start());
    let busy = find(&lanes, "busy.test");
    let Admission::Send(held) = busy.admit(ask(kind())) else { panic!("nothing was sent yet") };
    drop(busy);
    for host in 0..150_000 {
        call(&find(&lanes, &format!("h{host}.test")), kind(), 200, &[]);
        tokio::time::advance(ms(1)).await;
    }
    assert!(lanes.len() < 140_000, "{}", lanes.len());
    lanes.sweep();
    assert!((40_000..70_000).contains(&lanes.len()), "{}", lanes.len());
    for known in ["busy.test", "h149999.test", "h120000.test"] {
        assert!(!matches!(find(&lanes, known).admit(ask(kind())), Admission::Send(_)), "{known}");
    }
    drop(held);
}

/// A rule with a budget of one request a month for some of a lane's requests.
fn monthly() -> Arc<Policy> {
    let mut policy = Policy::new("tenant", vec!["*".parse().unwrap()]);
    (policy.limits, policy.added) = (vec!["1/month".parse().unwrap()], Some(Added::default()));
    policy.into()
}

/// Sends one request to `lane` that draws on the budget of `rule`. Returns whether it leaves at once.
fn call_of(lane: &Arc<Lane>, rule: &Arc<Policy>) -> bool {
    let ask = AdmitRequest { draws: Some([Draw::new(7, rule.clone())].into_iter().collect()), ..ask(kind()) };
    let Admission::Send(mut permit) = lane.admit(ask) else { return false };
    permit.sent();
    permit.answered(&AnswerReport::SERVED, Instant::START);
    true
}

#[tokio::test(start_paused = true)]
async fn lanes_with_narrower_budgets_that_count_are_bounded_in_number_the_oldest_first() {
    let (lanes, rule) = (lanes().within(256 << 20), monthly());
    for host in 0..6000 {
        assert!(call_of(&find(&lanes, &format!("h{host}.test")), &rule));
        tokio::time::advance(ms(1)).await;
    }
    lanes.sweep();
    assert!((1024..=2500).contains(&lanes.len()), "{}", lanes.len());
    let latest = find(&lanes, "h5999.test");
    assert!(!call_of(&latest, &rule), "its one request of the month is gone");
    let oldest = find(&lanes, "h0.test");
    assert!(call_of(&oldest, &rule), "it begins anew");
}

#[tokio::test(start_paused = true)]
async fn lanes_that_are_opened_while_all_are_paused_are_bounded_in_number() {
    let lanes = lanes().within(256 << 20);
    find(&lanes, "own.test").pause(Some(ms(86_400_000)));
    lanes.pause_all(Some(ms(3_600_000)));
    find(&lanes, "own.test").pause(Some(ms(86_400_000)));
    crowd(&lanes);
    assert!(lanes.len() < 4000, "{}", lanes.len());
    assert!(matches!(find(&lanes, "crowd0.test").admit(ask(kind())), Admission::Wait(_)), "a new one is paused");
    tokio::time::advance(ms(3_700_000)).await;
    assert!(!matches!(find(&lanes, "own.test").admit(ask(kind())), Admission::Send(_)), "it is paused for longer");
}

/// The record of the lane of `host` after a narrower rule's only request of the month.
async fn record_of(host: &str, rule: &Arc<Policy>, clock: Clock) -> Vec<u8> {
    let lanes = Lanes::new(Rules::new(vec![any()]), Metrics::new(), clock).keeping(read(&[], clock).0);
    let lane = find(&lanes, host);
    assert!(call_of(&lane, rule) && !call_of(&lane, rule));
    let written = write_down([&lane].into_iter(), true, true).next().expect("a record");
    written.text
}

fn any() -> Policy {
    Policy::new("any", vec!["*".parse().unwrap()])
}

#[tokio::test(start_paused = true)]
async fn a_lane_with_stored_narrower_budgets_alone_is_kept_among_many() {
    let (clock, rule) = (Clock::resume(Duration::from_secs(86_400)), monthly());
    let text = record_of("quota.test", &rule, clock).await;
    let kept = read(&[("any\nquota.test", &text)], clock).0;
    let lanes = Lanes::new(Rules::new(vec![any()]), Metrics::new(), clock).keeping(kept);
    // Opened for display, as at a start; no request asks for it.
    drop(find(&lanes, "quota.test"));
    crowd(&lanes);
    assert!(!call_of(&find(&lanes, "quota.test"), &rule), "its month is used up");
    assert_eq!(lanes.gone().iter().filter(|id| id.contains("quota")).count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_record_whose_narrower_budgets_count_no_more_is_forgotten() {
    let (clock, rule) = (Clock::resume(Duration::from_secs(86_400)), monthly());
    let text = record_of("quota.test", &rule, clock).await;
    let kept = read(&[("any\nquota.test", &text)], clock).0;
    let day = Duration::from_secs(86_400);
    kept.sweep(clock.now() + day, clock.epoch());
    assert_eq!(kept.len(), 1, "its month is not over");
    kept.sweep(clock.now() + day * 70, clock.epoch());
    assert_eq!((kept.len(), kept.gone().len()), (0, 1));
}
