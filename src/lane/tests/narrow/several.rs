//! Requests that need several narrower budgets, each of which others use up.

use super::*;
use crate::lane::order::Urgency;

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
