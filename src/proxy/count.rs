//! Counts what became of each request, whichever way it ends; and ends it when it has taken too long.

use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll, time::Duration};

use http::{Method, Response};
use tower::{Service, service_fn};
use tracing::warn;

use super::{
    body::Body,
    link::{Link, Phase},
    notices::Notice,
    stack::{Call, Outcome},
    upstream::Route,
};
use crate::{
    clock::Instant,
    error::{Blame, Error},
    metrics,
};

/// Counts the request unless it is dropped on the way, which is counted too.
struct Counted {
    link: Arc<Link>,
    route: Arc<Route>,
    since: Instant,
    ended: bool,
}

/// Counts each request's outcome under its rule.
pub(super) fn outcomes<S>(
    inner: S,
) -> impl Service<Call, Response = Response<Body>, Error = Error, Future: Send> + Clone + Send + 'static
where
    S: Service<Call, Response = Response<Body>, Error = Error, Future: Send> + Clone + Send + 'static,
{
    service_fn(move |call: Call| {
        let mut inner = inner.clone();
        async move {
            // A tunnel is counted when it ends, and not at all if what is inside of it is: `tunnel` sees to that.
            let tunnel = call.request.method() == Method::CONNECT;
            let (link, route) = (call.link.clone(), call.route.clone());
            let since = link.proxy.clock.now();
            let mut counted = Counted { link, route, since, ended: false };
            let mut outcome = pin!(inner.call(call));
            // The step that is at it may have more to say about what took too long.
            let outcome = poll_fn(|cx| match (outcome.as_mut().poll(cx), late(&counted.link, &counted.route)) {
                (Poll::Pending, Some(error)) => Poll::Ready(Err(error)),
                (polled, _) => polled,
            })
            .await;
            counted.end(&outcome, tunnel);
            outcome
        }
    })
}

/// What took too long, if something did.
fn late(link: &Link, route: &Route) -> Option<Error> {
    let (origin, limits) = (|| route.origin.to_string(), &link.proxy.timeouts);
    match link.phase() {
        Phase::LateUpload => Some(Error::Stalled { after: limits.idle }),
        Phase::LateAnswer => Some(Error::AnswerTimeout { origin: origin(), after: limits.answer }),
        Phase::CutOff => Some(Error::Draining),
        _ => None,
    }
}

impl Counted {
    fn end(&mut self, outcome: &Outcome, tunnel: bool) {
        self.ended = true;
        let metrics = self.route.lane.metrics();
        match outcome {
            Ok(_) if tunnel => {}
            Ok(answer) => {
                metrics.answered(answer.status());
                metrics.count(metrics::Outcome::Answered);
            }
            Err(error) => metrics.count(of_error(error)),
        }
    }
}

impl Counted {
    /// Its client has left. Clients that keep doing so after the same time have a time-out that is too short for the
    /// queue, and nobody sees that but us.
    fn left(&self) {
        let Self { link, route, .. } = self;
        let (proxy, lane) = (&link.proxy, &route.lane);
        lane.metrics().count(metrics::Outcome::Left);
        let (now, queued) = (proxy.clock.now(), link.phase() == Phase::Waiting);
        let Some(usual) = lane.departures().record(now, now.since(self.since), queued) else { return };
        if proxy.notices.is_due(Notice::Departures, lane.host(), now) {
            let (host, rule, stats) = (lane.host(), &lane.policy().name, lane.departures().stats());
            warn!(
                %host, %rule, after = ?Duration::from_millis(usual.as_millis() as u64), left = stats.total,
                in_queue = stats.queued,
                "clients keep leaving before their answer, most of them after the same time: probably a time-out of their \
                 own; raise it in the client (docs/troubleshooting.md names the usual ones), or send fewer requests at once"
            );
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if !self.ended {
            self.left();
        }
    }
}

/// How a request that ended with `error` is counted.
pub(super) fn of_error(error: &Error) -> metrics::Outcome {
    match error.blame() {
        Blame::Client => metrics::Outcome::Rejected,
        Blame::Us => metrics::Outcome::Refused,
        Blame::Upstream => metrics::Outcome::Failed,
    }
}
