//! Reservations of requests with known length.

use super::*;

#[tokio::test(start_paused = true)]
async fn what_a_byte_comes_to_is_learned_from_answers() {
    let world = told("6000/min burst 6000, 600000 out-tokens/min burst 600000");
    let output = Unit::named("out-tokens").unwrap();
    let answer = async |used, sent| {
        let mut permit = world.permit().await;
        permit.sent();
        permit.answered(&AnswerReport::SERVED, Instant::START);
        permit.used(&Usage { said: vec![(output, used)], sent, ..Usage::default() });
    };
    let of = |bytes| world.lane.of_length(output, bytes);
    assert_eq!(of(1000), None);
    answer(700, None).await;
    answer(700, Some(0)).await;
    assert_eq!(of(1000), None, "nobody has told a length");
    for _ in 0..19 {
        answer(100, Some(400)).await;
    }
    answer(400, Some(400)).await;
    assert_eq!((of(1000), of(1001), of(0)), (Some(250), Some(251), Some(1)), "19 of 20 took a quarter for a byte");
    answer(400, Some(400)).await;
    assert_eq!(of(1000), Some(1000), "2 of 21 took one, and that is more than 5 of 100");
    for _ in 0..64 {
        answer(1, Some(400)).await;
    }
    assert_eq!((of(1000), of(u64::MAX)), (Some(3), Some(u32::MAX)), "the last 64 are what counts");
}

#[tokio::test(start_paused = true)]
async fn what_a_length_reserves_is_never_nothing_and_settled_to_what_was_used() {
    for seed in 0..20 {
        let world = told("600000/min burst 600000, 4000000 out-tokens/min burst 4000000");
        let output = Unit::named("out-tokens").unwrap();
        let used = || world.lane.snapshot().limits[1].used;
        let mut dice = fastrand::Rng::with_seed(seed);
        let (mut all, mut flying) = (0, Vec::new());
        for _ in 0..200 {
            let bytes = dice.u64(0..4000);
            let learned = world.lane.of_length(output, bytes);
            let cost = learned.map_or(Cost::MIN, |amount| Cost::MIN.with(output, amount));
            let before = used();
            let Admission::Send(mut permit) = world.lane.admit(AdmitRequest { cost, ..ask(kind()) }) else {
                panic!("there is room")
            };
            let reserved = used() - before;
            assert!(reserved > 0 && learned.is_none_or(|learned| reserved == learned), "{reserved} for {bytes}");
            permit.sent();
            permit.answered(&AnswerReport::SERVED, Instant::START);
            flying.push((permit, dice.u32(0..2) * dice.u32(0..5000), bytes));
            while flying.len() > 8 {
                let (mut permit, takes, bytes) = flying.swap_remove(dice.usize(0..flying.len()));
                permit.used(&Usage { said: vec![(output, takes)], sent: Some(bytes), ..Usage::default() });
                all += takes;
            }
        }
        for (mut permit, takes, bytes) in flying {
            permit.used(&Usage { said: vec![(output, takes)], sent: Some(bytes), ..Usage::default() });
            all += takes;
        }
        assert_eq!(used(), all);
    }
}
