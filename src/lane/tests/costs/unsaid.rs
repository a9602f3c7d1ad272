//! Requests that do not declare their use of a unit, because only their answers report it.

use super::*;
use crate::request::{Draw, Draws};

/// A second's output tokens for each request; answers report that they use 100.
async fn used_to(world: &World) -> Unit {
    let output = Unit::named("out-tokens").unwrap();
    let mut permit = world.permit().await;
    permit.sent();
    permit.answered(&AnswerReport::SERVED, Instant::START);
    permit.used(&whole(output, 100));
    output
}

fn expected(admission: Option<&Admission>) -> f64 {
    let Some(Admission::Wait(waiting)) = admission else { panic!("it waits: {admission:?}") };
    waiting.expected.since(Instant::START).as_secs_f64()
}

#[tokio::test(start_paused = true)]
async fn what_others_will_use_that_say_nothing_is_waited_for() {
    let world = told("6000/min, 6000 out-tokens/min burst 1");
    used_to(&world).await;
    let admissions: Vec<_> = (0..30).map(|_| world.ask()).collect();
    let promised = expected(admissions.last());
    assert!((promised - 30.0).abs() <= 1.0, "{promised}");
    let Some(drained) = world.lane.snapshot().queue.drain else { panic!("they leave one by one") };
    assert!((drained.as_secs_f64() - 30.0).abs() <= 1.0, "{drained:?}");
    for admission in admissions {
        let mut permit = permitted(admission).await;
        permit.sent();
        permit.answered(&AnswerReport::SERVED, Instant::START);
        permit.used(&whole(Unit::named("out-tokens").unwrap(), 100));
    }
    let left = world.clock.now().since(Instant::START).as_secs_f64();
    assert!((left - promised).abs() <= 1.0, "{left}, and {promised} was promised");
}

/// A guess reserves a tenth of the limit for each request.
#[tokio::test(start_paused = true)]
async fn those_whose_clients_leave_before_an_answer_hold_nobody_up() {
    let world = told("6000/min burst 6000, 2000 out-tokens/min burst 2000");
    let mut sub_limit = Policy::new("narrow", vec!["*".parse().unwrap()]);
    sub_limit.limits = "2000 out-tokens/min burst 2000".parse::<Limits>().unwrap().limits;
    let draws: Arc<[Draw]> = [Draw::new(1, sub_limit.into())].into();
    let take = || match world.lane.admit(AdmitRequest { draws: Some(draws.clone()), ..ask(kind()) }) {
        Admission::Send(permit) => permit,
        other => panic!("what is known was not used: {other:?}"),
    };
    let used = || world.lane.snapshot().limits[1].used;
    let leave = || {
        let before = used();
        drop(take());
        assert_eq!(used(), before, "it was not sent");
        let mut permit = take();
        permit.sent();
        assert_eq!(used(), before + 200, "something is reserved");
        drop(permit);
        used() - before
    };
    // The usage is unknown: if it were large, and only such requests were sent, no answer would ever report it.
    assert_eq!(leave(), 200);
    // The usage that another answer reports counts for them, and for later ones.
    used_to(&world).await;
    assert_eq!([leave(), leave()], [100, 100]);
}

/// Answers of the host's other requests are a hundred times as large, and its own limit ten times. With their estimate,
/// each of these requests would take its rule's whole window, and none would show that 30 suffice.
#[tokio::test(start_paused = true)]
async fn what_a_narrower_rule_limits_reserves_what_its_own_requests_use() {
    let world = told("1000/s, 100000 out-tokens/2s burst 100000");
    let output = Unit::named("out-tokens").unwrap();
    let mut sub_limit = Policy::new("narrow", vec!["*".parse().unwrap()]);
    sub_limit.limits = "1000 out-tokens/2s burst 1000".parse::<Limits>().unwrap().limits;
    let draws: Draws = Some([Draw::new(1, sub_limit.into())].into());
    let client = |draws: Draws, used: u32| {
        let (lane, clock) = (world.lane.clone(), world.clock);
        async move {
            let mut answers = Vec::new();
            while clock.now() < Instant::START + ms(20_000) {
                let mut permit = permitted(lane.admit(AdmitRequest { draws: draws.clone(), ..ask(kind()) })).await;
                permit.sent();
                tokio::time::sleep(ms(100)).await;
                permit.answered(&AnswerReport::SERVED, Instant::START);
                permit.used(&whole(output, used));
                answers.push(clock.now());
            }
            answers
        }
    };
    let (mut large, mut small) = (tokio::task::JoinSet::new(), tokio::task::JoinSet::new());
    (0..8).for_each(|_| drop(large.spawn(client(None, 3000))));
    (0..8).for_each(|_| drop(small.spawn(client(draws.clone(), 30))));
    let small = small.join_all().await.concat();
    large.join_all().await;
    // 33 requests of 30 fill a thousand, in each of ten windows; a tenth is reserved for each of the first sixteen.
    let later = small.iter().filter(|at| **at >= Instant::START + ms(10_000)).count();
    assert!((5 * 30..=5 * 34 + 8).contains(&later), "{later} in five windows, {} in all", small.len());
    assert!(small.len() >= 9 * 30, "{}", small.len());
}

#[tokio::test(start_paused = true)]
async fn one_that_says_little_does_not_hide_what_the_others_will_use() {
    let world = told("6000/min, 6000 out-tokens/min burst 1");
    let output = used_to(&world).await;
    let little = AdmitRequest { cost: Cost::MIN.with(output, 10).shared(&world.lane.policy().limits), ..ask(kind()) };
    let admissions: Vec<_> =
        (0..30).map(|number| if number == 10 { world.lane.admit(little.clone()) } else { world.ask() }).collect();
    // 100 of the first request, which has been answered; 28 requests of 100 in front of the last one, and one of 10.
    let promised = expected(admissions.last());
    assert!((promised - 29.1).abs() <= 1.0, "{promised}");
}

#[tokio::test(start_paused = true)]
async fn what_says_that_it_takes_nothing_is_not_waited_for() {
    let world = told("6000/min, 6000 out-tokens/min burst 1");
    let output = used_to(&world).await;
    let nothing = AdmitRequest { cost: Cost::MIN.with(output, 0), ..ask(kind()) };
    let _waiting: Vec<_> = (0..30).map(|_| world.ask()).collect();
    let admissions: Vec<_> = (0..30).map(|_| world.lane.admit(nothing.clone())).collect();
    // Requests are 10 ms apart.
    let promised = admissions.last().map(|admission| match admission {
        Admission::Wait(waiting) => waiting.expected.since(world.clock.now()),
        _ => Duration::ZERO,
    });
    assert!(promised.is_some_and(|promised| promised <= ms(320)), "{promised:?}");
}
