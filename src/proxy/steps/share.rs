//! Has requests share calls and answers, where their rule says so: what is stored, then calls that are under way. Does
//! nothing where no rule asks for it.

use http::Response;
use tower::service_fn;

use super::{cache, coalesce, idempotency};
use crate::proxy::{
    call::{Answered, BoxedCall, Step},
    outbound::response_body::ResponseBody,
};

/// Answers requests from a cache, and has those share one call that ask for the same, or bring the same `Idempotency-Key`.
pub(crate) fn answers<S>(inner: S) -> impl Step<BoxedCall, Response<ResponseBody>>
where
    S: Step<BoxedCall, Response<ResponseBody>>,
{
    service_fn(move |mut call: BoxedCall| {
        let mut inner = inner.clone();
        async move {
            let policy = call.route.lane.policy();
            if policy.coalesce || policy.idempotency_keys.is_some() || policy.cache.is_some() {
                call.now = None;
                // Boxed: rare, and every request would carry its size.
                return Box::pin(answer(inner, call)).await;
            }
            inner.call(call).await
        }
    })
}

async fn answer<S>(inner: S, call: BoxedCall) -> Answered
where
    S: Step<BoxedCall, Response<ResponseBody>>,
{
    if call.route.lane.policy().cache.is_none() {
        return share(inner, call).await;
    }
    cache::answer(service_fn(move |call| share(inner.clone(), call)), call).await
}

async fn share<S>(mut inner: S, call: BoxedCall) -> Answered
where
    S: Step<BoxedCall, Response<ResponseBody>>,
{
    let policy = call.route.lane.policy();
    let (coalesces, keep) = (policy.coalesce, policy.idempotency_keys);
    if let Some(keep) = keep
        && let Some(key) = idempotency::key(&call)
    {
        return idempotency::once(inner, call, key, keep).await;
    }
    if coalesces {
        return coalesce::share(inner, call).await;
    }
    inner.call(call).await
}
