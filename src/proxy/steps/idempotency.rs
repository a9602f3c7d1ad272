//! Sends a request with an `Idempotency-Key` once, and gives its answer to all requests with the key
//! (draft-ietf-httpapi-idempotency-key-header-07). If the rule says `deduplicate`, a request without a key is
//! identified by its method, URL, fields and body.
//!
//! The first request's body is hashed while it is sent. Further requests leave their bodies unread until there is an
//! answer, so that one of them can be sent if the first one fails. Then their bodies are hashed, and they get the
//! answer if the hash is the same.

use std::{
    future::poll_fn,
    mem,
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use http::{
    Response, StatusCode,
    header::{CONTENT_TYPE, SET_COOKIE, UPGRADE},
    response,
};
use http_body::Body as _;

use super::{
    cache::ResourceChange,
    coalesce::OriginChange,
    keyed_hash, retry,
    same_request::{fields_hash, varies},
    shared_call::{self, note},
};
use crate::{
    error::Error,
    hint,
    lane::order::Turn,
    metrics::Saving,
    proxy::{
        call::{Answered, BoxedCall, Call, Step},
        message::{
            in_order,
            incoming_body::{BodyDigest, Fingerprint},
            request_body::{RequestBody, copy_without_body},
            server_timing,
            shared_body::{BodyEnd, SharedBody},
        },
        outbound::response_body::ResponseBody,
        replays::{KeyFound, KeyedAnswer, KeyedCall, KeyedPlace, Lead},
        request_stats::Wait,
        sharing::Key,
    },
};

/// Hash of the client's credentials and fields, the target and the key, if `call` is to be sent once.
pub(super) fn key(call: &Call) -> Option<Key> {
    let mut keys = call.request.headers().get_all(retry::replay::IDEMPOTENCY_KEY).iter();
    let one = keys.next().is_some_and(|key| !key.is_empty()) && keys.next().is_none();
    // Safe methods are idempotent without a key (RFC 9110 §9.2.2).
    (one && has_answer_for_others(call) && !call.request.method().is_safe()).then(|| key_with(call, None))
}

/// Hash of the client's credentials and fields, the method, the target and the `body`.
pub(super) fn key_of_equal(call: &Call, body: Fingerprint) -> Key {
    key_with(call, Some(body))
}

/// Returns whether the answer to `call` may be kept at all.
pub(super) fn has_answer_for_others(call: &Call) -> bool {
    // CONNECT has no answer that could be kept.
    let tunnel = call.request.method() == http::Method::CONNECT || call.request.headers().contains_key(UPGRADE);
    !call.bound && !tunnel
}

fn key_with(call: &Call, body: Option<Fingerprint>) -> Key {
    let (request, fields) = (&call.request, call.request.headers());
    // A gateway's answers contain the address by which their worker came in.
    let location = call.location.as_ref().map(|location| format!("{location:?}"));
    let origin = keyed_hash::of(&call.route.origin);
    let target = (request.method().as_str(), request.uri().path_and_query());
    Key::new(origin, |half| keyed_hash::of((half, origin, target, fields_hash(fields, half), body, &location)))
}

/// Selects the answers that are kept, and the time for which they are kept.
#[derive(Clone, Copy)]
pub(super) struct Keep {
    /// Time for which an answer is kept.
    pub(super) time: Duration,
    /// Keeps only answers of success (2xx, 3xx): without a key, a request that follows a failure is a new try.
    pub(super) only_done: bool,
}

/// Sends `call`, unless another one with its `key` was sent: then `call` gets the answer to that one. Answers are kept
/// as `keep` says.
pub(super) async fn once<S>(mut inner: S, mut call: BoxedCall, key: Key, keep: Keep) -> Answered
where
    S: Step<BoxedCall, Response<ResponseBody>>,
{
    let (replays, clock) = (call.exchange.proxy.replays.clone(), call.exchange.proxy.clock);
    loop {
        let followed = match replays.find(key, clock.now()) {
            KeyFound::New(place) => return lead(inner, call, place, keep).await,
            KeyFound::UnderWay(shared) => follow(&mut call, &shared).await,
            KeyFound::Kept(shared, answer) => {
                replay(&mut call, &shared, &answer, Wait::default(), "andante; hit").await
            }
        };
        match followed {
            Ok(Some(answer)) => return Ok(answer),
            // The request has waited as long as earlier ones of its flow.
            Ok(None) => call.turn = Turn::Resent,
            // The beginning of a large answer is gone already, and a safe request without a key may be sent twice.
            Err(Error::KeyInUse) if keep.only_done && call.request.method().is_safe() => return inner.call(call).await,
            Err(error) => return Err(error),
        }
    }
}

/// Possible changes by a call: they are over when the call is, even if its worker has left.
type Changes = (Option<OriginChange>, Option<ResourceChange>);

fn changes(call: &Call) -> Changes {
    (OriginChange::of(call), ResourceChange::of(call))
}

impl Keep {
    fn is_for(self, status: StatusCode) -> bool {
        !self.only_done || status.is_success() || status.is_redirection()
    }
}

/// Sends `call` in `place`, in a task of its own.
async fn lead<S>(inner: S, mut call: BoxedCall, place: KeyedPlace, keep: Keep) -> Answered
where
    S: Step<BoxedCall, Response<ResponseBody>>,
{
    let (shared, change) = (place.call().clone(), changes(&call));
    let exchange = shared_call::exchange(&call, shared.clone());
    let rest = Box::new(copy_without_body(&call.request, call.exchange.progress.clone()));
    let mut request = mem::replace(&mut call.request, rest);
    request.body_mut().hash_into(shared.body.clone(), exchange.progress.clone());
    let sent = shared_call::of(&call, request, exchange);
    let task = tokio::spawn(run(inner, sent, place, keep, change)).abort_handle();
    let lead = Lead { call: shared, task };
    let (Some(answer), _) = shared_call::outcome(&call, &mut lead.call.lead()).await? else {
        return Err(lead.call.take_error().unwrap_or(Error::KeyInUse));
    };
    call.exchange.stats.add_tries_of(&answer.tries);
    read(&call, &answer, "andante; fwd=miss").ok_or(Error::KeyInUse)
}

/// Runs `call`, hands its outcome to the requests with its key, and keeps the answer for `keep`.
async fn run<S>(mut inner: S, call: BoxedCall, place: KeyedPlace, keep: Keep, change: Changes)
where
    S: Step<BoxedCall, Response<ResponseBody>>,
{
    let (exchange, route) = (call.exchange.clone(), call.route.clone());
    let answered = shared_call::watched(&exchange, &route, pin!(inner.call(call))).await;
    drop(change);
    let (head, body) = match answered {
        Ok(answer) => answer.into_parts(),
        Err(error) => return place.failed(error),
    };
    // If the answer came before the whole body was sent, there is no fingerprint to compare other requests with.
    let for_all = is_result(&head) && !varies(&head.headers) && place.call().body.fingerprint().is_some();
    let kept = for_all && keep.is_for(head.status);
    // An event stream may have no end.
    let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_stream = kind.is_some_and(hint::is_event_stream);
    let shared = SharedBody::new(body.size_hint(), place.memory().clone(), exchange.charge());
    place.answered(KeyedAnswer {
        head,
        body: shared.clone(),
        tries: shared_call::tries(&exchange),
        for_all,
        cookies_taken: Arc::default(),
    });
    let end = if is_stream {
        shared_call::pump_while_read(body, &shared, &exchange).await
    } else {
        // The worker may return for the answer.
        shared_call::pump(body, &shared, &exchange).await
    };
    if kept && matches!(end, BodyEnd::Complete) {
        place.keep(exchange.proxy.clock.now() + keep.time);
    }
    // An answer that is not kept is dropped before a request can see that it is over.
    drop(place);
    shared.finish(end);
}

/// Waits for the answer of the call `shared`; `None` if it has no answer for `call`.
async fn follow(call: &mut Call, shared: &KeyedCall) -> Result<Option<Response<ResponseBody>>, Error> {
    let (Some(answer), time) = shared_call::outcome(call, &mut shared.twin()).await? else { return Ok(None) };
    replay(call, shared, &answer, Wait { time, ..Wait::default() }, "andante; fwd=miss; collapsed").await
}

/// The `answer` of `shared`, if it is for all and `call` is the same request.
async fn replay(
    call: &mut Call,
    shared: &KeyedCall,
    answer: &KeyedAnswer,
    wait: Wait,
    status: &'static str,
) -> Result<Option<Response<ResponseBody>>, Error> {
    if !answer.for_all {
        return Ok(None);
    }
    if Some(fingerprint(call).await?) != shared.body.fingerprint() {
        return Err(Error::KeyReused);
    }
    let mut answer = read(call, answer, status).ok_or(Error::KeyInUse)?;
    server_timing::set(answer.headers_mut(), wait);
    call.route.lane.metrics().saved(Saving::Replayed);
    Ok(Some(answer))
}

/// Reads the body of `call` to its end, and returns its fingerprint.
async fn fingerprint(call: &mut Call) -> Result<Fingerprint, Error> {
    let (digest, progress) = (BodyDigest::new(), call.exchange.progress.clone());
    progress.awaits_answer();
    let body = call.request.body_mut();
    body.hash_into(digest.clone(), progress.clone());
    while !body.is_end_stream() {
        match poll_fn(|cx| Pin::<&mut RequestBody>::new(body).poll_frame(cx)).await {
            Some(Ok(_)) => {}
            Some(Err(source)) => return Err(Error::Body { source }),
            None => break,
        }
    }
    progress.awaits_answer();
    digest.fingerprint().ok_or_else(|| Error::Body { source: "it ended early".into() })
}

/// `shared` as the worker of `call` gets it; `None` if its beginning is gone already. Only the first worker gets the
/// API's cookies.
fn read(call: &Call, shared: &KeyedAnswer, status: &'static str) -> Option<Response<ResponseBody>> {
    let reader = shared.body.reader(call.exchange.progress.clone(), ())?;
    call.exchange.progress.moves();
    let mut answer = Response::from_parts(shared.head.clone(), ResponseBody::Shared(Box::new(reader)));
    // The answer is valid without the cookies: to send the request once more would carry it out twice.
    if shared.cookies_taken.swap(true, Ordering::Relaxed) {
        in_order::remove(answer.headers_mut(), |name| name == SET_COOKIE);
    }
    note(&mut answer, status);
    Some(answer)
}

/// Returns whether an answer is the request's result. If the status says that nothing was done, or comes from a gateway
/// that cannot know, the request may be sent again.
fn is_result(head: &response::Parts) -> bool {
    const NONE: [StatusCode; 6] = [
        StatusCode::UNAUTHORIZED,
        StatusCode::FORBIDDEN,
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::CONFLICT,
        StatusCode::TOO_EARLY,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    let status = head.status;
    let failed = status.is_server_error() && status != StatusCode::INTERNAL_SERVER_ERROR;
    !failed && !status.is_informational() && !NONE.contains(&status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_tell_what_came_of_the_request_are_kept_and_others_are_not() {
        let is_result = |status: u16| is_result(&Response::builder().status(status).body(()).unwrap().into_parts().0);
        for status in [200, 201, 202, 204, 303, 400, 402, 404, 410, 422, 500] {
            assert!(is_result(status), "{status}");
        }
        for status in [401, 403, 408, 409, 425, 429, 501, 502, 503, 504, 520, 529] {
            assert!(!is_result(status), "{status}");
        }
    }
}
