//! What one answer says about limits, whatever the dialect. Pure: told the time, never reads it.

use std::time::Duration;

use http::{HeaderMap, StatusCode};

/// An answer, as far as hints are concerned.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// Its status.
    pub status: StatusCode,
    /// Its fields.
    pub headers: &'a HeaderMap,
    /// The beginning of its body, if it was looked at (see [`wants_body`]).
    pub body: Option<&'a [u8]>,
    /// The time of day at its arrival, since 1970, UTC.
    pub arrived: Duration,
}

/// What one answer says about limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Hint {
    /// What it comes to.
    pub signal: Signal,
    /// Why a request was refused, if it was.
    pub cause: Cause,
    /// From the arrival until the next try makes sense; `None` if the answer does not say.
    pub wait: Option<Duration>,
    /// The wait that the answer asks for in so many words (`Retry-After` and its kin).
    pub retry_after: Option<Duration>,
    /// What the wait is for, if the answer says: a route, a user, a resource.
    pub scope: Option<Box<str>>,
    /// In whose words it speaks.
    pub dialect: Dialect,
    /// The budgets that it speaks of; the first is the binding one.
    pub buckets: Vec<Bucket>,
}

/// What an answer comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// There is room, or nothing is said.
    Ok,
    /// A warning short of the limit.
    Slow,
    /// Nothing is left, said on an answer that was not itself refused.
    Exhausted,
    /// Refused, and a usable wait is known.
    Throttled,
    /// Refused or overloaded, no usable time: our own back-off decides.
    Backoff,
    /// Refused by a ban: never probe early.
    Banned,
    /// Waiting will not help.
    FatalQuota,
    /// Announced, but not enforced.
    Informational,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It was not.
    None,
    /// A quota: too many in a time.
    Quota,
    /// Too many at once.
    Concurrency,
    /// Trouble at the upstream, whatever we send (503, 529).
    Overload,
}

/// One budget of an API, as an answer shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Bucket {
    /// Its dimension or name, lower-case, if it has one.
    pub name: Option<Box<str>>,
    /// Whether it counts requests, rather than tokens, bytes, points or what else a request may cost.
    pub requests: bool,
    /// How much fits into a window.
    pub limit: Option<f64>,
    /// How much is left.
    pub remaining: Option<f64>,
    /// From the arrival until it is reset.
    pub reset: Option<Duration>,
    /// How long its window is.
    pub window: Option<Duration>,
    /// The reset was told in whole seconds of the time of day, and may be up to a second later.
    pub coarse: bool,
    /// `reset` is when it will be full, not when anything comes back: it refills all the time.
    pub refills: bool,
}

/// The words an API uses; a label of `andante_hints_total`, so there are few.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dialect(&'static str);

/// Reads an answer.
pub fn read(_: &Answer<'_>) -> Hint {
    Hint {
        signal: Signal::Ok,
        cause: Cause::None,
        wait: Some(Duration::ZERO),
        retry_after: None,
        scope: None,
        dialect: Dialect::NONE,
        buckets: Vec::new(),
    }
}

/// Whether the body may say more than the head does, so that its beginning should be read before the answer is judged.
pub fn wants_body(_: StatusCode, _: &HeaderMap) -> bool {
    false
}

// === impl Dialect ===

impl Dialect {
    /// Nothing was said.
    pub const NONE: Self = Self("none");

    /// As metrics and logs have it.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}
