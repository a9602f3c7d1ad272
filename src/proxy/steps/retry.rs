//! Sends failed requests again. Each attempt takes a permit of its own, in front of requests that have not been sent
//! yet.
//!
//! A request that was refused, or never arrived, was not processed: any such request may be sent again. A request whose
//! connection broke off may have been processed. Only an idempotent request (RFC 9110 §9.2.2), or one with an
//! `Idempotency-Key`, is sent again then. `policy` decides, `replay` keeps the request, and `attempt` is the interface
//! between this step and those below.

pub(crate) mod attempt;
pub(crate) mod policy;
pub(crate) mod replay;

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

use http::Response;
use tower::service_fn;
use tracing::debug;

use self::{
    attempt::{AttemptContext, AttemptOutcome, FailedAttempt},
    policy::{REFUSALS, back_off, gives_up, is_budgeted, waits},
};
use crate::{
    clock::{Instant, log_seconds},
    error::Error,
    lane::{Refusal, order::Turn},
    metrics::RetryReason,
    proxy::{
        call::{Answered, BoxedCall, Call, RetryMark, Step},
        exchange::Exchange,
        message::progress::Phase,
        outbound::{response_body::ResponseBody, route::Route},
    },
};

/// Last try that goes in front of requests that have not been sent yet. A request that is refused once more may be at
/// fault itself: another request then probes whether a gate may open.
const FAVOURED: u32 = 2;

/// Tolerance for late slots: a request is not refused if its slot was to come by the end of its patience.
const GRACE: Duration = Duration::from_millis(500);

/// Sends failed requests again, for as long as their workers have patience.
pub(crate) fn what_failed<S>(inner: S) -> impl Step<BoxedCall, Response<ResponseBody>>
where
    S: Step<BoxedCall, AttemptOutcome>,
{
    service_fn(move |call: BoxedCall| {
        let mut inner = inner.clone();
        async move {
            let (exchange, route) = (call.exchange.clone(), call.route.clone());
            let failed = {
                let first = pin!(inner.call(call));
                match in_time(&exchange, &route, first).await? {
                    AttemptOutcome::Done(answer) => return Ok(answer),
                    AttemptOutcome::Failed(failed) => failed,
                }
            };
            // Boxed, because the future is large and rarely needed.
            Box::pin(keep_trying(inner, failed)).await
        }
    })
}

async fn keep_trying<S>(mut inner: S, mut failed: Box<FailedAttempt>) -> Answered
where
    S: Step<BoxedCall, AttemptOutcome>,
{
    let context = failed.context.clone();
    let AttemptContext { exchange, route, deadline, .. } = &context;
    let (clock, lane, progress) = (exchange.proxy.clock, &route.lane, &exchange.progress);
    let others = lane.served();
    for tries in 1.. {
        // The held answer is over, but the request is not.
        progress.awaits_answer();
        let FailedAttempt { replay, reason, retry_after, last, .. } = *failed;
        lane.failed(match &last {
            Ok(answer) => format!("it answered {}", answer.status()),
            Err(error) => error.with_causes(),
        });
        let asked = retry_after.filter(|_| waits(reason)).unwrap_or_default();
        let pause = back_off(reason, tries, fastrand::f64()).max(asked);
        let left = deadline.since(clock.now());
        let resends_in = pause.max(lane.closed_for());
        let is_overtaken = tries >= REFUSALS && lane.served() - others > tries.into();
        if is_overtaken
            || gives_up(reason, tries, route)
            || resends_in > left
            || (is_budgeted(reason) && !lane.may_retry())
        {
            return settle(exchange, last);
        }
        let Some(request) = replay.once_more(progress).await else { return settle(exchange, last) };
        if !pause.is_zero() {
            let began = clock.now();
            progress.enter_until(Phase::Waiting, patience_ends(*deadline, began + pause));
            exchange.awaits_slot(began + resends_in);
            clock.sleep_until(began + pause).await;
            waited(exchange, route, reason, began, pause);
        }
        // A request that is refused repeatedly must not delay others any longer.
        let turn = if tries < FAVOURED { Turn::Resent } else { Turn::New };
        let call = Box::new(context.call(request, turn, RetryMark { reason, attempt: tries + 1, back_off: pause }));
        progress.awaits_answer();
        match in_time(exchange, route, pin!(inner.call(call))).await {
            Ok(AttemptOutcome::Done(answer)) => return Ok(answer),
            Ok(AttemptOutcome::Failed(next)) => failed = next,
            // The worker's patience is over: it gets the upstream's last answer or error.
            Err(Error::Refused { .. }) => return settle(exchange, last),
            Err(error) => return Err(error),
        }
    }
    unreachable!("counting does not end")
}

/// Records that a request has waited for `pause`, since the wait `began`, before it is sent again.
fn waited(exchange: &Exchange, route: &Route, reason: RetryReason, began: Instant, pause: Duration) {
    exchange.stats.waited(pause);
    route.lane.metrics().backed_off(reason, pause);
    if let Some(trace) = exchange.trace() {
        trace.on_back_off(began, exchange.proxy.clock.now(), reason.as_str());
    }
}

/// End of a request's patience: `deadline`, or a little later if its slot was `expected` just before when the request
/// came. A request with a longer delay will not be sent in time either.
pub(crate) fn patience_ends(deadline: Instant, expected: Instant) -> Instant {
    let is_close = expected <= deadline && deadline.since(expected) < GRACE;
    if is_close { expected + GRACE } else { deadline }
}

/// Gives the worker the upstream's last answer or error, which is complete.
fn settle(exchange: &Exchange, last: Answered) -> Answered {
    exchange.progress.rest();
    last
}

/// Runs one try, for as long as its request may wait for a slot. Borrowed: if it were moved in, a waiting request would
/// hold it twice.
pub(crate) fn in_time<T>(
    exchange: &Exchange,
    route: &Route,
    mut one_try: Pin<&mut impl Future<Output = Result<T, Error>>>,
) -> impl Future<Output = Result<T, Error>> {
    poll_fn(move |cx| {
        // A request that waits in a lane is refused with a time to come again.
        match one_try.as_mut().poll(cx) {
            Poll::Pending if exchange.progress.phase() == Phase::LateWaiting => {}
            polled => return polled,
        }
        let retry_after = route.lane.snapshot().queue.drain.unwrap_or_default();
        Poll::Ready(Err(route.refused(&Refusal::Late { retry_after })))
    })
}

/// Counts and logs a further attempt. Called only once it has its permit, because many still wait when their workers
/// lose patience.
pub(crate) fn begins(call: &Call) {
    let Call { exchange, route, deadline, retry: Some(retry), .. } = call else { return };
    let RetryMark { reason, attempt, back_off } = &**retry;
    let (now, lane) = (exchange.proxy.clock.now(), &route.lane);
    lane.metrics().retried(*reason);
    exchange.proxy.reports.retries.add(lane.host(), &lane.policy().name, *reason, now);
    debug!(
        host = %lane.host(), rule = %lane.policy().name, reason = reason.as_str(), attempt = *attempt,
        back_off_s = log_seconds(*back_off), patience_left_s = log_seconds(deadline.since(now)),
        request_id = %exchange.request_id(), trace_id = exchange.trace().map(|trace| trace.id()), "sending a request again"
    );
}
