//! Decisions of each counting window, and whether its announced remaining counts and waits are kept.

use proptest::prelude::*;

use super::*;

/// Counting windows that know when they accept the next request: all but concurrency.
const ALL: [CountingWindow; 5] = [
    CountingWindow::Sliding,
    CountingWindow::Fixed,
    CountingWindow::Bucket,
    CountingWindow::Gcra,
    CountingWindow::SlidingCounter,
];

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(ms: u64) -> Instant {
    Instant::START + millis(ms)
}

fn counter(window: CountingWindow) -> Counter {
    Counter::new("3/s".parse().unwrap(), window)
}

fn accept(remaining: u32, reset: u64) -> CounterDecision {
    CounterDecision::Accept { remaining, reset: millis(reset) }
}

fn refuse(retry_after: u64, reset: u64) -> CounterDecision {
    CounterDecision::Refuse { retry_after: millis(retry_after), reset: millis(reset) }
}

#[test]
fn a_sliding_window_frees_each_slot_exactly_one_window_later() {
    let mut counter = counter(CountingWindow::Sliding);
    assert_eq!(counter.ask(at(0)), accept(2, 1000));
    assert_eq!(counter.ask(at(400)), accept(1, 600));
    assert_eq!(counter.ask(at(400)), accept(0, 600));
    assert_eq!(counter.ask(at(999)), refuse(1, 1));
    assert_eq!(counter.ask(at(1000)), accept(0, 400));
    assert_eq!(counter.ask(at(1000)), refuse(400, 400));
}

#[test]
fn fixed_windows_are_aligned_to_the_first_request() {
    let mut counter = counter(CountingWindow::Fixed);
    assert_eq!(counter.ask(at(700)), accept(2, 1000));
    assert_eq!(counter.ask(at(1699)), accept(1, 1));
    assert_eq!(counter.ask(at(1699)), accept(0, 1));
    assert_eq!(counter.ask(at(1699)), refuse(1, 1));
    // Three more fit a millisecond after the last two, where a sliding window has room for only one.
    assert_eq!(counter.ask(at(1700)), accept(2, 1000));
    assert_eq!(counter.ask(at(4800)), accept(2, 900));
}

#[test]
fn a_bucket_starts_full_and_refills_evenly() {
    let mut counter = counter(CountingWindow::Bucket);
    let third = Duration::from_nanos(333_333_334);
    assert_eq!(counter.ask(at(0)), CounterDecision::Accept { remaining: 2, reset: third });
    counter.ask(at(0));
    assert_eq!(counter.ask(at(0)), accept(0, 1000));
    assert_eq!(counter.ask(at(0)), CounterDecision::Refuse { retry_after: third, reset: millis(1000) });
    assert!(matches!(counter.ask(at(0) + third), CounterDecision::Accept { remaining: 0, .. }));
    assert_eq!(counter.ask(at(60_000)).remaining(), 2);
}

#[test]
fn without_burst_requests_must_be_a_slot_apart() {
    let mut counter = Counter::new("4/s".parse().unwrap(), CountingWindow::Gcra);
    assert_eq!(counter.ask(at(0)), accept(0, 250));
    assert_eq!(counter.ask(at(0)), refuse(250, 250));
    assert_eq!(counter.ask(at(249)), refuse(1, 1));
    assert_eq!(counter.ask(at(250)), accept(0, 250));
    // Unused slots are lost: a minute later one request fits, and no more.
    assert_eq!(counter.ask(at(60_000)), accept(0, 250));
    assert_eq!(counter.ask(at(60_001)), refuse(249, 249));
}

/// Example of <https://blog.cloudflare.com/counting-things-a-lot-of-different-things/> with a limit of 50 per minute:
/// 42 requests in the previous window, 18 in the current one. After a quarter of the window, 42 × 0.75 + 18 = 49.5.
#[test]
fn a_sliding_counter_weighs_the_last_window_by_what_it_still_covers() {
    let mut counter = Counter::new("50/min".parse().unwrap(), CountingWindow::SlidingCounter);
    (0..42).for_each(|_| assert!(matches!(counter.ask(at(0)), CounterDecision::Accept { .. })));
    let left: Vec<_> = (0..18).map(|_| counter.ask(at(75_000)).remaining()).collect();
    // Room before the first of the 18: 50 - 31.5 = 18.5.
    assert_eq!(left, (0..18).rev().collect::<Vec<_>>());
    // The estimate must fall by half a request, and 42 requests fade out in a minute: 60 s / 84.
    let free = Duration::from_nanos(714_285_715);
    assert_eq!(counter.ask(at(75_000)), CounterDecision::Refuse { retry_after: free, reset: millis(45_000) });
    assert_eq!(counter.ask(at(75_000) + free).remaining(), 0);
}

#[test]
fn a_sliding_counter_forgets_what_is_two_windows_old() {
    let mut counter = counter(CountingWindow::SlidingCounter);
    (0..3).for_each(|_| assert!(matches!(counter.ask(at(0)), CounterDecision::Accept { .. })));
    // The estimate must fall from three to two, which takes a third of the next window.
    let free = Duration::from_nanos(1_333_333_334);
    assert_eq!(counter.ask(at(0)), CounterDecision::Refuse { retry_after: free, reset: millis(1000) });
    assert_eq!(counter.ask(at(2000)), accept(2, 1000));
}

#[test]
fn a_concurrency_limit_counts_what_is_under_way() {
    let mut counter = counter(CountingWindow::Concurrency);
    let left: Vec<_> = (0..3).map(|_| counter.ask(at(0)).remaining()).collect();
    assert_eq!(left, [2, 1, 0]);
    // Time alone makes no room.
    assert_eq!(counter.ask(at(60_000)), refuse(1000, 1000));
    counter.done();
    assert_eq!(counter.ask(at(60_000)), accept(0, 1000));
    counter.retune("2/s".parse().unwrap(), at(60_000));
    counter.done();
    assert_eq!(counter.ask(at(60_000)), refuse(1000, 1000));
    (0..9).for_each(|_| counter.done());
    assert_eq!(counter.ask(at(60_000)), accept(1, 1000));
}

#[test]
fn a_limit_lowered_in_mid_run_keeps_what_was_counted() {
    for (window, decision) in [
        // All three have to leave before one fits again: the last one was accepted at 100 ms.
        (CountingWindow::Sliding, refuse(900, 900)),
        (CountingWindow::Fixed, refuse(800, 800)),
        // Three tokens were taken and 0.6 regained: 2.4 are missing from a bucket that now holds one.
        (CountingWindow::Bucket, refuse(1000, 1000)),
        // Only the first request was accepted. 200 ms at 3/s regained 0.6 of its token; 0.4 take 400 ms at 1/s.
        (CountingWindow::Gcra, refuse(400, 400)),
        // Three requests in this window against a limit of one: their weight fills the next window to its end.
        (CountingWindow::SlidingCounter, refuse(1800, 800)),
    ] {
        let mut counter = counter(window);
        for ms in [0, 50, 100] {
            counter.ask(at(ms));
        }
        counter.retune("1/s".parse().unwrap(), at(200));
        assert_eq!(counter.ask(at(200)), decision, "{window}");
    }
}

#[test]
fn a_limit_raised_in_mid_run_gives_what_is_more() {
    for window in
        [CountingWindow::Sliding, CountingWindow::Fixed, CountingWindow::Bucket, CountingWindow::SlidingCounter]
    {
        let mut counter = counter(window);
        (0..3).for_each(|_| assert!(matches!(counter.ask(at(0)), CounterDecision::Accept { .. })));
        counter.retune("6/2s".parse().unwrap(), at(0));
        let left = [0; 4].map(|ms| counter.ask(at(ms)));
        assert_eq!(left[..3].iter().map(CounterDecision::remaining).collect::<Vec<_>>(), [2, 1, 0], "{window}");
        assert!(matches!(left[3], CounterDecision::Refuse { .. }), "{window}");
    }
}

/// Returns the instants of the accepted requests in nanoseconds, where requests arrive `gaps` nanoseconds apart.
fn accepted(counter: &mut Counter, gaps: &[u64]) -> Vec<u64> {
    let mut now = 0;
    let mut accepted = Vec::new();
    for gap in gaps {
        now += gap;
        if let CounterDecision::Accept { .. } = counter.ask(Instant::from_nanos(now)) {
            accepted.push(now);
        }
    }
    accepted
}

fn traffic() -> impl Strategy<Value = (Rate, Vec<u64>)> {
    (1u32..20, 20u64..1000).prop_flat_map(|(count, per)| {
        let rate = Rate { count: count.try_into().unwrap(), per: Duration::from_nanos(per) };
        let gap = prop_oneof![3 => Just(0), 3 => 0..per / u64::from(count) + 2, 1 => 0..2 * per];
        (Just(rate), prop::collection::vec(gap, 1..200))
    })
}

proptest! {
    #[test]
    fn refused_until_exactly_when_promised((rate, gaps) in traffic(), (other, _) in traffic(), window in prop::sample::select(&ALL[..])) {
        let mut counter = Counter::new(rate, window);
        let mut now = 0;
        for (number, gap) in gaps.into_iter().enumerate() {
            now += gap;
            if number == 50 {
                counter.retune(other, Instant::from_nanos(now));
            }
            let CounterDecision::Refuse { retry_after, .. } = counter.ask(Instant::from_nanos(now)) else { continue };
            let promised = Instant::from_nanos(now) + retry_after;
            let early = counter.clone().ask(promised - Duration::from_nanos(1));
            let in_time = counter.clone().ask(promised);
            prop_assert!(matches!(early, CounterDecision::Refuse { .. }), "{early:?}");
            prop_assert!(matches!(in_time, CounterDecision::Accept { .. }), "{in_time:?}");
        }
    }

    #[test]
    fn remaining_is_how_many_more_are_accepted((rate, gaps) in traffic(), (other, _) in traffic(), window in prop::sample::select(&ALL[..])) {
        let mut counter = Counter::new(rate, window);
        let mut now = 0;
        for (number, gap) in gaps.into_iter().enumerate() {
            now += gap;
            if number == 50 {
                counter.retune(other, Instant::from_nanos(now));
            }
            let promised = counter.ask(Instant::from_nanos(now)).remaining();
            let mut probe = counter.clone();
            let found = std::iter::repeat_with(|| probe.ask(Instant::from_nanos(now)))
                .take_while(|decision| matches!(decision, CounterDecision::Accept { .. }))
                .count();
            prop_assert_eq!(promised as usize, found);
        }
    }

    #[test]
    fn no_sliding_window_holds_more_than_the_limit((rate, gaps) in traffic()) {
        let sent = accepted(&mut Counter::new(rate, CountingWindow::Sliding), &gaps);
        for pair in sent.windows(rate.count.get() as usize + 1) {
            prop_assert!(pair[pair.len() - 1] - pair[0] >= nanos(rate.per));
        }
    }

    #[test]
    fn no_fixed_window_holds_more_than_the_limit((rate, gaps) in traffic()) {
        let sent = accepted(&mut Counter::new(rate, CountingWindow::Fixed), &gaps);
        for pair in sent.windows(rate.count.get() as usize + 1) {
            let index = |at: u64| (at - sent[0]) / nanos(rate.per);
            prop_assert!(index(pair[pair.len() - 1]) > index(pair[0]));
        }
    }

    #[test]
    fn without_burst_no_two_are_closer_than_a_slot((rate, gaps) in traffic()) {
        let sent = accepted(&mut Counter::new(rate, CountingWindow::Gcra), &gaps);
        for pair in sent.windows(2) {
            prop_assert!((pair[1] - pair[0]) * u64::from(rate.count.get()) >= nanos(rate.per));
        }
    }

    #[test]
    fn no_estimate_of_a_sliding_counter_exceeds_the_limit((rate, gaps) in traffic()) {
        let sent = accepted(&mut Counter::new(rate, CountingWindow::SlidingCounter), &gaps);
        let (count, per) = (f64::from(rate.count.get()), nanos(rate.per));
        for (number, at) in sent.iter().enumerate() {
            let (window, elapsed) = ((at - sent[0]) / per, (at - sent[0]) % per);
            let within = |window: u64| sent[..=number].iter().filter(|at| (**at - sent[0]) / per == window).count() as f64;
            let before = window.checked_sub(1).map_or(0.0, within);
            let estimate = before * (1.0 - elapsed as f64 / per as f64) + within(window);
            prop_assert!(estimate <= count + 1e-9, "{estimate} of {count}");
        }
    }

    #[test]
    fn a_bucket_never_gives_more_than_it_held_and_gained((rate, gaps) in traffic()) {
        let sent = accepted(&mut Counter::new(rate, CountingWindow::Bucket), &gaps);
        let (count, per) = (u64::from(rate.count.get()), nanos(rate.per));
        for (i, from) in sent.iter().enumerate() {
            for (j, to) in sent.iter().enumerate().skip(i) {
                prop_assert!((j - i + 1) as u64 * per <= count * per + (to - from) * count);
            }
        }
    }
}
