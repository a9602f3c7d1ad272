//! Lets identical requests share one call, if the rule asks for it.
//!
//! The call runs in a task of its own, with an exchange of its own, and belongs to no worker. `key` decides which
//! requests are identical, and which answers are for all of them; [`sharing`](crate::proxy::sharing) keeps the members
//! of calls.

mod key;

use std::{pin::pin, sync::Arc, time::Duration};

use http::{Method, Response};
use http_body::Body as _;

use super::{
    shared_call::{self, note},
    whole_body,
};
use crate::{
    lane::order::Turn,
    metrics::Saving,
    proxy::{
        call::{Answered, BoxedCall, Call, Step},
        message::{request_body::copy_without_body, server_timing, shared_body::SharedBody},
        outbound::response_body::ResponseBody,
        request_stats::Wait,
        sharing::{CallMember, Candidate, SharedAnswer, SharedCalls, SharedOutcome},
    },
};

/// Outcome of a shared call for one request.
enum Followed {
    /// An answer, or the request's own error.
    Ended(Answered),
    /// No answer, but the request may share another call.
    Rejoin,
    /// No answer: the request continues alone.
    Alone,
}

/// Ends the sharing of the origin's earlier answers when a request is over that may have changed something.
pub(super) struct OriginChange {
    sharing: Arc<SharedCalls>,
    origin: u64,
}

/// Shares one call between `call` and identical requests.
pub(super) async fn share<S>(mut inner: S, mut call: BoxedCall) -> Answered
where
    S: Step<BoxedCall, Response<ResponseBody>>,
{
    let (sharing, clock) = (call.exchange.proxy.sharing.clone(), call.exchange.proxy.clock);
    if let Some(_change) = OriginChange::of(&call) {
        return inner.call(call).await;
    }
    if *call.request.method() == Method::QUERY {
        whole_body::read(&mut call).await?;
    }
    let origin = key::origin(&call.route.origin);
    let Some(key) = key::of(&call, origin).filter(|key| !sharing.is_alone(*key, clock.now())) else {
        return inner.call(call).await;
    };
    // A request whose call failed tries another one once, and then continues alone.
    for _ in 0..2 {
        let (member, candidate) = sharing.join(key, call.claim);
        if let Some(candidate) = candidate {
            let exchange = shared_call::exchange(&call, candidate.clone());
            let mut request = Box::new(copy_without_body(&call.request, exchange.progress.clone()));
            *request.body_mut() = call.request.body().copy(exchange.progress.clone());
            let shared = shared_call::of(&call, request, exchange);
            let task = tokio::spawn(run(inner.clone(), shared, candidate.clone()));
            candidate.runs_in(task.abort_handle());
        }
        match follow(&call, member).await {
            Followed::Ended(answered) => return answered,
            Followed::Rejoin => call.turn = Turn::Resent,
            Followed::Alone => {
                sharing.set_alone(key, clock.now());
                break;
            }
        }
    }
    // The request has waited as long as earlier ones of its flow.
    call.turn = Turn::Resent;
    call.exchange.progress.awaits_answer();
    let mut answer = inner.call(call).await?;
    note(&mut answer, "andante; fwd=miss; collapsed=?0");
    Ok(answer)
}

/// Runs `call`, and hands its outcome to the requests that share it.
async fn run<S>(mut inner: S, call: BoxedCall, candidate: Arc<Candidate>)
where
    S: Step<BoxedCall, Response<ResponseBody>>,
{
    let (exchange, route) = (call.exchange.clone(), call.route.clone());
    let (head, body) = match shared_call::watched(&exchange, &route, pin!(inner.call(call))).await {
        Ok(answer) => answer.into_parts(),
        Err(error) => return candidate.failed(error),
    };
    let size = body.size_hint();
    let for_all = key::is_for_all(&head, &size);
    let shared = SharedBody::new(size, exchange.proxy.sharing.memory.clone(), exchange.charge());
    candidate.answered(SharedAnswer { head, body: shared.clone(), tries: shared_call::tries(&exchange), for_all });
    let end = shared_call::pump_while_read(body, &shared, &exchange).await;
    // No request may join a call that is over.
    candidate.ended();
    shared.finish(end);
}

/// Waits for the outcome of the call that `member` shares, for as long as `call` may wait.
async fn follow(call: &Call, mut member: CallMember) -> Followed {
    let (outcome, waited) = match shared_call::outcome(call, &mut member).await {
        Ok(outcome) => outcome,
        Err(error) => return Followed::Ended(Err(error)),
    };
    match outcome {
        SharedOutcome::Answer(answer) => match read(call, member, &answer, waited) {
            Some(answer) => Followed::Ended(Ok(answer)),
            None => Followed::Alone,
        },
        SharedOutcome::Error(error) => Followed::Ended(Err(error)),
        SharedOutcome::Rejoin => Followed::Rejoin,
        SharedOutcome::Alone => Followed::Alone,
    }
}

/// The answer as the worker of `call` gets it; `None` if its beginning is gone already.
fn read(call: &Call, member: CallMember, shared: &SharedAnswer, waited: Duration) -> Option<Response<ResponseBody>> {
    let elected = member.is_elected();
    let reader = shared.body.reader(call.exchange.progress.clone(), member)?;
    call.exchange.progress.moves();
    let mut answer = Response::from_parts(shared.head.clone(), ResponseBody::Shared(Box::new(reader)));
    if elected {
        call.exchange.stats.add_tries_of(&shared.tries);
        note(&mut answer, "andante; fwd=miss");
    } else {
        // Forecasts of the call's wait are only in the answer to the request that was sent.
        server_timing::set(answer.headers_mut(), Wait { time: waited, ..Wait::default() });
        call.route.lane.metrics().saved(Saving::Coalesced);
        note(&mut answer, "andante; fwd=miss; collapsed");
    }
    Some(answer)
}

// === impl OriginChange ===

impl OriginChange {
    /// The change that `call` may make, if its method is unsafe and its rule lets requests share calls.
    pub(super) fn of(call: &Call) -> Option<Self> {
        let shares = call.route.lane.policy().coalesce && !call.request.method().is_safe();
        shares.then(|| Self { sharing: call.exchange.proxy.sharing.clone(), origin: key::origin(&call.route.origin) })
    }
}

impl Drop for OriginChange {
    fn drop(&mut self) {
        self.sharing.changed(self.origin);
    }
}
