//! Waits in the lane for a slot.

use std::{
    future::{pending, poll_fn},
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use http::Method;
use tower::service_fn;

use crate::{
    clock::Instant,
    error::Error,
    lane::{Admission, AdmitRequest, Bottleneck, Lane, Permit, Refusal, Waiting},
    proxy::{
        call::{Admitted, BoxedCall, Call, Step},
        exchange::Exchange,
        message::progress::Phase,
        outbound::route::Route,
        request_stats::Wait,
        request_trace::WaitFacts,
        steps::{
            ask::{self, Asking},
            costs::SeenBody,
            credential, draws, look,
            retry::{self, attempt::AttemptOutcome},
            tunnel,
        },
    },
};

/// Time before a slot at which a connection is made for the request that waits for it.
const WARM_UP: Duration = Duration::from_millis(500);

/// Passes each request on when its lane has a slot for it.
pub(crate) fn for_a_slot<S>(inner: S) -> impl Step<BoxedCall, AttemptOutcome>
where
    S: Step<Admitted, AttemptOutcome>,
{
    service_fn(move |mut call: BoxedCall| {
        let mut inner = inner.clone();
        async move {
            if let Some(most) = look::wants(&call) {
                // Boxed: rare, and every request would carry its size.
                Box::pin(look::at_body(&mut call, most)).await?;
                call.now = None;
            }
            if tunnel::is_by_turns(&call) {
                demand(&call)?;
                // Boxed: rare, and every request would carry its size.
                return Box::pin(tunnel::open_by_turns(call)).await.map(AttemptOutcome::Done);
            }
            // Tunnels make connections of their own.
            let warms = *call.request.method() != Method::CONNECT;
            // Without an await: a lane's decision is larger than a waiting ticket, and would be kept beside it.
            let now = call.now.unwrap_or_else(|| call.exchange.proxy.clock.now());
            let admission = match admit(&call, now, demand(&call)?) {
                Admission::Send(permit) => Ok(send(&mut inner, call, permit, Wait::default(), Some(now))),
                Admission::Wait(waiting) => Err((call, waiting)),
                Admission::Refuse(refusal) => return Err(call.route.refused(&refusal)),
            };
            let sending = match admission {
                Ok(sending) => sending,
                Err((call, mut waiting)) => {
                    let (permit, wait) = wait(&call.exchange, &call.route, &mut waiting, call.deadline, warms).await?;
                    send(&mut inner, call, permit, wait, None)
                }
            };
            match sending {
                Some(sending) => sending.await,
                None => pending().await,
            }
        }
    })
}

/// The demand of `call` on its lane.
fn demand(call: &Call) -> Result<AdmitRequest, Error> {
    let (route, request) = (&call.route, &call.request);
    let asking = Asking {
        lane: &route.lane,
        added: &route.added,
        claim: call.claim,
        cost: call.cost,
        credential: if call.anonymous { 0 } else { credential::hash(request.headers()) },
        body: SeenBody::unread(request.body()),
        turn: call.turn,
        deadline: call.deadline,
        port: route.origin.port,
    };
    ask::of(request, asking)
}

/// Asks the lane of `call` for a slot, and adds the bottleneck to its trace, if recorded. Nothing of this is kept while
/// the request waits.
fn admit(call: &Call, now: Instant, ask: AdmitRequest) -> Admission {
    let lane = &call.route.lane;
    draws::count(&call.route.added, &ask.draws);
    let Some(trace) = call.exchange.trace().filter(|trace| trace.is_recorded()) else { return lane.admit_at(now, ask) };
    let asked = ask.clone();
    let admission = lane.admit_at(now, ask);
    if let Admission::Wait(waiting) = &admission {
        let Bottleneck { rule, limit } = lane.bottleneck(&asked);
        trace.on_wait(now, WaitFacts { rule, limit, ahead: waiting.ahead, expected: waiting.expected });
    }
    admission
}

/// Passes on a request that has its permit. `now` is the time if nothing was waited for since. `None` if another
/// request was sent for the shared call: the task of this one is being aborted.
fn send<S>(inner: &mut S, call: BoxedCall, permit: Permit, wait: Wait, now: Option<Instant>) -> Option<S::Future>
where
    S: Step<Admitted, AttemptOutcome>,
{
    let elected = call.exchange.elect();
    elected.then(|| inner.call(Admitted { call, permit, wait, now }))
}

/// Waits until `deadline` for the permit that the lane of `route` has promised, and returns it with the facts of the
/// wait. `warms` says that a connection is to be ready then. An error means that the request was refused: it was
/// evicted from a full queue, for instance.
///
/// Not an `async fn`, and the ticket is borrowed: an `async fn` holds its arguments twice while it waits. Values that
/// are not needed after the wait are not kept at all.
pub(crate) fn wait<'a>(
    exchange: &'a Exchange,
    route: &'a Arc<Route>,
    waiting: &'a mut Waiting,
    deadline: Instant,
    warms: bool,
) -> impl Future<Output = Result<(Permit, Wait), Error>> + Send + 'a {
    let record = WaitRecord { exchange, since: exchange.proxy.clock.now() };
    let (expected, ahead) = (waiting.expected, waiting.ahead);
    exchange.progress.enter_until(Phase::Waiting, retry::patience_ends(deadline, expected));
    exchange.awaits_slot(expected);
    if warms {
        warm_for(route, expected);
    }
    async move {
        let granted = poll_fn(|cx| match Pin::new(&mut *waiting).poll(cx) {
            Poll::Pending if record.exchange.progress.phase() == Phase::LateWaiting => {
                waiting.give_up().map_or(Poll::Pending, |refusal| Poll::Ready(Err(refusal)))
            }
            polled => polled,
        });
        let permit = granted.await.map_err(|refusal| refused(record.exchange, route, &refusal));
        let WaitRecord { exchange, since } = record;
        trace_wait_end(exchange, route, since, permit.is_ok());
        drop(record);
        let permit = permit?;
        exchange.progress.awaits_answer();
        let now = exchange.proxy.clock.now();
        if exchange.shared.is_none() {
            stayed(&route.lane, now.since(exchange.stats.begun()));
        }
        if warms {
            // The connection for the next slot, if that slot is too far off to keep this request's connection until
            // then.
            let others = route.lane.queue_status();
            if others.waiting > 0 && others.next_slot.since(now) > WARM_UP {
                warm_for(route, others.next_slot);
            }
        }
        let expected = (expected != Instant::FAR).then(|| expected.since(since));
        Ok((permit, Wait { time: now.since(since), expected, ahead }))
    }
}

/// Records in the trace of a request that its wait `since` then is over, and whether it is `sent`.
fn trace_wait_end(exchange: &Exchange, route: &Route, since: Instant, sent: bool) {
    let Some(trace) = exchange.trace() else { return };
    let now = exchange.proxy.clock.now();
    trace.on_wait_end(now, if sent { "sent" } else { "refused" });
    if sent && trace.is_recorded() {
        let (waits, at) = (&route.lane.metrics().wait_seconds, exchange.proxy.clock.time_of_day());
        waits.exemplify(now.since(since), *trace.context(), at);
    }
}

/// The error of a request that its lane refuses. In a drain the reason is the drain, not the lane's limits.
fn refused(exchange: &Exchange, route: &Route, refusal: &Refusal) -> Error {
    let drain = &exchange.proxy.drain;
    if !drain.is_draining() || matches!(refusal, Refusal::DroppedByOperator | Refusal::HandedOver) {
        return route.refused(refusal);
    }
    // The next process begins when this one has ended.
    Error::Draining { retry_after: drain.cut_off().since(exchange.proxy.clock.now()) }
}

/// Records that the client of a request has `waited` until its slot.
pub(crate) fn stayed(lane: &Lane, waited: Duration) {
    if lane.policy().learns_patience {
        lane.departures().stayed(waited);
    }
}

/// Records the time that a request has waited, even if its client leaves.
struct WaitRecord<'a> {
    exchange: &'a Exchange,
    since: Instant,
}

impl Drop for WaitRecord<'_> {
    fn drop(&mut self) {
        self.exchange.stats.waited(self.exchange.proxy.clock.now().since(self.since));
    }
}

/// Makes a connection ready for the slot: a set-up after it would be the largest jitter of all.
fn warm_for(route: &Arc<Route>, slot: Instant) {
    if slot != Instant::FAR {
        route.warm(slot - WARM_UP);
    }
}
