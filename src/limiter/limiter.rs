//! All limits of one API, and the choice of limits that count a request. Pure: told the time.

use std::{collections::HashMap, num::NonZeroU32, time::Duration};

use andante_clock::{Instant, nanos};
use andante_limit::Rate;
use http::{HeaderMap, HeaderValue, Method, header::AUTHORIZATION};

use super::counter::{Counter, CounterDecision, CountingWindow};

/// Limits of an API, all derived from one rate of N per W.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// A single limit for all requests.
    #[default]
    Single,
    /// Two limits for all requests: N per W, then five times that rate with a window of one second.
    Stacked,
    /// A fifth of N per W for POST requests, and N per W for all others.
    PerRoute,
    /// N per W for each key in `Authorization` or `X-Api-Key`, and N per W for all requests without a key.
    PerKey,
}

/// Properties of a request that decide which limits count it.
#[derive(Clone, Debug, Default)]
pub struct MockCaller {
    method: Method,
    key: Option<HeaderValue>,
}

/// Enforces the limits of a layout with one counter each. With a layout per key, each key ever seen has a counter.
#[derive(Debug)]
pub struct Limiter {
    rate: Rate,
    window: CountingWindow,
    layout: Layout,
    counters: HashMap<CallerScope, Counter>,
}

/// Set of requests that one limit counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum CallerScope {
    All,
    AllBySecond,
    Post,
    Key(Option<HeaderValue>),
}

// === impl MockCaller ===

impl MockCaller {
    /// Returns the caller of a request with this method and these header fields. `Authorization` takes precedence over
    /// `X-Api-Key`.
    pub fn new(method: Method, headers: &HeaderMap) -> Self {
        Self { method, key: headers.get(AUTHORIZATION).or_else(|| headers.get("x-api-key")).cloned() }
    }
}

// === impl Limiter ===

impl Limiter {
    /// Creates a limiter that has counted no request yet.
    pub fn new(rate: Rate, window: CountingWindow, layout: Layout) -> Self {
        Self { rate, window, layout, counters: HashMap::new() }
    }

    /// Rate from which all limits are derived.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Derives all limits from `rate` from `now` on. Requests counted so far stay counted, as far back as the previous
    /// rate's window reached.
    pub fn retune(&mut self, rate: Rate, now: Instant) {
        self.rate = rate;
        for (scope, counter) in &mut self.counters {
            counter.retune(scope.rate(rate), now);
        }
    }

    /// Decides about one request that arrives at `now`. Returns the decision and the rate of the last limit asked.
    ///
    /// Limits are asked in order until one refuses. Earlier limits have then counted the request, as stacked
    /// middlewares do; only their concurrency slots are freed again.
    pub fn ask(&mut self, caller: &MockCaller, now: Instant) -> (CounterDecision, Rate) {
        let (window, rate) = (self.window, self.rate);
        let mut last = None;
        let scopes = self.layout.scopes(caller);
        for (index, scope) in scopes.iter().enumerate() {
            let limit = scope.rate(rate);
            let counter = self.counters.entry(scope.clone()).or_insert_with(|| Counter::new(limit, window));
            let decision = counter.ask(now);
            last = Some((decision, limit));
            if let CounterDecision::Refuse { .. } = decision {
                self.release(&scopes[..index]);
                break;
            }
        }
        last.expect("every layout has a limit for every request")
    }

    /// Frees the concurrency slots of an accepted request that was answered or abandoned.
    pub fn done(&mut self, caller: &MockCaller) {
        self.release(&self.layout.scopes(caller));
    }

    fn release(&mut self, scopes: &[CallerScope]) {
        for scope in scopes {
            if let Some(counter) = self.counters.get_mut(scope) {
                counter.done();
            }
        }
    }
}

// === impl Layout ===

impl Layout {
    /// Returns the scopes whose limits count a request, in the order in which they are asked.
    fn scopes(self, caller: &MockCaller) -> Vec<CallerScope> {
        match self {
            Self::Stacked => vec![CallerScope::All, CallerScope::AllBySecond],
            Self::PerRoute if caller.method == Method::POST => vec![CallerScope::Post],
            Self::PerKey => vec![CallerScope::Key(caller.key.clone())],
            Self::Single | Self::PerRoute => vec![CallerScope::All],
        }
    }
}

// === impl CallerScope ===

impl CallerScope {
    /// Returns the scope's limit, at least one request per window.
    fn rate(&self, rate: Rate) -> Rate {
        let some = |count: u64| NonZeroU32::new(u32::try_from(count).unwrap_or(u32::MAX)).unwrap_or(NonZeroU32::MIN);
        let count = u64::from(rate.count.get());
        match self {
            Self::All | Self::Key(_) => rate,
            Self::AllBySecond => {
                let per = Duration::from_secs(1);
                Rate { count: some((5 * count).saturating_mul(nanos(per)).div_ceil(nanos(rate.per))), per }
            }
            Self::Post => Rate { count: some(count / 5), per: rate.per },
        }
    }
}

#[cfg(test)]
mod tests;
