//! Answers requests from the private cache of their rule (RFC 9111), and stores reusable answers.
//!
//! The step is above the queue: a request that is answered from the cache takes no slot. A stale answer is validated by
//! a request, which takes one.

mod key;
mod status;

use std::sync::Arc;

use http::{
    HeaderMap, HeaderValue, Method, Response, StatusCode,
    header::{CONTENT_LENGTH, ETAG, LAST_MODIFIED, UPGRADE},
};
use http_body::Body as _;

use self::status::Forwarded;
use super::whole_body;
use crate::{
    clock::Instant,
    error::Error,
    metrics::Saving,
    proxy::{
        cache::{
            Cache, Resource, Version,
            freshness::Received,
            stored::{Reuse, StoredAnswer, StoredHead},
        },
        call::{Answered, BoxedCall, Call, Step},
        exchange::Exchange,
        message::{
            cache_control::RequestDirectives,
            recorded_body::{RecordedBody, ReplayedBody},
            server_timing,
        },
        outbound::response_body::ResponseBody,
        request_stats::Wait,
        sharing::Key,
    },
};

/// The place where the answer to a request is looked for, and stored.
struct Place {
    cache: Arc<Cache>,
    key: Key,
    version: Version,
}

/// Ends the use of stored answers when a request is over that may have changed them.
pub(super) struct ResourceChange {
    cache: Arc<Cache>,
    resource: Resource,
    /// True if the API says that nothing has changed.
    failed: bool,
}

/// Answers `call` from the cache of its rule, or passes it to `inner`.
pub(super) async fn answer<S>(mut inner: S, mut call: BoxedCall) -> Answered
where
    S: Step<BoxedCall, Response<ResponseBody>>,
{
    let (request, policy) = (&call.request, call.route.lane.policy());
    // Tunnels, and requests for an upgrade.
    let tunnel = *request.method() == Method::CONNECT || request.headers().contains_key(UPGRADE);
    let Some(cache) = call.exchange.proxy.caches.of(policy).filter(|_| !tunnel) else {
        return inner.call(call).await;
    };
    if !request.method().is_safe() {
        return change(inner, cache, call).await;
    }
    let asked = RequestDirectives::of(request.headers());
    if *request.method() == Method::QUERY && !asked.no_store {
        whole_body::read(&mut call).await?;
    }
    if asked.no_store || !key::is_plain(&call) {
        return if asked.only_if_cached { Err(Error::NotStored) } else { pass(inner, call, Forwarded::Bypass).await };
    }
    read(inner, cache, call, asked).await
}

/// Passes `call` on, and leaves stored answers alone.
async fn pass<S>(mut inner: S, call: BoxedCall, why: Forwarded) -> Answered
where
    S: Step<BoxedCall, Response<ResponseBody>>,
{
    let mut answer = inner.call(call).await?;
    let fields = answer.headers_mut();
    if status::is_hit(fields) {
        // Kept for its `Idempotency-Key`.
        return Ok(answer);
    }
    let collapsed = status::take_collapsed(fields);
    status::forwarded(fields, why, None, collapsed.into_iter());
    Ok(answer)
}

/// Passes on a `call` that may change its target (RFC 9111 §4.4).
async fn change<S>(inner: S, cache: Arc<Cache>, call: BoxedCall) -> Answered
where
    S: Step<BoxedCall, Response<ResponseBody>>,
{
    let (exchange, route, uri) = (call.exchange.clone(), call.route.clone(), call.request.uri().clone());
    let mut change = ResourceChange { resource: key::resource(&call), cache, failed: false };
    let answer = pass(inner, call, Forwarded::Method).await?;
    let status = answer.status();
    // The first of several tries may have changed the resource, even if the last one was refused.
    change.failed = (status.is_client_error() || status.is_server_error()) && exchange.stats.attempts() <= 1;
    if !change.failed {
        for resource in key::also_changed(&route.origin, &uri, answer.headers()) {
            change.cache.changed(resource);
        }
    }
    Ok(answer)
}

/// Answers a GET, HEAD or QUERY from `cache`, if possible; otherwise passes it on.
async fn read<S>(mut inner: S, cache: Arc<Cache>, mut call: BoxedCall, asked: RequestDirectives) -> Answered
where
    S: Step<BoxedCall, Response<ResponseBody>>,
{
    let always = call.route.lane.policy().cache.is_some_and(|cache| cache.always_revalidates);
    let (key, version) = (key::of(&call), cache.version(key::resource(&call)));
    let stored = cache.find(key, &version);
    let exchange = call.exchange.clone();
    let now = exchange.proxy.clock.now();
    let why = match stored.as_ref().map(|stored| stored.head.reuse(&asked, always, now)) {
        Some(Reuse::Fresh) => return Ok(hit(&call, stored.as_ref().expect("looked at just now"), now)),
        Some(Reuse::Stale) => Forwarded::Stale,
        Some(Reuse::NotAsAsked) => Forwarded::Request,
        None => Forwarded::Miss,
    };
    if asked.only_if_cached {
        return Err(Error::NotStored);
    }
    if *call.request.method() == Method::HEAD {
        return pass(inner, call, why).await;
    }
    // A worker that sends preconditions of its own gets the answer to these.
    let validates = !key::is_conditional(call.request.headers())
        && stored.as_ref().is_some_and(|stored| stored.head.ask(call.request.headers_mut()));
    let waited = exchange.stats.waiting_time();
    let mut answer = inner.call(call).await?;
    let at = exchange.proxy.clock.now();
    // The wait for a slot is not part of the response delay.
    let waited = exchange.stats.waiting_time().saturating_sub(waited);
    let received =
        Received { at, time_of_day: exchange.proxy.clock.time_of_day(), delay: at.since(now).saturating_sub(waited) };
    let place = Place { cache, key, version };
    let collapsed = status::take_collapsed(answer.headers_mut());
    let status = stored.as_ref().map(|_| answer.status());
    let (mut answer, is_stored) = match stored {
        Some(stored) if answer.status() == StatusCode::NOT_MODIFIED => {
            (place.validated(stored, answer, validates, &received, &exchange), false)
        }
        // The request for which the call was made stores the answer.
        _ if collapsed == Some(status::COLLAPSED) => (answer, false),
        _ => place.recorded(answer, &received),
    };
    let also = is_stored.then_some("stored").into_iter().chain(collapsed);
    status::forwarded(answer.headers_mut(), why, status, also);
    Ok(answer)
}

/// The `stored` answer, for the worker of `call`.
fn hit(call: &Call, stored: &Arc<StoredAnswer>, now: Instant) -> Response<ResponseBody> {
    let request = &call.request;
    let mut answer = if key::is_conditional(request.headers()) && stored.head.is_known_to(request.headers()) {
        call.exchange.progress.rest();
        with_head(StatusCode::NOT_MODIFIED, stored.head.fields_of_304(now), ResponseBody::Own(None))
    } else if *request.method() == Method::HEAD {
        call.exchange.progress.rest();
        let mut fields = stored.head.fields(now);
        if stored.head.status() != StatusCode::NO_CONTENT {
            fields.insert(CONTENT_LENGTH, HeaderValue::from(stored.body.len()));
        }
        with_head(stored.head.status(), fields, ResponseBody::Own(None))
    } else {
        replayed(stored, now, &call.exchange)
    };
    let fields = answer.headers_mut();
    server_timing::set(fields, Wait::default());
    status::hit(fields);
    call.route.lane.metrics().saved(Saving::Cached);
    answer
}

fn replayed(stored: &Arc<StoredAnswer>, now: Instant, exchange: &Exchange) -> Response<ResponseBody> {
    let body = ReplayedBody::new(stored.clone().reader(), exchange.progress.clone());
    with_head(stored.head.status(), stored.head.fields(now), ResponseBody::Replayed(Box::new(body)))
}

fn with_head(status: StatusCode, fields: HeaderMap, body: ResponseBody) -> Response<ResponseBody> {
    let mut answer = Response::new(body);
    (*answer.status_mut(), *answer.headers_mut()) = (status, fields);
    answer
}

// === impl Place ===

impl Place {
    /// The worker's answer after a 304, `answer`, which may be about the `stored` answer. `validates` says that andante
    /// sent the preconditions.
    fn validated(
        &self,
        stored: Arc<StoredAnswer>,
        answer: Response<ResponseBody>,
        validates: bool,
        received: &Received,
        exchange: &Exchange,
    ) -> Response<ResponseBody> {
        let new = answer.headers();
        // The worker's preconditions may be about another answer than the stored one.
        let ours = validates || new.contains_key(ETAG) || new.contains_key(LAST_MODIFIED);
        let head = if ours { stored.head.freshened(new, received) } else { None };
        let stored = match head {
            _ if !key::is_stored(new) => {
                self.cache.forget(self.key);
                stored
            }
            Some(head) => {
                let freshened = Arc::new(StoredAnswer { head, body: stored.body.clone() });
                self.cache.renew(self.key, &self.version, &stored, freshened.clone());
                freshened
            }
            None => stored,
        };
        if !validates {
            return answer;
        }
        // Dropped first: its end would be taken for that of the next answer.
        drop(answer);
        replayed(&stored, received.at, exchange)
    }

    /// Returns `answer`, which is stored as it passes if that is allowed, and whether it is stored.
    fn recorded(&self, answer: Response<ResponseBody>, received: &Received) -> (Response<ResponseBody>, bool) {
        let head =
            StoredHead::of(answer.status(), answer.headers(), received).filter(|_| key::is_stored(answer.headers()));
        let least = answer.body().size_hint().lower();
        let Some(recording) = head.and_then(|head| self.cache.record(self.key, &self.version, head, least)) else {
            if !answer.status().is_server_error() && answer.status() != StatusCode::TOO_MANY_REQUESTS {
                // The answer that was stored before is outdated (RFC 9111 §4.3.3).
                self.cache.forget(self.key);
            }
            return (answer, false);
        };
        let record = |body| ResponseBody::Recorded(Box::new(RecordedBody::new(body, Box::new(recording))));
        (answer.map(record), true)
    }
}

// === impl ResourceChange ===

impl ResourceChange {
    /// The change that `call` may make, if its method is unsafe and its rule has a cache.
    pub(super) fn of(call: &Call) -> Option<Self> {
        let cache = call.exchange.proxy.caches.of(call.route.lane.policy())?;
        (!call.request.method().is_safe()).then(|| Self { cache, resource: key::resource(call), failed: false })
    }
}

impl Drop for ResourceChange {
    fn drop(&mut self) {
        if !self.failed {
            self.cache.changed(self.resource);
        }
    }
}
