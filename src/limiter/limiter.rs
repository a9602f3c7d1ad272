//! All limits of one API, and which requests count against which. Pure: told the time.

use std::{collections::HashMap, num::NonZeroU32, time::Duration};

use andante_clock::{Instant, nanos};
use andante_limit::Rate;
use http::{HeaderMap, HeaderValue, Method, header::AUTHORIZATION};

use super::counter::{Counter, CounterDecision, CountingWindow};

/// Which limits an API has, made from one rate: N per W.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// One for all requests.
    #[default]
    Single,
    /// Two for all requests: N per W, then five times that rate by the second.
    Stacked,
    /// One for POST, a fifth of N per W, and one for all others.
    PerRoute,
    /// One for each key in `Authorization` or `X-Api-Key`, and one for requests without.
    PerKey,
}

/// What decides which limits a request counts against.
#[derive(Clone, Debug, Default)]
pub struct MockCaller {
    method: Method,
    key: Option<HeaderValue>,
}

/// Enforces the limits of a layout, each by a counter of its own. Keeps one for each key that it has seen.
#[derive(Debug)]
pub struct Limiter {
    rate: Rate,
    window: CountingWindow,
    layout: Layout,
    counters: HashMap<CallerScope, Counter>,
}

/// The requests that one limit is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum CallerScope {
    All,
    AllBySecond,
    Post,
    Key(Option<HeaderValue>),
}

// === impl MockCaller ===

impl MockCaller {
    /// Who sends a request with this method and these fields.
    pub fn new(method: Method, headers: &HeaderMap) -> Self {
        Self { method, key: headers.get(AUTHORIZATION).or_else(|| headers.get("x-api-key")).cloned() }
    }
}

// === impl Limiter ===

impl Limiter {
    /// A limiter that nobody has asked yet.
    pub fn new(rate: Rate, window: CountingWindow, layout: Layout) -> Self {
        Self { rate, window, layout, counters: HashMap::new() }
    }

    /// What its limits are made from.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Makes its limits from `rate` from `now` on. What was counted stays counted, as far back as the window before
    /// reached.
    pub fn retune(&mut self, rate: Rate, now: Instant) {
        self.rate = rate;
        for (scope, counter) in &mut self.counters {
            counter.retune(scope.rate(rate), now);
        }
    }

    /// One request arrives. Says what the limit that was asked last made of it, and which one that is.
    ///
    /// Limits are asked one after the other until one refuses. Those before it have counted the request, as stacked
    /// middlewares do.
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

    /// A request that was accepted is answered, or given up.
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
    /// The limits of a request, in the order in which they are asked.
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
    /// Its limit, at least one request.
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
