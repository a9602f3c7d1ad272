//! Sends a request whose turn it is, and passes the answer back.

use std::{future::poll_fn, io, pin::pin, sync::Arc, task::Poll, time::Duration};

use http::{
    HeaderValue, Method, Request, Response, StatusCode, Version,
    header::{CONNECTION, CONTENT_LENGTH, UPGRADE},
};
use http_body::Body as _;
use hyper::{body::Incoming, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use tracing::debug;

use super::{
    body::{Body, UpstreamBody},
    fields::{self, SERVER_TIMING},
    gateway::Stay,
    interim,
    lease::Lease,
    link::{Link, Phase},
    retry::{Again, Parts, Spare, Why},
    stack::{Admitted, Boxed, Call, Outcome, Tried},
    tunnel,
    upload::RequestBody,
    upstream::Route,
    wait,
};
use crate::{
    clock::Instant,
    error::{Blame, Error, io_error},
    hint::{self, Cause, Hint},
    learn::{Heard, RouteName},
    pace::Permit,
    tls::{self, Protocol},
};

/// How much of an answer's body is looked at for what it says about limits, and how long that may take.
const PEEK: u64 = 16 * 1024;
const PEEKING: Duration = Duration::from_millis(200);
/// How much of an answer is kept while its request is sent again.
const HELD: u64 = 64 * 1024;
const HOLDING: Duration = Duration::from_secs(5);

/// How often a request is sent anew that an HTTP/2 upstream says it has not looked at, if nothing else is sent again.
const UNSEEN: u32 = 3;

/// What is needed to pass an answer back.
struct Asked {
    link: Arc<Link>,
    route: Arc<Route>,
    permit: Permit,
    waited: Duration,
    stay: Option<Arc<Stay>>,
    /// The answer has no body, whatever its length says.
    head: bool,
    /// What the worker wanted to switch to, and its end of what follows.
    upgrade: Option<(HeaderValue, OnUpgrade)>,
}

/// Spends the permit on the request.
pub(super) async fn forward(admitted: Admitted) -> Result<Tried, Error> {
    let Admitted { call: Call { link, mut request, route, stay, deadline, again }, mut permit, waited } = admitted;
    if let Some(attempt) = again {
        attempt.begins(&link, &route.lane);
    }
    let begun = link.tries();
    let head = request.method() == Method::HEAD;
    // Only there if `request` has found it to be in order.
    let upgrade = request.headers().get(UPGRADE).cloned().map(|wanted| (wanted, hyper::upgrade::on(&mut *request)));
    let keeps = route.lane.policy().retry.filter(|_| upgrade.is_none());
    let spare = keeps.map(|retry| Spare::of(&mut request, retry));
    let call = Parts { link: link.clone(), route: route.clone(), stay: stay.clone(), deadline };
    // With a spare, each further try is one of its own, and is counted.
    let unseen = if spare.is_some() { 0 } else { UNSEEN };
    let sent =
        in_time(&link, &route, send(&link, &route, &mut permit, request, upgrade.is_some(), unseen, deadline)).await;
    link.tried(begun);
    let (answer, lease) = match sent {
        Ok(answered) => answered,
        Err(error) => {
            // What has never been there does not fail: it may be one dead port beside live ones.
            if error.blame() == Blame::Upstream && route.has_answered(&link.proxy) {
                permit.broke();
            }
            if matches!(error, Error::NotProcessed { .. }) {
                // It was not counted either: the next try has its slot, if that still holds.
                let _ = permit.recall();
            }
            return failed(call, spare, error);
        }
    };
    route.answered(&link.proxy);
    let written = lease.written();
    let asked = Asked { link, route, permit, waited, stay, head, upgrade };
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        return switch(asked, answer, written).map(Tried::Done);
    }
    let (mut answer, hint, done) =
        match judge(asked, spare.as_ref().map(Spare::route_name), answer, lease, written).await {
            Ok(judged) => judged,
            Err(error) => return failed(call, spare, error),
        };
    let why = spare.as_ref().and_then(|spare| Why::of_answer(&hint, answer.status(), done, spare, &call.route.lane));
    let (Some(spare), Some(why)) = (spare, why) else { return Ok(Tried::Done(answer)) };
    if !hold(&mut answer).await {
        // Too large to be kept: the worker has it now, or never.
        return Ok(Tried::Done(answer));
    }
    Ok(Tried::Again(Again::new(call, spare, why, hint.retry_after, Ok(answer))))
}

/// The end of a try that `error` has ended, and of the request, unless it may be sent again.
fn failed(call: Parts, spare: Option<Spare>, error: Error) -> Result<Tried, Error> {
    match spare.and_then(|spare| Some((Why::of_error(&error, &spare)?, spare))) {
        Some((why, spare)) => Ok(Tried::Again(Again::new(call, spare, why, None, Err(error)))),
        None => Err(error),
    }
}

/// Reads what the answer says about limits, tells the lane, and makes of it what the worker is to get. Also says whether
/// it brings a result, refused or not.
async fn judge(
    asked: Asked,
    route_name: Option<RouteName<'_>>,
    answer: Response<Incoming>,
    lease: Lease,
    written: Instant,
) -> Result<(Response<Body>, Hint, bool), Error> {
    let Asked { link, route, permit, waited, stay, head, .. } = asked;
    let (mut parts, incoming) = answer.into_parts();
    let mut body = UpstreamBody::new(incoming, link.clone(), lease, permit);
    let mut beginning = None;
    if !head && hint::wants_body(parts.status, &parts.headers) {
        body.read_ahead(PEEK, PEEKING).await;
        beginning = Some(body.beginning());
    }
    let mut hint = hint::read(&hint::Answer {
        status: parts.status,
        headers: &parts.headers,
        body: beginning.as_deref(),
        arrived: link.proxy.clock.time_of_day(),
    });
    // A closer look only where there is something to see.
    let refused = hint.cause != Cause::None;
    let done = refused && parts.status.is_success() && !beginning.is_some_and(|body| hint::is_complaint(&body));
    if refused && (done && hint::asks_to_wait(&parts.headers) || !may_refuse(parts.status)) {
        // It says when to ask for this again (RFC 9110 §10.2.3), or has failed, and refuses nothing.
        hint.accept();
    }
    if hint.dialect != hint::Dialect::NONE {
        route.lane.metrics().hinted(hint.dialect.as_str());
    }
    // 501 and 505 are about the request.
    let failed = parts.status.is_server_error() && !matches!(parts.status.as_u16(), 501 | 505 | 511);
    if parts.version == Version::HTTP_2 {
        fields::trim(&mut parts.headers);
    }
    let broken = match fields::unusable(&parts.headers) {
        Some(wrong) => Some(Error::BadAnswer { origin: route.origin.to_string(), source: wrong.into() }),
        None => body.begin().await.err().map(|error| match error.downcast::<hyper::Error>() {
            Ok(error) => failure(*error, &route),
            Err(source) => Error::Broken { origin: route.origin.to_string(), source },
        }),
    };
    if broken.is_none() || refused {
        body.permit().answered(&Heard { hint: &hint, failed, route: route_name }, written);
    }
    if let Some(error) = broken {
        // Does nothing to what was answered, if only by a refusal.
        body.permit().broke();
        return Err(error);
    }
    if parts.status == StatusCode::PROXY_AUTHENTICATION_REQUIRED
        && let Some(error) = locked_out(&route)
    {
        return Err(error);
    }
    // A length that describes what is not there (RFC 9110 §8.6) is passed on; any other is made anew from the body.
    let length = (head || parts.status == StatusCode::NOT_MODIFIED).then(|| parts.headers.get(CONTENT_LENGTH).cloned());
    fields::remove_hop_by_hop(&mut parts.headers);
    if let Some(Some(length)) = length {
        parts.headers.insert(CONTENT_LENGTH, length);
    }
    if let Some(stay) = stay {
        stay.rewrite(&mut parts.headers);
    }
    fields::add_via(&mut parts.headers, &link.proxy.via, parts.version);
    fields::remove_our_timing(&mut parts.headers);
    parts.headers.append(SERVER_TIMING, server_timing(waited));
    parts.version = Version::HTTP_11;
    Ok((Response::from_parts(parts, Body::Upstream(body)), hint, done))
}

/// Waits for the answer's head until the link says that it has taken too long. It is looked at here, where the permit is:
/// a time-out is a lesson about the request that it happened to, and about no other.
async fn in_time<T>(link: &Link, route: &Route, answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let mut answer = pin!(answer);
    poll_fn(|cx| match answer.as_mut().poll(cx) {
        Poll::Pending if link.phase() == Phase::LateAnswer => {
            let origin = route.origin.to_string();
            Poll::Ready(Err(Error::AnswerTimeout { origin, after: link.proxy.timeouts.answer }))
        }
        polled => polled,
    })
    .await
}

/// Whether answers with this status may say that a request was not looked at. Others may have done it, in part.
fn may_refuse(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 400 | 401 | 403 | 418 | 420 | 429 | 503 | 509 | 529)
}

/// Reads the answer to its end, so that nothing is held while its request is sent again; `false` if it is too large.
async fn hold(answer: &mut Response<Body>) -> bool {
    let Body::Upstream(body) = answer.body_mut() else { return true };
    if !body.read_ahead(HELD, HOLDING).await {
        return false;
    }
    if let Body::Upstream(body) = std::mem::replace(answer.body_mut(), Body::Own(None)) {
        *answer.body_mut() = Body::Held(body.into_held());
    }
    true
}

/// Writes the request on a connection that is ready, and waits for the answer's head; up to `unseen` times more if the
/// upstream says that it has not looked at it.
async fn send(
    link: &Arc<Link>,
    route: &Arc<Route>,
    permit: &mut Permit,
    mut request: Boxed,
    http1_only: bool,
    mut unseen: u32,
    deadline: Instant,
) -> Result<(Response<Incoming>, Lease), Error> {
    loop {
        let mut lease = route.connection(&link.proxy, &link.peer.pool, http1_only).await?;
        route.suit(&mut request, lease.protocol());
        let spare = spare(&request, lease.protocol(), link);
        if lease.protocol() == Protocol::Http1 {
            interim::pass_on(link, &mut request);
        }
        permit.sent();
        match lease.send(*request).await {
            Ok(answer) => return Ok((answer, lease)),
            // The upstream had closed the connection, and no byte of the request was written: another one may have it.
            Err(mut error) if lease.reused && error.message().is_some() => {
                *request = error.take_message().expect("looked at just now");
            }
            Err(error) => match spare {
                Some(spare) if unseen > 0 && is_unseen(error.error()) => {
                    unseen -= 1;
                    *request = spare;
                }
                _ => return Err(failure(error.into_error(), route)),
            },
        }
        // Another connection may take its time; the slot is spent when the request is written.
        if !permit.recall() {
            (*permit, _) = wait::wait(link, route, permit.renew(deadline), deadline, true).await?;
        }
    }
}

/// The request once more, if it may come back from an HTTP/2 connection unseen, and has no body that would be gone.
fn spare(request: &Request<RequestBody>, protocol: Protocol, link: &Arc<Link>) -> Option<Request<RequestBody>> {
    if protocol == Protocol::Http1 || !request.body().is_end_stream() {
        return None;
    }
    let mut spare = Request::new(RequestBody::empty(link.clone()));
    spare.method_mut().clone_from(request.method());
    spare.uri_mut().clone_from(request.uri());
    *spare.version_mut() = request.version();
    spare.headers_mut().clone_from(request.headers());
    Some(spare)
}

/// Whether the upstream says that it has not looked at the request (RFC 9113 §8.7).
fn is_unseen(error: &hyper::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            let left = error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
            return error.is_remote() && (left || error.reason() == Some(h2::Reason::REFUSED_STREAM));
        }
        cause = error.source();
    }
    false
}

fn failure(error: hyper::Error, route: &Route) -> Error {
    if is_unseen(&error) {
        return Error::NotProcessed { origin: route.origin.to_string(), source: error.into() };
    }
    // TLS 1.3 upstreams say what they miss in our certificate only when we read.
    if let Some(error) = tls::failure(&route.origin, &error) {
        return error;
    }
    let origin = route.origin.to_string();
    if error.is_user() {
        // The only thing of ours that hyper polls here is the worker's body.
        return Error::Body { source: error.into() };
    }
    // A body's framing is read as input of the system's kind is.
    let kind = io_error(&error).map(io::Error::kind);
    let unreadable = matches!(kind, Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData));
    if unreadable || error.is_parse() || error.is_parse_status() || error.is_parse_too_large() {
        return Error::BadAnswer { origin, source: error.into() };
    }
    Error::Broken { origin, source: error.into() }
}

/// A 407 to a request that a parent proxy was sent as such: it is us whom that wants to know, and not the worker, who
/// could not log in there (RFC 9110 §11.7.2).
fn locked_out(route: &Route) -> Option<Error> {
    let egress = &route.lane.policy().egress;
    let parent = egress.via.as_ref().filter(|_| egress.absolute_form(&route.origin))?;
    let source = match parent.credentials {
        Some(_) => "it did not accept the user name and password",
        None => "it wants a user name and a password, and `via` has none",
    };
    Some(Error::Parent { parent: parent.to_string(), origin: route.origin.to_string(), source: source.into() })
}

/// Both sides speak something else from now on. The permit is in flight for as long as they do.
fn switch(asked: Asked, mut answer: Response<Incoming>, written: Instant) -> Outcome {
    let Asked { link, route, mut permit, upgrade, .. } = asked;
    permit.answered(&Heard::SERVED, written);
    let wrong = |what: &'static str| Error::BadAnswer { origin: route.origin.to_string(), source: what.into() };
    let Some((wanted, worker)) = upgrade else {
        return Err(wrong("it switches to a protocol that nobody asked for"));
    };
    let got = answer.headers().get(UPGRADE).cloned().ok_or_else(|| wrong("it switches, and does not say to what"))?;
    let fits = |one: &str| one.trim().as_bytes().eq_ignore_ascii_case(got.as_bytes());
    if !wanted.to_str().is_ok_and(|wanted| wanted.split(',').any(fits)) {
        return Err(wrong("it switches to a protocol that nobody asked for"));
    }
    let upstream = hyper::upgrade::on(&mut answer);
    let mut fields = std::mem::take(answer.headers_mut());
    fields::remove_hop_by_hop(&mut fields);
    fields::add_via(&mut fields, &link.proxy.via, answer.version());
    fields.insert(UPGRADE, got);
    fields.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    link.hand_over();
    tokio::spawn(async move {
        match tokio::try_join!(worker, upstream) {
            Ok((worker, upstream)) => {
                let _open = tunnel::Open::new(&link);
                tunnel::relay(link.clone(), TokioIo::new(worker), TokioIo::new(upstream), permit).await;
            }
            Err(error) => debug!(%error, "one side left before the protocol was switched"),
        }
    });
    let mut answer = Response::new(Body::Own(None));
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *answer.headers_mut() = fields;
    Ok(answer)
}

/// Milliseconds that the request has waited, as W3C Server Timing has it.
fn server_timing(waited: Duration) -> HeaderValue {
    if waited.is_zero() {
        return HeaderValue::from_static("andante;dur=0");
    }
    HeaderValue::try_from(format!("andante;dur={:.1}", waited.as_secs_f64() * 1e3)).expect("digits and letters")
}
