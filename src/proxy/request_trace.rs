//! The trace of one request: the context that its tries pass on, and, if recorded, the spans of the request, its waits
//! and its tries. Sends nothing: spans go to the [`Tracer`] as they end.
//!
//! The request's own span ends with the last owner of the trace: the step that answers, or the bodies of answers.

mod server_span;
mod try_span;

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri};
use parking_lot::Mutex;

pub(crate) use self::{
    server_span::Asked,
    try_span::{TryFacts, TrySpan},
};
use crate::{
    clock::{Clock, Instant},
    metrics::CallOutcome,
    proxy::{
        shown_url::{without_secrets, without_values},
        signatures,
    },
    trace::{Span, SpanKind, TraceContext, Tracer},
};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// A longer `tracestate` is passed on, but not kept in spans: more need not be kept (W3C Trace Context, §3.3.1.5).
const MAX_STATE_BYTES: usize = 512;

/// The trace of one request.
pub(crate) struct RequestTrace {
    tracer: Arc<Tracer>,
    clock: Clock,
    /// The context of the request's span.
    context: TraceContext,
    /// Treatment of the worker's own fields.
    fields: FieldPlan,
    /// Spans in progress, if the trace is sampled.
    recorded: Option<Mutex<Recorded>>,
}

/// Treatment of the worker's `traceparent` and `tracestate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldPlan {
    /// The API gets both unchanged: they are signed, or say already that nothing is recorded.
    Keep,
    /// The API gets another parent in the same trace, and the same state.
    Continue,
    /// The API gets a parent in another trace, and no state: the state belongs to the worker's trace.
    Restart,
}

struct Recorded {
    /// The request's own span. Submitted when the trace is dropped.
    span: Box<Span>,
    /// The current wait, until it ends.
    wait: Option<Box<Span>>,
}

/// Facts about a wait at its beginning.
pub(crate) struct WaitFacts {
    /// The rule whose limit is the bottleneck of the request, and that limit.
    pub(crate) rule: String,
    pub(crate) limit: String,
    /// Number of requests that are to leave first.
    pub(crate) ahead: u32,
    /// When the slot is expected; [`Instant::FAR`] if unknown.
    pub(crate) expected: Instant,
}

// === impl RequestTrace ===

impl RequestTrace {
    /// The trace of a `request` that came at `began`: a continued or a new one.
    pub(crate) fn begin<B>(
        tracer: &Arc<Tracer>,
        clock: Clock,
        began: Instant,
        request: &Request<B>,
        asked: Asked<'_>,
    ) -> Arc<Self> {
        let fields = request.headers();
        let parent = parent(fields);
        let context = tracer.begin(parent.as_ref());
        let plan = match &parent {
            // Even one that is malformed: the API checks its signature first.
            _ if fields.contains_key(TRACEPARENT) && signatures::cover(fields, request.uri(), &TRACEPARENT) => {
                FieldPlan::Keep
            }
            Some(parent) if !context.is_sampled() && !parent.is_sampled() => FieldPlan::Keep,
            Some(_) => FieldPlan::Continue,
            None => FieldPlan::Restart,
        };
        let recorded = context.is_sampled().then(|| {
            let state = parent.and_then(|_| state(fields));
            let span = Span {
                parent: parent.map(|parent| parent.span),
                state,
                ..server_span::of(context, began, request, asked)
            };
            Mutex::new(Recorded { span: Box::new(span), wait: None })
        });
        Arc::new(Self { tracer: tracer.clone(), clock, context, fields: plan, recorded })
    }

    /// The context of the request's span.
    pub(crate) fn context(&self) -> &TraceContext {
        &self.context
    }

    /// The trace's id, for logs.
    pub(crate) fn id(&self) -> String {
        self.context.trace.to_string()
    }

    /// Returns whether the trace is recorded.
    pub(crate) fn is_recorded(&self) -> bool {
        self.recorded.is_some()
    }

    /// Records the outcome of the request under the rule of its lane.
    pub(crate) fn on_outcome(&self, rule: &str, outcome: CallOutcome) {
        self.note(|span| {
            span.note("andante.rule", rule.to_owned());
            span.note("andante.outcome", outcome.as_str());
        });
    }

    /// Records the status of the answer, and its error if the answer is andante's own.
    pub(crate) fn on_answer(&self, status: http::StatusCode, error: Option<&'static str>) {
        if error.is_some() {
            self.on_wait_end(self.clock.now(), "refused");
        }
        self.note(|span| {
            span.note("http.response.status_code", status.as_u16());
            // A server's span has failed if the server is at fault; 4xx is the client's fault.
            if status.is_server_error() {
                span.failure = Some("".into());
            }
            if error.is_some() || status.is_server_error() {
                span.note("error.type", error.map_or_else(|| status.as_str().to_owned(), str::to_owned));
            }
        });
    }

    /// Drops the trace of a tunnel whose requests are traced themselves.
    pub(crate) fn forget(&self) {
        self.note(|span| span.context.flags = 0);
    }

    fn note(&self, note: impl FnOnce(&mut Span)) {
        if let Some(recorded) = &self.recorded {
            note(&mut recorded.lock().span);
        }
    }

    /// Records that a wait has begun at `now`.
    pub(crate) fn on_wait(&self, now: Instant, facts: WaitFacts) {
        let Some(recorded) = &self.recorded else { return };
        let WaitFacts { rule, limit, ahead, expected } = facts;
        let mut span = self.child("wait for slot", SpanKind::Internal, now);
        span.note("andante.rule", rule);
        span.note("andante.wait.limit", limit);
        span.note("andante.wait.position", ahead);
        if expected != Instant::FAR {
            span.note("andante.wait.predicted", expected.since(now).as_secs_f64());
        }
        recorded.lock().wait = Some(Box::new(span));
    }

    /// Records that the wait has ended at `now`, with this `outcome`: `sent`, `refused` or `left`.
    pub(crate) fn on_wait_end(&self, now: Instant, outcome: &'static str) {
        let wait = self.recorded.as_ref().and_then(|recorded| recorded.lock().wait.take());
        if let Some(mut span) = wait {
            span.note("andante.wait.actual", now.since(span.began).as_secs_f64());
            span.note("andante.wait.outcome", outcome);
            span.ended = now;
            self.tracer.submit(*span);
        }
    }

    /// Records that the request has waited between two tries, from `began` until `now`, because of `reason`.
    pub(crate) fn on_back_off(&self, began: Instant, now: Instant, reason: &'static str) {
        if self.is_recorded() {
            let mut span = self.child("back off", SpanKind::Internal, began);
            span.note("andante.retry.reason", reason);
            span.ended = now;
            self.tracer.submit(span);
        }
    }

    /// Names the span `context` to the API as its parent.
    fn pass_on(&self, fields: &mut HeaderMap, context: &TraceContext) {
        if self.fields == FieldPlan::Keep {
            return;
        }
        if self.fields == FieldPlan::Restart {
            fields.remove(TRACESTATE);
        }
        let value = HeaderValue::from_bytes(&context.to_field()).expect("digits and hyphens");
        fields.insert(TRACEPARENT, value);
    }

    /// A span within the request's span.
    fn child(&self, name: &'static str, kind: SpanKind, began: Instant) -> Span {
        Span::begin(Tracer::within(&self.context), Some(self.context.span), kind, name, began)
    }
}

impl Drop for RequestTrace {
    fn drop(&mut self) {
        if !self.is_recorded() {
            return;
        }
        let now = self.clock.now();
        self.on_wait_end(now, "left");
        if let Some(recorded) = self.recorded.take() {
            let mut span = recorded.into_inner().span;
            span.ended = now;
            if span.context.is_sampled() {
                self.tracer.submit(*span);
            }
        }
    }
}

/// The context that a request brings, if it is valid.
fn parent(fields: &HeaderMap) -> Option<TraceContext> {
    let mut values = fields.get_all(TRACEPARENT).iter();
    let parent = TraceContext::parse(values.next()?.as_bytes().trim_ascii()).ok()?;
    values.next().is_none().then_some(parent)
}

fn state(fields: &HeaderMap) -> Option<Box<str>> {
    let values: Vec<&str> = fields.get_all(TRACESTATE).iter().filter_map(|value| value.to_str().ok()).collect();
    let state = values.join(",");
    (!state.is_empty() && state.len() <= MAX_STATE_BYTES).then(|| state.into())
}

/// The URL of an API's resource as a span may show it.
fn full_url(scheme: &str, authority: &str, uri: &Uri) -> String {
    let query = uri.query().map(|query| format!("?{}", without_values(query))).unwrap_or_default();
    format!("{scheme}://{authority}{}{query}", without_secrets(uri.path()))
}
