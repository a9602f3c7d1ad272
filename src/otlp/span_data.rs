//! Spans in OTLP.

use std::time::Duration;

use prost::Message as _;

use super::{
    messages::{AnyValueKind, ExportTraces, KeyValue, Resource, ResourceSpans, ScopeSpans, Span, Status},
    resource::scope,
};
use crate::{
    clock::nanos,
    trace::{self, SpanKind, Value},
};

/// Version of the semantic conventions that define the attribute names.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.37.0";
const ERROR: i32 = 2;

/// Body of a request that exports `spans`. Their clock began at `epoch`, since 1970.
pub(super) fn encode(resource: &Resource, epoch: Duration, spans: &[trace::Span]) -> Vec<u8> {
    let spans = spans.iter().map(|span| message(epoch, span)).collect();
    let scope_spans = vec![ScopeSpans { scope: Some(scope()), spans }];
    let schema_url = SCHEMA.to_owned();
    let resource_spans = vec![ResourceSpans { resource: Some(resource.clone()), scope_spans, schema_url }];
    ExportTraces { resource_spans }.encode_to_vec()
}

fn message(epoch: Duration, span: &trace::Span) -> Span {
    let since_1970 = |at: crate::clock::Instant| nanos(epoch).saturating_add(at.as_nanos());
    Span {
        trace_id: span.context.trace.to_bytes().to_vec(),
        span_id: span.context.span.to_bytes().to_vec(),
        trace_state: span.state.as_deref().unwrap_or_default().to_owned(),
        parent_span_id: span.parent.map(|parent| parent.to_bytes().to_vec()).unwrap_or_default(),
        name: span.name.clone().into_owned(),
        kind: match span.kind {
            SpanKind::Internal => 1,
            SpanKind::Server => 2,
            SpanKind::Client => 3,
        },
        start_time_unix_nano: since_1970(span.began),
        end_time_unix_nano: since_1970(span.ended.max(span.began)),
        attributes: span.attributes.iter().map(|(name, value)| KeyValue::new(*name, kind(value))).collect(),
        status: span.failure.clone().map(|message| Status { message: message.into_owned(), code: ERROR }),
        flags: span.context.flags.into(),
    }
}

fn kind(value: &Value) -> AnyValueKind {
    match value {
        Value::Text(text) => AnyValueKind::Text(text.clone().into_owned()),
        Value::Whole(number) => AnyValueKind::Whole(*number),
        Value::Number(number) => AnyValueKind::Number(*number),
    }
}
