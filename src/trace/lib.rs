//! Distributed traces: the W3C trace context, sampling, and spans on their way to an exporter. Opens no connection, and
//! knows no protocol but the header field.
//!
//! Spans go into a bounded queue that the exporter empties. A full queue drops spans and counts them: no request waits
//! for a collector.

mod context;
mod sampler;
mod span;
mod tracer;

pub use self::{
    context::{BadTraceContext, SpanId, TraceContext, TraceId},
    sampler::Sampler,
    span::{Span, SpanKind, Value},
    tracer::Tracer,
};
