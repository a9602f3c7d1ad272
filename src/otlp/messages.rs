//! Messages of OTLP that andante sends and reads, with the fields that it uses
//! (<https://github.com/open-telemetry/opentelemetry-proto>, version 1.9).

use prost::{Message, Oneof};

/// Body of a request to `/v1/traces`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportTraces {
    #[prost(message, repeated, tag = "1")]
    pub(super) resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub(super) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(super) scope_spans: Vec<ScopeSpans>,
    #[prost(string, tag = "3")]
    pub(super) schema_url: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub(super) scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub(super) spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Span {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    pub(super) trace_state: String,
    #[prost(bytes = "vec", tag = "4")]
    pub(super) parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub(super) name: String,
    /// 1 is internal, 2 a server's, 3 a client's.
    #[prost(int32, tag = "6")]
    pub(super) kind: i32,
    #[prost(fixed64, tag = "7")]
    pub(super) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    pub(super) end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub(super) attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    pub(super) status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    pub(super) flags: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    #[prost(string, tag = "2")]
    pub(super) message: String,
    /// 2 is an error.
    #[prost(int32, tag = "3")]
    pub(super) code: i32,
}

/// Body of a request to `/v1/metrics`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportMetrics {
    #[prost(message, repeated, tag = "1")]
    pub(super) resource_metrics: Vec<ResourceMetrics>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    pub(super) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(super) scope_metrics: Vec<ScopeMetrics>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ScopeMetrics {
    #[prost(message, optional, tag = "1")]
    pub(super) scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub(super) metrics: Vec<Metric>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Metric {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) description: String,
    #[prost(string, tag = "3")]
    pub(super) unit: String,
    #[prost(oneof = "MetricData", tags = "5, 7, 9")]
    pub(super) data: Option<MetricData>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum MetricData {
    #[prost(message, tag = "5")]
    Gauge(Gauge),
    #[prost(message, tag = "7")]
    Sum(Sum),
    #[prost(message, tag = "9")]
    Histogram(Histogram),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Gauge {
    #[prost(message, repeated, tag = "1")]
    pub(super) data_points: Vec<NumberPoint>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Sum {
    #[prost(message, repeated, tag = "1")]
    pub(super) data_points: Vec<NumberPoint>,
    /// 2 is cumulative.
    #[prost(int32, tag = "2")]
    pub(super) aggregation_temporality: i32,
    #[prost(bool, tag = "3")]
    pub(super) is_monotonic: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Histogram {
    #[prost(message, repeated, tag = "1")]
    pub(super) data_points: Vec<HistogramPoint>,
    /// 2 is cumulative.
    #[prost(int32, tag = "2")]
    pub(super) aggregation_temporality: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct NumberPoint {
    #[prost(fixed64, tag = "2")]
    pub(super) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    pub(super) time_unix_nano: u64,
    #[prost(double, optional, tag = "4")]
    pub(super) as_double: Option<f64>,
    #[prost(message, repeated, tag = "7")]
    pub(super) attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HistogramPoint {
    #[prost(fixed64, tag = "2")]
    pub(super) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    pub(super) time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    pub(super) count: u64,
    #[prost(double, optional, tag = "5")]
    pub(super) sum: Option<f64>,
    #[prost(fixed64, repeated, tag = "6")]
    pub(super) bucket_counts: Vec<u64>,
    #[prost(double, repeated, tag = "7")]
    pub(super) explicit_bounds: Vec<f64>,
    #[prost(message, repeated, tag = "9")]
    pub(super) attributes: Vec<KeyValue>,
}

/// Description of the process that exports.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub(super) attributes: Vec<KeyValue>,
}

/// The code that produces the spans or metrics.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Scope {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) version: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(message, optional, tag = "2")]
    pub(super) value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AnyValue {
    #[prost(oneof = "AnyValueKind", tags = "1, 3, 4")]
    pub(super) value: Option<AnyValueKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum AnyValueKind {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Whole(i64),
    #[prost(double, tag = "4")]
    Number(f64),
}

/// Body of an answer. Only its rejections are read: spans and data points have the same field number.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportAnswer {
    #[prost(message, optional, tag = "1")]
    pub(super) partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(super) rejected: i64,
    #[prost(string, tag = "2")]
    pub(super) error_message: String,
}

// === impl KeyValue ===

impl KeyValue {
    pub(super) fn new(key: impl Into<String>, value: AnyValueKind) -> Self {
        Self { key: key.into(), value: Some(AnyValue { value: Some(value) }) }
    }

    pub(super) fn text(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self::new(key, AnyValueKind::Text(value.into()))
    }
}
