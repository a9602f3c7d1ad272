//! Identity of a request: the fields that could change an API's answer.

use http::{HeaderMap, HeaderName, header::VARY};

use super::keyed_hash;
use crate::proxy::message::fields;

/// Fields that change between tries of a request, and change no answer: ids of requests and traces, numbers of tries,
/// and the framing of a body. Any other field may name an owner or select an answer.
const IGNORED: [&str; 34] = [
    // The body itself is compared.
    "content-length",
    "transfer-encoding",
    "expect",
    "via",
    "priority",
    "traceparent",
    "tracestate",
    "request-id",
    "x-request-id",
    "correlation-id",
    "x-correlation-id",
    "x-amzn-trace-id",
    "x-cloud-trace-context",
    "sentry-trace",
    "uber-trace-id",
    "b3",
    "x-b3-traceid",
    "x-b3-spanid",
    "x-b3-parentspanid",
    "x-b3-sampled",
    "x-b3-flags",
    "x-datadog-trace-id",
    "x-datadog-parent-id",
    "x-datadog-sampling-priority",
    "x-datadog-origin",
    "x-datadog-tags",
    "x-client-request-id",
    // Fields of the client libraries of OpenAI and Anthropic, AWS, Google and Stripe, and of many others.
    "x-stainless-retry-count",
    "amz-sdk-request",
    "amz-sdk-invocation-id",
    "x-goog-api-client",
    "x-stripe-client-telemetry",
    "x-retry-count",
    "x-retry-attempt",
];

/// Hash of the fields that distinguish a request; `half` selects one of two hashes. The order of the fields does not
/// matter.
pub(super) fn fields_hash(fields: &HeaderMap, half: u8) -> u64 {
    fields_hash_without(fields, &[], half)
}

/// Like `fields_hash`, but also ignores the fields in `others`.
pub(super) fn fields_hash_without(fields: &HeaderMap, others: &[&str], half: u8) -> u64 {
    let tells = |name: &str| !is_ignored(name) && !others.contains(&name);
    let telling = fields.keys().filter(|name| tells(name.as_str()) && !is_patience(fields, name));
    let hashes = telling.map(|name| {
        let values: Vec<_> = fields.get_all(name).iter().map(http::HeaderValue::as_bytes).collect();
        keyed_hash::of((half, name.as_str(), values))
    });
    hashes.fold(0, u64::wrapping_add)
}

/// Returns whether an answer with these fields may differ between requests with equal [`fields_hash`].
pub(super) fn varies(answer: &HeaderMap) -> bool {
    varies_without(answer, &[])
}

/// Like `varies`, for [`fields_hash_without`].
pub(super) fn varies_without(answer: &HeaderMap, others: &[&str]) -> bool {
    fields::tokens(answer, &VARY)
        .map(str::to_ascii_lowercase)
        .any(|name| name == "*" || name == "prefer" || is_ignored(&name) || others.contains(&name.as_str()))
}

fn is_ignored(name: &str) -> bool {
    IGNORED.contains(&name)
}

/// Returns whether the field only states how long the worker is willing to wait, which may differ between equal
/// requests.
fn is_patience(fields: &HeaderMap, name: &HeaderName) -> bool {
    let is_wait = |preference: &str| {
        let value = preference.split_at_checked(5).filter(|(name, _)| name.eq_ignore_ascii_case("wait="));
        value.is_some_and(|(_, value)| value.trim_matches('"').bytes().all(|byte| byte.is_ascii_digit()))
    };
    // A line that is not text has no tokens, so `tokens` skips it.
    name == "prefer"
        && fields.get_all(name).iter().all(|line| line.to_str().is_ok())
        && fields::tokens(fields, name).all(is_wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_say_whose_a_request_is_or_what_it_wants_tells_requests_apart() {
        let of = |lines: &[(&'static str, &'static str)]| {
            fields_hash(&lines.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect(), 0)
        };
        let one = of(&[("authorization", "one"), ("idempotency-key", "k"), ("accept", "*/*")]);
        assert_eq!(
            one,
            of(&[("idempotency-key", "k"), ("accept", "*/*"), ("authorization", "one"), ("x-retry-count", "1")])
        );
        for name in [
            "stripe-account",
            "cookie",
            "openai-organization",
            "x-session",
            "x-jwt",
            "dpop",
            "x-user-id",
            "x-on-behalf-of",
            "x-http-method-override",
            "accept-encoding",
            "if-match",
            "range",
            "baggage",
            "x-datadog-api-key",
        ] {
            let other = of(&[("authorization", "one"), ("idempotency-key", "k"), ("accept", "*/*"), (name, "a")]);
            assert_ne!(one, other, "{name}");
        }
        assert_ne!(one, of(&[("authorization", "two"), ("idempotency-key", "k"), ("accept", "*/*")]));
        // RFC 7240 §4.3: the wait alone does not change the answer.
        let asks = |prefer: &[u8]| {
            let prefer = http::HeaderValue::from_bytes(prefer).unwrap();
            fields_hash(&HeaderMap::from_iter([(http::header::HeaderName::from_static("prefer"), prefer)]), 0)
        };
        assert_eq!((asks(b"wait=5"), asks(b"Wait=\"7\"")), (of(&[]), of(&[])));
        for other in [&b"return=\"\xe9\""[..], b"wait=5; foo=1", b"wait=5, return=minimal"] {
            assert_ne!(asks(other), of(&[]), "{other:?}");
        }
        assert_ne!(one, of(&[("authorization", "one"), ("idempotency-key", "l"), ("accept", "*/*")]));
        assert_eq!(
            one,
            of(&[("authorization", "one"), ("idempotency-key", "k"), ("accept", "*/*"), ("prefer", "wait=5")])
        );
        assert_ne!(
            one,
            of(&[("authorization", "one"), ("idempotency-key", "k"), ("accept", "*/*"), ("prefer", "return=minimal")])
        );
    }
}
