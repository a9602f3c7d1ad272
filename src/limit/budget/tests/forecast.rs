//! Predicted departures compared with real ones.

use super::*;

/// Predicted and real departure of each of `requests` requests, if all wait at `now` and no others come. The limits of
/// `later` hold from an instant on.
fn predicted_and_left(
    budget: &mut Budget,
    now: Instant,
    requests: u64,
    later: Option<(&str, Instant)>,
) -> Vec<(Duration, Duration)> {
    let none = MarginSpec::Fixed(Duration::ZERO);
    let to = later.map(|(limits, at)| Afterwards { at, limits: specs(limits), calendar: Vec::new() });
    budget.set_afterwards(to.as_ref(), none, Duration::ZERO);
    let project = |ahead| budget.project(now, now, |_, _| ahead, ONE, Scope::NONE).since(now);
    let predicted: Vec<_> = (0..requests).map(project).collect();
    let (mut at, mut to) = (now, to);
    let left = predicted.into_iter().map(|predicted| {
        while !send(budget, at) {
            let next = budget.ready(at, &ONE, Scope::NONE).instant(at);
            at = match to.take_if(|to| to.at <= next) {
                Some(to) => {
                    budget.reconfigure(&to.limits, none, to.at);
                    to.at
                }
                None => next,
            };
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
fn what_holds_for_a_while_is_predicted_to_end() {
    // Limits now, how many seconds they hold, and the limits afterwards.
    let changes = [
        ("1/s", 5, "10/s"),
        ("10/s", 5, "1/s"),
        ("1/s", 30, "100/min"),
        ("10/min", 20, "2/s"),
        ("100/s", 100, "10/s"),
        ("1/s", 30, "5/s burst 5"),
        ("5/s burst 5", 30, "1/s"),
        ("10/h", 60, "10/s"),
        ("20/s burst 20", 7, "5/s burst 10"),
    ];
    for (now, seconds, later) in changes {
        for used in [0, 1, 7] {
            let mut budget = budget(now);
            (0..used).for_each(|n| _ = send(&mut budget, at(n * 300)));
            let from = at(2500);
            let later = (later, from + Duration::from_secs(seconds));
            let slowest = |limits: &str| specs(limits).iter().map(|limit| limit.rate.interval()).max().unwrap();
            let all = predicted_and_left(&mut budget, from, 300, Some(later));
            assert_predicted(&format!("{used} of {now}, then {}", later.0), slowest(later.0), &all);
        }
    }
}

#[test]
fn another_unit_is_limited_once_the_other_limits_hold() {
    let tokens = Unit::named("tokens").unwrap();
    let mut budget = budget("1/s");
    let charge = budget.take(at(0), at(0), ONE.with(tokens, 1000), Scope::NONE);
    budget.sent(charge, at(0));
    budget.answered(charge, at(0), at(0));
    let to = Afterwards { at: at(5000), limits: specs("10/s, 1000 tokens/min"), calendar: Vec::new() };
    budget.set_afterwards(Some(&to), MarginSpec::Fixed(Duration::ZERO), Duration::ZERO);
    let project = |ahead: u64| {
        let ahead = |_, unit| if unit == tokens { ahead * 1000 } else { ahead };
        budget.project(at(0), at(0), ahead, ONE.with(tokens, 1000), Scope::NONE)
    };
    // Five leave at 1/s. From then on a thousand tokens are a whole minute's, and are free again at 60 s at the
    // earliest.
    let [fourth, sixth] = [3, 5].map(project);
    assert_eq!(fourth, at(4000));
    assert!(sixth >= at(60_000), "{sixth:?}");
}

#[test]
fn several_windows_are_predicted_round_by_round() {
    // The test sends `used` requests 700 ms apart before the predictions.
    for limits in ["10/s, 100/min", "10/s, 100/min, 600/h", "5/s, 20/10s, 60/min", "2/s, 30/min, 100/h", "100/min"] {
        for used in [0, 1, 9, 60, 170] {
            let mut budget = budget(limits);
            let mut now = at(0);
            for _ in 0..used {
                now = budget
                    .ready(now + Duration::from_millis(700), &ONE, Scope::NONE)
                    .instant(now + Duration::from_millis(700));
                send(&mut budget, now);
            }
            let slowest = specs(limits).iter().map(|limit| limit.rate.interval()).max().unwrap();
            let all = predicted_and_left(&mut budget, now, 700, None);
            assert_predicted(&format!("{used} of {limits}"), slowest, &all);
        }
    }
}

#[test]
fn all_that_leaves_before_a_change_is_counted_however_much_leaves_at_once() {
    let mut budget = budget("1000/h burst 1000");
    let all = predicted_and_left(&mut budget, at(0), 1100, Some(("10/s", at(60_000))));
    assert_predicted("1000/h burst 1000, then 10/s", Duration::from_millis(100), &all);
}

#[test]
fn what_leaves_before_a_change_is_counted_to_a_hundredth() {
    // The change is simulated in parts of 46, 50, 51 and 62 hundredths of a window.
    for seconds in [60, 64, 66, 80] {
        let mut budget = budget("100/s");
        // Limits of other requests change nothing.
        budget.learn(Source::Advertised(1), specs("1/s")[0], &[]);
        let to = Afterwards { at: at(seconds * 1000), limits: specs("10/s"), calendar: Vec::new() };
        budget.set_afterwards(Some(&to), MarginSpec::Fixed(Duration::ZERO), Duration::ZERO);
        let predicted = budget.project(at(0), at(0), |_, _| seconds * 100 + 10, ONE, Scope::NONE);
        // 100 requests have just left. A window of 10/s admits the next when at most nine of them remain; then ten more
        // leave.
        let allowed = Duration::from_secs(1)..Duration::from_secs(4);
        assert!(allowed.contains(&predicted.since(to.at)), "{seconds} s: {predicted:?}");
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
