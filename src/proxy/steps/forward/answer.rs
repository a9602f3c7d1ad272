//! An answer's report to the lane, and the form in which the worker gets the answer.

use std::{borrow::Cow, pin::pin, sync::Arc, time::Duration};

use http::{
    HeaderMap, HeaderValue, Response, StatusCode, Version,
    header::{CONTENT_LENGTH, DATE},
    response::Parts,
};
use tracing::warn;

use super::failure;
use crate::{
    clock::Instant,
    error::Error,
    hint::{self, Answer, Cause, Glance, Hint, Hopeless, StreamBeginning, StreamProgress, Strength},
    lane::{Permit, Usage},
    learn::AnswerReport,
    limit::Unit,
    metrics::Saving,
    policy::RefusedAnswer,
    proxy::{
        exchange::Exchange,
        log_throttle::LogTopic,
        message::{
            connection_auth,
            fields::{self, FoundFields, fields_bytes},
            gateway::LocationRewriter,
            head_memory::UNCHARGED_BYTES,
            keep_alive::KeepAlive,
            server_timing,
            usage::UsageReader,
        },
        outbound::{
            host_pool::{AnswerBody, PooledConnection},
            response_body::{ResponseBody, UpstreamBody},
            route::Route,
        },
        request_stats::Wait,
        request_trace::TrySpan,
        steps::{respond, retry::replay::ReplayRequest},
    },
};

/// Bytes of an answer's body that are searched for limits, and the time that this may take.
const PEEK: u64 = 16 * 1024;
const PEEKING: Duration = Duration::from_millis(200);
/// Maximum time for which the head of a stream is held back until its first event has come. Events are not held back.
const FIRST_EVENT: Duration = Duration::from_secs(1);
/// Bytes of an answer that are read while its request is sent again, and the time that this may take.
const HELD: u64 = 64 * 1024;
const HOLDING: Duration = Duration::from_secs(5);
/// A connection whose answer has a longer head serves no other request: hyper would keep a buffer of that size for it.
const MAX_HEAD_TO_REUSE_BYTES: usize = 64 * 1024;

/// Context for passing an answer back.
pub(crate) struct InFlight<'a> {
    pub(crate) exchange: &'a Arc<Exchange>,
    pub(crate) route: &'a Route,
    pub(crate) wait: Wait,
    pub(crate) location: Option<&'a LocationRewriter>,
    /// The answer has no body, whatever its length says.
    pub(crate) head: bool,
    /// Whether the request may be carried out twice.
    pub(crate) repeatable: bool,
    /// Length of the request's body, if stated.
    pub(crate) length: Option<u64>,
    /// Time at which the last of the request was written.
    pub(crate) written: Instant,
    /// Time at which the answer's head came.
    pub(crate) now: Instant,
}

/// Reads the limits that `answer` reports, reports them to the lane, and prepares the answer for the worker. Returns also
/// the hint that was read. On an error the permit is dropped, before the next attempt asks for one.
pub(crate) async fn pass_back(
    in_flight: InFlight<'_>,
    replay: Option<&ReplayRequest>,
    answer: Response<AnswerBody>,
    connection: PooledConnection,
    permit: Permit,
    span: Option<Box<TrySpan>>,
) -> Result<(Hint, Response<ResponseBody>), Error> {
    let exchange = in_flight.exchange;
    let (mut parts, incoming) = answer.into_parts();
    let buffer = || {
        let exchange = exchange.clone();
        (exchange.charge(), move || _ = respond::unread(&exchange))
    };
    let mut body = Box::new(UpstreamBody::new(incoming, exchange.progress.clone(), connection, permit, buffer));
    body.trace(span);
    let judged = pin!(judge(in_flight, replay, &mut parts, &mut body)).await;
    match judged {
        Ok(hint) => Ok((hint, Response::from_parts(parts, ResponseBody::Upstream(body)))),
        Err(error) => {
            body.span().into_iter().for_each(|span| span.on_error(&error));
            Err(error)
        }
    }
}

/// Reads the limits that the answer of these `parts` and this `body` reports, reports them to the lane, and prepares
/// the answer for the worker. Returns the hint that was read.
///
/// Head and body are borrowed: an answer is large, and moving it in and out costs time.
async fn judge(
    in_flight: InFlight<'_>,
    replay: Option<&ReplayRequest>,
    parts: &mut Parts,
    body: &mut UpstreamBody,
) -> Result<Hint, Error> {
    let InFlight { exchange, route, length, .. } = in_flight;
    let mut glance = Glance::default();
    let found = FoundFields::passing(&parts.headers, |name, value| glance.note(name, value));
    let head_bytes = fields_bytes(&parts.headers);
    // Charged while the answer is judged; afterwards the worker's connection charges the head. Over HTTP/1.1 it is charged
    // with the API's connection.
    let mut held = None;
    let fits = parts.version != Version::HTTP_2
        || head_bytes <= UNCHARGED_BYTES
        || held.insert(exchange.charge()).resize(head_bytes as u64);
    body.announce(keep_alive(found, &parts.headers, head_bytes));
    if found.challenge && connection_auth::has_challenge(&parts.headers) {
        body.keep_connection_for(route.bind());
    }
    let hint = read_limits(&in_flight, replay, parts, body, &glance).await;
    let refused = hint.cause != Cause::None;
    if hint.dialect != hint::Dialect::NONE {
        route.lane.metrics().hinted(hint.dialect.as_str());
    }
    // 501 and 505 describe the request.
    let failed = parts.status.is_server_error() && !matches!(parts.status.as_u16(), 501 | 505 | 511);
    if parts.version == Version::HTTP_2 {
        fields::trim(&mut parts.headers);
    }
    let told_length = fields::told_length(&parts.headers, found, parts.version);
    let broken = match &told_length {
        Err(wrong) => Some(Error::BadAnswer { origin: route.origin.to_string(), source: (*wrong).into() }),
        Ok(_) if !fits => Some(respond::memory_full_for_answer(exchange)),
        Ok(_) => body.begin().await.err().map(|error| failure::of_answer(error, exchange, route)),
    };
    // An API has answered, too, if andante lacks memory for the answer.
    if refused || broken.as_ref().is_none_or(|error| matches!(error, Error::MemoryFull { .. })) {
        report(&in_flight, AnswerReport { hint: &hint, failed, route: replay.map(ReplayRequest::route_name) }, body);
    }
    if parts.status == StatusCode::NOT_MODIFIED && route.lane.policy().free_not_modified && broken.is_none() {
        body.permit().used(&Usage { said: vec![(Unit::REQUESTS, 0)], ..Usage::default() });
        route.lane.metrics().saved(Saving::NotModified);
    }
    if let Some(usage) = UsageReader::new(&route.lane.policy().usage, &parts.headers, length).filter(|_| !refused) {
        body.read_usage(usage);
    }
    if let Some(error) = broken {
        // This has no effect on a request that was answered, even if by a refusal.
        body.permit().broke();
        return Err(error);
    }
    if parts.status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
        locked_out(route)?;
    }
    rewrite(&in_flight, found, told_length.ok().flatten(), parts);
    Ok(hint)
}

/// The API's announcement of its connection, without another request if the answer's head has too many bytes.
fn keep_alive(found: FoundFields, fields: &HeaderMap, head_bytes: usize) -> KeepAlive {
    let announced = if found.keep_alive { KeepAlive::read(fields) } else { KeepAlive::default() };
    let max = if head_bytes > MAX_HEAD_TO_REUSE_BYTES { Some(0) } else { announced.max };
    KeepAlive { max, ..announced }
}

/// Reports an answer to its lane.
fn report(in_flight: &InFlight<'_>, report: AnswerReport<'_>, body: &mut UpstreamBody) {
    let now = if body.waited { in_flight.exchange.proxy.clock.now() } else { in_flight.now };
    let took = body.permit().answered_at(now, &report, in_flight.written);
    if let Some((span, took)) = body.span().zip(took) {
        span.exemplify(took, &in_flight.route.lane.metrics().upstream_seconds);
    }
}

/// Gives an answer's head the form in which the worker gets it. `length` is the stated length of the body.
fn rewrite(in_flight: &InFlight<'_>, found: FoundFields, length: Option<HeaderValue>, parts: &mut Parts) {
    let &InFlight { exchange, route, wait, location, head, .. } = in_flight;
    found.remove_hop_by_hop(&mut parts.headers);
    // A length that describes an absent body (RFC 9110 §8.6) is passed on.
    if let Some(length) = length.filter(|_| head || parts.status == StatusCode::NOT_MODIFIED) {
        parts.headers.insert(CONTENT_LENGTH, length);
    }
    if let Some(location) = location {
        location.rewrite(&mut parts.headers);
    }
    if !route.lane.policy().egress.unannounced {
        fields::add_via(&mut parts.headers, &exchange.proxy.via, parts.version);
    }
    match found.timing {
        true => server_timing::set(&mut parts.headers, wait),
        false => server_timing::add(&mut parts.headers, wait),
    }
    parts.version = Version::HTTP_11;
}

/// Reads the limits that the answer reports.
async fn read_limits(
    in_flight: &InFlight<'_>,
    replay: Option<&ReplayRequest>,
    parts: &Parts,
    body: &mut UpstreamBody,
    glance: &Glance<'_>,
) -> Hint {
    let &InFlight { exchange, route, head, repeatable, .. } = in_flight;
    let (status, headers, declared) = (parts.status, &parts.headers, &route.lane.policy().refused);
    let (mut beginning, mut whole) = (None, true);
    let route_name = replay.map(ReplayRequest::route_name);
    let path = route_name.map_or("", |name| name.path);
    let asks = || declared.iter().any(|answer| answer.asks_for_body(status, headers));
    if hint::is_stream(status, glance) {
        // A rule's tests do not count the first event as the answer's own text.
        whole = false;
        // Models answer POST. A stream that a page subscribes to by GET may be silent for long.
        if route_name.is_some_and(|name| name.method == "POST") {
            beginning = Some(Cow::Owned(begin_stream(body, glance).await));
        }
    } else if !head && (hint::wants_body_of(path, status, headers, glance) || asks()) {
        whole = body.read_ahead(PEEK, PEEKING).await;
        // Without a length, a body that is not over yet is data and no error text.
        let seen = Some(body.beginning()).filter(|_| whole || headers.contains_key(CONTENT_LENGTH));
        beginning = seen.and_then(|seen| glance.decode(seen));
    } else if !head && hint::is_open_json(status, glance) {
        whole = body.read_until(PEEK, PEEKING, |piece| !hint::may_refuse_in(piece)).await;
        beginning = whole.then(|| body.beginning());
    }
    let beginning = beginning.as_deref();
    let arrived = || exchange.proxy.clock.time_of_day();
    let mut hint = hint::read_at(status, headers, glance.told, beginning, arrived);
    if RefusedAnswer::matches_any(declared, status, headers, beginning.filter(|_| whole)) && hint.yields_to_rule(status)
    {
        hint = hint::read_refused(&Answer { status, headers, body: beginning, arrived: arrived() });
    }
    if hint.hopeless == Some(Hopeless::Resources) && is_inference(&route.origin.host, path) {
        hint.lacks_capacity();
    }
    let refused = hint.cause != Cause::None;
    let hopeless = status.is_client_error() && hint.hopeless.is_some();
    let refuses = hint::may_refuse(status) || hint.strength == Strength::Code || hopeless;
    if !hint.buckets.is_empty() && !headers.contains_key(DATE) {
        hint.distrust_clock();
    }
    // The answer states when to repeat this request (RFC 9110 §10.2.3).
    let is_result = hint.done && hint.strength == Strength::Head && hint::asks_to_wait(headers);
    // If only the text refuses, the request may have been carried out: the failure concerns this request alone, and no
    // limit is learned.
    let may_be_done = hint.is_hearsay() && !hopeless && !repeatable;
    if refused && (is_result || may_be_done || !refuses) {
        hint.accept();
    }
    hint
}

/// Reads a stream of events ahead until it is known whether it begins with a refusal. The first event is passed on as
/// soon as it is complete. Only events without output wait for the next one, for a moment. Returns the content that has
/// come.
async fn begin_stream(body: &mut UpstreamBody, glance: &Glance<'_>) -> Vec<u8> {
    let mut stream = StreamBeginning::new(glance);
    body.read_until(PEEK, FIRST_EVENT, |piece| stream.push(piece) != StreamProgress::Nothing).await;
    if stream.progress() == StreamProgress::Preamble {
        body.read_until(PEEK, PEEKING, |piece| stream.push(piece) == StreamProgress::Decided).await;
    }
    stream.into_bytes()
}

/// Returns whether a request is for a model of Amazon Bedrock, under AWS's names or another. Bedrock's quotas limit
/// requests and tokens per minute; other services use the same error for the number of their resources.
fn is_inference(host: &str, path: &str) -> bool {
    host.split('.').any(|label| label.starts_with("bedrock-runtime")) || path.starts_with("/model/")
}

/// Logs that a refused request will not be served later either.
pub(crate) fn log_hopeless(route: &Route, exchange: &Exchange, hint: &Hint, why: Hopeless, status: StatusCode) {
    let (proxy, lane) = (&exchange.proxy, &route.lane);
    let (host, rule, now) = (lane.host(), &lane.policy().name, proxy.clock.now());
    proxy.reports.incidents.hopeless(host, why, now);
    if !proxy.reports.throttle.is_due(LogTopic::Hopeless(why), host, now) {
        return;
    }
    let (status, reason, remedy) = (status.as_u16(), why.reason(), why.remedy());
    match hint.wait.filter(|wait| !wait.is_zero()).map(|wait| wait.as_secs()) {
        Some(renewed_in_s) => warn!(
            %host, %rule, status, reason, remedy, renewed_in_s,
            "an API refuses requests until it renews a cap: requests like this one wait or are refused, and one tries each day"
        ),
        None => warn!(
            %host, %rule, status, reason, remedy,
            "an API refuses requests for a reason that waiting does not change: they get its answer at once"
        ),
    }
}

/// Reads the answer to its end, so that its request holds nothing upstream while it is sent again. Returns `false` if
/// the answer is too large, or the client has no memory left for it.
pub(crate) async fn hold(exchange: &Exchange, answer: &mut Response<ResponseBody>) -> bool {
    let head = fields_bytes(answer.headers()) as u64;
    let ResponseBody::Upstream(body) = answer.body_mut() else { return true };
    let mut charge = exchange.charge();
    let most = body.size_hint().upper().map_or(HELD, |bytes| bytes.min(HELD));
    if !charge.resize(head + most) || !body.read_ahead(HELD, HOLDING).await {
        return false;
    }
    charge.resize(head + body.length_ahead());
    if let ResponseBody::Upstream(body) = std::mem::replace(answer.body_mut(), ResponseBody::Own(None)) {
        *answer.body_mut() = ResponseBody::Held(body.into_held(charge));
    }
    true
}

/// Fails for a 407 to a request that a parent proxy got in absolute form. The 407 challenges andante, not the
/// worker, which could not log in there (RFC 9110 §11.7.2).
fn locked_out(route: &Route) -> Result<(), Error> {
    let egress = &route.lane.policy().egress;
    let Some(parent) = egress.via.as_ref().filter(|_| egress.absolute_form(&route.origin)) else { return Ok(()) };
    let source = match parent.credentials {
        Some(_) => "it did not accept the user name and password",
        None => "it wants a user name and a password, and `via` has none",
    };
    Err(Error::Parent { parent: parent.to_string(), origin: route.origin.to_string(), source: source.into() })
}
