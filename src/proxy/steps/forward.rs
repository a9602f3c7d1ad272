//! Sends a request whose turn it is, and passes the answer back.

mod answer;
mod failure;
mod upgrade;

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
};

use http::{Method, Response, StatusCode};

use self::answer::InFlight;
use super::{
    costs,
    retry::{
        self,
        attempt::{AttemptContext, AttemptOutcome, FailedAttempt},
        policy::{reason_of_answer, reason_of_error},
        replay::{self, ReplayRequest},
    },
    wait,
};
use crate::{
    clock::Instant,
    error::Error,
    lane::{Admission, Permit},
    metrics::RetryReason,
    proxy::{
        call::{Admitted, Call},
        exchange::Exchange,
        message::{json_number, progress::Phase, request_body::BoxedRequest, usage::MAX_MODEL_BYTES},
        outbound::{
            h2_request::SendError,
            host_pool::{AnswerBody, PooledConnection},
            route::Route,
            way::ConnectionNeeds,
        },
        request_trace::{TryFacts, TrySpan},
    },
    tls::Protocol,
};

/// Number of retries of a request that an HTTP/2 upstream has not processed, if its rule configures no retries.
const UNSEEN: u32 = 3;
/// Size of the largest body that is kept for such retries.
const UNSEEN_BODY_BYTES: u64 = 64 * 1024;

/// Spends the permit on the request.
pub(crate) async fn forward(admitted: Admitted) -> Result<AttemptOutcome, Error> {
    let Admitted { call, mut permit, wait, now } = admitted;
    retry::begins(&call);
    let (resends, retried) = (call.exchange.stats.attempts(), call.retry.as_ref().map(|retry| retry.reason));
    let Call { exchange, mut request, route, claim, cost, bound, location, deadline, upgrades, .. } = *call;
    let context = AttemptContext { exchange, route, claim, cost, bound, location, deadline };
    let AttemptContext { exchange, route, location, .. } = &context;
    let begun = exchange.attempt_begins();
    let mut span = trace_try(exchange, route, &mut request, resends, retried);
    let (head, length) = (request.method() == Method::HEAD, costs::length(request.body()));
    let repeatable = replay::is_repeatable(&request);
    let upgrade = if upgrades { upgrade::requested(&mut request) } else { None };
    let keeps = route.lane.policy().retry.filter(|_| upgrade.is_none());
    let replay = keeps.map(|retry| ReplayRequest::of(&mut request, retry.body, &exchange.proxy.replay_memory));
    // With a replay, each further attempt takes a permit of its own, and is counted.
    let unseen = if replay.is_some() { 0 } else { UNSEEN };
    let sent = {
        let fresh = retried == Some(RetryReason::Cut);
        let needs = ConnectionNeeds { http1: upgrade.is_some(), own: bound, fresh };
        let sending = pin!(send(exchange, route, &mut permit, now, request, needs, unseen, deadline));
        in_time(exchange, route, sending).await
    };
    exchange.attempt_ends(begun);
    let (answer, connection) = match sent {
        Ok(answered) => answered,
        Err(error) => {
            span.iter_mut().for_each(|span| span.on_error(&error));
            unanswered(route, &mut permit, &error, retried.is_none());
            return failed(context, replay, error);
        }
    };
    route.answered();
    exchange.progress.moves();
    // Not the time of the turn: that may lie before the request was sent, and a window would end too soon.
    let (written, now) = (connection.written(), exchange.proxy.clock.now());
    let in_flight =
        InFlight { exchange, route, wait, location: location.as_deref(), head, repeatable, length, written, now };
    span.iter_mut().for_each(|span| span.on_answer(answer.status(), answer.version()));
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        let switched = upgrade::switch(&in_flight, permit, upgrade, answer);
        let failed = |error: &Error| span.iter_mut().for_each(|span| span.on_error(error));
        return switched.inspect_err(failed).map(AttemptOutcome::Done);
    }
    let passed = pin!(answer::pass_back(in_flight, replay.as_ref(), answer, connection, permit, span)).await;
    let (hint, mut answer) = match passed {
        Ok(passed) => passed,
        Err(error) => return failed(context, replay, error),
    };
    if let Some(why) = hint.hopeless {
        answer::log_hopeless(route, exchange, &hint, why, answer.status());
    }
    let reason = replay.as_ref().and_then(|replay| reason_of_answer(&hint, answer.status(), replay, &route.lane));
    let Some((reason, replay)) = reason.zip(replay) else { return Ok(AttemptOutcome::Done(answer)) };
    if !answer::hold(exchange, &mut answer).await {
        // The answer is too large to be kept, or no memory is left for it: the worker gets it now, or never.
        return Ok(AttemptOutcome::Done(answer));
    }
    let failed = FailedAttempt { context, replay, reason, retry_after: hint.asked(), last: Ok(answer) };
    Ok(AttemptOutcome::Failed(Box::new(failed)))
}

/// Reports to the lane that `error` has ended a request before its answer.
fn unanswered(route: &Route, permit: &mut Permit, error: &Error, first: bool) {
    // The breaker ignores an origin that has never answered: it may be one dead port beside live ones.
    if error.trips_breaker() && route.has_answered() {
        permit.broke();
    }
    if first && matches!(error, Error::NotProcessed { .. }) {
        // The request was not counted either: the next attempt keeps its slot, if the slot is still valid. Only once, so
        // that an upstream that processes nothing is not asked faster.
        let _ = permit.recall();
    }
}

/// Begins the span of a try, if requests are traced, and passes its context to the API.
fn trace_try(
    exchange: &Exchange,
    route: &Route,
    request: &mut BoxedRequest,
    resends: u32,
    reason: Option<RetryReason>,
) -> Option<Box<TrySpan>> {
    let trace = exchange.trace()?;
    let authority = route.host().to_str().unwrap_or_default();
    let mut span = TrySpan::begin(&trace, request, TryFacts { origin: &route.origin, authority, resends, reason })?;
    span.on_request(&route.lane.policy().usage, || {
        let beginning = request.body().beginning()?;
        let path = "model".parse().expect("a member's name");
        let model = json_number::text_at(beginning, &path)?;
        (model.len() <= MAX_MODEL_BYTES).then(|| model.to_owned())
    });
    Some(span)
}

/// Outcome of an attempt that `error` has ended: the request fails, unless it may be sent again.
fn failed(context: AttemptContext, replay: Option<ReplayRequest>, error: Error) -> Result<AttemptOutcome, Error> {
    match replay.and_then(|replay| Some((reason_of_error(&error, &replay)?, replay))) {
        Some((reason, replay)) => {
            let failed = FailedAttempt { context, replay, reason, retry_after: None, last: Err(error) };
            Ok(AttemptOutcome::Failed(Box::new(failed)))
        }
        None => Err(error),
    }
}

/// Waits for the answer's head until the exchange reports a time-out. The check is here, beside the permit: a time-out
/// is evidence about this request alone.
async fn in_time<T>(
    exchange: &Exchange,
    route: &Route,
    mut answer: Pin<&mut impl Future<Output = Result<T, Error>>>,
) -> Result<T, Error> {
    poll_fn(|cx| match answer.as_mut().poll(cx) {
        Poll::Pending if exchange.progress.phase() == Phase::LateAnswer => {
            let origin = route.origin.to_string();
            Poll::Ready(Err(Error::AnswerTimeout { origin, after: exchange.progress.answer() }))
        }
        polled => polled,
    })
    .await
}

/// Writes the request on a ready connection, and waits for the answer's head. Retries up to `unseen` times if the
/// upstream says that it has not processed the request. `now` is the time if nothing was waited for since.
#[expect(clippy::too_many_arguments, reason = "what is put into a struct is moved once more")]
async fn send(
    exchange: &Arc<Exchange>,
    route: &Arc<Route>,
    permit: &mut Permit,
    mut now: Option<Instant>,
    mut request: BoxedRequest,
    needs: ConnectionNeeds,
    mut unseen: u32,
    deadline: Instant,
) -> Result<(Response<AnswerBody>, PooledConnection), Error> {
    loop {
        let mut connection = connect(exchange, route, permit, &mut now, needs, deadline).await?;
        route.prepare_for(connection.protocol(), &mut request);
        // The retry step sends a request with a replay again, and HTTP/1 returns none unprocessed.
        let is_copied = unseen > 0 && connection.protocol() == Protocol::Http2;
        let memory = &exchange.proxy.replay_memory;
        let copy = is_copied.then(|| ReplayRequest::of(&mut request, UNSEEN_BODY_BYTES, memory));
        if exchange.interim.is_open() {
            exchange.interim.set_unannounced(route.lane.policy().egress.unannounced);
            connection.listen(exchange.clone());
        }
        // On a second round, time has passed.
        permit.sent_at(now.take().unwrap_or_else(|| exchange.proxy.clock.now()));
        let mut unseen_before = false;
        let sent = pin!(connection.send(request, || exchange.charge())).await;
        match sent {
            Ok(answer) => return Ok((answer, connection)),
            // The upstream had closed the connection, and no byte of the request was written: another connection may
            // carry it.
            Err(SendError { unsent: Some(unsent), .. }) if connection.reused => request = unsent,
            Err(SendError { error, .. }) => {
                if failure::wants_http1(&*error) {
                    route.require_http1();
                }
                let copy = copy.filter(|_| failure::is_not_processed(&*error));
                let Some(again) = again(copy, exchange).await else {
                    return Err(failure::of_attempt(error, connection.write_failure(), exchange, route));
                };
                unseen_before = unseen < UNSEEN;
                unseen -= 1;
                request = again;
            }
        }
        // Another connection may take time; the slot is spent when the request is written. A request that returns
        // unprocessed for the second time has used its slot: an upstream that processes nothing is not asked faster.
        if unseen_before || !permit.recall() {
            Box::pin(renew(exchange, route, permit, deadline)).await?;
        }
    }
}

/// Takes a connection from the pool, or makes one. Clears `now` if it waited, because `now` is then out of date.
async fn connect(
    exchange: &Arc<Exchange>,
    route: &Arc<Route>,
    permit: &mut Permit,
    now: &mut Option<Instant>,
    needs: ConnectionNeeds,
    deadline: Instant,
) -> Result<PooledConnection, Error> {
    let take_at = now.unwrap_or_else(|| exchange.proxy.clock.now());
    let connection = match route.unused_connection(needs, take_at).await {
        Some(connection) => connection,
        None => {
            *now = None;
            // Boxed, because the future is large and rarely needed: every request that waits would carry its size.
            let pool = &exchange.session.pool;
            let dialled = Box::pin(route.dial_or_share(pool, needs, || permit.connecting())).await;
            // A worker that leaves meanwhile has spent its slot; an upstream that cannot be reached has not.
            dialled.inspect_err(|_| permit.not_connected())?
        }
    };
    exchange.proxy.metrics.upstream_reuse.count(connection.reused);
    // As late as possible: setting up a connection may have taken longer than the lease.
    while permit.has_lapsed() {
        *now = None;
        Box::pin(renew(exchange, route, permit, deadline)).await?;
    }
    Ok(connection)
}

/// The request of a `copy`, to be sent again. Boxed, because the future is large and rarely needed.
async fn again(copy: Option<ReplayRequest>, exchange: &Exchange) -> Option<BoxedRequest> {
    Box::pin(copy?.once_more(&exchange.progress)).await
}

/// Waits for another slot to replace one that is no longer valid. To be boxed: the future is large and rarely needed.
async fn renew(
    exchange: &Arc<Exchange>,
    route: &Arc<Route>,
    permit: &mut Permit,
    deadline: Instant,
) -> Result<(), Error> {
    *permit = match permit.renew(deadline) {
        Admission::Send(permit) => permit,
        Admission::Wait(mut waiting) => {
            let (permit, _) = wait::wait(exchange, route, &mut waiting, deadline, true).await?;
            // No other request was sent instead: this one was elected with the earlier slot.
            let _ = exchange.elect();
            permit
        }
        Admission::Refuse(refusal) => return Err(route.refused(&refusal)),
    };
    Ok(())
}
