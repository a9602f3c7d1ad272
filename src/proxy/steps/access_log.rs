//! The access log: a line for each request, written once its outcome is known, if the log is on.

use std::borrow::Cow;

use http::{HeaderValue, Method, Request, StatusCode};
use tracing::info;

use crate::{
    clock::{Instant, log_seconds},
    error::beginning,
    lane::order::{Claim, FlowId, Urgency},
    metrics::CallOutcome,
    proxy::{exchange::Exchange, shown_url::without_secrets},
};

/// Target of the lines, which distinguishes them from the rest of the log.
pub const ACCESS: &str = "access";
/// Field with a worker's own id of its request. The field is passed on unchanged.
const WORKERS_ID: &str = "x-request-id";
/// Longer ids of clients are not logged.
const LONGEST_ID: usize = 128;
/// Longer paths, hosts and methods are cut: lines in the queue take memory, and a head may have 64 KiB.
const MAX_SHOWN_BYTES: usize = 2 * 1024;

/// Facts about a request besides its [`RequestStats`](crate::proxy::request_stats::RequestStats).
#[derive(Clone, Copy, Default)]
pub(crate) struct AccessLine<'a> {
    pub(crate) method: Option<&'a Method>,
    pub(crate) host: Option<&'a str>,
    /// Path without its query.
    pub(crate) path: Option<&'a str>,
    /// `None` if the request never had a rule.
    pub(crate) rule: Option<&'a str>,
    /// `None` if the worker left before there was a status.
    pub(crate) status: Option<StatusCode>,
    /// Values that the worker has sent.
    pub(crate) said: Option<&'a SaidFields>,
    /// Time of arrival; `None` is now.
    pub(crate) since: Option<Instant>,
}

/// Values that a worker sends with its request, kept after the request is gone.
#[derive(Clone, Default)]
pub(crate) struct SaidFields {
    /// The worker's own id of the request.
    id: Option<HeaderValue>,
    /// The flow of the client in which the request waits, and its urgency.
    flow: FlowId,
    urgency: Urgency,
}

/// Values that the worker has sent with the request, whose claim is `claim`, if the access log is on.
pub(crate) fn said<B>(exchange: &Exchange, request: &Request<B>, claim: &Claim) -> Option<Box<SaidFields>> {
    exchange.proxy.reports.access_log.then(|| {
        let id = request.headers().get(WORKERS_ID).cloned();
        Box::new(SaidFields { id, flow: claim.flow, urgency: claim.urgency })
    })
}

/// Logs a request that ends before it has a lane.
pub(crate) fn without_lane<B>(exchange: &Exchange, request: &Request<B>, outcome: CallOutcome, status: StatusCode) {
    let uri = request.uri();
    AccessLine {
        method: Some(request.method()),
        host: uri.host(),
        path: Some(uri.path()).filter(|_| request.method() != Method::CONNECT),
        status: Some(status),
        said: Some(&SaidFields { id: request.headers().get(WORKERS_ID).cloned(), ..SaidFields::default() }),
        ..AccessLine::default()
    }
    .write(exchange, outcome);
}

// === impl AccessLine ===

impl AccessLine<'_> {
    /// Writes the line, if the access log is on.
    pub(crate) fn write(self, exchange: &Exchange, outcome: CallOutcome) {
        if !exchange.proxy.reports.access_log {
            return;
        }
        let Self { method, host, path, rule, status, said, since } = self;
        let now = exchange.proxy.clock.now();
        // The path is cut after its secrets are removed: the mark of a password may come behind it.
        let path = path.map(|path| cut(without_secrets(path)));
        let (method, host) = (method.map(|method| cut(method.as_str().into())), host.map(|host| cut(host.into())));
        let (account, trace) = (&exchange.stats, exchange.trace());
        let waits = said.filter(|_| rule.is_some());
        info!(
            target: ACCESS,
            client = %exchange.session.address,
            method = method.as_deref(),
            host = host.as_deref(),
            path = path.as_deref(),
            status = status.map(|status| status.as_u16()),
            outcome = outcome.as_str(),
            rule = rule.unwrap_or("none"),
            flow = waits.filter(|said| said.flow != FlowId::default()).map(|said| said.flow.shown()),
            urgency = waits.map(|said| said.urgency.get()),
            waited_s = log_seconds(account.waiting_time()),
            upstream_s = log_seconds(account.upstream_time()),
            took_s = log_seconds(now.since(since.unwrap_or(now))),
            attempts = account.attempts(),
            request_id = %exchange.request_id(),
            trace_id = trace.as_ref().map(|trace| trace.id()),
            span_id = trace.as_ref().map(|trace| trace.context().span.to_string()),
            x_request_id = said.and_then(|said| said.id.as_ref()?.to_str().ok()).filter(|id| id.len() <= LONGEST_ID),
            "request"
        );
    }
}

/// `text`, or its beginning if it is too long for a line.
fn cut(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.len() <= MAX_SHOWN_BYTES {
        return text;
    }
    format!("{}…", beginning(&text, MAX_SHOWN_BYTES)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_is_cut_between_two_characters() {
        assert_eq!(cut("/short".into()), "/short");
        let long = format!("/{}", "ü".repeat(MAX_SHOWN_BYTES));
        let shown = cut(Cow::Borrowed(&long));
        assert!(shown.ends_with("ü…") && shown.len() <= MAX_SHOWN_BYTES + "…".len(), "{}", shown.len());
    }
}
