//! Exports of spans and metrics: when, where to, and without a collector.

use std::time::Duration;

use rustix::process::Signal;

use super::{WORKER, get, traced, traced_with};
use crate::support::{Andante, Collector, Upstream, eventually, pause};

#[test]
fn run_exports_spans_and_metrics_at_its_end() {
    let (collector, upstream) = (Collector::start(), Upstream::ok());
    let script = format!("curl -sS -o /dev/null {}", upstream.url("/"));
    let mut command = Andante::command();
    command.args(["run", "--quiet", "--otlp", &collector.url(), "--", "sh", "-c", &script]);
    let output = command.env("NO_PROXY", "").env("no_proxy", "").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(collector.spans().len(), 2);
    let answered = collector.counter("andante_requests_total", &[("rule", "127.0.0.1"), ("outcome", "answered")]);
    assert_eq!(answered, Some(1.0));
    assert!(collector.metrics().iter().any(|metric| metric.name == "andante_wait_seconds" && metric.unit == "s"));
}

#[test]
fn serve_exports_metrics_periodically_and_at_its_end() {
    let (collector, upstream) = (Collector::start(), Upstream::ok());
    let mut andante = traced_with(&collector.url(), &[], &[("OTEL_METRIC_EXPORT_INTERVAL", "100")]);
    eventually("an export", || (!collector.metrics().is_empty()).then_some(()));
    get(&andante, &upstream.url("/"), "");
    let labels = [("rule", "127.0.0.1"), ("outcome", "answered")];
    eventually("the request", || collector.counter("andante_requests_total", &labels).filter(|count| *count == 1.0));
    andante.signal(Signal::TERM);
    assert!(andante.ended().success());
    assert!(collector.counter("andante_otlp_spans_total", &[("outcome", "dropped")]).is_some());
}

#[test]
fn the_environment_says_where_with_which_fields_and_who_exports() {
    let (collector, upstream) = (Collector::start(), Upstream::ok());
    let mut command = Andante::command();
    command
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("{}/", collector.url()))
        .env("OTEL_EXPORTER_OTLP_HEADERS", "api-key=secret%20one,x-tenant=a")
        .env("OTEL_SERVICE_NAME", "paced")
        .env("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,team=data%2Cscience")
        .env("OTEL_BSP_SCHEDULE_DELAY", "10");
    let andante = Andante::launched(&mut command, &[]);
    get(&andante, &upstream.url("/"), "");
    collector.wait_for_spans(2);
    let resource = collector.resource();
    for (name, value) in [("service.name", "paced"), ("team", "data,science"), ("deployment.environment.name", "test")]
    {
        assert_eq!(resource[name], value);
    }
    assert!(resource.contains_key("service.version") && resource.contains_key("service.instance.id"), "{resource:?}");
    let request = collector.requests().remove(0);
    assert_eq!(request.line(), "POST /v1/traces HTTP/1.1");
    assert_eq!(request.field("content-type").as_deref(), Some("application/x-protobuf"));
    assert_eq!(request.field("api-key").as_deref(), Some("secret one"));
    assert_eq!(request.field("x-tenant").as_deref(), Some("a"));
    assert!(!andante.stderr().contains("secret one"));
}

#[test]
fn off_and_a_disabled_sdk_export_nothing() {
    let (collector, upstream) = (Collector::start(), Upstream::ok());
    for (variable, value, flags) in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url(), ["--otlp", "off"]),
        ("OTEL_SDK_DISABLED", "true".to_owned(), ["--otlp", &collector.url()]),
    ] {
        let mut command = Andante::command();
        let mut andante = Andante::launched(command.env(variable, value), &flags);
        get(&andante, &upstream.url("/"), "");
        andante.signal(Signal::TERM);
        assert!(andante.ended().success());
    }
    assert_eq!(collector.requests().len(), 0);
    assert!(upstream.requests().iter().all(|request| !request.has("traceparent")));
}

#[test]
fn a_collector_that_is_down_costs_a_log_line_and_drops_spans() {
    let upstream = Upstream::ok();
    let gone = format!("http://{}", Upstream::ok().address());
    let few = [("OTEL_BSP_MAX_QUEUE_SIZE", "4"), ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")];
    let mut andante = traced_with(&gone, &[], &few);
    for _ in 0..20 {
        assert_eq!(get(&andante, &upstream.url("/"), "").status(), 200);
    }
    let dropped = eventually("spans that are dropped", || {
        let metrics = andante.metrics();
        let line = metrics.lines().find(|line| line.starts_with("andante_otlp_spans_total{outcome=\"dropped\"} "))?;
        line.rsplit(' ').next()?.parse::<u64>().ok().filter(|dropped| *dropped > 0)
    });
    assert!(dropped <= 40, "{dropped}");
    andante.signal(Signal::TERM);
    assert!(andante.ended().success());
    let log = andante.stderr();
    assert_eq!(log.matches("traces and metrics cannot be exported").count(), 1, "{log}");
}

#[test]
fn a_collector_that_hangs_does_not_hold_up_the_end() {
    let upstream = Upstream::ok();
    let silent = Upstream::scripted(|mut connection| {
        let _ = connection.rest();
    });
    let mut andante = traced_with(&format!("http://{}", silent.address()), &[], &[]);
    assert_eq!(get(&andante, &upstream.url("/"), "").status(), 200);
    pause(Duration::from_millis(100));
    andante.signal(Signal::TERM);
    assert!(andante.ended().success());
}

#[test]
fn spans_that_a_collector_could_not_take_are_sent_again() {
    let upstream = Upstream::ok();
    let count = std::sync::atomic::AtomicU32::new(0);
    let collector = Upstream::answering(move |_| match count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
        0 => "HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n",
        _ => "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    });
    let andante = traced_with(&format!("http://{}", collector.address()), &[], &[]);
    get(&andante, &upstream.url("/"), "");
    let requests = collector.wait_for(2);
    assert_eq!(requests[0].body, requests[1].body);
}

#[test]
fn logs_carry_the_trace() {
    let (collector, upstream) = (Collector::start(), Upstream::ok());
    let andante = traced(&collector, &["--access-log", "stderr", "--log", "json"]);
    get(&andante, &upstream.url("/"), &format!("traceparent: {WORKER}\r\n"));
    let line = eventually("a line", || {
        andante.stderr().lines().find(|line| line.contains("\"target\":\"access\"")).map(str::to_owned)
    });
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["trace_id"], super::TRACE);
    let spans = collector.wait_for_spans(2);
    let server = spans.iter().find(|span| span.kind == 2).unwrap();
    assert_eq!(line["span_id"], super::hex(&server.span_id));
}

#[test]
fn buckets_show_the_last_trace_as_an_example() {
    let (collector, upstream) = (Collector::start(), Upstream::ok());
    let andante = traced(&collector, &[]);
    get(&andante, &upstream.url("/"), &format!("traceparent: {WORKER}\r\n"));
    let at = andante.admin();
    let text = crate::support::Client::ask(
        at,
        format!(
            "GET /metrics HTTP/1.1\r\nHost: {at}\r\nAccept: application/openmetrics-text\r\nConnection: close\r\n\r\n"
        ),
    )
    .text();
    let example = format!(" # {{trace_id=\"{}\",span_id=\"", super::TRACE);
    let line = text.lines().find(|line| line.contains(&example)).unwrap_or_else(|| panic!("{text}"));
    assert!(line.starts_with("andante_upstream_seconds_bucket{rule=\"127.0.0.1\",le=\""), "{line}");
}

#[test]
fn exports_of_workers_through_andante_are_not_traced() {
    let (collector, upstream) = (Collector::start(), Upstream::ok());
    let andante = traced(&collector, &[]);
    assert_eq!(get(&andante, &format!("{}/v1/elsewhere", collector.url()), "").status(), 200);
    assert_eq!(get(&andante, &upstream.url("/"), "").status(), 200);
    collector.wait_for_spans(2);
    assert!(!collector.requests()[0].has("traceparent"));
}
