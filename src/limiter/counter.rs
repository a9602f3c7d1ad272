//! Counters that decide, for each kind of window, whether an API accepts a request.
//! Pure: told the time, which must never go backwards.

use std::{collections::VecDeque, fmt, time::Duration};

use andante_clock::{Instant, nanos};
use andante_limit::Rate;

/// Method by which an API counts accepted requests against a rate of N per window W.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum CountingWindow {
    /// At most N in any window that ends now: exact, and the strictest.
    #[default]
    Sliding,
    /// At most N in each of a row of windows that began with the first request: up to 2N around a boundary.
    Fixed,
    /// A token bucket that holds N and is refilled evenly, N per W.
    Bucket,
    /// A token bucket that holds one: requests must be W/N apart (GCRA without burst, nginx's `limit_req`).
    Gcra,
    /// At most N by an estimate: the count of this window, and that of the one before, weighted by how much of it the
    /// last W covers. Windows begin as the fixed ones do.
    SlidingCounter,
    /// At most N in flight at once, whatever W is.
    Concurrency,
}

/// Wait that a concurrency limit reports: a guess, since a slot is freed whenever some request in flight ends.
const SOON: Duration = Duration::from_secs(1);

/// Decision about one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterDecision {
    /// The request was counted.
    Accept {
        /// Number of further requests that would be accepted at this instant.
        remaining: u32,
        /// See [`CounterDecision::reset`].
        reset: Duration,
    },
    /// The request was not counted.
    Refuse {
        /// See [`CounterDecision::retry_after`].
        retry_after: Duration,
        /// See [`CounterDecision::reset`].
        reset: Duration,
    },
}

/// Enforces one rate, exactly to the nanosecond.
///
/// Refused requests do not count. A sliding window stores eight bytes for each request in it. A concurrency limit frees
/// a slot only when [`Counter::done`] is called.
#[derive(Clone, Debug)]
pub(super) struct Counter {
    rate: Rate,
    state: CounterState,
}

#[derive(Clone, Debug)]
enum CounterState {
    /// Instants at which the requests of the last window were accepted, oldest first.
    Sliding(VecDeque<Instant>),
    Fixed {
        /// Start of the current window; `None` before the first request.
        began: Option<Instant>,
        used: u32,
    },
    Bucket {
        /// Capacity in tokens; `None` means the limit's N.
        size: Option<u32>,
        /// Tokens × W in nanoseconds. In this unit a nanosecond adds N and a request takes W: nothing is rounded.
        level: u128,
        at: Instant,
    },
    SlidingCounter {
        /// Start of the current window; `None` before the first request.
        began: Option<Instant>,
        used: u32,
        /// Requests accepted in the previous window.
        before: u32,
    },
    Concurrency {
        /// Requests in flight.
        open: u32,
    },
}

// === impl CountingWindow ===

impl fmt::Display for CountingWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sliding => "sliding",
            Self::Fixed => "fixed",
            Self::Bucket => "bucket",
            Self::Gcra => "gcra",
            Self::SlidingCounter => "sliding-counter",
            Self::Concurrency => "concurrency",
        })
    }
}

// === impl CounterDecision ===

impl CounterDecision {
    /// Time until the reset that the API reports. As among real APIs, its meaning depends on the window.
    ///
    /// A sliding window resets when a slot is free. Fixed windows and sliding counters reset when the next window
    /// begins. Buckets, GCRA included, reset when they are full. A concurrency limit reports one second.
    pub fn reset(&self) -> Duration {
        match self {
            Self::Accept { reset, .. } | Self::Refuse { reset, .. } => *reset,
        }
    }

    /// Exact time until the next request would be accepted; zero for an accepted request. A concurrency limit, which
    /// cannot know it, reports one second.
    pub fn retry_after(&self) -> Duration {
        match self {
            Self::Accept { .. } => Duration::ZERO,
            Self::Refuse { retry_after, .. } => *retry_after,
        }
    }

    /// Number of further requests that would be accepted at this instant.
    pub fn remaining(&self) -> u32 {
        match self {
            Self::Accept { remaining, .. } => *remaining,
            Self::Refuse { .. } => 0,
        }
    }
}

// === impl Counter ===

impl Counter {
    /// Creates a counter that has accepted no request yet.
    pub(super) fn new(rate: Rate, window: CountingWindow) -> Self {
        let state = match window {
            CountingWindow::Sliding => CounterState::Sliding(VecDeque::new()),
            CountingWindow::Fixed => CounterState::Fixed { began: None, used: 0 },
            CountingWindow::Bucket => CounterState::bucket(None, rate),
            CountingWindow::Gcra => CounterState::bucket(Some(1), rate),
            CountingWindow::SlidingCounter => CounterState::SlidingCounter { began: None, used: 0, before: 0 },
            CountingWindow::Concurrency => CounterState::Concurrency { open: 0 },
        };
        Self { rate, state }
    }

    /// Enforces `rate` from `now` on. Requests counted so far stay counted, as far back as the previous rate's window
    /// reached.
    pub(super) fn retune(&mut self, rate: Rate, now: Instant) {
        if let CounterState::Bucket { size, level, at } = &mut self.state {
            let full = capacity(*size, self.rate);
            refill(level, at, full, self.rate, now);
            // Missing tokens × W, converted to the new W. The division discards less than a nanosecond of refill.
            let missing = (full - *level) * u128::from(nanos(rate.per)) / u128::from(nanos(self.rate.per));
            *level = capacity(*size, rate).saturating_sub(missing);
        }
        self.rate = rate;
    }

    /// Decides about one request that arrives at `now`, and counts it if it is accepted.
    pub(super) fn ask(&mut self, now: Instant) -> CounterDecision {
        let Rate { count, per } = self.rate;
        match &mut self.state {
            CounterState::Sliding(accepted) => sliding(accepted, count.get(), per, now),
            CounterState::Fixed { began, used } => {
                let began = began.get_or_insert(now);
                if turn(began, per, now) > 0 {
                    *used = 0;
                }
                let reset = (*began + per).since(now);
                if *used >= count.get() {
                    return CounterDecision::Refuse { retry_after: reset, reset };
                }
                *used += 1;
                CounterDecision::Accept { remaining: count.get() - *used, reset }
            }
            CounterState::Bucket { size, level, at } => {
                let full = capacity(*size, self.rate);
                refill(level, at, full, self.rate, now);
                bucket(level, full, self.rate)
            }
            CounterState::SlidingCounter { began, used, before } => {
                let began = began.get_or_insert(now);
                match turn(began, per, now) {
                    0 => {}
                    1 => *before = std::mem::take(used),
                    _ => (*before, *used) = (0, 0),
                }
                estimated(*before, used, self.rate, now.since(*began))
            }
            CounterState::Concurrency { open } if *open >= count.get() => {
                CounterDecision::Refuse { retry_after: SOON, reset: SOON }
            }
            CounterState::Concurrency { open } => {
                *open += 1;
                CounterDecision::Accept { remaining: count.get() - *open, reset: SOON }
            }
        }
    }

    /// Frees the slot of an accepted request that was answered or abandoned. Only a concurrency limit has slots.
    pub(super) fn done(&mut self) {
        if let CounterState::Concurrency { open } = &mut self.state {
            *open = open.saturating_sub(1);
        }
    }
}

// === impl CounterState ===

impl CounterState {
    fn bucket(size: Option<u32>, rate: Rate) -> Self {
        Self::Bucket { size, level: capacity(size, rate), at: Instant::START }
    }
}

/// Moves `began` to the start of the window that contains `now`, and returns by how many windows it was moved.
fn turn(began: &mut Instant, per: Duration, now: Instant) -> u64 {
    let windows = nanos(now.since(*began)) / nanos(per);
    *began = Instant::from_nanos(began.as_nanos() + windows * nanos(per));
    windows
}

/// Decides by the estimate of <https://blog.cloudflare.com/counting-things-a-lot-of-different-things/>. All terms are
/// requests × W in nanoseconds, so that nothing is rounded.
fn estimated(before: u32, used: &mut u32, rate: Rate, elapsed: Duration) -> CounterDecision {
    let (count, per) = (u128::from(rate.count.get()), u128::from(nanos(rate.per)));
    let (elapsed, reset) = (u128::from(nanos(elapsed)), rate.per.saturating_sub(elapsed));
    let estimate = u128::from(before) * (per - elapsed) + u128::from(*used) * per;
    if let Some(room) = (count * per).checked_sub(estimate + per) {
        *used += 1;
        return CounterDecision::Accept { remaining: (room / per) as u32, reset };
    }
    // Offset into the window, in nanoseconds, at which one more request fits; `None` if none fits in this window.
    // `before` requests were accepted in the previous window, and `used` in this one.
    let fits = |before: u32, used: u32| {
        let room = count.checked_sub(u128::from(used) + 1)? * per;
        Some(per - room.checked_div(u128::from(before)).unwrap_or(per).min(per))
    };
    let wait = match fits(before, *used) {
        Some(at) => at - elapsed,
        None => per - elapsed + fits(*used, 0).unwrap_or(per),
    };
    CounterDecision::Refuse { retry_after: Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX)), reset }
}

fn sliding(accepted: &mut VecDeque<Instant>, count: u32, per: Duration, now: Instant) -> CounterDecision {
    while accepted.front().is_some_and(|oldest| *oldest + per <= now) {
        accepted.pop_front();
    }
    let used = accepted.len();
    // A lowered limit leaves a surplus in the window, which has to leave before a slot is free.
    if let Some(leaves) = used.checked_sub(count as usize).and_then(|surplus| accepted.get(surplus)) {
        let free = (*leaves + per).since(now);
        return CounterDecision::Refuse { retry_after: free, reset: free };
    }
    accepted.push_back(now);
    let reset = accepted.front().map_or(per, |oldest| (*oldest + per).since(now));
    CounterDecision::Accept { remaining: count - accepted.len() as u32, reset }
}

fn refill(level: &mut u128, at: &mut Instant, full: u128, rate: Rate, now: Instant) {
    let gained = u128::from(nanos(now.since(*at))) * u128::from(rate.count.get());
    *level = (*level + gained).min(full);
    *at = now;
}

fn bucket(level: &mut u128, full: u128, rate: Rate) -> CounterDecision {
    let (token, refill) = (u128::from(nanos(rate.per)), u128::from(rate.count.get()));
    let until = |wanted: u128, level: u128| {
        let wait = wanted.saturating_sub(level).div_ceil(refill);
        Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX))
    };
    match level.checked_sub(token) {
        Some(rest) => {
            *level = rest;
            let remaining = u32::try_from(rest / token).unwrap_or(u32::MAX);
            CounterDecision::Accept { remaining, reset: until(full, rest) }
        }
        None => CounterDecision::Refuse { retry_after: until(token, *level), reset: until(full, *level) },
    }
}

fn capacity(size: Option<u32>, rate: Rate) -> u128 {
    u128::from(size.unwrap_or(rate.count.get())) * u128::from(nanos(rate.per))
}

#[cfg(test)]
mod tests;
