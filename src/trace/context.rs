//! The W3C trace context in the field `traceparent` (<https://www.w3.org/TR/trace-context/>).

use std::{fmt, num::NonZeroU64};

/// Identifies a trace: 16 bytes, not all of them zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(u128);

/// Identifies a span within its trace: 8 bytes, not all of them zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(NonZeroU64);

/// A span as another process sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace: TraceId,
    /// The span, which is the parent of the spans that receive this context.
    pub span: SpanId,
    /// Flags that the specification defines.
    pub flags: u8,
}

/// Error of a malformed `traceparent`: its trace ends here, and another begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no valid traceparent")]
pub struct BadTraceContext;

/// Length of a `traceparent` of version 00: `00-TRACE-SPAN-FLAGS`.
const FIELD_BYTES: usize = 55;
/// The caller may have recorded its span.
const SAMPLED: u8 = 0b01;
/// The trace id is random (Trace Context Level 2, §3.2.2.5.2): passed on with the id.
const RANDOM: u8 = 0b10;

// === impl TraceId ===

impl TraceId {
    /// A random id.
    pub fn random() -> Self {
        Self(fastrand::u128(1..))
    }

    /// Bytes of the id, the highest first.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Lower half, which samplers by ratio use.
    pub(super) fn lower_half(self) -> u64 {
        self.0 as u64
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// === impl SpanId ===

impl SpanId {
    /// A random id.
    pub fn random() -> Self {
        Self(NonZeroU64::new(fastrand::u64(1..)).expect("the range begins with 1"))
    }

    /// Bytes of the id, the highest first.
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.get().to_be_bytes()
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// === impl TraceContext ===

impl TraceContext {
    /// Parses a `traceparent` (§3.2). Higher versions may have more fields after another hyphen; version ff is invalid.
    pub fn parse(field: &[u8]) -> Result<Self, BadTraceContext> {
        Self::read(field).ok_or(BadTraceContext)
    }

    fn read(field: &[u8]) -> Option<Self> {
        let version = hex(field.get(..2)?)?;
        let is_long = field.len() > FIELD_BYTES;
        let hyphens = [2, 35, 52].into_iter().all(|at| field.get(at) == Some(&b'-'));
        if !hyphens || version == 0xff || is_long && (version == 0 || field[FIELD_BYTES] != b'-') {
            return None;
        }
        let trace = hex(&field[3..35]).filter(|id| *id != 0)?;
        let span = NonZeroU64::new(u64::try_from(hex(&field[36..52])?).ok()?)?;
        let flags = u8::try_from(hex(field.get(53..FIELD_BYTES)?)?).ok()?;
        Some(Self { trace: TraceId(trace), span: SpanId(span), flags: flags & (SAMPLED | RANDOM) })
    }

    /// Context of a new span in the trace of `parent`, or in a new trace. `is_sampled` decides for the trace.
    pub(super) fn child_of(parent: Option<&Self>, is_sampled: impl FnOnce(TraceId) -> bool) -> Self {
        let trace = parent.map_or_else(TraceId::random, |parent| parent.trace);
        let random = parent.map_or(0, |parent| parent.flags & RANDOM);
        let sampled = if is_sampled(trace) { SAMPLED } else { 0 };
        Self { trace, span: SpanId::random(), flags: random | sampled }
    }

    /// Formats the context as a `traceparent`.
    pub fn to_field(&self) -> [u8; 55] {
        let mut field = *b"00-00000000000000000000000000000000-0000000000000000-00";
        write_hex(&mut field[3..35], &self.trace.to_bytes());
        write_hex(&mut field[36..52], &self.span.to_bytes());
        write_hex(&mut field[53..], &[self.flags]);
        field
    }

    /// Returns true if the span is recorded.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }
}

/// Format of `traceparent`.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.to_field()).expect("digits and hyphens"))
    }
}

/// Writes `bytes` in lowercase hexadecimal, without a formatter: many requests have the field.
fn write_hex(field: &mut [u8], bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (digits, byte) in field.chunks_exact_mut(2).zip(bytes) {
        digits.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

/// Parses a number in lowercase hexadecimal, which the specification requires.
fn hex(digits: &[u8]) -> Option<u128> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    digits.iter().try_fold(0, |number, byte| Some(number << 4 | u128::from(digit(*byte)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_read_and_written_alike() {
        let context = TraceContext::parse(EXAMPLE.as_bytes()).unwrap();
        assert!(context.is_sampled());
        assert_eq!(context.to_string(), EXAMPLE);
        assert_eq!(context.trace.to_bytes()[..2], [0x4b, 0xf9]);
        assert_eq!(context.span.to_bytes(), [0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]);
    }

    #[test]
    fn a_higher_version_is_read_as_far_as_it_is_known() {
        for field in [EXAMPLE.replacen("00", "cc", 1), EXAMPLE.replacen("00", "cc", 1) + "-more"] {
            assert_eq!(TraceContext::parse(field.as_bytes()).unwrap().to_string(), EXAMPLE, "{field}");
        }
        let unknown_flags = EXAMPLE.replace("-01", "-ff");
        assert_eq!(TraceContext::parse(unknown_flags.as_bytes()).unwrap().flags, 3);
    }

    #[test]
    fn a_malformed_traceparent_is_rejected() {
        let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        for field in [
            String::new(),
            format!("00-{trace}-{span}"),
            format!("00-{trace}-{span}-1"),
            format!("00-{trace}-{span}-01-more"),
            format!("00-{trace}-{span}-01x"),
            format!("cc-{trace}-{span}-01x"),
            format!("ff-{trace}-{span}-01"),
            format!("00-{}-{span}-01", "0".repeat(32)),
            format!("00-{trace}-{}-01", "0".repeat(16)),
            format!("00-{}-{span}-01", trace.to_uppercase()),
            format!("00_{trace}-{span}-01"),
            format!("00-{trace}-{span}-0g"),
        ] {
            assert_eq!(TraceContext::parse(field.as_bytes()), Err(BadTraceContext), "{field}");
        }
    }

    #[test]
    fn a_child_stays_in_its_trace_and_keeps_the_random_flag() {
        let parent = TraceContext::parse(EXAMPLE.replace("-01", "-03").as_bytes()).unwrap();
        let child = TraceContext::child_of(Some(&parent), |_| false);
        assert_eq!((child.trace, child.flags), (parent.trace, RANDOM));
        assert_ne!(child.span, parent.span);
        assert_ne!(TraceContext::child_of(None, |_| true).trace, parent.trace);
    }
}
