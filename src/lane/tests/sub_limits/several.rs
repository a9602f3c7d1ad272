//! Requests that need several sub-limits, while others use up each of these.

use andante_limit::{Cost, Unit, settle};
use andante_order::{ClientId, FlowId, Urgency};

use super::*;

/// Two budgets that others use up are never open at the same instant.
#[tokio::test(start_paused = true)]
async fn who_needs_two_budgets_is_not_passed_for_ever_by_those_who_need_one() {
    for (one_rate, two_rate) in [(1, 10), (1, 7), (3, 5), (2, 2), (5, 11)] {
        for host in ["1000/s", "20/s"] {
            let (one, two) =
                (rule("one", &format!("{one_rate}/s"), |_| {}), rule("two", &format!("{two_rate}/s"), |_| {}));
            let (of_one, of_two) = (draws(&[(1, &one)]), draws(&[(2, &two)]));
            let both = draws(&[(1, &one), (2, &two)]);
            // A minute of requests for each, and ten more urgent ones that come last.
            let others = std::iter::repeat_n(of_one, 60 * one_rate).chain(std::iter::repeat_n(of_two, 60 * two_rate));
            let (world, crowd) = (World::new(host), 60 * (one_rate + two_rate));
            let left = run_with(&world, others.chain(std::iter::repeat_n(both, 10)), |number| {
                let urgency = if number < crowd { Urgency::USUAL } else { Urgency::MOST };
                Claim { urgency, ..Claim::USUAL }
            });
            let left = left.await;
            let (of_one, rest) = left.split_at(60 * one_rate);
            let (of_two, both) = rest.split_at(60 * two_rate);
            // Each turn comes with a slot of the slower budget, twice before a slot is reserved.
            let wait = last(both.iter()) * one_rate as f64;
            assert!(wait <= 10.0 + 3.0, "{one_rate}/s and {two_rate}/s: {wait} slots for ten");
            for (rate, of) in [(one_rate, of_one), (two_rate, of_two)] {
                let used = (60.0 + 9.0 / rate as f64) / last(of.iter().chain(both));
                assert!(used >= 0.97, "{one_rate}/s and {two_rate}/s: {used} of {rate}/s");
            }
        }
    }
}

/// A daily limit is not spaced: its budget is not reserved for the time that an evenly spaced slot would take.
#[tokio::test(start_paused = true)]
async fn a_budget_with_an_allowance_is_not_kept_for_long() {
    let (fast, slow) =
        (rule("fast", "10/s, 10000/day", |policy| settle(&mut policy.limits)), rule("slow", "1/min", |_| {}));
    let (of_fast, both) = (draws(&[(1, &fast)]), draws(&[(1, &fast), (2, &slow)]));
    let of = std::iter::repeat_n(both, 4).chain(std::iter::repeat_n(of_fast, 1200));
    let left = run(&World::new("1000/s"), of).await;
    let fast = last(left[4..].iter());
    assert!(fast <= 1200.0 / 10.0 * 1.03 + 1.0, "{fast} s for 1,200 at 10/s");
}

/// A rate of less than one in eleven days is below a millionth of a request per second.
#[tokio::test(start_paused = true)]
async fn two_budgets_may_be_as_slow_as_they_like() {
    let patient = |policy: &mut Policy| policy.max_wait = Duration::MAX;
    let (month, other) = (rule("month", "2/30d", patient), rule("other", "2/s", patient));
    let both = draws(&[(1, &month), (2, &other)]);
    let world = World::with("10/s", patient);
    let request = AdmitRequest { deadline: Instant::FAR, ..draw(&both) };
    for _ in 0..3 {
        send(permitted(world.lane.admit(request.clone())).await);
    }
    assert_eq!(world.waiting(), 0);
}

/// Requests behind others in the lane still have their turns at their budgets. A client with other traffic has every
/// second turn, and the least urgent client has one turn in 21.
#[tokio::test(start_paused = true)]
async fn who_needs_two_budgets_has_its_share_whoever_is_first_in_the_lane() {
    let (one, two) = (rule("one", "2/s", |_| {}), rule("two", "5/s", |_| {}));
    let (of_one, of_two) = (draws(&[(1, &one)]), draws(&[(2, &two)]));
    let both = draws(&[(1, &one), (2, &two)]);
    let client = |number: u8| Claim { client: ClientId::of([10, 0, 0, number].into()), ..Claim::USUAL };
    let busy = Claim { flow: FlowId(1), ..client(2) };
    let least = Claim { urgency: Urgency::LEAST, ..client(2) };
    for (claim, share, plain) in [(busy, 0.5, client(2)), (least, 1.0 / 21.0, client(1))] {
        // Five minutes of requests for each budget, the rest of the host's, and requests that need both.
        let others = [(of_one.clone(), 600, client(1)), (of_two.clone(), 1500, client(1)), (None, 5000, plain)];
        let wants = others.into_iter().chain([(both.clone(), 600, claim)]);
        let (drawn, claims): (Vec<_>, Vec<_>) =
            wants.flat_map(|(draws, count, claim)| std::iter::repeat_n((draws, claim), count)).unzip();
        let left = run_with(&World::new("20/s"), drawn, |number| claims[number]).await;
        let minute = Instant::START + Duration::from_secs(60);
        let served = left[7100..].iter().filter(|at| **at < minute).count() as f64;
        assert!(served >= 0.4 * 120.0 * share, "{served} of {} in a minute", 120.0 * share);
    }
}

/// A request is not starved either where places in flight, or the rest of a burst, are taken the instant they become
/// free.
#[tokio::test(start_paused = true)]
async fn who_needs_places_or_a_burst_as_well_is_not_passed_for_ever() {
    // The two limits, the latency in milliseconds, and a slot of each limit. A minute of requests for each waits. The
    // burst is available every ten seconds, and each request that needs both has its turn with it.
    let pairs = [
        ("in-flight 2", "2/s", 300, [150, 500]),
        ("in-flight 1", "1/s", 100, [100, 1000]),
        ("in-flight 2", "10/s", 5000, [2500, 100]),
        ("in-flight 3", "in-flight 2", 700, [233, 350]),
        ("in-flight 20", "in-flight 1", 400, [20, 400]),
        ("100/10s burst 100", "1/s", 20, [100, 1000]),
    ];
    for (one_limit, two_limit, takes, slots) in pairs {
        let (one, two) = (rule("one", one_limit, |_| {}), rule("two", two_limit, |_| {}));
        let (of_one, of_two) = (draws(&[(1, &one)]), draws(&[(2, &two)]));
        let both = draws(&[(1, &one), (2, &two)]);
        let [many_one, many_two] = slots.map(|slot| 60_000 / slot as usize);
        let crowd = many_one + many_two;
        let wants = [(of_one, many_one), (of_two, many_two), (both, 10)];
        let claim = |number| {
            let urgency = if number < crowd { Urgency::USUAL } else { Urgency::MOST };
            Claim { urgency, ..Claim::USUAL }
        };
        // From three quarters of that to a quarter more.
        let takes = |number: usize| ms(takes * (75 + number as u64 * 37 % 51) / 100);
        let wants = wants.into_iter().flat_map(|(draws, many)| std::iter::repeat_n(draws, many));
        let left = run_at(&World::new("1000/s"), wants, claim, takes).await;
        let (of_one, rest) = left.split_at(many_one);
        let (of_two, both) = rest.split_at(many_two);
        let name = format!("{one_limit} and {two_limit}");
        let (slower, each) =
            if one_limit.contains("burst") { (10.0, 5) } else { (slots[0].max(slots[1]) as f64 / 1e3, 10) };
        let wait = last(both[..each].iter()) / slower;
        assert!(wait <= each as f64 + 3.0, "{name}: {wait} slots for {each}");
        for (slot, of) in slots.into_iter().zip([of_one, of_two]) {
            let end = of.iter().max().unwrap();
            let left = of.len() + both.iter().filter(|at| *at < end).count();
            let used = left as f64 * slot as f64 / 1e3 / last(of.iter());
            assert!(used >= 0.95, "{name}: {used}");
        }
    }
}

/// A request is not starved either where others take the lane's tokens as they become free.
#[tokio::test(start_paused = true)]
async fn who_needs_tokens_as_well_is_not_passed_for_ever() {
    // The lane's tokens per second, the tokens per request without and with a need for the sub-limit, and the rate of
    // the sub-limit.
    for (all, each, own, rate) in [(100, 100, 100, 2), (1000, 100, 400, 1), (1000, 20, 1000, 20)] {
        let world = World::with(&format!("1000/s, {all} tokens/s"), |policy| settle(&mut policy.limits));
        let of_two = draws(&[(2, &rule("two", &format!("{rate}/s"), |_| {}))]);
        let tokens = |count| Cost::MIN.with(Unit::named("tokens").unwrap(), count).shared(&world.lane.policy().limits);
        let of_tokens = AdmitRequest { cost: tokens(each), ..draw(&None) };
        let claim = Claim { urgency: Urgency::MOST, ..Claim::USUAL };
        let both = AdmitRequest { cost: tokens(own), claim, ..draw(&of_two) };
        let wants = [(of_tokens, 60 * all / each), (draw(&of_two), 60 * rate), (both, 10)];
        let mut tasks = tokio::task::JoinSet::new();
        for (number, (request, count)) in wants.into_iter().enumerate() {
            for _ in 0..count {
                let (admission, clock) = (world.lane.admit(request.clone()), world.clock);
                tasks.spawn(async move {
                    send(permitted(admission).await);
                    (number, clock.now())
                });
            }
        }
        let left = tasks.join_all().await;
        let last = |of| last(left.iter().filter(|(number, _)| *number == of).map(|(_, at)| at));
        // Two turns of the slower limit for each.
        let slot = (f64::from(own) / f64::from(all)).max(1.0 / f64::from(rate));
        assert!(last(2) <= 2.0 * 10.0 * slot + 3.0, "{all} tokens/s, {rate}/s: ten after {} s", last(2));
        let taken = 60.0 + 10.0 / f64::from(rate);
        assert!(taken / last(1) >= 0.9, "{all} tokens/s, {rate}/s: {} s instead of {taken}", last(1));
    }
}

/// No starvation either where a client asks for the next slot only after an answer, so that its last turn is forgotten.
/// All requests are equally urgent, and the client may have much other traffic.
#[tokio::test(start_paused = true)]
async fn who_needs_several_budgets_again_and_again_is_served_as_often_as_that() {
    // The budgets, the number of other workers on each, whether all are of one flow, and the fair rate per second at
    // the slowest budget. With a single place in flight, others take 300 ms each, and the request that needs both takes
    // 5 ms.
    let worlds: [(&[&str], usize, bool, f64); 7] = [
        (&["7/s", "3/s"], 8, false, 3.0 / 2.0),
        (&["7/s", "3/s", "5/s"], 8, false, 3.0 / 2.0),
        (&["7/s", "3/s"], 8, true, 3.0 / 9.0),
        (&["7/s", "3/s", "5/s"], 8, true, 3.0 / 9.0),
        (&["5/s", "5/s"], 8, false, 5.0 / 2.0),
        (&["in-flight 1", "5/s"], 2, false, 1.0 / 0.305),
        (&["in-flight 1", "5/s"], 2, true, 1.0 / 0.605),
    ];
    for ((limits, workers, of_one_flow, fair), is_busy) in worlds.into_iter().flat_map(|of| [(of, false), (of, true)]) {
        let world = World::new("300/s");
        let rules: Vec<_> = limits.iter().enumerate().map(|(at, of)| rule(&format!("rule{at}"), of, |_| {})).collect();
        let numbered: Vec<_> = (1..).zip(&rules).collect();
        let mut tasks = tokio::task::JoinSet::new();
        let client = |number: usize| ClientId::of([10, 0, 0, if of_one_flow { 0 } else { number as u8 }].into());
        for (number, one) in numbered.iter().enumerate() {
            let takes = ms(if limits[number].starts_with("in-flight") { 300 } else { 5 });
            for _ in 0..workers {
                tasks.spawn(ask_on(&world, draws(std::slice::from_ref(one)), client(number), ms(0), takes, ms(2)));
            }
        }
        let own = client(numbered.len());
        let all = tasks.spawn(ask_on(&world, draws(&numbered), own, ms(2000), ms(5), ms(2))).id();
        if is_busy {
            tasks.spawn(ask_on(&world, None, own, ms(0), ms(5), ms(60)));
        }
        let mut served = 0;
        while let Some(ended) = tasks.join_next_with_id().await {
            let (id, times) = ended.unwrap();
            served += if id == all { times } else { 0 };
        }
        let share = f64::from(served) / (fair * 100.0);
        // Three windows may fall into step, so that the third is closed each time when the first two are open.
        let least = if limits.len() == 3 { 0.15 } else { 0.35 };
        assert!(share >= least, "{limits:?}, of one flow: {of_one_flow}, busy: {is_busy}: {share} of what is fair");
    }
}

/// Asks for one slot after the other, from `begins` to the hundredth second, at an API with the latency `takes`.
/// Returns the number of answers.
fn ask_on(
    world: &World,
    draws: Draws,
    client: ClientId,
    begins: Duration,
    takes: Duration,
    pauses: Duration,
) -> impl Future<Output = u32> + use<> {
    let (lane, clock) = (world.lane.clone(), world.clock);
    async move {
        tokio::time::sleep(begins).await;
        let mut times = 0;
        while clock.now() < Instant::START + Duration::from_secs(100) {
            let claim = Claim { client, ..Claim::USUAL };
            let mut permit = permitted(lane.admit(AdmitRequest { claim, ..draw(&draws) })).await;
            permit.sent();
            tokio::time::sleep(takes).await;
            permit.answered(&AnswerReport::SERVED, Instant::START);
            drop(permit);
            tokio::time::sleep(pauses).await;
            times += 1;
        }
        times
    }
}
