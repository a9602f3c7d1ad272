//! Exports spans and metrics to an OpenTelemetry collector: OTLP over HTTP, in protobuf
//! (<https://opentelemetry.io/docs/specs/otlp/#otlphttp>). Runs beside the requests, which wait for nothing here.
//!
//! A collector that is down costs a log line every few minutes: spans wait in a bounded queue and are dropped when it is
//! full, and metrics are cumulative, so that the next export makes up for one that was missed.

mod collector;
mod exporter;
mod messages;
mod metric_data;
mod outage;
mod resource;
mod span_data;

pub use self::exporter::{Exporter, Exporting};
