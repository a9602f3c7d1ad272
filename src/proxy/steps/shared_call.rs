//! A call whose answer several requests share: it runs by itself, on an exchange of its own, and the requests read its
//! answer.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderValue, Response};
use http_body::Body as _;

use super::{count, respond, retry, wait};
use crate::{
    clock::Instant,
    error::Error,
    proxy::{
        call::{BoxedCall, Call},
        exchange::Exchange,
        message::{
            fields::CACHE_STATUS,
            progress::Phase,
            request_body::BoxedRequest,
            shared_body::{BodyEnd, SharedBody},
        },
        outbound::{response_body::ResponseBody, route::Route},
        request_stats::RequestStats,
        sharing::{CallEvent, CallFollower, SharedCall},
    },
};

/// Maximum time for which a slow reader may delay the others.
const HOLD_UP: Duration = Duration::from_secs(5);
/// Number of consecutive checks without a reader after which a stream is abandoned.
const ABANDONED_LOOKS: u32 = 5;
const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// Creates an exchange like that of `call`, without a worker, for the call `shared`.
pub(super) fn exchange(call: &Call, shared: Arc<dyn SharedCall>) -> Arc<Exchange> {
    let Exchange { proxy, session, .. } = &*call.exchange;
    let now = proxy.clock.now();
    let exchange = Arc::new(Exchange::of_shared_call(session.clone(), now, shared));
    exchange.progress.set_rule(&call.route.lane.policy().egress.timeouts);
    exchange.begins(now);
    exchange.share_trace(&call.exchange);
    exchange
}

/// A copy of `call` with this `request`, on `exchange`.
pub(super) fn of(call: &Call, request: BoxedRequest, exchange: Arc<Exchange>) -> BoxedCall {
    Box::new(Call {
        exchange,
        request,
        route: call.route.clone(),
        claim: call.claim,
        cost: call.cost,
        turn: call.turn,
        deadline: call.deadline,
        now: None,
        anonymous: call.anonymous,
        bound: call.bound,
        upgrades: call.upgrades,
        location: call.location.clone(),
        retry: None,
    })
}

/// Makes the call fail when its current phase takes too long, as a worker's connection does for its requests.
pub(super) async fn watched<T>(
    exchange: &Exchange,
    route: &Route,
    mut call: Pin<&mut impl Future<Output = Result<T, Error>>>,
) -> Result<T, Error> {
    let (clock, progress) = (exchange.proxy.clock, &exchange.progress);
    let mut timer = pin!(tokio::time::sleep_until(clock.to_tokio(progress.deadline())));
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(answered) = call.as_mut().poll(cx) {
                return Poll::Ready(answered);
            }
            if let Some(error) = count::late(exchange, route) {
                return Poll::Ready(Err(error));
            }
            let deadline = clock.to_tokio(progress.deadline());
            if timer.deadline() != deadline {
                timer.as_mut().reset(deadline);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if !progress.give_up(false) {
                // Reading ahead has bounds of its own.
                progress.enter(progress.phase(), progress.idle());
            }
        }
    })
    .await
}

/// Reads `body` as [`pump`] does. A body without a length may have no end: it is cut off once it has had no reader for
/// a while.
pub(super) async fn pump_while_read(body: ResponseBody, shared: &SharedBody, exchange: &Exchange) -> BodyEnd {
    let has_length = body.size_hint().exact().is_some();
    let (mut all, mut abandoned) = (pin!(pump(body, shared, exchange)), pin!(abandoned(shared)));
    poll_fn(|cx| match all.as_mut().poll(cx) {
        Poll::Pending if !has_length => {
            abandoned.as_mut().poll(cx).map(|()| BodyEnd::Broken("no client reads it any more".into()))
        }
        polled => polled,
    })
    .await
}

/// Returns when `shared` has had no reader for a while: a client that lost its connection may return.
async fn abandoned(shared: &SharedBody) {
    let mut looks = 0;
    while looks < ABANDONED_LOOKS {
        tokio::time::sleep(LOOK_PERIOD).await;
        looks = if shared.is_abandoned() { looks + 1 } else { 0 };
    }
}

/// Reads `body` as fast as its readers do, and returns how it ended.
pub(super) async fn pump(mut body: ResponseBody, shared: &SharedBody, exchange: &Exchange) -> BodyEnd {
    let idle = exchange.progress.idle();
    while !body.is_end_stream() {
        while tokio::time::timeout(HOLD_UP, poll_fn(|cx| shared.poll_room(cx))).await.is_err() {
            if shared.is_abandoned() {
                return BodyEnd::Broken("no client reads it, and it is too large to be kept".into());
            }
            shared.cut_the_slowest();
        }
        match tokio::time::timeout(idle, poll_fn(|cx: &mut Context<'_>| Pin::new(&mut body).poll_frame(cx))).await {
            Ok(Some(Ok(frame))) => {
                if !shared.push(frame) {
                    return BodyEnd::Broken(respond::unread(exchange).to_string().into());
                }
            }
            Ok(Some(Err(error))) => return BodyEnd::Broken(error.to_string().into()),
            Ok(None) => break,
            Err(_) => return BodyEnd::Broken(format!("the API sent nothing for {idle:?}").into()),
        }
    }
    BodyEnd::Complete
}

/// Statistics of the tries of the call on `exchange`.
pub(super) fn tries(exchange: &Exchange) -> RequestStats {
    let tries = RequestStats::default();
    tries.add_tries_of(&exchange.stats);
    tries
}

/// Waits for the outcome of the call that `call` shares as `member`. The wait for slots is bounded by the patience of
/// `call`; the wait for the answer is not. Also returns the time waited for slots.
pub(super) async fn outcome<M>(call: &Call, member: &mut M) -> Result<(M::Outcome, Duration), Error>
where
    M: CallFollower,
{
    let Call { exchange, route, .. } = call;
    let (clock, mut waits, mut waited) = (exchange.proxy.clock, false, Duration::ZERO);
    loop {
        let since = clock.now();
        let event = retry::in_time(exchange, route, pin!(async { Ok(member.next().await) })).await;
        if waits {
            let time = clock.now().since(since);
            exchange.stats.waited(time);
            waited += time;
        }
        waits = match event? {
            CallEvent::Leads => {
                exchange.progress.enter_until(Phase::Waiting, Instant::FAR);
                true
            }
            CallEvent::Waits(expected) => {
                waits_until(call, expected)?;
                true
            }
            CallEvent::Sent => {
                is_sent(call);
                false
            }
            CallEvent::Over(outcome) => return Ok((outcome, waited)),
        };
    }
}

/// Lets `call` wait for the slot of its shared call until its patience ends. Refuses `call` if the slot is `expected`
/// later than that.
fn waits_until(call: &Call, expected: Option<Instant>) -> Result<(), Error> {
    let Call { exchange, route, deadline, .. } = call;
    if let Some(late) = expected.filter(|expected| expected > deadline) {
        // The patience may have ended long ago, while the shared call was in flight.
        let retry_after = late.since(exchange.proxy.clock.now().max(*deadline));
        let why = "the call that it would share leaves later than it may wait".into();
        let (host, obstacle) = (route.origin.host.to_string(), None);
        let rule = route.lane.policy().name.clone();
        let cause = "no slot in the time that a request may wait";
        return Err(Error::Refused { host, why, cause, rule, obstacle, retry_after });
    }
    let patience_ends = retry::patience_ends(*deadline, expected.unwrap_or(Instant::FAR));
    exchange.progress.enter_until(Phase::Waiting, patience_ends);
    Ok(())
}

/// Records that the shared call has a slot: its own deadlines end it from now on.
fn is_sent(call: &Call) {
    let waited = call.exchange.proxy.clock.now().since(call.exchange.stats.begun());
    wait::stayed(&call.route.lane, waited);
    call.exchange.progress.enter_until(Phase::Answer, Instant::FAR);
}

/// Adds a `Cache-Status` (RFC 9211): the last member of the list is that of the cache next to the worker.
pub(super) fn note(answer: &mut Response<ResponseBody>, status: &'static str) {
    answer.headers_mut().append(CACHE_STATUS, HeaderValue::from_static(status));
}
