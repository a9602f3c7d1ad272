//! Limiters as other people write them. Times are seconds since 1970.

use std::collections::VecDeque;

/// A limiter: what it counts, and how.
#[derive(Clone, Debug)]
pub(super) enum Limiter {
    /// `limit` in a window that begins with its first request, or on the wall clock's multiples of its length.
    Fixed { limit: f64, window: f64, aligned: Option<f64>, since: f64, count: f64 },
    /// `limit` in any window: the times of all accepted requests are kept.
    Log { limit: f64, window: f64, accepted: VecDeque<f64> },
    /// The counts of this window and the last one, weighted by how far this one has come. `all` means that refused
    /// requests count as well (HAProxy).
    Counter { limit: f64, window: f64, number: i64, count: f64, before: f64, phase: Option<f64>, all: bool },
    /// A bucket that leaks `rate` a second and holds `size`; 1 is nginx's `limit_req` without `burst`.
    Bucket { size: f64, rate: f64, level: f64, at: f64 },
    /// nginx's `limit_req` with a `burst` that is delayed.
    Delay { size: f64, rate: f64, level: f64, at: f64 },
    /// `most` at once.
    Concurrency { most: usize, now: usize },
    /// The second may serve what the first refuses (rate-limiter-flexible's `BurstyRateLimiter`).
    Bursty(Box<[Limiter; 2]>),
    /// After a refusal, refuses for `block` seconds (nest's throttler, asgi-ratelimit's `block_time`).
    Blocking { limiter: Box<Limiter>, block: f64, until: f64 },
}

/// The effect on one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) accepted: bool,
    /// The delay of the request.
    pub(super) delay: f64,
    pub(super) limit: f64,
    pub(super) remaining: f64,
    /// Seconds until it is full again.
    pub(super) reset: f64,
    pub(super) window: f64,
}

// === impl Limiter ===

impl Limiter {
    pub(super) fn fixed(limit: f64, window: f64) -> Self {
        Self::Fixed { limit, window, aligned: None, since: f64::NEG_INFINITY, count: 0.0 }
    }

    pub(super) fn aligned(limit: f64, window: f64) -> Self {
        Self::aligned_at(limit, window, 0.0)
    }

    /// Windows that begin `phase` seconds after full ones.
    pub(super) fn aligned_at(limit: f64, window: f64, phase: f64) -> Self {
        Self::Fixed { limit, window, aligned: Some(phase), since: f64::NEG_INFINITY, count: 0.0 }
    }

    pub(super) fn log(limit: f64, window: f64) -> Self {
        Self::Log { limit, window, accepted: VecDeque::new() }
    }

    pub(super) fn counter(limit: f64, window: f64) -> Self {
        Self::Counter { limit, window, number: -10, count: 0.0, before: 0.0, phase: Some(0.0), all: false }
    }

    pub(super) fn counter_of_all(limit: f64, window: f64) -> Self {
        Self::Counter { limit, window, number: -10, count: 0.0, before: 0.0, phase: Some(0.0), all: true }
    }

    /// A counter of all requests, whose first window begins with the first request, as HAProxy's do.
    pub(super) fn counter_of_all_from_first(limit: f64, window: f64) -> Self {
        Self::Counter { limit, window, number: -10, count: 0.0, before: 0.0, phase: None, all: true }
    }

    pub(super) fn bucket(size: f64, rate: f64) -> Self {
        Self::Bucket { size, rate, level: 0.0, at: 0.0 }
    }

    pub(super) fn delay(size: f64, rate: f64) -> Self {
        Self::Delay { size, rate, level: 0.0, at: 0.0 }
    }

    pub(super) fn parallel(most: usize) -> Self {
        Self::Concurrency { most, now: 0 }
    }

    pub(super) fn bursty(steady: Self, spare: Self) -> Self {
        Self::Bursty(Box::new([steady, spare]))
    }

    pub(super) fn blocking(self, block: f64) -> Self {
        Self::Blocking { limiter: Box::new(self), block, until: f64::NEG_INFINITY }
    }

    pub(super) fn is_parallel(&self) -> bool {
        matches!(self, Self::Concurrency { .. })
    }

    /// Requests a second that it accepts in the long run.
    pub(super) fn rate(&self) -> f64 {
        match *self {
            Self::Bursty(ref both) => both.iter().map(Self::rate).sum(),
            Self::Blocking { ref limiter, .. } => limiter.rate(),
            Self::Fixed { limit, window, .. }
            | Self::Log { limit, window, .. }
            | Self::Counter { limit, window, .. } => limit / window,
            Self::Bucket { rate, .. } | Self::Delay { rate, .. } => rate,
            Self::Concurrency { .. } => f64::INFINITY,
        }
    }

    pub(super) fn window(&self) -> f64 {
        match *self {
            Self::Bursty(ref both) => both.iter().map(Self::window).fold(0.0, f64::max),
            Self::Blocking { ref limiter, .. } => limiter.window(),
            Self::Fixed { window, .. } | Self::Log { window, .. } | Self::Counter { window, .. } => window,
            Self::Bucket { size, rate, .. } => size / rate,
            Self::Delay { .. } | Self::Concurrency { .. } => 1.0,
        }
    }

    /// Changes the limit.
    pub(super) fn change(&mut self, factor: f64) {
        match self {
            Self::Bursty(both) => both.iter_mut().for_each(|one| one.change(factor)),
            Self::Blocking { limiter, .. } => limiter.change(factor),
            Self::Fixed { limit, .. } | Self::Log { limit, .. } | Self::Counter { limit, .. } => {
                *limit = (*limit * factor).round().max(1.0);
            }
            Self::Bucket { rate, .. } | Self::Delay { rate, .. } => *rate *= factor,
            Self::Concurrency { most, .. } => *most = (*most as f64 * factor) as usize,
        }
    }

    /// Ends a request that counts as parallel.
    pub(super) fn done(&mut self) {
        if let Self::Concurrency { now, .. } = self {
            *now -= 1;
        }
    }

    /// Decides on a request that arrives at `now`.
    pub(super) fn ask(&mut self, now: f64) -> Look {
        match self {
            Self::Fixed { limit, window, aligned, since, count } => {
                if now >= *since + *window {
                    *since = aligned.map_or(now, |phase| ((now - phase) / *window).floor() * *window + phase);
                    *count = 0.0;
                }
                let accepted = *count < *limit;
                *count += f64::from(u8::from(accepted));
                let (remaining, reset) = ((*limit - *count).max(0.0), *since + *window - now);
                Look { accepted, delay: 0.0, limit: *limit, remaining, reset, window: *window }
            }
            Self::Log { limit, window, accepted: times } => {
                while times.front().is_some_and(|at| *at <= now - *window) {
                    times.pop_front();
                }
                let accepted = (times.len() as f64) < *limit;
                if accepted {
                    times.push_back(now);
                }
                let remaining = (*limit - times.len() as f64).max(0.0);
                let reset = times.front().map_or(0.0, |at| at + *window - now);
                Look { accepted, delay: 0.0, limit: *limit, remaining, reset, window: *window }
            }
            Self::Counter { limit, window, number, count, before, phase, all } => {
                let now = now - *phase.get_or_insert(now);
                let current = (now / *window).floor() as i64;
                if current != *number {
                    *before = if current == *number + 1 { *count } else { 0.0 };
                    (*count, *number) = (0.0, current);
                }
                let used = *before * (1.0 - (now / *window - current as f64)) + *count;
                let accepted = used + 1.0 <= *limit + 1e-9;
                *count += f64::from(u8::from(accepted || *all));
                let (remaining, reset) = ((*limit - used - 1.0).floor().max(0.0), (current + 1) as f64 * *window - now);
                Look { accepted, delay: 0.0, limit: *limit, remaining, reset, window: *window }
            }
            Self::Bucket { size, rate, level, at } => {
                let before = (*level - (now - *at) * *rate).max(0.0);
                let accepted = before + 1.0 <= *size + 1e-9;
                (*level, *at) = (before + f64::from(u8::from(accepted)), now);
                let (remaining, reset) = ((*size - *level).floor().max(0.0), *level / *rate);
                Look { accepted, delay: 0.0, limit: *size, remaining, reset, window: *size / *rate }
            }
            Self::Delay { size, rate, level, at } => {
                let before = (*level - (now - *at) * *rate).max(0.0);
                let accepted = before <= *size + 1e-9;
                let delay = if accepted { before / *rate } else { 0.0 };
                (*level, *at) = (before + f64::from(u8::from(accepted)), now);
                Look { accepted, delay, limit: *size, remaining: 0.0, reset: 0.0, window: 1.0 }
            }
            Self::Concurrency { most, now } => {
                let accepted = *now < *most;
                *now += usize::from(accepted);
                Look { accepted, delay: 0.0, limit: *most as f64, remaining: 0.0, reset: 0.0, window: 0.0 }
            }
            Self::Blocking { limiter, block, until } => {
                if now >= *until {
                    let look = limiter.ask(now);
                    if look.accepted {
                        return look;
                    }
                    *until = now + *block;
                }
                Look { accepted: false, delay: 0.0, limit: 0.0, remaining: 0.0, reset: *until - now, window: *block }
            }
            Self::Bursty(both) => {
                let [steady, spare] = &mut **both;
                let look = steady.ask(now);
                if look.accepted { look } else { spare.ask(now) }
            }
        }
    }
}
