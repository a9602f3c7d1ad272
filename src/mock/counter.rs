//! What an API counts, and when it refuses. Pure: told the time, which must never go backwards.

use std::{collections::VecDeque, fmt, time::Duration};

use crate::{
    clock::{Instant, nanos},
    limit::Rate,
};

/// How an API counts what it accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Window {
    /// At most N in any window that ends now: exact, and the strictest.
    #[default]
    Sliding,
    /// At most N in each of a row of windows that began with the first request: up to 2N around a boundary.
    Fixed,
    /// A token bucket that holds N and is refilled evenly, N per W.
    Bucket,
}

/// What becomes of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was counted.
    Accept {
        /// How many more would be accepted at this instant.
        remaining: u32,
        /// See [`Verdict::reset`].
        reset: Duration,
    },
    /// It was not counted.
    Refuse {
        /// Until exactly when the next one would be accepted.
        retry_after: Duration,
        /// See [`Verdict::reset`].
        reset: Duration,
    },
}

/// Enforces one rate, exactly to the nanosecond.
///
/// Refused requests do not count. A sliding window keeps eight bytes for each of the up to N requests in it.
#[derive(Clone, Debug)]
pub struct Counter {
    rate: Rate,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// When the requests of the last window were accepted, oldest first.
    Sliding(VecDeque<Instant>),
    Fixed {
        /// When the present window began; `None` before the first request.
        began: Option<Instant>,
        used: u32,
    },
    Bucket {
        /// Tokens × W in nanoseconds: in this unit each nanosecond adds N, a request takes W, and nothing is rounded.
        level: u128,
        at: Instant,
    },
}

// === impl Window ===

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sliding => "sliding",
            Self::Fixed => "fixed",
            Self::Bucket => "bucket",
        })
    }
}

// === impl Verdict ===

impl Verdict {
    /// Until the API says its allowance is there again, which means three things, as it does among real ones:
    /// until the first slot comes free (sliding), until the next window (fixed), until the bucket is full (bucket).
    pub fn reset(&self) -> Duration {
        match self {
            Self::Accept { reset, .. } | Self::Refuse { reset, .. } => *reset,
        }
    }

    /// Until exactly when the next request would be accepted; zero for one that was.
    pub fn retry_after(&self) -> Duration {
        match self {
            Self::Accept { .. } => Duration::ZERO,
            Self::Refuse { retry_after, .. } => *retry_after,
        }
    }

    /// How many more would be accepted at this instant.
    pub fn remaining(&self) -> u32 {
        match self {
            Self::Accept { remaining, .. } => *remaining,
            Self::Refuse { .. } => 0,
        }
    }
}

// === impl Counter ===

impl Counter {
    /// A counter that nobody has asked yet: the whole allowance is there.
    pub fn new(rate: Rate, window: Window) -> Self {
        let state = match window {
            Window::Sliding => State::Sliding(VecDeque::new()),
            Window::Fixed => State::Fixed { began: None, used: 0 },
            Window::Bucket => State::Bucket { level: capacity(rate), at: Instant::START },
        };
        Self { rate, state }
    }

    /// What it enforces.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Enforces `rate` from `now` on. What was counted stays counted, as far back as the window before reached.
    pub fn retune(&mut self, rate: Rate, now: Instant) {
        if let State::Bucket { level, at } = &mut self.state {
            refill(level, at, self.rate, now);
            // Whole tokens × W of what is missing, in the new unit; less than a nanosecond of refill is rounded away.
            let missing =
                (capacity(self.rate) - *level) * u128::from(nanos(rate.per)) / u128::from(nanos(self.rate.per));
            *level = capacity(rate).saturating_sub(missing);
        }
        self.rate = rate;
    }

    /// One request arrives.
    pub fn ask(&mut self, now: Instant) -> Verdict {
        let Rate { count, per } = self.rate;
        match &mut self.state {
            State::Sliding(accepted) => sliding(accepted, count.get(), per, now),
            State::Fixed { began, used } => {
                let began = began.get_or_insert(now);
                let windows = nanos(now.since(*began)) / nanos(per);
                if windows > 0 {
                    *began = Instant::from_nanos(began.as_nanos() + windows * nanos(per));
                    *used = 0;
                }
                let reset = (*began + per).since(now);
                if *used >= count.get() {
                    return Verdict::Refuse { retry_after: reset, reset };
                }
                *used += 1;
                Verdict::Accept { remaining: count.get() - *used, reset }
            }
            State::Bucket { level, at } => {
                refill(level, at, self.rate, now);
                bucket(level, capacity(self.rate), self.rate)
            }
        }
    }
}

fn sliding(accepted: &mut VecDeque<Instant>, count: u32, per: Duration, now: Instant) -> Verdict {
    while accepted.front().is_some_and(|oldest| *oldest + per <= now) {
        accepted.pop_front();
    }
    let used = accepted.len();
    // There are more than the limit when it was lowered: then as many more have to leave.
    if let Some(leaves) = used.checked_sub(count as usize).and_then(|surplus| accepted.get(surplus)) {
        let free = (*leaves + per).since(now);
        return Verdict::Refuse { retry_after: free, reset: free };
    }
    accepted.push_back(now);
    let reset = accepted.front().map_or(per, |oldest| (*oldest + per).since(now));
    Verdict::Accept { remaining: count - accepted.len() as u32, reset }
}

fn refill(level: &mut u128, at: &mut Instant, rate: Rate, now: Instant) {
    let gained = u128::from(nanos(now.since(*at))) * u128::from(rate.count.get());
    *level = (*level + gained).min(capacity(rate));
    *at = now;
}

fn bucket(level: &mut u128, full: u128, rate: Rate) -> Verdict {
    let (token, refill) = (u128::from(nanos(rate.per)), u128::from(rate.count.get()));
    let until = |wanted: u128, level: u128| {
        let wait = wanted.saturating_sub(level).div_ceil(refill);
        Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX))
    };
    match level.checked_sub(token) {
        Some(rest) => {
            *level = rest;
            let remaining = u32::try_from(rest / token).unwrap_or(u32::MAX);
            Verdict::Accept { remaining, reset: until(full, rest) }
        }
        None => Verdict::Refuse { retry_after: until(token, *level), reset: until(full, *level) },
    }
}

fn capacity(rate: Rate) -> u128 {
    u128::from(rate.count.get()) * u128::from(nanos(rate.per))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Window; 3] = [Window::Sliding, Window::Fixed, Window::Bucket];

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn at(ms: u64) -> Instant {
        Instant::START + millis(ms)
    }

    fn counter(window: Window) -> Counter {
        Counter::new("3/s".parse().unwrap(), window)
    }

    fn accept(remaining: u32, reset: u64) -> Verdict {
        Verdict::Accept { remaining, reset: millis(reset) }
    }

    fn refuse(retry_after: u64, reset: u64) -> Verdict {
        Verdict::Refuse { retry_after: millis(retry_after), reset: millis(reset) }
    }

    #[test]
    fn a_sliding_window_frees_each_slot_exactly_one_window_later() {
        let mut counter = counter(Window::Sliding);
        assert_eq!(counter.ask(at(0)), accept(2, 1000));
        assert_eq!(counter.ask(at(400)), accept(1, 600));
        assert_eq!(counter.ask(at(400)), accept(0, 600));
        assert_eq!(counter.ask(at(999)), refuse(1, 1));
        assert_eq!(counter.ask(at(1000)), accept(0, 400));
        assert_eq!(counter.ask(at(1000)), refuse(400, 400));
    }

    #[test]
    fn fixed_windows_are_aligned_to_the_first_request() {
        let mut counter = counter(Window::Fixed);
        assert_eq!(counter.ask(at(700)), accept(2, 1000));
        assert_eq!(counter.ask(at(1699)), accept(1, 1));
        assert_eq!(counter.ask(at(1699)), accept(0, 1));
        assert_eq!(counter.ask(at(1699)), refuse(1, 1));
        // Two windows' worth within a millisecond: legal here, and a refusal in a sliding window.
        assert_eq!(counter.ask(at(1700)), accept(2, 1000));
        assert_eq!(counter.ask(at(4800)), accept(2, 900));
    }

    #[test]
    fn a_bucket_starts_full_and_refills_evenly() {
        let mut counter = counter(Window::Bucket);
        let third = Duration::from_nanos(333_333_334);
        assert_eq!(counter.ask(at(0)), Verdict::Accept { remaining: 2, reset: third });
        counter.ask(at(0));
        assert_eq!(counter.ask(at(0)), accept(0, 1000));
        assert_eq!(counter.ask(at(0)), Verdict::Refuse { retry_after: third, reset: millis(1000) });
        assert!(matches!(counter.ask(at(0) + third), Verdict::Accept { remaining: 0, .. }));
        assert_eq!(counter.ask(at(60_000)).remaining(), 2);
    }

    #[test]
    fn a_limit_lowered_in_mid_run_keeps_what_was_counted() {
        for (window, verdict) in [
            // Two of the three have to leave before one fits again.
            (Window::Sliding, refuse(900, 900)),
            (Window::Fixed, refuse(800, 800)),
            // Three of one are missing, less a fifth of three regained: empty.
            (Window::Bucket, refuse(1000, 1000)),
        ] {
            let mut counter = counter(window);
            for ms in [0, 50, 100] {
                counter.ask(at(ms));
            }
            counter.retune("1/s".parse().unwrap(), at(200));
            assert_eq!(counter.ask(at(200)), verdict, "{window}");
        }
    }

    #[test]
    fn a_limit_raised_in_mid_run_gives_what_is_more() {
        for window in ALL {
            let mut counter = counter(window);
            (0..3).for_each(|_| assert!(matches!(counter.ask(at(0)), Verdict::Accept { .. })));
            counter.retune("6/2s".parse().unwrap(), at(0));
            let left = [0; 4].map(|ms| counter.ask(at(ms)));
            assert_eq!(left[..3].iter().map(Verdict::remaining).collect::<Vec<_>>(), [2, 1, 0], "{window}");
            assert!(matches!(left[3], Verdict::Refuse { .. }), "{window}");
        }
    }

    /// The instants of the requests that were accepted, out of requests `gaps` nanoseconds apart.
    fn accepted(counter: &mut Counter, gaps: &[u64]) -> Vec<u64> {
        let mut now = 0;
        let mut accepted = Vec::new();
        for gap in gaps {
            now += gap;
            if let Verdict::Accept { .. } = counter.ask(Instant::from_nanos(now)) {
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
                let Verdict::Refuse { retry_after, .. } = counter.ask(Instant::from_nanos(now)) else { continue };
                let promised = Instant::from_nanos(now) + retry_after;
                let early = counter.clone().ask(promised - Duration::from_nanos(1));
                let in_time = counter.clone().ask(promised);
                prop_assert!(matches!(early, Verdict::Refuse { .. }), "{early:?}");
                prop_assert!(matches!(in_time, Verdict::Accept { .. }), "{in_time:?}");
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
                    .take_while(|verdict| matches!(verdict, Verdict::Accept { .. }))
                    .count();
                prop_assert_eq!(promised as usize, found);
            }
        }

        #[test]
        fn no_sliding_window_holds_more_than_the_limit((rate, gaps) in traffic()) {
            let sent = accepted(&mut Counter::new(rate, Window::Sliding), &gaps);
            for pair in sent.windows(rate.count.get() as usize + 1) {
                prop_assert!(pair[pair.len() - 1] - pair[0] >= nanos(rate.per));
            }
        }

        #[test]
        fn no_fixed_window_holds_more_than_the_limit((rate, gaps) in traffic()) {
            let sent = accepted(&mut Counter::new(rate, Window::Fixed), &gaps);
            for pair in sent.windows(rate.count.get() as usize + 1) {
                let index = |at: u64| (at - sent[0]) / nanos(rate.per);
                prop_assert!(index(pair[pair.len() - 1]) > index(pair[0]));
            }
        }

        #[test]
        fn a_bucket_never_gives_more_than_it_held_and_gained((rate, gaps) in traffic()) {
            let sent = accepted(&mut Counter::new(rate, Window::Bucket), &gaps);
            let (count, per) = (u64::from(rate.count.get()), nanos(rate.per));
            for (i, from) in sent.iter().enumerate() {
                for (j, to) in sent.iter().enumerate().skip(i) {
                    prop_assert!((j - i + 1) as u64 * per <= count * per + (to - from) * count);
                }
            }
        }
    }
}
