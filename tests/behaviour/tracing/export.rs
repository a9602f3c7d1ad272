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
    // Two spans a request, of which the queue and the batch on its way hold a few.
    assert!((1..40).contains(&dropped), "{dropped}");
    andante.signal(Signal::TERM);
    assert!(andante.ended().success());
    let log = andante.stderr();
    for signal in ["traces", "metrics"] {
        assert_eq!(log.matches(&format!("{signal} cannot be exported")).count(), 1, "{signal}: {log}");
    }
}

#[test]
fn a_collector_that_hangs_does_not_hold_up_the_end() {
    let upstream = Upstream::ok();
    let silent = Upstream::scripted(|mut connection| {
        let _ = connection.rest();
    });
    let url = format!("http://{}", silent.address());
    let mut andante = traced_with(&url, &[], &[("OTEL_EXPORTER_OTLP_TIMEOUT", "60000")]);
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
fn a_signal_that_fails_is_logged_once_while_the_other_is_taken() {
    let (collector, upstream) = (Collector::start(), Upstream::ok());
    let gone = format!("http://{}/v1/traces", Upstream::ok().address());
    let variables = [("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &*gone), ("OTEL_METRIC_EXPORT_INTERVAL", "100")];
    let andante = traced_with(&collector.url(), &[], &variables);
    get(&andante, &upstream.url("/"), "");
    eventually("a log line", || andante.stderr().contains("cannot be exported").then_some(()));
    let exports = collector.requests().len();
    eventually("exports of metrics", || (collector.requests().len() > exports + 2).then_some(()));
    // The second try of the spans comes after a second.
    pause(Duration::from_millis(1500));
    let log = andante.stderr();
    assert_eq!(log.matches("traces cannot be exported").count(), 1, "{log}");
    assert!(!log.contains("exported again") && !log.contains("metrics cannot"), "{log}");
}

#[test]
fn the_status_decides_although_the_answers_body_breaks() {
    let upstream = Upstream::ok();
    let long = "x".repeat(100_000);
    for (status, outcome) in [("400 Bad Request", "rejected"), ("200 OK", "exported")] {
        for answer in [
            format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{long}", long.len()),
            format!("HTTP/1.1 {status}\r\nContent-Length: 10\r\nConnection: close\r\n\r\nx"),
        ] {
            let collector = Upstream::once(answer);
            let andante = traced_with(&format!("http://{}", collector.address()), &[], &[]);
            get(&andante, &upstream.url("/"), "");
            let counted = format!("andante_otlp_spans_total{{outcome=\"{outcome}\"}} 2\n");
            eventually(&counted, || andante.metrics().contains(&counted).then_some(()));
        }
    }
}

#[test]
fn an_answer_whose_body_stalls_counts_as_taken_after_the_timeout() {
    let upstream = Upstream::ok();
    let collector = Upstream::scripted(|mut connection| {
        if connection.request().is_some() {
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n");
            let _ = connection.rest();
        }
    });
    let variables = [("OTEL_EXPORTER_OTLP_TIMEOUT", "200")];
    let andante = traced_with(&format!("http://{}", collector.address()), &[], &variables);
    get(&andante, &upstream.url("/"), "");
    let counted = "andante_otlp_spans_total{outcome=\"exported\"} 2\n";
    eventually(counted, || andante.metrics().contains(counted).then_some(()));
}

#[test]
fn the_host_field_is_the_collectors_whatever_the_environment_says() {
    let (collector, upstream) = (Collector::start(), Upstream::ok());
    let andante = traced_with(&collector.url(), &[], &[("OTEL_EXPORTER_OTLP_HEADERS", "host=elsewhere.example")]);
    get(&andante, &upstream.url("/"), "");
    collector.wait_for_spans(2);
    let head = String::from_utf8(collector.requests().remove(0).head).unwrap().to_lowercase();
    assert_eq!(head.matches("\r\nhost: ").count(), 1, "{head}");
    assert!(!head.contains("elsewhere.example"), "{head}");
}

#[test]
fn the_largest_numbers_of_the_environment_are_taken() {
    let (collector, upstream) = (Collector::start(), Upstream::ok());
    let most = u64::MAX.to_string();
    let names = [
        "OTEL_BSP_MAX_QUEUE_SIZE",
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
        "OTEL_BSP_SCHEDULE_DELAY",
        "OTEL_METRIC_EXPORT_INTERVAL",
        "OTEL_EXPORTER_OTLP_TIMEOUT",
    ];
    let mut andante = traced_with(&collector.url(), &[], &names.map(|name| (name, &*most)));
    assert_eq!(get(&andante, &upstream.url("/"), "").status(), 200);
    andante.signal(Signal::TERM);
    assert!(andante.ended().success(), "{}", andante.stderr());
    assert_eq!(collector.spans().len(), 2);
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
    let text = openmetrics(&andante);
    let example = format!(" # {{trace_id=\"{}\",span_id=\"", super::TRACE);
    let line = text.lines().find(|line| line.contains(&example)).unwrap_or_else(|| panic!("{text}"));
    assert!(line.starts_with("andante_upstream_seconds_bucket{rule=\"127.0.0.1\",le=\""), "{line}");
}

#[test]
fn the_example_of_a_bucket_took_as_long_as_what_the_bucket_counts() {
    let (collector, upstream) = (Collector::start(), Upstream::ok());
    let (andante, host) = (traced(&collector, &[]), upstream.address());
    let mut client = crate::support::Client::connect(andante.proxy());
    client.send(format!("POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nContent-Length: 4\r\n\r\nup"));
    // Counted from the request's last byte.
    pause(Duration::from_millis(300));
    client.send("ld");
    assert_eq!(client.answer().status(), 200);
    let text = openmetrics(&andante);
    let value = |text: &str| text.split(' ').next().and_then(|value| value.parse::<f64>().ok()).unwrap();
    let sum = text.split_once("andante_upstream_seconds_sum{rule=\"127.0.0.1\"} ").map(|(_, sum)| sum);
    let sum = value(sum.and_then(|sum| sum.lines().next()).unwrap_or_else(|| panic!("{text}")));
    let line = text.lines().find(|line| line.starts_with("andante_upstream_seconds_bucket") && line.contains(" # {"));
    let line = line.unwrap_or_else(|| panic!("{text}"));
    assert_eq!(value(line.rsplit_once("} ").unwrap().1), sum, "{line}");
}

/// `/metrics` of `andante` as OpenMetrics has it.
fn openmetrics(andante: &Andante) -> String {
    let at = andante.admin();
    let fields = "Accept: application/openmetrics-text\r\nConnection: close\r\n";
    crate::support::Client::ask(at, format!("GET /metrics HTTP/1.1\r\nHost: {at}\r\n{fields}\r\n")).text()
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
