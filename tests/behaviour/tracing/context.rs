//! The trace context on its way from worker to API (<https://www.w3.org/TR/trace-context/>).

use rustix::process::Signal;

use super::{TRACE, WORKER, get, traced, traced_with};
use crate::support::{Andante, Collector, Upstream, pause};

/// Trace fields of a worker as an API sees them.
fn seen(andante: &Andante, upstream: &Upstream, fields: &str) -> (Option<String>, Option<String>) {
    let before = upstream.requests().len();
    assert_eq!(get(andante, &upstream.url("/"), fields).status(), 200);
    let request = upstream.requests().remove(before);
    (request.field("traceparent"), request.field("tracestate"))
}

#[test]
fn a_request_that_is_not_sampled_keeps_its_fields_and_gives_no_spans() {
    let (collector, upstream) = (Collector::start(), Upstream::ok());
    let andante = traced(&collector, &[]);
    let unsampled = WORKER.replace("-01", "-00");
    let (parent, state) = seen(&andante, &upstream, &format!("traceparent: {unsampled}\r\ntracestate: a=1\r\n"));
    assert_eq!((parent, state.as_deref()), (Some(unsampled), Some("a=1")));
    assert_eq!(seen(&andante, &upstream, "").0.as_deref().map(|parent| parent.ends_with("-01")), Some(true));
    let spans = collector.wait_for_spans(2);
    assert!(spans.iter().all(|span| super::hex(&span.trace_id) != TRACE));
}

#[test]
fn a_request_without_a_context_begins_a_trace() {
    let (collector, upstream) = (Collector::start(), Upstream::ok());
    let andante = traced(&collector, &[]);
    let parents: Vec<_> = (0..2).map(|_| seen(&andante, &upstream, "").0.unwrap()).collect();
    assert_ne!(parents[0][3..35], parents[1][3..35]);
    let spans = collector.wait_for_spans(4);
    let roots: Vec<_> = spans.iter().filter(|span| span.parent_span_id.is_empty()).collect();
    assert_eq!(roots.len(), 2);
    assert!(roots.iter().all(|root| parents.iter().any(|parent| parent[3..35] == super::hex(&root.trace_id))));
}

#[test]
fn a_malformed_context_ends_and_its_state_with_it() {
    let (collector, upstream) = (Collector::start(), Upstream::ok());
    let andante = traced(&collector, &[]);
    let twice = format!("traceparent: {WORKER}\r\ntraceparent: {WORKER}\r\n");
    let upper = format!("traceparent: {}\r\n", WORKER.to_uppercase());
    for fields in ["traceparent: 00-0-0-01\r\n", &twice, &upper, ""] {
        let (parent, state) = seen(&andante, &upstream, &format!("{fields}tracestate: a=1\r\n"));
        let parent = parent.unwrap();
        assert!(parent.len() == 55 && &parent[3..35] != TRACE, "{fields}: {parent}");
        assert_eq!(state, None, "{fields}");
    }
}

#[test]
fn a_signed_context_stays_as_it_is() {
    let (collector, upstream) = (Collector::start(), Upstream::ok());
    let andante = traced(&collector, &[]);
    for signature in [
        "Authorization: AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host;traceparent;x-amz-date, Signature=0\r\n",
        "Signature-Input: s=(\"@method\" \"traceparent\");created=1\r\n",
    ] {
        let (parent, _) = seen(&andante, &upstream, &format!("traceparent: {WORKER}\r\n{signature}"));
        assert_eq!(parent.as_deref(), Some(WORKER), "{signature}");
        // A malformed one is signed, too: without it the API would refuse the request.
        let (parent, state) =
            seen(&andante, &upstream, &format!("traceparent: 00-0\r\ntracestate: a=1\r\n{signature}"));
        assert_eq!((parent.as_deref(), state.as_deref()), (Some("00-0"), Some("a=1")), "{signature}");
        let twice = format!("traceparent: {WORKER}\r\ntraceparent: {WORKER}\r\n{signature}");
        get(&andante, &upstream.url("/"), &twice);
        let head = String::from_utf8(upstream.requests().pop().unwrap().head).unwrap();
        assert_eq!(head.matches(&format!("traceparent: {WORKER}\r\n")).count(), 2, "{head}");
    }
    let (parent, _) = seen(&andante, &upstream, &format!("traceparent: {WORKER}\r\nAuthorization: Bearer x\r\n"));
    assert_ne!(parent.as_deref(), Some(WORKER));
}

#[test]
fn without_tracing_fields_are_the_workers() {
    let upstream = Upstream::ok();
    let andante = Andante::serve(&[]);
    assert_eq!(seen(&andante, &upstream, ""), (None, None));
    let (parent, state) = seen(&andante, &upstream, "TraceParent: junk\r\ntracestate: a=1\r\n");
    assert_eq!((parent.as_deref(), state.as_deref()), (Some("junk"), Some("a=1")));
    let head = String::from_utf8(upstream.requests().pop().unwrap().head).unwrap();
    assert!(head.contains("\r\nTraceParent: junk\r\n"), "{head}");
}

#[test]
fn the_environment_chooses_the_sampler() {
    let (collector, upstream) = (Collector::start(), Upstream::ok());
    let none = [("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "0")];
    let andante = traced_with(&collector.url(), &[], &none);
    assert!(seen(&andante, &upstream, "").0.unwrap().ends_with("-00"));
    // The parent has decided.
    assert!(seen(&andante, &upstream, &format!("traceparent: {WORKER}\r\n")).0.unwrap().ends_with("-01"));
    collector.wait_for_spans(2);
    let andante = traced_with(&collector.url(), &[], &[("OTEL_TRACES_SAMPLER", "always_off")]);
    let parent = seen(&andante, &upstream, &format!("traceparent: {WORKER}\r\n")).0.unwrap();
    assert!(parent.starts_with(&format!("00-{TRACE}-")) && parent.ends_with("-00"), "{parent}");
    pause(std::time::Duration::from_millis(100));
    assert_eq!(collector.spans().len(), 2);
}

#[test]
fn requests_of_a_tunnel_are_traced_and_the_connect_is_not() {
    let (collector, upstream) = (Collector::start(), crate::https::secure());
    let target = crate::https::localhost(&upstream);
    let url = collector.url();
    let mut interceptor = crate::support::tls::Interceptor::serve(&["--intercept", "localhost", "--otlp", &url]);
    let mut worker = interceptor.worker(&target);
    worker.send(format!("GET / HTTP/1.1\r\nHost: {target}\r\ntraceparent: {WORKER}\r\n\r\n"));
    assert_eq!(worker.answer().status(), 200);
    drop(worker);
    interceptor.andante.signal(Signal::TERM);
    assert!(interceptor.andante.ended().success());
    let spans = collector.wait_for_spans(2);
    assert!(spans.iter().all(|span| span.name == "GET"), "{spans:#?}");
    assert!(upstream.request().field("traceparent").unwrap().starts_with(&format!("00-{TRACE}-")));
}
