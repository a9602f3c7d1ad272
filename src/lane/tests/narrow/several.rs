//! Requests that need several narrower budgets, each of which others use up.

use super::*;
use crate::{
    lane::order::{ClientId, FlowId, Urgency},
    limit::settle,
};

/// Two budgets that others use up are never open at the same instant.
#[tokio::test(start_paused = true)]
async fn who_needs_two_budgets_is_not_passed_for_ever_by_those_who_need_one() {
    for (one_rate, two_rate) in [(1, 10), (1, 7), (3, 5), (2, 2), (5, 11)] {
        for host in ["1000/s", "20/s"] {
            let (one, two) =
                (rule("one", &format!("{one_rate}/s"), |_| {}), rule("two", &format!("{two_rate}/s"), |_| {}));
            let (of_one, of_two) = (draws(&[(1, &one)]), draws(&[(2, &two)]));
            let both = draws(&[(1, &one), (2, &two)]);
            // A minute of each, and ten more urgent ones that come last.
            let others = std::iter::repeat_n(of_one, 60 * one_rate).chain(std::iter::repeat_n(of_two, 60 * two_rate));
            let (world, crowd) = (World::new(host), 60 * (one_rate + two_rate));
            let left = run_with(&world, others.chain(std::iter::repeat_n(both, 10)), |number| {
                let urgency = if number < crowd { Urgency::USUAL } else { Urgency::MOST };
                Claim { urgency, ..Claim::USUAL }
            });
            let left = left.await;
            let (of_one, rest) = left.split_at(60 * one_rate);
            let (of_two, both) = rest.split_at(60 * two_rate);
            // The turn of each comes with a slot of the slower one, twice before one is kept.
            let wait = last(both.iter()) * one_rate as f64;
            assert!(wait <= 10.0 + 3.0, "{one_rate}/s and {two_rate}/s: {wait} slots for ten");
            for (rate, of) in [(one_rate, of_one), (two_rate, of_two)] {
                let used = (60.0 + 9.0 / rate as f64) / last(of.iter().chain(both));
                assert!(used >= 0.97, "{one_rate}/s and {two_rate}/s: {used} of {rate}/s");
            }
        }
    }
}

/// A day's allowance is not spaced: a budget of it is not kept for what a slot of it would be if it were.
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

/// What is less than one in eleven days has a pace of less than a millionth.
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

/// Whoever is behind others in the lane has its turns at its budgets all the same: a client that is busy otherwise every second
/// one, and the least urgent one in 21.
#[tokio::test(start_paused = true)]
async fn who_needs_two_budgets_has_its_share_whoever_is_first_in_the_lane() {
    let (one, two) = (rule("one", "2/s", |_| {}), rule("two", "5/s", |_| {}));
    let (of_one, of_two) = (draws(&[(1, &one)]), draws(&[(2, &two)]));
    let both = draws(&[(1, &one), (2, &two)]);
    let client = |number: u8| Claim { client: ClientId::of([10, 0, 0, number].into()), ..Claim::USUAL };
    let busy = Claim { flow: FlowId(1), ..client(2) };
    let least = Claim { urgency: Urgency::LEAST, ..client(2) };
    for (claim, share, plain) in [(busy, 0.5, client(2)), (least, 1.0 / 21.0, client(1))] {
        // Five minutes of each budget, of the host the rest, and who needs both.
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
