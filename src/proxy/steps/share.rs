//! Lets requests share answers and calls, if their rule says so: first stored answers, then calls in flight.

use std::time::Duration;

use http::{Method, Response};
use tower::service_fn;

use super::{
    cache, coalesce, draws,
    idempotency::{self, Keep},
    include_usage, whole_body,
};
use crate::proxy::{
    call::{Answered, BoxedCall, Call, Step},
    outbound::response_body::ResponseBody,
};

/// Answers requests from a cache. Requests that ask for the same, bring the same `Idempotency-Key`, or are equal share
/// one call.
pub(crate) fn answers<S>(inner: S) -> impl Step<BoxedCall, Response<ResponseBody>>
where
    S: Step<BoxedCall, Response<ResponseBody>>,
{
    service_fn(move |mut call: BoxedCall| {
        let mut inner = inner.clone();
        async move {
            let policy = call.route.lane.policy();
            let shares = policy.coalesce || policy.idempotency_keys.is_some() || policy.cache.is_some();
            if shares || policy.include_usage || deduplicates(&call).is_some() {
                call.now = None;
                // Boxed: rare, and every request would carry its size.
                return Box::pin(answer(inner, call)).await;
            }
            inner.call(call).await
        }
    })
}

/// Time for which requests equal to `call` get its answer, if its rule says so.
fn deduplicates(call: &Call) -> Option<Duration> {
    let (own, rules) = (call.route.lane.policy(), &call.route.added);
    draws::said(rules, &call.request, own, |policy| policy.deduplicate).filter(|keep| !keep.is_zero())
}

async fn answer<S>(inner: S, mut call: BoxedCall) -> Answered
where
    S: Step<BoxedCall, Response<ResponseBody>>,
{
    if call.route.lane.policy().include_usage {
        include_usage::ask(&mut call).await?;
    }
    if call.route.lane.policy().cache.is_none() {
        return share(inner, call).await;
    }
    cache::answer(service_fn(move |call| share(inner.clone(), call)), call).await
}

async fn share<S>(mut inner: S, mut call: BoxedCall) -> Answered
where
    S: Step<BoxedCall, Response<ResponseBody>>,
{
    let policy = call.route.lane.policy();
    let (coalesces, keep, caches) = (policy.coalesce, policy.idempotency_keys, policy.cache.is_some());
    if let Some(time) = keep
        && let Some(key) = idempotency::key(&call)
    {
        return idempotency::once(inner, call, key, Keep { time, only_done: false }).await;
    }
    // For a cached method, the cache decides how long an answer may be used again.
    let is_cached = caches && matches!(*call.request.method(), Method::GET | Method::HEAD | Method::QUERY);
    if let Some(time) = deduplicates(&call).filter(|_| !is_cached)
        && idempotency::has_answer_for_others(&call)
        && let Some(body) = whole_body::read(&mut call).await?
    {
        let key = idempotency::key_of_equal(&call, body);
        return idempotency::once(inner, call, key, Keep { time, only_done: true }).await;
    }
    if coalesces {
        return coalesce::share(inner, call).await;
    }
    inner.call(call).await
}
