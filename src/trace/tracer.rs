//! Begins traces, and hands spans to the exporter.

use prometheus::IntCounter;
use tokio::sync::{Semaphore, mpsc};

use super::{
    context::{SpanId, TraceContext},
    sampler::Sampler,
    span::Span,
};

/// Begins traces, and hands spans to the exporter.
#[derive(Debug)]
pub struct Tracer {
    sampler: Sampler,
    queue: mpsc::Sender<Span>,
    dropped: IntCounter,
    /// Authorities of collectors, as requests name them.
    collectors: Vec<String>,
}

impl Tracer {
    /// Tracer, and the receiver of its spans. Spans beyond `capacity` are dropped and counted in `dropped`.
    pub fn new(sampler: Sampler, capacity: usize, dropped: IntCounter) -> (Self, mpsc::Receiver<Span>) {
        // A channel panics for a larger capacity.
        let (queue, spans) = mpsc::channel(capacity.min(Semaphore::MAX_PERMITS));
        (Self { sampler, queue, dropped, collectors: Vec::new() }, spans)
    }

    /// Returns the tracer with requests to these authorities exempt from tracing.
    pub fn exempting(self, collectors: Vec<String>) -> Self {
        Self { collectors, ..self }
    }

    /// Returns true if a request to `authority` is not traced, because it exports a worker's traces.
    pub fn exempts(&self, authority: &str) -> bool {
        self.collectors.iter().any(|collector| collector.eq_ignore_ascii_case(authority))
    }

    /// Context of a request's span, in the trace of its caller or in a new trace.
    pub fn begin(&self, parent: Option<&TraceContext>) -> TraceContext {
        TraceContext::child_of(parent, |trace| self.sampler.records(parent, trace))
    }

    /// Context of a span within `parent`, which is recorded if `parent` is.
    pub fn within(parent: &TraceContext) -> TraceContext {
        TraceContext { span: SpanId::random(), ..*parent }
    }

    /// Hands over a span that has ended, or drops it if the exporter is behind.
    pub fn submit(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.dropped.inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SpanKind;
    use andante_clock::Instant;

    #[test]
    fn any_capacity_is_taken() {
        let dropped = IntCounter::new("dropped", "dropped").unwrap();
        drop(Tracer::new(Sampler::default(), usize::MAX, dropped));
    }

    #[test]
    fn spans_beyond_the_capacity_are_dropped_and_counted() {
        let dropped = IntCounter::new("dropped", "dropped").unwrap();
        let (tracer, mut spans) = Tracer::new(Sampler::default(), 2, dropped.clone());
        let context = tracer.begin(None);
        assert!(context.is_sampled());
        for _ in 0..5 {
            let (step, parent) = (Tracer::within(&context), Some(context.span));
            tracer.submit(Span::begin(step, parent, SpanKind::Internal, "step", Instant::START));
        }
        assert_eq!(dropped.get(), 3);
        assert_eq!(spans.try_recv().unwrap().context.trace, context.trace);
    }
}
