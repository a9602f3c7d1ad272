//! Answers that last longer than others: they will have used more.

use andante_policy::Added;

use super::*;
use crate::{Draw, Draws};

/// Of 16 answers every second one takes 10 tokens and a second, the others 490 and ten: 250 in the mean, and 4,000 in
/// all.
const ANSWERS: [(u32, u64); 2] = [(10, 1), (490, 10)];

fn output() -> Unit {
    Unit::named("out-tokens").unwrap()
}

/// A draw on a narrower rule with these limits.
fn narrower(limits: &str, only: bool) -> Draws {
    let mut rule = Policy::new("narrow", vec!["*".parse().unwrap()]);
    rule.limits = limits.parse::<Limits>().unwrap().limits;
    rule.added = Some(Added { only, ..Added::default() });
    Some([Draw::new(1, rule.into())].into())
}

fn send(world: &World, draws: &Draws) -> Option<Permit> {
    let Admission::Send(mut permit) = world.lane.admit(AdmitRequest { draws: draws.clone(), ..ask(kind()) }) else {
        return None;
    };
    permit.sent();
    permit.answered(&AnswerReport::SERVED, Instant::START);
    Some(permit)
}

async fn answers(world: &World, draws: &Draws, answers: &[(u32, u64)]) {
    for (used, seconds) in answers.repeat(16 / answers.len()) {
        let mut permit = send(world, draws).expect("there is room for all of them");
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        permit.used(&whole(output(), used));
    }
}

/// Number of requests that leave before one would have to wait.
fn count(world: &World, draws: &Draws) -> usize {
    std::iter::from_fn(|| send(world, draws)).collect::<Vec<_>>().len()
}

/// With 1,000 left, a request in flight leaves room for three more at first. After two seconds it must be one of those
/// that take 490, and it leaves room for two.
#[tokio::test(start_paused = true)]
async fn what_lasts_longer_than_short_answers_leaves_less_room() {
    let lane = || (told("6000/min burst 6000, 5000 out-tokens/h burst 5000"), None);
    let rule = || (told("6000/min burst 6000"), narrower("5000 out-tokens/h burst 5000", false));
    for (seconds, more) in [(0, 3), (2, 2)] {
        for (world, draws) in [lane(), rule()] {
            answers(&world, &draws, &ANSWERS).await;
            let _lasting = send(&world, &draws).expect("1,000 are left");
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            assert_eq!(count(&world, &draws), more, "after {seconds} s, with a narrower rule: {}", draws.is_some());
        }
    }
}

/// Of 700, one request takes 250. A second one does not fit beside the 490 of a hanging request, until that has lasted
/// three times as long as the longest answer.
#[tokio::test(start_paused = true)]
async fn what_hangs_is_in_the_way_of_none_any_more() {
    let world = told("6000/min burst 6000, 4700 out-tokens/h burst 4700");
    answers(&world, &None, &ANSWERS).await;
    let _hangs = send(&world, &None).expect("700 are left");
    let left = world.clock.now();
    tokio::time::sleep(Duration::from_secs(2)).await;
    drop(permitted(world.ask()).await);
    let after = world.clock.now().since(left);
    assert!((ms(30_000)..=ms(30_500)).contains(&after), "{after:?}");
}

/// Answers of 10 and of 90 have used 800 of 4,000, and 40 lasting requests reserve 50 each. The lasting requests will
/// take 1,600 more, but at most a quarter of 4,000 is kept free for that: of the remaining 1,200, others get 200.
#[tokio::test(start_paused = true)]
async fn many_that_last_leave_three_quarters_of_a_window_to_others() {
    let world = told("6000/min burst 6000, 4000 out-tokens/h burst 4000");
    answers(&world, &None, &[(10, 1), (90, 10)]).await;
    let lasting: Vec<_> = (0..40).map(|_| send(&world, &None).expect("3,200 are left")).collect();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(count(&world, &None), 4);
    drop(lasting);
}

/// The host's own limit is used up, with no request in flight. A request that draws only on limits of its own reserves
/// its own usual amount, and its small answers are no evidence for the host's.
#[tokio::test(start_paused = true)]
async fn what_draws_on_its_own_limits_only_has_nothing_to_do_with_those_of_others() {
    let world = told("6000/min burst 6000, 4000 out-tokens/h burst 4000");
    let apart = narrower("5000 out-tokens/h burst 5000", true);
    answers(&world, &None, &ANSWERS).await;
    answers(&world, &apart, &[(100, 1)]).await;
    assert_eq!(count(&world, &None), 0, "all of it is used");
    assert_eq!(count(&world, &apart), 34, "of the 3,400 that are left, 100 each");
    let world = told("6000/min burst 6000, 5000 out-tokens/h burst 5000");
    answers(&world, &None, &ANSWERS).await;
    for _ in 0..4 {
        answers(&world, &apart, &[(1, 1)]).await;
    }
    assert_eq!(count(&world, &None), 4, "of 250, where 1,000 are left");
}

/// Requests of a rule that draw only on its own limits take no room at the host's.
#[tokio::test(start_paused = true)]
async fn what_draws_on_its_own_limits_only_takes_no_room_of_others() {
    let world = told("6000/min burst 6000, 5000 out-tokens/h burst 5000");
    let apart = narrower("6000/min burst 6000, 100000 out-tokens/h burst 100000", true);
    answers(&world, &None, &ANSWERS).await;
    answers(&world, &apart, &ANSWERS).await;
    let lasting: Vec<_> = (0..20).map(|_| send(&world, &apart).expect("there is room for all of them")).collect();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(count(&world, &None), 4, "of 250, where 1,000 are left");
    drop(lasting);
}

/// Answers of a rule take 10 in ten seconds. Of 5,000, all have taken 4,160, and eight in flight hold 80: five more of
/// 130 each, the mean, fit into the rest. If those eight counted like all other answers that last as long, none would
/// fit.
#[tokio::test(start_paused = true)]
async fn small_answers_of_a_rule_are_not_taken_for_large_ones_because_they_last_as_long() {
    let world = told("6000/min burst 6000, 5000 out-tokens/h burst 5000");
    let small = narrower("1000 out-tokens/h burst 1000", false);
    answers(&world, &small, &[(10, 1)]).await;
    answers(&world, &None, &ANSWERS).await;
    let lasting: Vec<_> = (0..8).map(|_| send(&world, &small).expect("there is room for all of them")).collect();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(count(&world, &None), 5);
    drop(lasting);
}
