//! What an answer says about limits, in terms that are the same for all dialects.

use std::time::Duration;

use http::StatusCode;

/// What one answer says about limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Hint {
    /// What it comes to.
    pub signal: Signal,
    /// Why a request was refused, if it was.
    pub cause: Cause,
    /// From the arrival until the next try makes sense; `None` if the answer does not say.
    pub wait: Option<Duration>,
    /// The wait that the answer asks for explicitly (`Retry-After` and similar fields).
    pub retry_after: Option<Duration>,
    /// By so much later that wait may be over: it was told in whole seconds of the day.
    pub later: Duration,
    /// What the wait is for, if the answer says: a route, a user, a resource.
    pub scope: Option<Box<str>>,
    /// In whose words it speaks.
    pub dialect: Dialect,
    /// The budgets that it reports; the first is the binding one.
    pub buckets: Vec<Bucket>,
    /// Why waiting does not help, if it does not.
    pub hopeless: Option<Hopeless>,
    /// How surely a refused request was not done.
    pub strength: Strength,
    /// A refusal beside which something was done: the request must not be done twice, and those that follow may be refused.
    pub done: bool,
    /// Status 503: the upstream is in trouble whatever its body says.
    pub unavailable: bool,
}

/// How surely a refused request was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
    /// Words alone, which anybody may have written, or a status that also follows work that was begun (503).
    Words,
    /// A status that refuses before a request is looked at, or a field of the head.
    Head,
    /// A code or sentence at the place where its provider documents it, status 529, or what a rule declares.
    Code,
}

/// What an answer comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// There is room, or the answer reports nothing.
    Ok,
    /// A warning short of the limit.
    Slow,
    /// Nothing is left, but this request was not refused.
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

/// Why a refused request is not served later either, or not before an end that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Hopeless {
    /// A payment is due first.
    Unpaid,
    /// A cap on spending, or on the use of a day or a month, is reached.
    Cap,
    /// The request alone is more than the limit allows.
    TooLarge,
    /// The limit is 0: the plan does not include what was asked for.
    NotOnPlan,
    /// A quota on how much there may be of something is used up (AWS's `ServiceQuotaExceededException`).
    Resources,
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
    /// The answer reports the reset as a time of day in whole seconds: it may be up to a second later.
    pub coarse: bool,
    /// `reset` is when it will be full, not when anything comes back: it refills all the time.
    pub refills: bool,
}

#[cfg(test)]
impl Bucket {
    /// So many requests are left, until all are there again.
    pub(crate) fn of_requests(limit: f64, remaining: f64, reset: Duration) -> Self {
        let (limit, remaining, reset) = (Some(limit), Some(remaining), Some(reset));
        Self { name: None, requests: true, limit, remaining, reset, window: None, coarse: false, refills: false }
    }
}

/// The words an API uses; a label of `andante_hints_total`, so there are few.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dialect(&'static str);

/// Whether answers with this status may say that a request was not looked at. Others may have done it, in part.
pub fn may_refuse(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 400 | 401 | 403 | 418 | 420 | 429 | 503 | 509 | 529)
}

// === impl Hint ===

impl Hint {
    /// Of an answer that says nothing.
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

    /// The wait that the answer asks for explicitly, until it is certainly over.
    pub fn asked(&self) -> Option<Duration> {
        self.retry_after.map(|wait| wait + self.later)
    }

    /// It is the refusal of an API that lacks capacity, and has not done what was asked.
    pub fn lacks_capacity(&mut self) {
        (self.signal, self.cause, self.wait) = (Signal::Backoff, Cause::Overload, None);
        (self.hopeless, self.strength, self.done) = (None, Strength::Code, false);
    }

    /// It refuses nothing after all. What it says of limits stays.
    pub fn accept(&mut self) {
        (self.signal, self.cause, self.wait) = (Signal::Ok, Cause::None, Some(Duration::ZERO));
        (self.hopeless, self.done) = (None, false);
    }

    /// Whether it is a refusal that needs no rule to declare it.
    fn is_certain(&self) -> bool {
        self.cause != Cause::None && self.strength > Strength::Words && !self.done && self.hopeless.is_none()
    }

    /// Whether a rule that declares the answer, of this `status`, to be a refusal knows better than what was read.
    pub fn yields_to_rule(&self, status: StatusCode) -> bool {
        !(self.is_certain() && may_refuse(status))
    }

    /// Whether words alone refuse it: not worth more than a short pause of requests of its kind. A request that must not be done
    /// twice is not repeated for them.
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
    /// As logs and `/status` have it.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Unpaid => "a payment is due",
            Self::Cap => "a cap on spending, or on the use of a day or a month, is reached",
            Self::TooLarge => "the request alone is larger than the limit",
            Self::NotOnPlan => "the limit is 0: the plan does not include it",
            Self::Resources => "a quota of the service on what there may be is used up",
        }
    }

    /// What to do about it.
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
    /// `Retry-After` and its kin, from now.
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
    /// The same as `X-RateLimit-…` or `X-Rate-Limit-…`.
    pub const X_RATELIMIT: Self = Self("x-ratelimit");
    /// `x-ratelimit-remaining-requests`, `-tokens`.
    pub const OPENAI: Self = Self("openai");
    /// `anthropic-ratelimit-…`.
    pub const ANTHROPIC: Self = Self("anthropic");
    /// `x-ratelimit-…` with a resource.
    pub const GITHUB: Self = Self("github");
    /// `RateLimit-…` with the name of a throttle.
    pub const GITLAB: Self = Self("gitlab");
    /// `X-RateLimit-…` with a bucket, or a reset from now beside the one by the clock.
    pub const DISCORD: Self = Self("discord");
    /// `X-Shopify-Shop-Api-Call-Limit`, and the cost of GraphQL.
    pub const SHOPIFY: Self = Self("shopify");
    /// `grpc-status`.
    pub const GRPC: Self = Self("grpc");
    /// Names or values of one API's own.
    pub const VENDOR: Self = Self("vendor");

    /// As metrics and logs have it.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}
