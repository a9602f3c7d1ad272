//! Counts the outcome of each request, even if it is dropped, and ends a request that takes too long.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use http::{Method, Response, StatusCode, uri::PathAndQuery};
use tower::service_fn;
use tracing::warn;

use crate::{
    error::{Blame, Error},
    metrics,
    proxy::{
        call::{Answered, BoxedCall, Call, Step},
        client_aborts,
        exchange::Exchange,
        message::progress::Phase,
        outbound::{response_body::ResponseBody, route::Route},
        shown_url::without_secrets,
        steps::access_log::{self, SaidFields},
    },
};

/// Counts a request. A request that is dropped early is counted too.
struct CountedRequest {
    exchange: Arc<Exchange>,
    route: Arc<Route>,
    method: Method,
    path: Option<PathAndQuery>,
    /// Values of the worker. Boxed: present only if there is an access log.
    said: Option<Box<SaidFields>>,
    ended: bool,
}

/// Counts each request's outcome under its rule.
pub(crate) fn outcomes<S>(inner: S) -> impl Step<BoxedCall, Response<ResponseBody>>
where
    S: Step<BoxedCall, Response<ResponseBody>>,
{
    service_fn(move |call: BoxedCall| {
        let mut inner = inner.clone();
        async move {
            // A tunnel is counted when it ends, and not at all if the requests inside are counted: `tunnel` handles
            // that.
            let tunnel = call.request.method() == Method::CONNECT;
            let mut counted = CountedRequest::new(&call);
            let outcome = counted.in_time(pin!(inner.call(call))).await;
            counted.end(&outcome, tunnel);
            outcome
        }
    })
}

/// Error of the phase that took too long, if any.
pub(super) fn late(exchange: &Exchange, route: &Route) -> Option<Error> {
    let (origin, limits) = (|| route.origin.to_string(), &exchange.progress);
    match exchange.progress.phase() {
        Phase::LateUpload => Some(Error::Stalled { after: limits.idle() }),
        Phase::LateAnswer => Some(Error::AnswerTimeout { origin: origin(), after: limits.answer() }),
        Phase::CutOff => Some(Error::Draining { retry_after: Duration::from_secs(1) }),
        Phase::CutOffInFlight => Some(Error::CutOff { origin: origin() }),
        _ => None,
    }
}

// === impl CountedRequest ===

impl CountedRequest {
    fn new(call: &Call) -> Self {
        let (exchange, request) = (call.exchange.clone(), &call.request);
        Self {
            method: request.method().clone(),
            path: request.uri().path_and_query().cloned(),
            said: access_log::said(&exchange, request, &call.claim),
            route: call.route.clone(),
            exchange,
            ended: false,
        }
    }

    /// Polls the request's steps until a phase takes too long. Borrowed: if it were moved in, the future would be held
    /// twice.
    fn in_time(&self, mut step: Pin<&mut impl Future<Output = Answered>>) -> impl Future<Output = Answered> {
        // The step in progress may have a better error for a late phase.
        poll_fn(move |cx| match step.as_mut().poll(cx) {
            Poll::Pending => self.late().map_or(Poll::Pending, |error| Poll::Ready(Err(error))),
            polled => polled,
        })
    }

    fn late(&self) -> Option<Error> {
        late(&self.exchange, &self.route)
    }

    fn end(&mut self, outcome: &Answered, tunnel: bool) {
        self.ended = true;
        let lane = &self.route.lane;
        match outcome {
            Ok(answer) if tunnel => self.log(metrics::CallOutcome::Tunnelled, Some(answer.status())),
            Ok(answer) => {
                lane.metrics().answered(answer.status());
                lane.metrics().count(metrics::CallOutcome::Answered);
                if answer.status().is_server_error() {
                    lane.failed(format!("it answered {}", answer.status()));
                }
                self.log(metrics::CallOutcome::Answered, Some(answer.status()));
            }
            Err(error) => {
                lane.metrics().count(of_error(error));
                match error {
                    _ if error.blame() == Blame::Upstream => self.failed(error.with_causes()),
                    Error::Refused { .. } => self.refused(error),
                    _ => {}
                }
                self.log(of_error(error), Some(error.status()));
            }
        }
    }

    /// Counts a request that the upstream has failed for good.
    fn failed(&self, error: String) {
        let Self { exchange, route, .. } = self;
        let (proxy, rule) = (&exchange.proxy, &route.lane.policy().name);
        // A dead API may fail thousands of requests in a second.
        if let Some(more) = proxy.reports.failures.add(&route.origin.host, rule, &error, proxy.clock.now()) {
            warn!(
                method = self.method.as_str(),
                host = %route.origin.host,
                path = self.path().map(without_secrets).as_deref(),
                %rule,
                attempts = exchange.stats.attempts(),
                request_id = %exchange.request_id(),
                trace_id = exchange.trace().map(|trace| trace.id()),
                error,
                more_before = (more > 0).then_some(more),
                "an upstream failed"
            );
        }
        route.lane.failed(error);
    }

    /// Counts a request that andante has refused: no slot within the time that the request may wait, or no place in the
    /// queue.
    fn refused(&self, error: &Error) {
        let Self { exchange, route, .. } = self;
        let (proxy, rule) = (&exchange.proxy, &route.lane.policy().name);
        let text = error.with_causes();
        if let Some(more) = proxy.reports.refusals.add(&route.origin.host, rule, &text, proxy.clock.now()) {
            warn!(
                method = self.method.as_str(),
                host = %route.origin.host,
                path = self.path().map(without_secrets).as_deref(),
                %rule,
                status = error.status().as_u16(),
                request_id = %exchange.request_id(),
                trace_id = exchange.trace().map(|trace| trace.id()),
                error = text,
                hint = error.hint(),
                more_before = (more > 0).then_some(more),
                "andante refused a request"
            );
        }
    }

    fn log(&self, outcome: metrics::CallOutcome, status: Option<StatusCode>) {
        if let Some(trace) = self.exchange.trace() {
            trace.on_outcome(&self.route.lane.policy().name, outcome);
        }
        if !self.exchange.proxy.reports.access_log {
            return;
        }
        let line = access_log::AccessLine {
            method: Some(&self.method),
            host: Some(&self.route.origin.host),
            path: self.path(),
            rule: Some(&self.route.lane.policy().name),
            status,
            said: self.said.as_deref(),
            since: Some(self.exchange.stats.begun()),
        };
        line.write(&self.exchange, outcome);
    }

    /// Path without the query; a tunnel has none.
    fn path(&self) -> Option<&str> {
        self.path.as_ref().map(PathAndQuery::path)
    }

    /// Counts a request whose client has left.
    fn left(&self) {
        let Self { exchange, route, .. } = self;
        let lane = &route.lane;
        lane.metrics().count(metrics::CallOutcome::ClientLeft);
        let (now, queued) = (exchange.proxy.clock.now(), exchange.progress.phase() == Phase::Waiting);
        client_aborts::record(&exchange.proxy, lane, now.since(exchange.stats.begun()), queued);
    }
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        if !self.ended {
            self.left();
            self.log(metrics::CallOutcome::ClientLeft, None);
        }
    }
}

/// Outcome to count for a request that ended with `error`.
pub(crate) fn of_error(error: &Error) -> metrics::CallOutcome {
    match error.blame() {
        Blame::Client => metrics::CallOutcome::Rejected,
        Blame::Us => metrics::CallOutcome::Refused,
        Blame::Upstream => metrics::CallOutcome::Failed,
    }
}
