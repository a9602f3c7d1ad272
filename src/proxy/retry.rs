//! Sends again what may be sent again. Each try takes a permit of its own, in front of those who have not been sent yet.
//!
//! What was refused was not done, and what never arrived was not either: any request may be sent again then. What broke
//! off may have been done, and only requests that may be repeated are (RFC 9110 §9.2.2), or those that say so themselves.

use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll, time::Duration};

use http::{Request, Response, StatusCode};
use http_body::Body as _;
use tower::{Service, service_fn};
use tracing::debug;

use super::{
    body::Body,
    gateway::Stay,
    link::{Link, Phase},
    stack::{Boxed, Call, Outcome, Tried},
    upload::{Kept, RequestBody},
    upstream::Route,
};
use crate::{
    clock::Instant,
    error::{Error, Retryable},
    hint::{Cause, Hint, Signal},
    learn::RouteName,
    pace::Lane,
    policy::Retry,
};

/// Why a request may be sent again.
pub(super) use crate::metrics::RetryReason as Why;

/// A request that may be sent again, and what has come of it so far.
pub(super) struct Again {
    call: Parts,
    spare: Spare,
    why: Why,
    /// What the answer asks for.
    retry_after: Option<Duration>,
    last: Outcome,
}

/// One more try.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    why: Why,
    /// The first try was 1.
    pub(super) number: u32,
    back_off: Duration,
    deadline: Instant,
}

/// What a try needs beside the request.
#[derive(Clone)]
pub(super) struct Parts {
    pub(super) link: Arc<Link>,
    pub(super) route: Arc<Route>,
    pub(super) stay: Option<Arc<Stay>>,
    pub(super) deadline: Instant,
}

/// What is needed to send a request once more.
pub(super) struct Spare {
    head: http::request::Parts,
    /// `None` if it has no body.
    kept: Option<Arc<Kept>>,
    repeatable: bool,
}

/// The first back-off is up to this long, each further one up to twice as long as the one before.
const FIRST: Duration = Duration::from_millis(250);
/// None is shorter.
const FLOOR: Duration = Duration::from_millis(50);
/// None is longer.
const LONGEST: Duration = Duration::from_secs(30);
/// So often is a request sent to an upstream that is there and fails.
const TRIES: u32 = 5;
/// So often is one refused, while more others are served: it is not waiting that helps it.
const REFUSALS: u32 = 12;
/// So often is one sent to an upstream that has never answered anybody: its name may be wrong.
const TRIES_UNKNOWN: u32 = 3;
/// Slots may be a little late: nobody is sent away for that.
const GRACE: Duration = Duration::from_millis(500);

/// Sends again what has failed, for as long as its worker has patience.
pub(super) fn what_failed<S>(
    inner: S,
) -> impl Service<Call, Response = Response<Body>, Error = Error, Future: Send> + Clone + Send + 'static
where
    S: Service<Call, Response = Tried, Error = Error, Future: Send> + Clone + Send + 'static,
{
    service_fn(move |call: Call| {
        let mut inner = inner.clone();
        async move {
            let (link, route) = (call.link.clone(), call.route.clone());
            match in_time(&link, &route, inner.call(call)).await? {
                Tried::Done(answer) => Ok(answer),
                // Boxed, because it is large and rare.
                Tried::Again(again) => Box::pin(keep_trying(inner, again)).await,
            }
        }
    })
}

async fn keep_trying<S>(mut inner: S, mut again: Box<Again>) -> Outcome
where
    S: Service<Call, Response = Tried, Error = Error>,
{
    let Parts { link, route, stay, deadline } = again.call.clone();
    let (clock, lane) = (link.proxy.clock, &route.lane);
    let others = lane.served();
    for tries in 1.. {
        // What was held is over, and the request is not.
        link.enter(Phase::Answer, link.proxy.timeouts.answer);
        let Again { spare, why, retry_after, last, .. } = *again;
        lane.failed(match &last {
            Ok(answer) => format!("it answered {}", answer.status()),
            Err(error) => error.with_causes(),
        });
        let pause = why.back_off(tries, fastrand::f64()).max(retry_after.filter(|_| why.waits()).unwrap_or_default());
        let left = deadline.since(clock.now());
        let back_off = pause.max(lane.closed_for());
        let in_vain = tries >= REFUSALS && lane.served() - others > tries.into();
        if in_vain || gives_up(why, tries, &link, &route) || back_off > left || (why.is_budgeted() && !lane.may_retry())
        {
            return settle(&link, last);
        }
        let Some(request) = spare.once_more(&link).await else { return settle(&link, last) };
        if !pause.is_zero() {
            link.enter_until(Phase::Waiting, deadline + GRACE);
            clock.sleep_until(clock.now() + pause).await;
            link.account.waited(pause);
        }
        let again_as = Some(Attempt { why, number: tries + 1, back_off: pause, deadline });
        let call =
            Call { link: link.clone(), request, route: route.clone(), deadline, stay: stay.clone(), again: again_as };
        link.enter(Phase::Answer, link.proxy.timeouts.answer);
        match in_time(&link, &route, inner.call(call)).await {
            Ok(Tried::Done(answer)) => return Ok(answer),
            Ok(Tried::Again(next)) => again = next,
            // Its patience is over: it gets what the upstream said last.
            Err(Error::Refused { .. }) => return settle(&link, last),
            Err(error) => return Err(error),
        }
    }
    unreachable!("counting does not end")
}

/// Lets the worker have what the upstream said last; all of it is here.
fn settle(link: &Link, last: Outcome) -> Outcome {
    link.rest();
    last
}

/// Runs one try, for as long as its request may wait for a slot.
async fn in_time<T>(link: &Link, route: &Route, one_try: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let mut one_try = pin!(one_try);
    poll_fn(|cx| {
        if link.phase() != Phase::LateWaiting {
            return one_try.as_mut().poll(cx);
        }
        let host = route.origin.host.to_string();
        let retry_after = route.lane.snapshot().drain.unwrap_or_default();
        Poll::Ready(Err(Error::Refused { host, why: "no slot matured in the time it may wait".into(), retry_after }))
    })
    .await
}

/// Whether it is no use to try once more after `tries` of them.
fn gives_up(why: Why, tries: u32, link: &Link, route: &Route) -> bool {
    match why {
        Why::Refused | Why::Crowded => false,
        Why::Unreached if !route.has_answered(&link.proxy) => tries >= TRIES_UNKNOWN,
        // While the upstream is left alone, who tries is not to blame for what he finds.
        Why::Unreached => false,
        Why::Failed | Why::Cut => tries >= TRIES && !route.lane.is_broken(),
        Why::NotProcessed => tries >= TRIES,
    }
}

// === impl Why ===

impl Why {
    /// Why a request that was answered may be sent again, if it may.
    ///
    /// `done` says that it has done something all the same.
    pub(super) fn of_answer(hint: &Hint, status: StatusCode, done: bool, spare: &Spare, lane: &Lane) -> Option<Self> {
        match hint.cause {
            _ if done => None,
            _ if hint.signal == Signal::FatalQuota => None,
            Cause::Quota => Some(Self::Refused),
            Cause::Concurrency => Some(Self::Crowded),
            Cause::Overload if hint.retry_after.is_some() => Some(Self::Refused),
            // While others are served a 503 is a limiter's (nginx): the lane knows when to try again.
            Cause::Overload if spare.repeatable && lane.is_alive() => Some(Self::Refused),
            // What is refused for overload alone (529) has not been done either.
            Cause::Overload if status != StatusCode::SERVICE_UNAVAILABLE => Some(Self::Failed),
            _ => (matches!(status.as_u16(), 502..=504) && spare.repeatable).then_some(Self::Failed),
        }
    }

    /// Why a request that failed with `error` may be sent again, if it may.
    pub(super) fn of_error(error: &Error, spare: &Spare) -> Option<Self> {
        match error.retryable() {
            Retryable::Unreached => Some(Self::Unreached),
            Retryable::NotProcessed => Some(Self::NotProcessed),
            Retryable::IfRepeatable => spare.repeatable.then_some(Self::Cut),
            Retryable::Never => None,
        }
    }

    /// Whether it waits by itself, and not with its lane.
    fn waits(self) -> bool {
        !matches!(self, Self::Refused | Self::NotProcessed)
    }

    /// Whether sending it again makes things worse for an upstream that is in trouble.
    fn is_budgeted(self) -> bool {
        matches!(self, Self::Failed | Self::Cut)
    }

    /// How long to wait after `tries` tries: exponential with full jitter, and a floor. `dice` is from 0 to 1.
    fn back_off(self, tries: u32, dice: f64) -> Duration {
        if !self.waits() {
            return Duration::ZERO;
        }
        let most = FIRST.saturating_mul(2u32.saturating_pow(tries - 1)).min(LONGEST);
        most.mul_f64(dice).max(FLOOR)
    }
}

// === impl Attempt ===

impl Attempt {
    /// Its turn has come: counted and logged only now, as many are still waiting when their workers lose patience.
    pub(super) fn begins(self, link: &Link, lane: &Lane) {
        let Self { why, number, back_off, deadline } = self;
        let now = link.proxy.clock.now();
        lane.metrics().retried(why);
        link.proxy.retry_log.add(lane.host(), &lane.policy().name, why, now);
        debug!(
            host = %lane.host(), rule = %lane.policy().name, reason = why.as_str(), attempt = number,
            back_off_s = back_off.as_secs_f64(), patience_left_s = deadline.since(now).as_secs_f64(),
            request_id = %link.request_id(), "sending a request again"
        );
    }
}

// === impl Again ===

impl Again {
    pub(super) fn new(call: Parts, spare: Spare, why: Why, retry_after: Option<Duration>, last: Outcome) -> Box<Self> {
        Box::new(Self { call, spare, why, retry_after, last })
    }
}

// === impl Spare ===

impl Spare {
    /// Makes sure that `request` can be sent again.
    pub(super) fn of(request: &mut Request<RequestBody>, retry: Retry) -> Self {
        let kept = (!request.body().is_end_stream()).then(|| request.body_mut().keep(retry.body));
        let mut head = Request::new(()).into_parts().0;
        head.method.clone_from(request.method());
        head.uri.clone_from(request.uri());
        head.version = request.version();
        head.headers.clone_from(request.headers());
        let repeatable = head.method.is_idempotent() || head.headers.contains_key("idempotency-key");
        Self { head, kept, repeatable }
    }

    /// What requests of its kind are called.
    pub(super) fn route_name(&self) -> RouteName<'_> {
        RouteName { method: self.head.method.as_str(), path: self.head.uri.path() }
    }

    /// The request, to be sent once more; `None` if its body is gone.
    async fn once_more(mut self, link: &Arc<Link>) -> Option<Boxed> {
        let body = match self.kept.take() {
            Some(kept) => kept.again(link).await?,
            None => RequestBody::empty(link.clone()),
        };
        let head = std::mem::replace(&mut self.head, Request::new(()).into_parts().0);
        Some(Box::new(Request::from_parts(head, body)))
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        if let Some(kept) = &self.kept {
            kept.let_go();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_doubles_up_to_a_bound_and_is_never_nothing() {
        let most = |tries| Why::Failed.back_off(tries, 1.0);
        assert_eq!([most(1), most(2), most(3)], [FIRST, FIRST * 2, FIRST * 4]);
        assert_eq!((most(12), most(4_000_000_000)), (LONGEST, LONGEST));
        assert_eq!(Why::Cut.back_off(1, 0.0), FLOOR);
        assert_eq!(Why::Refused.back_off(3, 1.0), Duration::ZERO, "the lane knows");
    }
}
