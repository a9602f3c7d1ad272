//! Exports spans and metrics to an OpenTelemetry collector: OTLP over HTTP, in protobuf
//! (<https://opentelemetry.io/docs/specs/otlp/#otlphttp>). Runs beside the requests, which never wait for an export.
//!
//! A collector that is down costs a log line every few minutes. Spans wait in a bounded queue, and a full queue drops
//! them. Metrics are cumulative, so the next export makes up for a missed one.

mod collector;
mod exporter;
mod messages;
mod metric_data;
mod outage;
mod resource;
mod span_data;

pub use self::exporter::{Exporter, Exporting};
