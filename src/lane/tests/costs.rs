//! Limits that count tokens, and requests that cost some.

mod lasting;
mod lengths;
mod outputs;
mod slots;
mod unsaid;

use std::ops::Range;

use andante_limit::{Unit, settle};
use andante_order::ClientId;

use super::*;
use crate::Usage;

fn metered(limits: &str) -> World {
    World::with(limits, |policy| {
        settle(&mut policy.limits);
        policy.margin = MarginSpec::Fixed(ms(10));
    })
}

fn cost(world: &World, amounts: &[(&str, u32)]) -> Cost {
    let of = |cost: Cost, (name, amount): &(&str, u32)| cost.with(Unit::named(name).unwrap(), *amount);
    amounts.iter().fold(Cost::MIN, of).shared(&world.lane.policy().limits)
}

/// The usage of a whole answer.
fn whole(unit: Unit, used: u32) -> Usage {
    Usage { said: vec![(unit, used)], ..Usage::default() }
}

/// Departures of requests with these costs that wait together, with their times, until none has to wait.
async fn leaving(world: &World, asks: Vec<AdmitRequest>) -> Vec<(Instant, AdmitRequest)> {
    let mut tasks = tokio::task::JoinSet::new();
    for ask in asks {
        let (lane, clock) = (world.lane.clone(), world.clock);
        let admission = lane.admit(ask.clone());
        tasks.spawn(async move {
            let mut permit = permitted(admission).await;
            permit.sent();
            tokio::time::sleep(ms(5)).await;
            let arrived = clock.now();
            tokio::time::sleep(ms(20)).await;
            permit.answered(&AnswerReport::SERVED, Instant::START);
            (arrived, ask)
        });
    }
    let mut left = tasks.join_all().await;
    left.sort_unstable_by_key(|(at, _)| *at);
    left
}

/// The most of `unit` in any window of this length, and the used share of `count` in each window, from the first
/// request to the last.
fn used(left: &[(Instant, AdmitRequest)], unit: &str, count: u32, per: Duration) -> (u64, f64) {
    let amounts: Vec<(Instant, u64)> = left
        .iter()
        .map(|(at, ask)| (*at, ask.cost.of(Unit::named(unit).unwrap()).map_or(0, |amount| amount.get().into())))
        .collect();
    let window = |from: Instant| amounts.iter().filter(move |(at, _)| *at >= from && *at < from + per);
    let worst = amounts.iter().map(|(from, _)| window(*from).map(|(_, amount)| amount).sum::<u64>()).max().unwrap();
    let (last, before) = amounts.split_last().unwrap();
    let all: u64 = before.iter().map(|(_, amount)| amount).sum();
    (worst, all as f64 / (f64::from(count) * last.0.since(amounts[0].0).as_secs_f64() / per.as_secs_f64()))
}

#[tokio::test(start_paused = true)]
async fn no_window_holds_more_than_its_amounts_and_the_scarcest_is_used_up() {
    let minute = Duration::from_secs(60);
    for (out, scarcest) in [(50..800, "in-tokens"), (100..1500, "out-tokens")] {
        let world = metered("500/min, 90000 in-tokens/min, 20000 out-tokens/min");
        let mut dice = fastrand::Rng::with_seed(7);
        let asks = (0..500).map(|_| {
            let amounts = [("in-tokens", dice.u32(100..4000)), ("out-tokens", dice.u32(out.clone()))];
            AdmitRequest { cost: cost(&world, &amounts), ..ask(kind()) }
        });
        let left = leaving(&world, asks.collect()).await;
        for (unit, count) in [("in-tokens", 90_000), ("out-tokens", 20_000)] {
            let (worst, share) = used(&left, unit, count, minute);
            assert!(worst <= count.into(), "{worst} {unit} in a minute");
            assert!(unit != scarcest || share >= 0.95, "{share} of {unit}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_takes_no_tokens_does_not_wait_for_them() {
    let world = metered("100/s, 1000 tokens/min");
    let costly = AdmitRequest { cost: cost(&world, &[("tokens", 600)]), ..ask(kind()) };
    let _waiting: Vec<_> = (0..20).map(|_| world.lane.admit(costly.clone())).collect();
    assert_eq!(world.waiting(), 19, "after 600 of 1,000 no other 600 fit");
    for _ in 0..20 {
        tokio::time::advance(ms(20)).await;
        let admission = world.ask();
        assert!(matches!(admission, Admission::Send(_)), "{admission:?}");
    }
    assert_eq!(world.waiting(), 19);
}

#[tokio::test(start_paused = true)]
async fn clients_share_the_scarcest_unit_and_not_requests() {
    let world = metered("6000/min, 60000 tokens/min");
    let of = |client: u8, tokens| {
        let claim = Claim { client: ClientId::of([10, 0, 0, client].into()), ..Claim::USUAL };
        AdmitRequest { cost: cost(&world, &[("tokens", tokens)]), claim, ..ask(kind()) }
    };
    // A third client has had the burst: both wait from the first request on.
    let asks = [of(3, 6000)].into_iter().chain((0..400).map(|_| of(1, 2000))).chain((0..4000).map(|_| of(2, 200)));
    let left = leaving(&world, asks.collect()).await;
    let tokens = |client: u8| {
        let own = left[..1100].iter().filter(|(_, left)| left.claim == of(client, 1).claim);
        own.map(|(_, left)| left.cost.of(Unit::named("tokens").unwrap()).unwrap().get()).sum::<u32>()
    };
    // Both wait all the time: 100 of the one and 1,000 of the other are 200,000 each.
    assert!(tokens(1).abs_diff(tokens(2)) <= 2 * 2000, "{} and {}", tokens(1), tokens(2));
}

/// A host with 20 slots and 2,000 tokens a second, for three clients: without tokens, with few, and with many. Each
/// gets the same share of what it needs most (Ghodsi et al., "Dominant Resource Fairness", NSDI 2011). So the first two
/// get the same number of slots, and the third as many as its tokens need times 50 ms.
#[tokio::test(start_paused = true)]
async fn who_takes_few_tokens_gets_its_slots_beside_one_who_takes_many() {
    for many in [500, 1000] {
        let world = metered("20/s, 2000 tokens/s");
        let of = |client: u8, tokens: Option<u32>| {
            let claim = Claim { client: ClientId::of([10, 0, 0, client].into()), ..Claim::USUAL };
            let cost = tokens.map_or(Cost::MIN, |tokens| cost(&world, &[("tokens", tokens)]));
            AdmitRequest { cost, claim, ..ask(kind()) }
        };
        let asks = (0..400).flat_map(|_| [of(1, None), of(2, Some(many)), of(3, Some(10))]);
        let left = leaving(&world, asks.collect()).await;
        let sent = |client: u8| left[20..420].iter().filter(|(_, left)| left.claim == of(client, None).claim).count();
        let (none, few, each) = (sent(1), sent(3), 400.0 / (2.0 + 100.0 / f64::from(many)));
        for got in [none, few] {
            assert!((got as f64 - each).abs() <= each * 0.05, "{many} tokens: {got} of {each}, {none} beside {few}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_tokens_is_known_on_arrival() {
    let world = metered("6000/min, 60000 tokens/min burst 1");
    let costly = AdmitRequest { cost: cost(&world, &[("tokens", 1000)]), ..ask(kind()) };
    let admissions: Vec<_> = (0..31).map(|_| world.lane.admit(costly.clone())).collect();
    // A second each.
    let Some(Admission::Wait(last)) = admissions.last() else { panic!("it waits for thirty others") };
    let expected = last.expected.since(Instant::START).as_secs_f64();
    assert!((expected - 30.0).abs() <= 1.0, "{expected}");
    let Some(drained) = world.lane.snapshot().queue.drain else { panic!("they leave one by one") };
    assert!((drained.as_secs_f64() - 30.0).abs() <= 1.0, "{drained:?}");
}

/// A policy whose answers report output tokens.
fn told(limits: &str) -> World {
    World::with(limits, |policy| {
        settle(&mut policy.limits);
        policy.margin = MarginSpec::Fixed(ms(10));
        policy.usage = vec!["out-tokens=completion_tokens".parse().unwrap()];
    })
}

/// Requests that wait together, for an API that counts output when it is produced. With `cuts`, one of ten is cut short
/// after half of its output, which no answer reports.
async fn streaming(
    world: &World,
    inputs: Range<u32>,
    outputs: Range<u32>,
    cuts: bool,
) -> [Vec<(Instant, AdmitRequest)>; 2] {
    let (input, output) = (Unit::named("in-tokens").unwrap(), Unit::named("out-tokens").unwrap());
    let mut dice = fastrand::Rng::with_seed(11);
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..500 {
        let (lane, clock) = (world.lane.clone(), world.clock);
        let (takes, used) = (cost(world, &[("in-tokens", dice.u32(inputs.clone()))]), dice.u32(outputs.clone()));
        let took = ms(dice.u64(200..900));
        let asks = AdmitRequest { cost: takes, ..ask(kind()) };
        let admission = lane.admit(asks.clone());
        tasks.spawn(async move {
            let mut permit = permitted(admission).await;
            permit.sent();
            tokio::time::sleep(ms(5)).await;
            let arrived = (clock.now(), asks.clone());
            permit.answered(&AnswerReport::SERVED, Instant::START);
            tokio::time::sleep(took).await;
            let cut = cuts && number % 10 == 9;
            if !cut {
                permit.used(&whole(output, used));
            }
            let counted = Cost::MIN.with(output, if cut { used / 2 } else { used });
            assert!(asks.cost.of(input).is_some());
            (arrived, (clock.now(), AdmitRequest { cost: counted, ..asks }))
        });
    }
    let (mut came, mut went): (Vec<_>, Vec<_>) = tasks.join_all().await.into_iter().unzip();
    came.sort_unstable_by_key(|(at, _)| *at);
    went.sort_unstable_by_key(|(at, _)| *at);
    [came, went]
}

#[tokio::test(start_paused = true)]
async fn outputs_that_are_known_afterwards_keep_their_windows_and_use_them() {
    let minute = Duration::from_secs(60);
    for (inputs, outputs, scarcest) in [(100..4000, 50..700, "in-tokens"), (100..1000, 50..650, "out-tokens")] {
        let world = told("500/min, 90000 in-tokens/min, 20000 out-tokens/min");
        let most = outputs.end;
        let [came, went] = streaming(&world, inputs, outputs, scarcest == "in-tokens").await;
        let (worst, share) = used(&came, "in-tokens", 90_000, minute);
        assert!(worst <= 90_000, "{worst}");
        assert!(scarcest != "in-tokens" || share >= 0.95, "{share}");
        let (worst, share) = used(&went, "out-tokens", 20_000, minute);
        assert!(worst <= 20_000 + u64::from(most), "one reservation's error: {worst}");
        assert!(scarcest != "out-tokens" || share >= 0.95, "{share}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_debt_is_paid_before_the_next_one_leaves() {
    let world = told("6000/min, 6000 out-tokens/min burst 1");
    let output = Unit::named("out-tokens").unwrap();
    let asks = |tokens| AdmitRequest { cost: cost(&world, &[("out-tokens", tokens)]), ..ask(kind()) };
    let Admission::Send(mut permit) = world.lane.admit(asks(100)) else { panic!("nothing was used") };
    permit.sent();
    permit.answered(&AnswerReport::SERVED, Instant::START);
    permit.used(&whole(output, 1500));
    drop(permit);
    // 1,500 are 15 s of 6,000 a minute.
    let Admission::Wait(waiting) = world.lane.admit(asks(100)) else { panic!("1,400 are not paid yet") };
    let mut permit = waiting.await.unwrap();
    let at = world.clock.now().since(Instant::START);
    assert!(at.abs_diff(ms(15_000)) <= ms(2), "{at:?}");
    permit.sent();
    permit.answered(&AnswerReport::SERVED, Instant::START);
    // The second 100 were not used: the next request waits only for its turn among requests.
    permit.used(&whole(output, 0));
    tokio::time::advance(ms(10)).await;
    let third = world.lane.admit(asks(100));
    assert!(matches!(third, Admission::Send(_)), "{third:?}");
    assert_eq!(world.lane.snapshot().limits[1].used, 1600);
}

#[tokio::test(start_paused = true)]
async fn a_number_that_is_made_up_stops_a_lane_for_four_windows_at_most() {
    let world = told("6000/min burst 6000, 1000 out-tokens/min burst 1000, 5000 out-tokens/h burst 5000");
    let output = Unit::named("out-tokens").unwrap();
    let mut permit = world.permit().await;
    permit.sent();
    permit.answered(&AnswerReport::SERVED, Instant::START);
    // Such a body repeats what its request said.
    permit.used(&whole(output, u32::MAX));
    drop(permit);
    assert_eq!(world.lane.snapshot().limits[1].used, 4 * 1000);
    let stats = world.lane.snapshot().stats;
    assert_eq!((stats.used.of(Unit::REQUESTS), stats.used.of(output)), (1, 4000));
    // 4,000 are four windows of 1,000: the smallest limit bounds what is believed, for the others as well.
    let Admission::Wait(waiting) =
        world.lane.admit(AdmitRequest { cost: cost(&world, &[("out-tokens", 1000)]), ..ask(kind()) })
    else {
        panic!("a debt is there")
    };
    drop(waiting.await.unwrap());
    let at = world.clock.now().since(Instant::START);
    assert!(at <= Duration::from_secs(4 * 60) + ms(2), "{at:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_said_to_be_nothing_reserves_nothing() {
    let world = told("6000/min burst 6000, 2000 out-tokens/min burst 2000");
    let output = Unit::named("out-tokens").unwrap();
    let mut permit = world.permit().await;
    permit.sent();
    permit.answered(&AnswerReport::SERVED, Instant::START);
    permit.used(&whole(output, 500));
    drop(permit);
    let used = || world.lane.snapshot().limits.iter().map(|limit| limit.used).collect::<Vec<_>>();
    assert_eq!(used(), [1, 500]);
    let nothing = AdmitRequest { cost: cost(&world, &[("out-tokens", 0)]), ..ask(kind()) };
    let Admission::Send(_none) = world.lane.admit(nothing) else { panic!("there is room") };
    assert_eq!(used(), [2, 500], "one request and no tokens");
    let _usual = world.permit().await;
    assert_eq!(used(), [3, 1000], "what says nothing reserves what was usual");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_said_is_reserved_as_others_have_used() {
    let world = told("6000/min burst 6000, 600000 out-tokens/min burst 600000");
    let output = Unit::named("out-tokens").unwrap();
    for used in 1..=60 {
        let mut permit = world.permit().await;
        permit.sent();
        permit.answered(&AnswerReport::SERVED, Instant::START);
        permit.used(&whole(output, used));
    }
    // 1 + … + 60 are 1,830, and 30.5 in the mean.
    let _first = world.permit().await;
    assert_eq!(world.lane.snapshot().limits[1].used, 1830 + 31);
    let _second = world.permit().await;
    assert_eq!(world.lane.snapshot().limits[1].used, 1830 + 31 + 31);
}

#[tokio::test(start_paused = true)]
async fn what_of_a_stream_has_passed_is_what_it_used_that_was_cut_short() {
    let world = told("6000/min burst 6000, 600000 out-tokens/min burst 600000, 600000 in-tokens/min burst 600000");
    let [output, input] = ["out-tokens", "in-tokens"].map(|name| Unit::named(name).unwrap());
    let used = || world.lane.snapshot().limits[1].used;
    let answer = async |usage: Usage| {
        let mut permit = world.permit().await;
        permit.sent();
        permit.answered(&AnswerReport::SERVED, Instant::START);
        permit.used(&usage);
    };
    let cut = |least, bytes| Usage { at_least: vec![(output, least)], streamed: bytes, ..Usage::default() };
    // Without evidence, the reservation of 1 stands, unless more was used already.
    answer(cut(0, Some(400))).await;
    assert_eq!(used(), 1);
    answer(cut(30, Some(400))).await;
    assert_eq!(used(), 31);
    // Twice eight streams of 100, 200, … 800 units, each of 40 bytes: 7,200 units. Input is independent of the length.
    for number in (1..=8).chain(1..=8) {
        let said = vec![(output, number * 100), (input, 700 + number % 2)];
        answer(Usage { said, streamed: Some(u64::from(number) * 4000), ..Usage::default() }).await;
    }
    assert_eq!(used(), 7231);
    answer(Usage { at_least: vec![(input, 0)], streamed: Some(1000), ..Usage::default() }).await;
    assert_eq!(world.lane.snapshot().limits[2].used, 11_208, "8 of 700, 8 of 701, and nothing was reserved");
    assert_eq!(used(), 7681, "and the mean of 450 is reserved of what comes out by now");
    // 1,000 bytes are 25 units; a reported use of more counts.
    answer(cut(0, Some(1000))).await;
    assert_eq!(used(), 7706);
    answer(cut(60, Some(1000))).await;
    assert_eq!(used(), 7766);
    // An answer that is no stream was produced before it was cut.
    answer(cut(0, None)).await;
    assert_eq!(used(), 8216);
}

#[tokio::test(start_paused = true)]
async fn one_large_answer_does_not_hold_up_what_there_is_room_for() {
    let world = told("6000/min burst 6000, 1000 out-tokens/h burst 1000");
    let output = Unit::named("out-tokens").unwrap();
    let used = || world.lane.snapshot().limits[1].used;
    let send = || {
        let Admission::Send(mut permit) = world.ask() else { panic!("there is room for it") };
        permit.sent();
        permit.answered(&AnswerReport::SERVED, Instant::START);
        permit
    };
    send().used(&whole(output, 600));
    // 600 are usual, and 400 are left: a request that is alone takes these, and others wait for its answer.
    let mut permit = send();
    assert_eq!(used(), 1000);
    assert!(matches!(world.ask(), Admission::Wait(_)));
    permit.used(&whole(output, 10));
    drop(permit);
    assert_eq!(used(), 610);
    for _ in 0..39 {
        send().used(&whole(output, 10));
    }
    assert_eq!(used(), 1000);
    assert!(matches!(world.ask(), Admission::Wait(_)), "all of it is used");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_says_nothing_is_promised_no_slot_before_its_reservation_fits() {
    let world = told("6000/min burst 6000, 1000 out-tokens/h burst 1000");
    let mut permit = world.permit().await;
    permit.sent();
    permit.answered(&AnswerReport::SERVED, Instant::START);
    permit.used(&whole(Unit::named("out-tokens").unwrap(), 1000));
    drop(permit);
    let hasty = AdmitRequest { deadline: world.clock.now() + ms(60_000), ..ask(kind()) };
    let Admission::Refuse(refusal) = world.lane.admit(hasty) else { panic!("nothing is left for an hour") };
    let wait = refusal.retry_after();
    assert!(ms(3_530_000) < wait && wait < ms(3_550_000), "an hour, less the minute that it may wait: {wait:?}");
}
