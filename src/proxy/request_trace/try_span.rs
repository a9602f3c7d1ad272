//! The span of one try, by the semantic conventions for HTTP clients
//! (<https://opentelemetry.io/docs/specs/semconv/http/http-spans/#http-client>).

use std::{sync::Arc, time::Duration};

use http::{Request, StatusCode, Version};

use super::{
    RequestTrace, full_url,
    server_span::{OTHER, method, note_method, version},
};
use crate::{
    error::{BoxError, Error, in_one_line},
    lane::Usage,
    limit::Unit,
    metrics::{Durations, RetryReason},
    policy::{Origin, UsageSource},
    trace::{Span, SpanKind},
};

/// A recorded try. Its span ends when this is dropped.
pub(crate) struct TrySpan {
    request: Arc<RequestTrace>,
    /// The span; `None` only during the drop.
    span: Option<Box<Span>>,
}

/// Facts about a try at its beginning.
pub(crate) struct TryFacts<'a> {
    pub(crate) origin: &'a Origin,
    /// The API's authority, as the API sees it.
    pub(crate) authority: &'a str,
    /// Number of earlier tries, and the reason why the last of them was not enough.
    pub(crate) resends: u32,
    pub(crate) reason: Option<RetryReason>,
}

// === impl TrySpan ===

impl TrySpan {
    /// Begins a try of the request that is traced by `trace`, and passes the trace context to `request`. Returns the
    /// try's span if it is recorded.
    pub(crate) fn begin<B>(
        trace: &Arc<RequestTrace>,
        request: &mut Request<B>,
        facts: TryFacts<'_>,
    ) -> Option<Box<Self>> {
        if !trace.is_recorded() {
            trace.pass_on(request.headers_mut(), &trace.context);
            return None;
        }
        let name = Some(method(request.method())).filter(|name| *name != OTHER).unwrap_or("HTTP");
        let mut span = trace.child(name, SpanKind::Client, trace.clock.now());
        let TryFacts { origin, authority, resends, reason } = facts;
        note_method(&mut span, request.method());
        span.note("server.address", origin.host.to_string());
        span.note("server.port", origin.port);
        span.note("url.full", full_url(origin.scheme.as_str(), authority, request.uri()));
        if resends > 0 {
            span.note("http.request.resend_count", resends);
        }
        if let Some(reason) = reason {
            span.note("andante.retry.reason", reason.as_str());
        }
        trace.pass_on(request.headers_mut(), &span.context);
        Some(Box::new(Self { request: trace.clone(), span: Some(Box::new(span)) }))
    }

    /// Records that the answer's head has come, by this version of HTTP.
    pub(crate) fn on_answer(&mut self, status: StatusCode, by: Version) {
        let Some(span) = &mut self.span else { return };
        span.note("http.response.status_code", status.as_u16());
        span.note("network.protocol.version", version(by));
        if status.is_client_error() || status.is_server_error() {
            span.note("error.type", status.as_str().to_owned());
            span.failure = Some("".into());
        }
    }

    /// Makes the try the exemplar of what `times` has counted: that it `took` so long.
    pub(crate) fn exemplify(&self, took: Duration, times: &Durations) {
        if let Some(span) = &self.span {
            times.exemplify(took, span.context, self.request.clock.time_of_day());
        }
    }

    /// Records that the try has failed without an answer, or because of the answer's head.
    pub(crate) fn on_error(&mut self, error: &Error) {
        self.fail(error.proxy_status(), error.with_causes());
    }

    /// Records that the answer has broken off after its head.
    pub(crate) fn on_break(&mut self, error: &BoxError) {
        self.fail("connection_terminated", in_one_line(&**error));
    }

    /// Notes a failure. The first one is kept: others follow from it.
    fn fail(&mut self, kind: &'static str, description: String) {
        let Some(span) = self.span.as_mut().filter(|span| span.failure.is_none()) else { return };
        span.note("error.type", kind);
        span.failure = Some(description.into());
    }

    /// Records the usage that the answer reports, and the `model` that it names
    /// (<https://opentelemetry.io/docs/specs/semconv/gen-ai/>).
    pub(crate) fn on_usage(&mut self, usage: &Usage, model: Option<&str>) {
        let Some(span) = &mut self.span else { return };
        let said = usage.said.iter().chain(&usage.at_least);
        let mut said = said.filter_map(|(unit, used)| Some((gen_ai(*unit)?, *used))).peekable();
        if let (Some(model), Some(_)) = (model, said.peek()) {
            span.note("gen_ai.response.model", model.to_owned());
        }
        said.for_each(|(name, used)| span.note(name, used));
    }

    /// Records the `model` that the request asks for, if its rule reads the `usage` of models.
    pub(crate) fn on_request(&mut self, usage: &[UsageSource], model: impl FnOnce() -> Option<String>) {
        let Some(span) = &mut self.span else { return };
        if usage.iter().any(|source| gen_ai(source.unit).is_some())
            && let Some(model) = model()
        {
            span.note("gen_ai.request.model", model);
        }
    }
}

impl Drop for TrySpan {
    fn drop(&mut self) {
        if let Some(mut span) = self.span.take() {
            span.ended = self.request.clock.now();
            self.request.tracer.submit(*span);
        }
    }
}

/// The attribute for a unit of a preset for models.
fn gen_ai(unit: Unit) -> Option<&'static str> {
    match unit.to_string().as_str() {
        "input-tokens" => Some("gen_ai.usage.input_tokens"),
        "output-tokens" => Some("gen_ai.usage.output_tokens"),
        _ => None,
    }
}
