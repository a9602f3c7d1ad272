//! Temporary limits: predictions for waiting requests count the limits that follow.

use andante_limit::Afterwards;

use super::*;
use crate::Waiting;

const PATIENCE: Duration = Duration::from_secs(60);

/// A rule with these limits, and with others from an instant on.
fn rules(limits: &str, later: Option<(&str, Instant)>) -> Rules {
    let parsed = |text: &str| text.parse::<Limits>().unwrap().limits;
    let mut policy = Policy::new("test", vec!["*".parse().unwrap()]);
    (policy.limits, policy.margin) = (parsed(limits), MarginSpec::Fixed(ms(0)));
    policy.afterwards = later.map(|(later, at)| Afterwards { at, limits: parsed(later), calendar: Vec::new() });
    Rules::new(vec![policy])
}

/// A lane, and the collection in which an operator changes it.
fn lane(limits: &str) -> (World, Arc<Lanes>) {
    let clock = Clock::start();
    let lanes = Arc::new(Lanes::new(rules(limits, None), Metrics::new(), clock));
    let origin = Origin::parse(Scheme::Http, "api.test", Some(80)).unwrap();
    (World { lane: lanes.find(&origin), clock }, lanes)
}

/// Applies `limits` for five seconds, and `own` again after that.
fn limit_for_a_while(world: &World, lanes: &Arc<Lanes>, limits: &str, own: &'static str) {
    let until = world.clock.now() + ms(5000);
    lanes.reload(rules(limits, Some((own, until))));
    let (lanes, clock) = (lanes.clone(), world.clock);
    tokio::spawn(async move {
        clock.sleep_until(until).await;
        lanes.reload(rules(own, None));
    });
}

fn ask_patiently(world: &World) -> Admission {
    world.lane.admit(AdmitRequest { deadline: world.clock.now() + PATIENCE, ..ask(kind()) })
}

fn waits(world: &World) -> Waiting {
    match ask_patiently(world) {
        Admission::Wait(waiting) => waiting,
        other => panic!("it waits: {other:?}"),
    }
}

/// Number of requests that got their slots.
async fn served(waiting: Vec<Waiting>) -> usize {
    let mut tasks = tokio::task::JoinSet::new();
    for waiting in waiting {
        tasks.spawn(async move {
            waiting.await.is_ok_and(|mut permit| {
                permit.sent();
                permit.answered(&AnswerReport::SERVED, Instant::START);
                true
            })
        });
    }
    tasks.join_all().await.into_iter().filter(|served| *served).count()
}

#[tokio::test(start_paused = true)]
async fn nobody_is_sent_away_for_a_low_limit_that_ends_in_time() {
    let (world, lanes) = lane("10/s");
    world.send().await;
    let mut waiting: Vec<_> = (0..100).map(|_| waits(&world)).collect();
    limit_for_a_while(&world, &lanes, "1/s", "10/s");
    // Five leave until then, and the others at 10/s; a new request leaves behind them.
    let last = waits(&world);
    let expected = last.expected.since(world.clock.now());
    assert!(expected.abs_diff(ms(5000 + 9600)) <= ms(200), "{expected:?}");
    waiting.push(last);
    assert_eq!(served(waiting).await, 101);
    let took = world.clock.now().since(Instant::START);
    assert!(took.abs_diff(ms(5000 + 9600)) <= ms(200), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_too_late_once_a_raised_limit_has_ended_is_told_at_once() {
    let (world, lanes) = lane("1/s");
    world.send().await;
    limit_for_a_while(&world, &lanes, "10/s", "1/s");
    // 50 leave in five seconds, and 55 in the rest of a minute.
    let all: Vec<_> = (0..200).map(|_| ask_patiently(&world)).collect();
    let waits = |admission| if let Admission::Wait(waiting) = admission { Some(waiting) } else { None };
    let waiting: Vec<_> = all.into_iter().filter_map(waits).collect();
    let count = waiting.len();
    assert!((103..=107).contains(&count), "{count}");
    assert_eq!(served(waiting).await, count);
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_an_operator_and_a_limit_for_a_while_are_told_together() {
    let (world, lanes) = lane("10/s");
    world.send().await;
    let waiting: Vec<_> = (0..100).map(|_| waits(&world)).collect();
    limit_for_a_while(&world, &lanes, "1/s", "10/s");
    world.lane.pause(Some(ms(20_000)));
    // The pause ends after the low limit.
    let expected = waits(&world).expected.since(world.clock.now());
    assert!(expected.abs_diff(ms(30_000)) <= ms(200), "{expected:?}");
    assert_eq!(served(waiting).await, 100);
}
