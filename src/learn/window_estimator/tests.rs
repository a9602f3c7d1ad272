use super::*;

fn s(of: f64) -> Instant {
    Instant::START + Duration::from_secs_f64(of)
}

fn secs(of: u64) -> Option<Duration> {
    Some(Duration::from_secs(of))
}

fn bucket(remaining: f64, reset: f64) -> Bucket {
    Bucket {
        name: None,
        requests: true,
        limit: Some(100.0),
        remaining: Some(remaining),
        reset: Some(Duration::from_secs_f64(reset)),
        window: None,
        coarse: true,
        refills: false,
    }
}

/// Log of requests that left at these times.
fn sent(times: impl IntoIterator<Item = f64>) -> SentLog {
    let mut ledger = SentLog::default();
    times.into_iter().for_each(|at| ledger.sent(s(at)));
    ledger
}

#[test]
fn a_fresh_window_shows_its_length() {
    for (reset, window) in [(9.7, 10), (10.6, 10), (59.2, 60), (3599.5, 3600), (0.8, 1), (37.0, 60)] {
        let heard = WindowEstimator::default().hear(&bucket(99.0, reset), s(0.0), s(0.0), &sent([0.0; 5]));
        assert_eq!(heard, secs(window), "{reset}");
    }
}

#[test]
fn what_is_used_shows_when_the_window_began() {
    for (reset, window) in [(7.0, 10), (8.0, 10), (57.0, 60), (1.0, 5)] {
        let heard = WindowEstimator::default().hear(&bucket(96.0, reset), s(3.0), s(3.0), &sent([0.0, 1.0, 2.0, 3.0]));
        assert_eq!(heard, secs(window), "{reset}");
    }
}

#[test]
fn a_reset_that_is_a_second_late_is_no_longer_window() {
    for (reset, window) in [(11.0, 10), (11.1, 10), (61.0, 60)] {
        let heard = WindowEstimator::default().hear(&bucket(99.0, reset), s(0.0), s(0.0), &sent([0.0]));
        assert_eq!(heard, secs(window), "{reset}");
    }
}

#[test]
fn a_window_that_has_begun_without_us_does_not_until_the_next() {
    let (mut estimator, mut ledger) = (WindowEstimator::default(), sent([0.0; 5]));
    assert_eq!(estimator.hear(&bucket(40.0, 4.0), s(0.0), s(0.0), &ledger), None);
    ledger.sent(s(4.1));
    assert_eq!(estimator.hear(&bucket(99.0, 59.9), s(4.1), s(4.1), &ledger), secs(60));
}

#[test]
fn an_unusual_window_is_seen_by_two_that_end_early() {
    let (mut estimator, mut ledger) = (WindowEstimator::default(), sent([0.0]));
    assert_eq!(estimator.hear(&bucket(99.0, 37.0), s(0.0), s(0.0), &ledger), secs(60));
    for (at, known) in [(37.1, 60), (74.1, 37)] {
        (0..20).for_each(|_| ledger.sent(s(at - 20.0)));
        ledger.sent(s(at));
        estimator.restarted(100.0, 1.0, secs(37), s(at), s(at), &ledger);
        assert_eq!(estimator.hear(&bucket(99.0, 36.95), s(at), s(at), &ledger), secs(known));
    }
}

#[test]
fn a_second_that_is_taken_for_two_is_seen_by_two_that_end_early() {
    let (mut estimator, mut ledger) = (WindowEstimator::default(), sent([0.0]));
    assert_eq!(estimator.hear(&bucket(99.0, 2.0), s(0.0), s(0.0), &ledger), secs(2));
    for (at, known) in [(1.3, 2), (2.6, 1)] {
        (0..10).for_each(|_| ledger.sent(s(at - 0.6)));
        ledger.sent(s(at));
        estimator.restarted(20.0, 1.0, secs(2), s(at), s(at), &ledger);
        assert_eq!(estimator.hear(&bucket(99.0, 2.0), s(at), s(at), &ledger), secs(known));
    }
}

#[test]
fn a_window_is_at_least_as_long_as_what_is_left_of_it() {
    let (mut estimator, mut ledger) = (WindowEstimator::default(), sent([0.0]));
    estimator.hear(&bucket(99.0, 20.0), s(0.0), s(0.0), &ledger);
    ledger.sent(s(21.0));
    assert_eq!(estimator.hear(&bucket(98.0, 58.9), s(21.0), s(21.0), &ledger), secs(60));
}

#[test]
fn windows_that_were_over_in_time_say_more_than_one_late_answer() {
    let (mut estimator, mut ledger) = (WindowEstimator::default(), sent([0.0]));
    assert_eq!(estimator.hear(&bucket(99.0, 0.9), s(0.0), s(0.0), &ledger), secs(1));
    for at in 1..=3 {
        (0..20).for_each(|k| ledger.sent(s(f64::from(at) + f64::from(k) / 30.0)));
        estimator.restarted(100.0, 1.0, secs(1), s(f64::from(at)), s(f64::from(at)), &ledger);
    }
    // The answer's `Date` was two seconds old.
    assert_eq!(estimator.hear(&bucket(98.0, 2.9), s(3.8), s(3.8), &ledger), secs(1));
    // A longer window: two seconds, with a typical delay of the reset.
    assert_eq!(estimator.hear(&bucket(98.0, 2.9), s(5.3), s(5.3), &ledger), secs(2));
}

#[test]
fn a_bucket_shows_itself_by_a_reset_that_moves_away() {
    let (mut estimator, ledger) = (WindowEstimator::default(), sent([0.0]));
    let refills = |remaining, reset| Bucket { refills: true, coarse: false, ..bucket(remaining, reset) };
    assert_eq!(estimator.hear(&refills(99.0, 0.1), s(0.0), s(0.0), &ledger), None);
    assert_eq!(estimator.hear(&refills(80.0, 2.0), s(0.0), s(0.0), &ledger), secs(10));
    // A quota that claims to refill and does not is still a window.
    let (mut estimator, ledger) = (WindowEstimator::default(), sent([0.0; 6]));
    assert_eq!(estimator.hear(&refills(99.0, 9.9), s(0.0), s(0.0), &ledger), None);
    assert_eq!(estimator.hear(&refills(94.0, 9.9), s(0.0), s(0.0), &ledger), secs(10));
}

#[test]
fn a_bucket_that_nobody_calls_one_is_seen_by_a_reset_in_proportion() {
    let (mut estimator, ledger) = (WindowEstimator::default(), sent((0..90).map(|at| f64::from(at) / 1000.0)));
    for used in 1..=90 {
        estimator.hear(&bucket(100.0 - f64::from(used), (f64::from(used) / 10.0).ceil()), s(0.1), s(0.1), &ledger);
    }
    assert!(estimator.refills());
    assert_eq!(estimator.hear(&bucket(5.0, 10.0), s(0.1), s(0.1), &ledger), secs(10));
}

#[test]
fn the_end_of_a_window_and_the_next_one_are_no_bucket() {
    let (mut estimator, ledger) = (WindowEstimator::default(), sent((0..90).map(|at| f64::from(at) / 100.0)));
    for (used, left, at) in [(1.0, 1.0, 0.0), (3.0, 1.0, 0.03), (30.0, 10.0, 0.3), (60.0, 10.0, 0.6)] {
        estimator.hear(&bucket(100.0 - used, left), s(at), s(at), &ledger);
    }
    assert!(!estimator.refills());
    assert_eq!(estimator.hear(&bucket(10.0, 10.0), s(0.9), s(0.9), &ledger), secs(10));
}

#[test]
fn what_is_not_true_is_not_believed_either_when_nothing_is_said_of_the_reset() {
    let hour = Some(Duration::from_secs(3600));
    let (mut estimator, ledger) = (WindowEstimator::default(), sent([0.0]));
    assert_eq!(estimator.hear(&Bucket { window: hour, ..bucket(99.0, 9.7) }, s(0.0), s(0.0), &ledger), secs(10));
    // A late answer: its reset is over, and unknown.
    let late = Bucket { window: hour, reset: None, ..bucket(40.0, 0.0) };
    assert_eq!(estimator.hear(&late, s(9.9), s(9.9), &ledger), secs(10));
}

#[test]
fn what_is_told_is_taken() {
    let told = Bucket { window: Some(Duration::from_secs(42)), ..bucket(3.0, 1.0) };
    assert_eq!(WindowEstimator::default().hear(&told, s(0.0), s(0.0), &sent([0.0; 5])), secs(42));
}

/// Report with `reset` in seconds after the answer.
fn told(used: f64, reset: f64) -> Bucket {
    Bucket { coarse: false, ..bucket(100.0 - used, reset) }
}

#[test]
fn a_window_of_a_few_whole_seconds_is_what_it_is_told_to_be() {
    for window in [1, 2, 3, 5, 6, 10] {
        let (mut estimator, ledger) = (WindowEstimator::default(), sent([0.0; 3]));
        for used in 1..=3 {
            let heard = estimator.hear(&told(f64::from(used), window as f64), s(0.0), s(0.01), &ledger);
            assert_eq!(heard, secs(window));
        }
    }
    // A window of two seconds whose reset is one second late: fractions in the next answer show it.
    let (mut estimator, ledger) = (WindowEstimator::default(), sent([0.0, 0.004]));
    estimator.hear(&told(1.0, 3.0), s(0.0), s(0.01), &ledger);
    assert_eq!(estimator.hear(&told(2.0, 2.996), s(0.004), s(0.014), &ledger), secs(2));
}

/// Ten a second, in a window of three seconds that began earlier, so that it reports two seconds as left.
#[test]
fn windows_that_last_longer_again_and_again_are_longer() {
    let (mut estimator, mut ledger) = (WindowEstimator::default(), SentLog::default());
    let mut known = Vec::new();
    for request in 0..100 {
        let at = f64::from(request) * 0.1;
        let into = (at + 1.0 + 1e-6) % 3.0;
        let used = (into * 10.0).floor() + 1.0 - if at < 1.99 { 10.0 } else { 0.0 };
        ledger.sent(s(at));
        if into < 0.05 {
            estimator.restarted(100.0, used, secs(3), s(at), s(at + 0.01), &ledger);
        }
        known.push(estimator.hear(&told(used, (3.0 - into).ceil()), s(at), s(at + 0.01), &ledger));
    }
    assert_eq!((known[0], known[49]), (secs(2), secs(2)));
    assert_eq!(known[99], secs(3), "two have lasted longer");
}

#[test]
fn a_refusal_that_two_seconds_do_not_explain_is_explained_by_the_three_that_are_told() {
    let (mut estimator, ledger) = (WindowEstimator::default(), sent([0.0; 3]));
    // Whole seconds of a clock: anything from two to three.
    assert_eq!(estimator.hear(&bucket(99.0, 3.0), s(0.0), s(0.01), &ledger), secs(2));
    estimator.contradicted();
    assert_eq!(estimator.known(), secs(3));
}

/// Windows of two and three seconds alternate: two have lasted longer, but not consecutively.
#[test]
fn a_window_that_lasts_longer_each_second_time_is_not_longer() {
    let (mut estimator, mut ledger) = (WindowEstimator::default(), SentLog::default());
    let (mut at, mut begun) = (0.0, 0.0);
    for length in [2.0, 1.6, 2.0, 2.7, 1.6, 2.7, 1.6, 2.7, 1.6] {
        while at < begun + length {
            ledger.sent(s(at));
            let used = ((at - begun) * 10.0).round() + 1.0;
            if used == 1.0 && at > 0.0 {
                estimator.restarted(100.0, used, secs(2), s(at), s(at + 0.01), &ledger);
            }
            let reset = if begun == 0.0 { 2.0 } else { 3.0 };
            estimator.hear(&told(used, reset), s(at), s(at + 0.01), &ledger);
            at += 0.1;
        }
        begun += length;
        at = begun;
    }
    assert_eq!(estimator.known(), secs(2));
}

/// Three seconds were reported and taken exactly. Then the answers report 42 s, and later fractions of seconds, which
/// must not turn the length into a minute.
#[test]
fn what_was_told_once_does_not_change_what_was_learned_since() {
    let (mut estimator, ledger) = (WindowEstimator::default(), sent([0.0; 3]));
    assert_eq!(estimator.hear(&told(1.0, 3.0), s(0.0), s(0.01), &ledger), secs(3));
    let said = Bucket { window: Some(Duration::from_secs(42)), ..told(1.0, 42.0) };
    assert_eq!(estimator.hear(&said, s(0.0), s(0.01), &ledger), secs(42));
    assert_eq!(estimator.hear(&told(2.0, 40.9), s(0.0), s(0.01), &ledger), secs(42));
}

/// The member joins when others have used nearly all, and sends 50 a second. The usage is replenished in two parts, 300
/// ms apart, which look like new windows. A member that has seen a start reports ten seconds all the time.
#[test]
fn what_the_fleet_has_seen_holds_against_what_one_that_came_later_concludes() {
    let (mut estimator, mut ledger) = (WindowEstimator::default(), SentLog::default());
    ledger.set_part(1.0 / 3.0);
    let mut concluded = false;
    for request in 0..62_usize {
        let at = request as f64 * 0.02;
        let said = told([90.0, 90.0, 60.0, 30.0, 10.0][request / 15], 4.321);
        ledger.sent(s(at));
        estimator.told_by_fleet(Duration::from_secs(10), Return::InParts, &said);
        assert_eq!(estimator.known(), secs(10), "at {at}");
        if [30, 45, 60].contains(&request) {
            let used = 100.0 - said.remaining.unwrap_or_default();
            estimator.restarted(100.0, used, said.reset, s(at), s(at + 0.01), &ledger);
            concluded |= estimator.known() < secs(1);
        }
        estimator.hear(&said, s(at), s(at + 0.01), &ledger);
    }
    assert!(concluded, "this is about a wrong conclusion");
}

/// The first request is answered after a later one, when others had used 40. The later request shows no start; the
/// first one does, of ten seconds. Only a window that begins with nearly an hour left shows the hour.
#[test]
fn what_is_documented_is_seen_when_a_window_begins_with_as_much_left() {
    let (mut estimator, ledger) = (WindowEstimator::default(), sent([0.0, 0.0]));
    let documented = |used, left| Bucket { window: Some(Duration::from_secs(3600)), ..told(used, left) };
    for (used, left, known, seen) in
        [(40.0, 9.9, 3600, false), (1.0, 9.8, 10, true), (1.0, 3599.0, 3600, true), (70.0, 50.0, 3600, true)]
    {
        assert_eq!(estimator.hear(&documented(used, left), s(0.0), s(0.01), &ledger), secs(known), "{left}");
        assert_eq!(estimator.seen_here().is_some(), seen, "{left}");
    }
}

/// The use of other members is unknown when the first answers arrive: no start is seen, and the provider documents an
/// hour. The second window begins at the end of the first, at eleven seconds, and therefore lasts ten. The count of
/// what both members have sent since the first window began does not change that.
#[test]
fn what_a_fleet_has_used_makes_no_window_longer_than_from_the_end_before_it() {
    let mut ledger = sent((0..45).map(|number| f64::from(number) * 0.01));
    let mut estimator = WindowEstimator::default();
    let documented = |used, left| Bucket { window: Some(Duration::from_secs(3600)), ..told(used, left) };
    for (used, at) in [(60.0, 0.1), (90.0, 0.44)] {
        assert_eq!(estimator.hear(&documented(used, 11.0), s(at), s(at + 0.01), &ledger), secs(3600));
    }
    ledger.set_part(0.5);
    ledger.sent(s(11.7));
    estimator.restarted(100.0, 41.0, secs(10), s(11.7), s(11.71), &ledger);
    assert_eq!(estimator.hear(&documented(41.0, 10.0), s(11.7), s(11.71), &ledger), secs(10));
}

/// Others began the first of two hours. The first answer of the second hour left before the answer that it is compared
/// with, so it cannot show the start. The end before it still belongs to the first hour. So the second window is an
/// hour, also with one second of it left.
#[test]
fn what_overtakes_the_first_answer_of_the_next_window_does_not_shorten_it() {
    let ledger = sent([0.0, 0.1]);
    let mut estimator = WindowEstimator::default();
    let documented = |used, left| Bucket { window: Some(Duration::from_secs(3600)), ..told(used, left) };
    assert_eq!(estimator.hear(&documented(60.0, 10.0), s(0.0), s(0.1), &ledger), secs(3600));
    assert_eq!(estimator.hear(&documented(40.0, 3600.0), s(10.0), s(12.0), &ledger), secs(3600));
    estimator.restarted(100.0, 41.0, secs(3599), s(11.0), s(12.1), &ledger);
    assert_eq!(estimator.hear(&documented(41.0, 3599.0), s(11.0), s(12.1), &ledger), secs(3600));
    assert_eq!(estimator.hear(&documented(90.0, 1.0), s(3609.5), s(3609.6), &ledger), secs(3600));
}

/// Others had used some when the first answer arrived, so no start is seen, and the provider documents an hour. At 100
/// an hour a request leaves every 36 s, and each time the count has restarted.
#[test]
fn what_is_documented_is_not_believed_for_an_hour_when_the_count_begins_anew_again_and_again() {
    let mut ledger = sent((0..90).map(|number| f64::from(number) * 0.01));
    let mut estimator = WindowEstimator::default();
    let documented = |used, left| Bucket { window: Some(Duration::from_secs(3600)), ..told(used, left) };
    for (used, at) in [(6.0, 0.0), (40.0, 0.4), (95.0, 0.9)] {
        assert_eq!(estimator.hear(&documented(used, 8.0 - at), s(at), s(at + 0.01), &ledger), secs(3600));
    }
    for number in 1..=4 {
        let at = 36.0 * f64::from(number);
        ledger.sent(s(at));
        estimator.restarted(100.0, 1.0, secs(10), s(at), s(at + 0.01), &ledger);
        estimator.hear(&documented(1.0, 10.0), s(at), s(at + 0.01), &ledger);
    }
    let known = estimator.known().expect("it was documented");
    assert!(known >= Duration::from_secs(10) && known <= Duration::from_secs(36), "{known:?}");
}

/// Ten members have a tenth each of a window that is used up: each sends ten, and none remains counted in the next
/// window.
#[test]
fn a_small_part_shows_too_that_all_comes_back_at_once() {
    let (mut estimator, mut ledger) = (WindowEstimator::default(), SentLog::default());
    ledger.set_part(0.1);
    for window in 0..8 {
        let at = f64::from(window) * 10.0;
        (0..10).for_each(|request| ledger.sent(s(at + f64::from(request) * 0.01)));
        let used = if window % 2 == 0 { 1.0 } else { 60.0 };
        estimator.restarted(100.0, used, secs(10), s(at), s(at + 0.01), &ledger);
        estimator.hear(&told(used, 10.0), s(at), s(at + 0.01), &ledger);
    }
    assert_eq!(estimator.returns(), Return::AtReset);
}

/// A member that joined later sees growing use and later resets, as with a bucket. The other members have seen windows
/// of ten seconds.
#[test]
fn who_has_seen_no_beginning_takes_no_window_of_the_fleet_for_a_bucket() {
    let (mut estimator, mut ledger) = (WindowEstimator::default(), SentLog::default());
    ledger.set_part(1.0 / 3.0);
    for (request, used) in [10.0, 25.0, 60.0, 99.0].into_iter().enumerate() {
        let at = request as f64 * 0.1;
        ledger.sent(s(at));
        let said = Bucket { refills: true, ..told(used, used * 0.003) };
        estimator.told_by_fleet(Duration::from_secs(10), Return::AtReset, &said);
        assert_eq!(estimator.hear(&said, s(at), s(at + 0.01), &ledger), secs(10), "{used} used");
        assert_eq!(estimator.returns(), Return::AtReset, "{used} used");
    }
}

/// Two thirds of the use are attributed to other members, but they have sent little so far. Requests from here still
/// count.
#[test]
fn what_a_log_forgets_is_told_by_what_was_sent_here() {
    let (mut estimator, mut ledger) = (WindowEstimator::default(), SentLog::default());
    ledger.set_part(1.0 / 3.0);
    (0..30).for_each(|at| ledger.sent(s(20.0 + f64::from(at) * 0.002)));
    estimator.told_by_fleet(Duration::from_secs(10), Return::AtReset, &told(1.0, 10.0));
    for (used, at) in [(50.0, 20.02), (45.0, 20.04), (40.0, 20.06)] {
        estimator.restarted(100.0, used, Some(Duration::from_secs(5)), s(at), s(at + 0.002), &ledger);
    }
    assert_eq!(estimator.known(), secs(10));
}
