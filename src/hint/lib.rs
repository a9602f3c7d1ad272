//! Reads what one answer says about limits, in any dialect. The code is pure: callers pass the time in.
//!
//! The rules cover families of dialects; there is no list of hosts. `fields` picks the fields that may be about limits,
//! each family adds what it understands to the `evidence`, and `classify` judges all of it. Malformed parts are
//! skipped, and the rest still counts. `docs/hints.md` lists the families and what an answer cannot tell.

mod body;
mod classify;
mod coding;
mod count;
mod evidence;
mod fields;
mod glance;
mod ietf;
mod limit_headers;
mod model;
mod retry_after;
mod structured;
mod time;
mod vendor;

#[cfg(test)]
mod tests;

use std::{borrow::Cow, time::Duration};

use http::{
    HeaderMap, StatusCode,
    header::{AGE, DATE},
};

pub use self::{
    body::{StreamBeginning, StreamProgress, is_event_stream},
    glance::Glance,
    model::{Bucket, Cause, Dialect, Hint, Hopeless, Signal, Strength, may_refuse},
};
use self::{evidence::Evidence, fields::Fields, time::Now};

/// Parts of an answer that may carry hints.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// Status code.
    pub status: StatusCode,
    /// Header fields.
    pub headers: &'a HeaderMap,
    /// Beginning of the body without its content coding, if the body was read (see [`wants_body`] and [`decode`]).
    pub body: Option<&'a [u8]>,
    /// Time of day at the arrival, since 1970, UTC.
    pub arrived: Duration,
}

/// Reads an answer. Most answers say nothing: one pass over the names of the fields and one over the body find that
/// out, without an allocation.
pub fn read(answer: &Answer<'_>) -> Hint {
    let &Answer { status, headers, body, arrived } = answer;
    read_at(status, headers, Glance::of(headers).told, body, || arrived)
}

/// Reads an answer like [`read`] if a [`Glance`] was taken: `told` says whether a field may be about limits. `arrived`
/// returns the time of day at the arrival; it is called only if there is something to read.
pub fn read_at(
    status: StatusCode,
    headers: &HeaderMap,
    told: bool,
    body: Option<&[u8]>,
    arrived: impl FnOnce() -> Duration,
) -> Hint {
    let body = body.filter(|body| !body.is_empty());
    let says_nothing = body.is_none_or(|body| !body::may_say(status, body)) && !classify::always_refuses(status);
    if says_nothing && !told {
        return Hint::NOTHING;
    }
    let mut fields = Fields::pick(headers);
    if says_nothing && fields.is_empty() {
        return Hint::NOTHING;
    }
    if is_from_a_cache(headers) {
        // A cached answer describes another client's limits, at another time.
        fields = Fields::default();
    }
    let now = Now { arrived: arrived(), date: text(headers, &DATE).and_then(time::instant) };
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
        later: Duration::ZERO,
        ..classify::classify(StatusCode::OK, evidence)
    }
}

/// Reads an answer that a rule declares to be a refusal, whatever the answer looks like. The wait is read as in other
/// refusals.
pub fn read_refused(answer: &Answer<'_>) -> Hint {
    let &Answer { status, headers, body, arrived } = answer;
    let now = Now { arrived, date: text(headers, &DATE).and_then(time::instant) };
    let mut evidence = Evidence { cause: Some(Cause::Quota), ..Evidence::default() };
    look(Fields::pick(headers), status, now, &mut evidence);
    body::read_refusal(status, headers, body.unwrap_or_default(), now, &mut evidence);
    sum_up(&mut evidence);
    // The rule outranks words, and a status that may follow work that was done.
    evidence.refusal = Some(Strength::Code);
    (evidence.in_words, evidence.fatal, evidence.done) = (None, None, Some(false));
    classify::classify(status, evidence)
}

/// Returns whether the head asks for a wait explicitly.
pub fn asks_to_wait(headers: &HeaderMap) -> bool {
    retry_after::is_told(headers)
}

/// Returns whether the body may say more than the head, so that its beginning should be read before the answer is
/// judged.
pub fn wants_body(status: StatusCode, headers: &HeaderMap) -> bool {
    body::is_wanted(status, headers, &Glance::of(headers))
}

/// Returns whether the answer is served JSON whose length is unknown before its end. Its first piece says whether it
/// [may be a refusal](may_refuse_in): a refusal comes in one piece, and other answers need not be held back.
pub fn is_open_json(status: StatusCode, glance: &Glance<'_>) -> bool {
    body::is_open_json(status, glance)
}

/// Returns whether the first `piece` of served JSON may be a refusal. Does not parse it.
pub fn may_refuse_in(piece: &[u8]) -> bool {
    body::may_say(StatusCode::OK, piece)
}

/// Like [`wants_body`], for the answer to a request for `path` at whose head a `glance` was taken. The path counts
/// because answers of GraphQL mostly have an unknown length.
pub fn wants_body_of(path: &str, status: StatusCode, headers: &HeaderMap, glance: &Glance<'_>) -> bool {
    body::is_wanted(status, headers, glance) || body::is_graphql(status, path, glance)
}

/// Returns whether the answer is a stream of events (server-sent events) whose first one may be a refusal.
pub fn is_stream(status: StatusCode, glance: &Glance<'_>) -> bool {
    body::is_readable_stream(status, glance)
}

/// Content of a `body` whose head has these fields; `None` if the content coding is unknown, or the content is too long
/// for a complaint.
pub fn decode<'a>(headers: &HeaderMap, body: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    Glance::of(headers).decode(Cow::Borrowed(body))
}

/// Parses a time of day as people and APIs write it (`2026-08-03T08:31:12.5Z`), since 1970.
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

/// Uses a wait until a time of day as the reset of a budget, if no field reports a reset.
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

/// Corrects waits of old versions of Discord's API, which are in milliseconds. The reset in the same answer reveals the
/// unit: the wait fits it as milliseconds, and is far too long as seconds.
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

/// Reads `grpc-status`: 8 is "resource exhausted", 14 "unavailable". Answers without a body have it in their head.
fn grpc(fields: &Fields<'_>, evidence: &mut Evidence) {
    let cause = match fields.value("grpc-status").map(str::trim) {
        Some("8") => Cause::Quota,
        Some("14") if evidence.budgets.iter().any(evidence::ReportedBudget::is_used_up) => Cause::Quota,
        Some("14") => Cause::Overload,
        _ => return,
    };
    evidence.refuse(Strength::Head);
    evidence.cause.get_or_insert(cause);
    evidence.speaks(Dialect::GRPC);
}

fn is_from_a_cache(headers: &HeaderMap) -> bool {
    text(headers, &AGE).and_then(|age| count::decimal(age.trim())).is_some_and(|age| age > 0.0)
}

fn text<'a>(headers: &'a HeaderMap, name: &http::HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}
