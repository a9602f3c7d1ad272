//! Counts what became of each request, whichever way it ends; and ends it when it has taken too long.

use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll};

use http::{Method, Response};
use tower::{Service, service_fn};

use super::{
    body::Body,
    link::{Link, Phase},
    stack::{Call, Outcome},
    upstream::Route,
};
use crate::{
    error::{Blame, Error},
    metrics,
};

/// Counts the request unless it is dropped on the way, which is counted too.
struct Counted {
    route: Arc<Route>,
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
            let mut counted = Counted { route: call.route.clone(), ended: false };
            let link = call.link.clone();
            let mut outcome = pin!(inner.call(call));
            // The step that is at it may have more to say about what took too long.
            let outcome = poll_fn(|cx| match (outcome.as_mut().poll(cx), late(&link, &counted.route)) {
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

impl Drop for Counted {
    fn drop(&mut self) {
        if !self.ended {
            self.route.lane.metrics().count(metrics::Outcome::Left);
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
