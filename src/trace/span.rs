//! Spans: timed steps of a request.

use std::borrow::Cow;

use andante_clock::Instant;

use super::context::{SpanId, TraceContext};

/// A timed step of a request, for export.
#[derive(Clone, Debug)]
pub struct Span {
    /// Trace and id of the span.
    pub context: TraceContext,
    /// Span that this one is a part of; `None` at the root of a trace.
    pub parent: Option<SpanId>,
    /// `tracestate` of the trace.
    pub state: Option<Box<str>>,
    /// Role of the span.
    pub kind: SpanKind,
    /// Name that many spans share.
    pub name: Cow<'static, str>,
    /// Start of the step.
    pub began: Instant,
    /// End of the step.
    pub ended: Instant,
    /// Attributes, by the names of the semantic conventions.
    pub attributes: Vec<(&'static str, Value)>,
    /// Description of the failure, empty if the attributes have it; `None` without a failure.
    pub failure: Option<Cow<'static, str>>,
}

/// Longest text of an attribute.
const MAX_TEXT_BYTES: usize = 1024;

/// Role of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Step within andante.
    Internal,
    /// Handling of a received request.
    Server,
    /// Sending of a request.
    Client,
}

/// Value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(Cow<'static, str>),
    /// A whole number.
    Whole(i64),
    /// Any other number.
    Number(f64),
}

// === impl Span ===

impl Span {
    /// Step within `parent` that begins at `began`. The step also ends then, unless the caller sets another end.
    pub fn begin(
        context: TraceContext,
        parent: Option<SpanId>,
        kind: SpanKind,
        name: impl Into<Cow<'static, str>>,
        began: Instant,
    ) -> Self {
        let (name, attributes) = (name.into(), Vec::new());
        Self { context, parent, state: None, kind, name, began, ended: began, attributes, failure: None }
    }

    /// Adds an attribute. Long texts are cut, because thousands of spans may wait for their collector.
    pub fn note(&mut self, name: &'static str, value: impl Into<Value>) {
        let mut value = value.into();
        if let Value::Text(text) = &mut value
            && text.len() > MAX_TEXT_BYTES
        {
            let end = (0..=MAX_TEXT_BYTES).rev().find(|at| text.is_char_boundary(*at));
            text.to_mut().truncate(end.unwrap_or_default());
        }
        self.attributes.push((name, value));
    }
}

// === impl Value ===

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Whole(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Whole(number.into())
    }
}

impl From<u16> for Value {
    fn from(number: u16) -> Self {
        Self::Whole(number.into())
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sampler, Tracer};

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let dropped = prometheus::IntCounter::new("dropped", "dropped").unwrap();
        let (tracer, _) = Tracer::new(Sampler::default(), 1, dropped);
        let mut span = Span::begin(tracer.begin(None), None, SpanKind::Internal, "step", Instant::START);
        span.note("text", "\u{e9}".repeat(600) + "x");
        span.note("odd", format!("x{}", "\u{e9}".repeat(600)));
        let length = |at: usize| match &span.attributes[at].1 {
            Value::Text(text) => text.len(),
            other => panic!("{other:?}"),
        };
        assert_eq!((length(0), length(1)), (1024, 1023));
    }
}
