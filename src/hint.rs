//! What one answer says about limits, whatever the dialect. Pure: told the time, never reads it.
//!
//! There are rules for families of dialects here, and no list of hosts: `fields` picks what may be about limits, each
//! family adds to the `evidence` what it understands, and `classify` says what all of it comes to. What is malformed is
//! left out, and the rest still counts. `docs/hints.md` lists the families, and what cannot be known.

mod body;
mod classify;
mod count;
mod evidence;
mod fields;
mod ietf;
mod limit_headers;
mod retry_after;
mod structured;
mod time;
mod vendor;

#[cfg(test)]
mod tests;

use std::time::Duration;

use http::{
    HeaderMap, StatusCode,
    header::{AGE, DATE},
};

use self::{evidence::Evidence, fields::Fields, time::Now};

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

/// Reads an answer. On most of them there is nothing to read: that is found out in one pass over the names of the
/// fields, and allocates nothing.
pub fn read(answer: &Answer<'_>) -> Hint {
    let &Answer { status, headers, body, arrived } = answer;
    let mut fields = Fields::pick(headers);
    let body = body.filter(|body| !body.is_empty());
    if fields.is_empty() && body.is_none() && !classify::always_refuses(status) {
        return Hint::NOTHING;
    }
    if is_from_a_cache(headers) {
        // What it says was true for somebody else, at another time.
        fields = Fields::default();
    }
    let now = Now { arrived, date: text(headers, &DATE).and_then(time::instant) };
    let announced = fields.split_off_announced();
    let mut evidence = Evidence::default();
    look(fields, status, now, &mut evidence);
    body::read(status, headers, body, now, &mut evidence);
    sum_up(&mut evidence);
    if announced.is_empty() || !evidence.budgets.is_empty() || classify::is_refused(status, &evidence) {
        return classify::classify(status, evidence);
    }
    let mut evidence = Evidence::default();
    look(announced, status, now, &mut evidence);
    Hint {
        signal: Signal::Informational,
        wait: Some(Duration::ZERO),
        retry_after: None,
        ..classify::classify(StatusCode::OK, evidence)
    }
}

/// Whether a JSON body only complains: it has errors, and brings no result.
pub fn is_complaint(body: &[u8]) -> bool {
    serde_json::from_slice(body).is_ok_and(|json| body::only_complains(&json))
}

/// Whether the head asks for a wait in so many words.
pub fn asks_to_wait(headers: &HeaderMap) -> bool {
    retry_after::is_told(headers)
}

/// Whether the body may say more than the head does, so that its beginning should be read before the answer is judged.
pub fn wants_body(status: StatusCode, headers: &HeaderMap) -> bool {
    body::is_wanted(status, headers)
}

/// A time of day as people and APIs write it (`2026-08-03T08:31:12.5Z`), since 1970.
pub fn time_of_day(value: &str) -> Option<Duration> {
    time::iso(value.trim())
}

fn look(mut fields: Fields<'_>, status: StatusCode, now: Now, evidence: &mut Evidence) {
    vendor::read(&mut fields, now, evidence);
    let policies = ietf::read(&fields, now, evidence);
    limit_headers::read(&fields, policies, now, evidence);
    retry_after::read(&fields, status, now, evidence);
    discord_milliseconds(evidence);
    grpc(&fields, evidence);
}

/// A wait that is told as a time of day is the reset that nobody else told.
fn sum_up(evidence: &mut Evidence) {
    if !evidence.dated {
        return;
    }
    if evidence.budgets.is_empty() {
        evidence.budgets.push(evidence::ReportedBudget::new(None));
    }
    evidence.sort();
    let first = &mut evidence.budgets[0].bucket;
    if first.reset.is_none() {
        (first.reset, first.coarse) = (evidence.retry_after, true);
    }
}

/// Old versions of Discord's API wait in milliseconds. That shows only beside the reset, which comes sooner than so many
/// seconds and not sooner than so many milliseconds.
fn discord_milliseconds(evidence: &mut Evidence) {
    if evidence.dialect != Some(Dialect::DISCORD) || evidence.dated {
        return;
    }
    let used_up = evidence.budgets.iter().find(|budget| budget.binds && budget.is_used_up());
    let (Some(asked), Some(reset)) = (evidence.retry_after, used_up.and_then(|budget| budget.bucket.reset)) else {
        return;
    };
    let (read, slack) = (asked / 1000, Duration::from_secs(1));
    if asked.as_secs() >= 1000 && asked.subsec_nanos() == 0 && asked > 10 * reset && read <= reset + slack {
        evidence.retry_after = Some(read);
    }
}

/// Status 8 is "resource exhausted", 14 "unavailable"; answers without a body have it in their head.
fn grpc(fields: &Fields<'_>, evidence: &mut Evidence) {
    let cause = match fields.value("grpc-status").map(str::trim) {
        Some("8") => Cause::Quota,
        Some("14") if evidence.budgets.iter().any(evidence::ReportedBudget::is_used_up) => Cause::Quota,
        Some("14") => Cause::Overload,
        _ => return,
    };
    evidence.refused = true;
    evidence.cause.get_or_insert(cause);
    evidence.speaks(Dialect::GRPC);
}

fn is_from_a_cache(headers: &HeaderMap) -> bool {
    text(headers, &AGE).and_then(|age| count::decimal(age.trim())).is_some_and(|age| age > 0.0)
}

fn text<'a>(headers: &'a HeaderMap, name: &http::HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

// === impl Hint ===

impl Hint {
    /// Of an answer that says nothing.
    pub const NOTHING: Self = Self {
        signal: Signal::Ok,
        cause: Cause::None,
        wait: Some(Duration::ZERO),
        retry_after: None,
        scope: None,
        dialect: Dialect::NONE,
        buckets: Vec::new(),
    };

    /// It refuses nothing after all. What it says of limits stays.
    pub fn accept(&mut self) {
        (self.signal, self.cause, self.wait) = (Signal::Ok, Cause::None, Some(Duration::ZERO));
    }
}

// === impl Dialect ===

impl Dialect {
    /// Nothing was said.
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
