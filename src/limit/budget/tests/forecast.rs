//! Predicted departures compared with real ones.

use super::*;

/// Predicted and real departure of each of `requests` requests, if all wait at `now` and no others come.
fn predicted_and_left(budget: &mut Budget, now: Instant, requests: u64) -> Vec<(Duration, Duration)> {
    let project = |ahead| budget.project(now, now, |_, _| ahead, ONE, Scope::NONE).since(now);
    let predicted: Vec<_> = (0..requests).map(project).collect();
    let mut at = now;
    let left = predicted.into_iter().map(|predicted| {
        while !send(budget, at) {
            at = budget.ready(at, &ONE, Scope::NONE).instant(at);
        }
        (predicted, at.since(now))
    });
    left.collect()
}

/// Checks each prediction to a twentieth of the wait, or to one `turn`.
fn assert_predicted(name: &str, turn: Duration, predicted_and_left: &[(Duration, Duration)]) {
    for (place, (predicted, left)) in predicted_and_left.iter().enumerate() {
        let allowed = (*left / 20).max(turn);
        assert!(predicted.abs_diff(*left) <= allowed, "{name}: {place} left after {left:?}, not {predicted:?}");
    }
}

#[test]
fn several_windows_are_predicted_round_by_round() {
    // The test sends `used` requests 700 ms apart before the predictions.
    for limits in ["10/s, 100/min", "10/s, 100/min, 600/h", "5/s, 20/10s, 60/min", "2/s, 30/min, 100/h", "100/min"] {
        for used in [0, 1, 9, 60, 170] {
            let mut budget = budget(limits);
            let mut now = at(0);
            for _ in 0..used {
                let from = now + Duration::from_millis(700);
                now = budget.ready(from, &ONE, Scope::NONE).instant(from);
                send(&mut budget, now);
            }
            let slowest = specs(limits).iter().map(|limit| limit.rate.interval()).max().unwrap();
            let all = predicted_and_left(&mut budget, now, 700);
            assert_predicted(&format!("{used} of {limits}"), slowest, &all);
        }
    }
}

/// 31 limits, each with twice the count of the one before: predicting rounds of all would take 2^31 steps.
#[test]
fn however_many_limits_are_reported_a_prediction_is_made_soon() {
    let within = |exponent: u32| {
        let mut limit = specs("1/s")[0];
        limit.rate.count = NonZeroU32::new(1 << exponent).unwrap();
        limit.rate.per = Duration::from_millis(u64::from(exponent) << exponent);
        limit
    };
    let limits: Vec<_> = (1..32).map(within).collect();
    let mut budget = Budget::new(&limits, MarginSpec::Fixed(Duration::ZERO), Instant::START);
    let predicted = budget.project(at(0), at(0), |_, _| u64::from(u32::MAX), ONE, Scope::NONE);
    // The last request of two rounds of the slowest limit, with 31 ms per request.
    assert_eq!(predicted.since(at(0)).as_secs_f64().round(), (0.031 * f64::from(u32::MAX)).round());
}
