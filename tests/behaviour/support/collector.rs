//! An OpenTelemetry collector that stores received messages, decoded with the messages that OpenTelemetry publishes.

use std::{collections::BTreeMap, time::Duration};

use opentelemetry_proto::tonic::{
    collector::{metrics::v1::ExportMetricsServiceRequest, trace::v1::ExportTraceServiceRequest},
    common::v1::{KeyValue, any_value::Value},
    metrics::v1::{Metric, metric::Data},
    trace::v1::Span,
};
use prost::Message as _;

use super::{Upstream, eventually};

/// A collector on a free port.
pub(crate) struct Collector {
    upstream: Upstream,
}

/// Attributes of a resource or a span.
pub(crate) type Attributes = BTreeMap<String, String>;

impl Collector {
    pub(crate) fn start() -> Self {
        Self { upstream: Upstream::always("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") }
    }

    /// As `--otlp` takes it.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.upstream.address())
    }

    /// Requests so far, head and body.
    pub(crate) fn requests(&self) -> Vec<super::Message> {
        self.upstream.requests()
    }

    fn traces(&self) -> Vec<ExportTraceServiceRequest> {
        let requests = self.requests().into_iter().filter(|request| request.target() == "/v1/traces");
        requests.map(|request| ExportTraceServiceRequest::decode(&*request.body).expect("OTLP")).collect()
    }

    /// The spans so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let resources = self.traces().into_iter().flat_map(|request| request.resource_spans);
        resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans).collect()
    }

    /// The spans, once there are `count` of them.
    pub(crate) fn wait_for_spans(&self, count: usize) -> Vec<Span> {
        let spans = eventually(&format!("{count} spans"), || Some(self.spans()).filter(|spans| spans.len() >= count));
        assert_eq!(spans.len(), count, "{spans:#?}");
        spans
    }

    /// Attributes of the resource of the first spans.
    pub(crate) fn resource(&self) -> Attributes {
        attributes(&self.traces()[0].resource_spans[0].resource.as_ref().expect("a resource").attributes)
    }

    /// The metrics of the last export.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let mut requests = self.requests();
        requests.retain(|request| request.target() == "/v1/metrics");
        let Some(last) = requests.pop() else { return Vec::new() };
        let request = ExportMetricsServiceRequest::decode(&*last.body).expect("OTLP");
        let scopes = request.resource_metrics.into_iter().flat_map(|resource| resource.scope_metrics);
        scopes.flat_map(|scope| scope.metrics).collect()
    }

    /// The value of the counter `name` with these labels, in the last export.
    pub(crate) fn counter(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let metric = self.metrics().into_iter().find(|metric| metric.name == name)?;
        let Some(Data::Sum(sum)) = metric.data else { panic!("{name} is no counter: {metric:?}") };
        assert!(sum.is_monotonic && sum.aggregation_temporality == 2, "{name}");
        let labels: Attributes = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let point = sum.data_points.into_iter().find(|point| attributes(&point.attributes) == labels)?;
        match point.value? {
            opentelemetry_proto::tonic::metrics::v1::number_data_point::Value::AsDouble(value) => Some(value),
            opentelemetry_proto::tonic::metrics::v1::number_data_point::Value::AsInt(value) => Some(value as f64),
        }
    }
}

/// Attributes as text.
pub(crate) fn attributes(all: &[KeyValue]) -> Attributes {
    let text = |value: &KeyValue| match value.value.clone().and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        other => panic!("{other:?}"),
    };
    all.iter().map(|attribute| (attribute.key.clone(), text(attribute))).collect()
}

/// Duration of a span.
pub(crate) fn length(span: &Span) -> Duration {
    Duration::from_nanos(span.end_time_unix_nano - span.start_time_unix_nano)
}
