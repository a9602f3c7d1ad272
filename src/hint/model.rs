//! Terms for what an answer says about limits, common to all dialects.

use std::time::Duration;

use http::StatusCode;

/// Hints that one answer gives about limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Hint {
    /// Overall judgement of the answer.
    pub signal: Signal,
    /// Reason for the refusal, if the request was refused.
    pub cause: Cause,
    /// Time from the arrival until the next try makes sense; `None` if the answer does not say.
    pub wait: Option<Duration>,
    /// Wait that the answer asks for explicitly (`Retry-After` and similar fields).
    pub retry_after: Option<Duration>,
    /// Extra time until that wait is certainly over: the end was reported as a time of day in whole seconds.
    pub later: Duration,
    /// Subject of the wait, if the answer says: a route, a user, a resource.
    pub scope: Option<Box<str>>,
    /// Dialect of the answer.
    pub dialect: Dialect,
    /// Budgets that the answer reports; the first is the binding one.
    pub buckets: Vec<Bucket>,
    /// Reason why waiting does not help, if there is one.
    pub hopeless: Option<Hopeless>,
    /// How surely a refused request was not done.
    pub strength: Strength,
    /// True if a refused request was partly done: it must not be done twice, and requests that follow may be refused.
    pub done: bool,
    /// True if the status is 503: the upstream is in trouble, whatever its body says.
    pub unavailable: bool,
}

/// Longest time until a reset that is believed without `Date`. A clock that is ahead by less delays requests by no more
/// than that.
const NEAR_RESET: Duration = Duration::from_secs(60);

/// How surely a refused request was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
    /// Words alone, which anyone may have written, or a status that also follows work that was begun (503).
    Words,
    /// A status that refuses before a request is looked at, or a field of the head.
    Head,
    /// A code or sentence at the place that its provider documents, status 529, or the declaration of a rule.
    Code,
}

/// Overall judgement of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// There is room, or the answer reports nothing.
    Ok,
    /// A warning short of the limit.
    Slow,
    /// A budget is used up, but this request was not refused.
    Exhausted,
    /// Refused, with a usable wait.
    Throttled,
    /// Refused or overloaded, without a usable wait: our own back-off decides.
    Backoff,
    /// Refused by a ban: never probe early.
    Banned,
    /// Waiting will not help.
    FatalQuota,
    /// Limits that are announced, but not enforced.
    Informational,
}

/// Reason why a refused request is not served later either, or not before an end that the answer names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Hopeless {
    /// A payment is due first.
    Unpaid,
    /// A cap on spending, or on the use of a day or a month, is reached.
    Cap,
    /// The request alone is more than the limit allows.
    TooLarge,
    /// The limit is 0: the plan does not include the requested resource.
    NotOnPlan,
    /// A quota on the number of resources is used up (AWS's `ServiceQuotaExceededException`).
    Resources,
}

/// Reason for a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The request was not refused.
    None,
    /// Too many requests in a window.
    Quota,
    /// Too many requests in flight.
    Concurrency,
    /// Trouble at the upstream, whatever we send (503, 529).
    Overload,
}

/// Budget of an API, as an answer reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct Bucket {
    /// Dimension or name in lower case, if the budget has one.
    pub name: Option<Box<str>>,
    /// True if the budget counts requests, rather than tokens, bytes, points or other costs of a request.
    pub requests: bool,
    /// Limit per window.
    pub limit: Option<f64>,
    /// Remaining part of the limit.
    pub remaining: Option<f64>,
    /// Time from the arrival until the reset.
    pub reset: Option<Duration>,
    /// Length of the window.
    pub window: Option<Duration>,
    /// True if the reset is reported as a time of day in whole seconds: it may be up to a second later.
    pub coarse: bool,
    /// True if the budget refills continuously: `reset` is when it will be full, not when the next request fits.
    pub refills: bool,
}

impl Bucket {
    /// A budget of requests: `remaining` of `limit` are left until the reset.
    pub fn of_requests(limit: f64, remaining: f64, reset: Duration) -> Self {
        let (limit, remaining, reset) = (Some(limit), Some(remaining), Some(reset));
        Self { name: None, requests: true, limit, remaining, reset, window: None, coarse: false, refills: false }
    }
}

/// Dialect of an API; a label of `andante_hints_total`, so there are few values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dialect(&'static str);

/// Returns whether answers with this status may say that the request was not looked at. Other statuses may follow work
/// that was done in part.
pub fn may_refuse(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 400 | 401 | 403 | 418 | 420 | 429 | 503 | 509 | 529)
}

// === impl Hint ===

impl Hint {
    /// Hint of an answer that says nothing.
    pub const NOTHING: Self = Self {
        signal: Signal::Ok,
        cause: Cause::None,
        wait: Some(Duration::ZERO),
        retry_after: None,
        later: Duration::ZERO,
        scope: None,
        dialect: Dialect::NONE,
        buckets: Vec::new(),
        hopeless: None,
        strength: Strength::Words,
        done: false,
        unavailable: false,
    };

    /// Wait that the answer asks for explicitly, until it is certainly over.
    pub fn asked(&self) -> Option<Duration> {
        self.retry_after.map(|wait| wait + self.later)
    }

    /// Turns the hint into the refusal of an API that lacks capacity, and has not done the request.
    pub fn lacks_capacity(&mut self) {
        (self.signal, self.cause, self.wait) = (Signal::Backoff, Cause::Overload, None);
        (self.hopeless, self.strength, self.done) = (None, Strength::Code, false);
    }

    /// Turns the hint into that of a served answer. The reported limits stay.
    pub fn accept(&mut self) {
        (self.signal, self.cause, self.wait) = (Signal::Ok, Cause::None, Some(Duration::ZERO));
        (self.hopeless, self.done) = (None, false);
    }

    /// Ignores resets that are times of day in whole seconds and far ahead, in an answer without `Date`. A server with
    /// a clock must send `Date` (RFC 9110 §6.6.1). Without it, nothing shows how far ahead the clock is that wrote such
    /// a time. A quota with a reported window keeps its reset, which the window bounds.
    pub fn distrust_clock(&mut self) {
        let is_far = |bucket: &&mut Bucket| {
            bucket.coarse && bucket.window.is_none() && bucket.reset.is_some_and(|reset| reset > NEAR_RESET)
        };
        let resets = self.buckets.iter_mut().filter(is_far).filter_map(|bucket| {
            bucket.coarse = false;
            bucket.reset.take()
        });
        let resets: Vec<Duration> = resets.collect();
        if self.retry_after.is_none() && self.wait.is_some_and(|wait| resets.contains(&wait)) {
            self.wait = None;
            if self.signal == Signal::Throttled {
                self.signal = Signal::Backoff;
            }
        }
    }

    /// Returns whether the answer is a refusal that needs no rule to declare it.
    fn is_certain(&self) -> bool {
        self.cause != Cause::None && self.strength > Strength::Words && !self.done && self.hopeless.is_none()
    }

    /// Returns whether a rule that declares an answer of this `status` to be a refusal outranks this hint.
    pub fn yields_to_rule(&self, status: StatusCode) -> bool {
        !(self.is_certain() && may_refuse(status))
    }

    /// Returns whether words alone refuse the request: they pause requests of its kind briefly at most. A request that
    /// must not be done twice is not repeated because of them.
    pub fn is_hearsay(&self) -> bool {
        let in_words = match self.cause {
            Cause::None => false,
            Cause::Quota | Cause::Concurrency => true,
            Cause::Overload => !self.unavailable,
        };
        self.strength == Strength::Words && in_words
    }
}

// === impl Hopeless ===

impl Hopeless {
    /// Text for logs and `/status`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Unpaid => "a payment is due",
            Self::Cap => "a cap on spending, or on the use of a day or a month, is reached",
            Self::TooLarge => "the request alone is larger than the limit",
            Self::NotOnPlan => "the limit is 0: the plan does not include it",
            Self::Resources => "a quota of the service on what there may be is used up",
        }
    }

    /// Advice to the user.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Unpaid => "pay, or add credit, at the provider",
            Self::Cap => "raise the cap at the provider, or wait until it is renewed",
            Self::TooLarge => "send less in one request, or raise the limit at the provider",
            Self::NotOnPlan => "ask for something that the plan includes, or change the plan",
            Self::Resources => "delete what is not needed, or ask the provider for a higher quota",
        }
    }
}

// === impl Dialect ===

impl Dialect {
    /// The answer reports nothing.
    pub const NONE: Self = Self("none");
    /// The status alone.
    pub const STATUS: Self = Self("status");
    /// The body alone.
    pub const BODY: Self = Self("body");
    /// `Retry-After` and similar fields, counted from now.
    pub const RETRY_AFTER: Self = Self("retry-after");
    /// `Retry-After` as a time of day.
    pub const RETRY_AFTER_DATE: Self = Self("retry-after-date");
    /// `RateLimit` and `RateLimit-Policy` as lists of items (draft 08 and later), or policies alone.
    pub const IETF: Self = Self("ietf");
    /// `RateLimit` as a dictionary (draft 07).
    pub const IETF_DRAFT_7: Self = Self("ietf-draft7");
    /// `RateLimit-Limit` with policies in it (draft 03), also under X- names.
    pub const IETF_DRAFT_3: Self = Self("ietf-draft3");
    /// `RateLimit-Limit`, `-Remaining`, `-Reset`.
    pub const RATELIMIT: Self = Self("ratelimit");
    /// `X-RateLimit-Limit` and so on, or `X-Rate-Limit-…`.
    pub const X_RATELIMIT: Self = Self("x-ratelimit");
    /// `x-ratelimit-remaining-requests`, `-tokens`.
    pub const OPENAI: Self = Self("openai");
    /// `anthropic-ratelimit-…`.
    pub const ANTHROPIC: Self = Self("anthropic");
    /// `x-ratelimit-…` with a resource.
    pub const GITHUB: Self = Self("github");
    /// `RateLimit-…` with the name of a throttle.
    pub const GITLAB: Self = Self("gitlab");
    /// `X-RateLimit-…` with a bucket, or with both a reset from now and a reset by the clock.
    pub const DISCORD: Self = Self("discord");
    /// `X-Shopify-Shop-Api-Call-Limit`, and the cost of GraphQL.
    pub const SHOPIFY: Self = Self("shopify");
    /// `grpc-status`.
    pub const GRPC: Self = Self("grpc");
    /// Names or values that only one API uses.
    pub const VENDOR: Self = Self("vendor");

    /// Text for metrics and logs.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}
