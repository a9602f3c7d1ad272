//! Waits in the lane for a slot.

use std::{sync::Arc, time::Duration};

use http::Method;
use tower::{Service, service_fn};

use crate::{
    clock::Instant,
    error::Error,
    lane::{Admission, AdmitRequest, Permit, order::Turn},
    learn::RouteKey,
    proxy::{
        call::{Admitted, Call},
        exchange::Exchange,
        message::progress::Phase,
        outbound::route::Route,
        steps::{credential, retry::attempt::AttemptOutcome},
    },
};

/// How long before its slot a connection is made ready for a request that waits.
const WARM_UP: Duration = Duration::from_millis(500);

/// Up to this try a request goes in front of those who have not been sent yet. What is refused once more may be to blame
/// itself: another one tries then whether a gate may open.
const FAVOURED: u32 = 2;

/// Slots may be a little late: who was let in because his slot matures in time is not sent away for that.
const GRACE: Duration = Duration::from_millis(500);

/// Lets each request pass when its lane has a slot for it.
pub(crate) fn for_a_slot<S>(
    inner: S,
) -> impl Service<Call, Response = AttemptOutcome, Error = Error, Future: Send> + Clone + Send + 'static
where
    S: Service<Admitted, Response = AttemptOutcome, Error = Error, Future: Send> + Clone + Send + 'static,
{
    service_fn(move |call: Call| {
        let mut inner = inner.clone();
        async move {
            let (route, request) = (&call.route, &call.request);
            // What is refused again and again does not stand in the way of others for ever.
            let favoured = call.retry.as_ref().is_some_and(|retry| retry.attempt <= FAVOURED);
            let turn = if favoured { Turn::Resent } else { Turn::New };
            let kind = match *request.method() {
                // What is inside of a tunnel is unknown.
                Method::CONNECT => RouteKey::NONE,
                _ => RouteKey::new(request.method().as_str(), request.uri().path())
                    .with_credential(credential::hash(request.headers())),
            };
            let ask = AdmitRequest { cost: call.cost, kind, claim: call.claim, deadline: call.deadline, turn };
            // Tunnels make connections of their own.
            let warms = *request.method() != Method::CONNECT;
            let (permit, waited) = wait(&call.exchange, route, route.lane.admit(ask), call.deadline, warms).await?;
            inner.call(Admitted { call, permit, waited }).await
        }
    })
}

/// Waits until `deadline` for the permit that the lane of `route` has promised; `warms` says that a connection is to be
/// ready then. Also says how long that took.
pub(crate) async fn wait(
    exchange: &Exchange,
    route: &Arc<Route>,
    admission: Admission,
    deadline: Instant,
    warms: bool,
) -> Result<(Permit, Duration), Error> {
    let waiting = match admission {
        Admission::Send(permit) => return Ok((permit, Duration::ZERO)),
        Admission::Wait(waiting) => waiting,
        Admission::Refuse(refusal) => {
            return Err(Error::Refused {
                host: route.origin.host.to_string(),
                why: refusal.to_string(),
                retry_after: refusal.retry_after(),
            });
        }
    };
    let clock = exchange.proxy.clock;
    let since = clock.now();
    exchange.progress.enter_until(Phase::Waiting, deadline + GRACE);
    if warms {
        warm_for(route, waiting.expected);
    }
    let record = WaitRecord { exchange, since };
    let permit = waiting.await;
    drop(record);
    exchange.progress.awaits_answer();
    let now = clock.now();
    if warms {
        // The next one's connection, if it is so far off that ours will not be kept until then.
        let others = route.lane.queue_status();
        if others.waiting > 0 && others.next_slot.since(now) > WARM_UP {
            warm_for(route, others.next_slot);
        }
    }
    Ok((permit, now.since(since)))
}

/// Notes how long a request has waited, though its client leave.
struct WaitRecord<'a> {
    exchange: &'a Exchange,
    since: Instant,
}

impl Drop for WaitRecord<'_> {
    fn drop(&mut self) {
        self.exchange.stats.waited(self.exchange.proxy.clock.now().since(self.since));
    }
}

/// Sees to it that a connection is ready when the slot is: a set-up after it would be the largest jitter of all.
fn warm_for(route: &Arc<Route>, slot: Instant) {
    if slot != Instant::FAR {
        route.warm(slot - WARM_UP);
    }
}
