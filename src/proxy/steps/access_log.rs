//! The access log: a line for each request, once it is known what becomes of it. Written only if it is wanted.

use std::borrow::Cow;

use http::{HeaderValue, Method, Request, StatusCode};
use tracing::info;

use crate::{
    clock::Instant,
    error::beginning,
    lane::order::{Claim, FlowId, Urgency},
    metrics::CallOutcome,
    proxy::{exchange::Exchange, shown_url::without_secrets},
};

/// The target of the lines, by which they are told from the rest of the log.
pub const ACCESS: &str = "access";
/// What workers call their requests, if they do. Passed on as it is.
const WORKERS_ID: &str = "x-request-id";
/// Longer ids of clients are not logged.
const LONGEST_ID: usize = 128;
/// Longer paths, hosts and methods are cut: lines in the queue take memory, and a head may have 64 KiB.
const MAX_SHOWN_BYTES: usize = 2 * 1024;

/// What there is to say of a request besides its [`RequestStats`](crate::proxy::request_stats::RequestStats).
#[derive(Clone, Copy, Default)]
pub(crate) struct AccessLine<'a> {
    pub(crate) method: Option<&'a Method>,
    pub(crate) host: Option<&'a str>,
    /// Without its query.
    pub(crate) path: Option<&'a str>,
    /// `None` if it never got as far as that.
    pub(crate) rule: Option<&'a str>,
    /// `None` if its worker left before that.
    pub(crate) status: Option<StatusCode>,
    /// What the worker says of it.
    pub(crate) said: Option<&'a SaidFields>,
    /// When it arrived; `None` is now.
    pub(crate) since: Option<Instant>,
}

/// What a worker says of its request, for when that is gone.
#[derive(Clone, Default)]
pub(crate) struct SaidFields {
    /// What it calls the request.
    id: Option<HeaderValue>,
    /// In which flow of its client the request waits, and how urgently.
    flow: FlowId,
    urgency: Urgency,
}

/// What the worker says of its request, which claims its turn by `claim`, if the access log wants to know.
pub(crate) fn said<B>(exchange: &Exchange, request: &Request<B>, claim: &Claim) -> Option<Box<SaidFields>> {
    exchange.proxy.reports.access_log.then(|| {
        let id = request.headers().get(WORKERS_ID).cloned();
        Box::new(SaidFields { id, flow: claim.flow, urgency: claim.urgency })
    })
}

/// A request that ends before it has a lane.
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
    /// Writes it, if that is wanted.
    pub(crate) fn write(self, exchange: &Exchange, outcome: CallOutcome) {
        if !exchange.proxy.reports.access_log {
            return;
        }
        let Self { method, host, path, rule, status, said, since } = self;
        let now = exchange.proxy.clock.now();
        // Cut when its secrets are gone: what marks a password may come behind it.
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
            waited_s = account.waiting_time().as_secs_f64(),
            upstream_s = account.upstream_time().as_secs_f64(),
            took_s = now.since(since.unwrap_or(now)).as_secs_f64(),
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
