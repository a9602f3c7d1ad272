//! Spans and their attributes.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind};

use rustix::process::Signal;

use super::{PARENT, TRACE, WORKER, get, hex, traced};
use crate::support::{
    Andante, Client, Collector, Upstream,
    collector::{attributes, length},
    h2::Client2,
};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn of_kind(spans: &[Span], kind: SpanKind) -> Vec<&Span> {
    let mut found: Vec<_> = spans.iter().filter(|span| span.kind == kind as i32).collect();
    found.sort_by_key(|span| span.start_time_unix_nano);
    found
}

#[test]
fn a_request_is_a_server_span_with_a_client_span_in_the_workers_trace() {
    let (collector, upstream) = (Collector::start(), Upstream::ok());
    let andante = traced(&collector, &["--limit", &format!("{}=100/s", upstream.address())]);
    let url = upstream.url("/v1/things?key=hunter2&page=2");
    let sent = format!("traceparent: {WORKER}\r\ntracestate: a=1,b=2\r\nbaggage: user=7\r\nUser-Agent: worker/1\r\n");
    assert_eq!(get(&andante, &url, &sent).status(), 200);
    let spans = collector.wait_for_spans(2);
    let (server, client) = (of_kind(&spans, SpanKind::Server)[0], of_kind(&spans, SpanKind::Client)[0]);
    for span in &spans {
        assert_eq!((hex(&span.trace_id).as_str(), span.name.as_str()), (TRACE, "GET"));
        assert!(length(span) < Duration::from_secs(10) && span.start_time_unix_nano > 1_700_000_000_000_000_000);
    }
    assert_eq!(hex(&server.parent_span_id), PARENT);
    assert_eq!(server.trace_state, "a=1,b=2");
    assert_eq!(client.parent_span_id, server.span_id);
    // The API continues the trace below the try.
    let seen = upstream.request();
    assert_eq!(seen.field("traceparent"), Some(format!("00-{TRACE}-{}-01", hex(&client.span_id))));
    assert_eq!(seen.field("tracestate").as_deref(), Some("a=1,b=2"));
    assert_eq!(seen.field("baggage").as_deref(), Some("user=7"));
    assert_eq!(seen.target(), "/v1/things?key=hunter2&page=2");
    let (host, port) = (upstream.address().ip().to_string(), upstream.port().to_string());
    let said = attributes(&server.attributes);
    for (name, value) in [
        ("http.request.method", "GET"),
        ("http.response.status_code", "200"),
        ("url.scheme", "http"),
        ("url.path", "/v1/things"),
        ("url.query", "key=REDACTED&page=REDACTED"),
        ("server.address", &host),
        ("server.port", &port),
        ("client.address", "127.0.0.1"),
        ("network.protocol.version", "1.1"),
        ("user_agent.original", "worker/1"),
        ("andante.outcome", "answered"),
        ("andante.rule", &upstream.address().to_string()),
    ] {
        assert_eq!(said.get(name).map(String::as_str), Some(value), "{name}: {said:?}");
    }
    let said = attributes(&client.attributes);
    let full = format!("http://{}/v1/things?key=REDACTED&page=REDACTED", upstream.address());
    for (name, value) in [
        ("http.request.method", "GET"),
        ("http.response.status_code", "200"),
        ("url.full", full.as_str()),
        ("server.address", &host),
        ("server.port", &port),
        ("network.protocol.version", "1.1"),
    ] {
        assert_eq!(said.get(name).map(String::as_str), Some(value), "{name}: {said:?}");
    }
    assert!(!said.contains_key("http.request.resend_count") && !said.contains_key("error.type"), "{said:?}");
    assert!(!format!("{spans:?}").contains("hunter2"));
    assert_eq!(collector.resource()["service.name"], "andante");
}

#[test]
fn a_wait_is_a_span_with_its_limit_its_place_and_its_length() {
    let (collector, upstream) = (Collector::start(), Upstream::ok());
    let andante = traced(&collector, &["--limit", &format!("{}=1/s", upstream.address())]);
    for _ in 0..2 {
        assert_eq!(get(&andante, &upstream.url("/"), "").status(), 200);
    }
    let spans = collector.wait_for_spans(5);
    let wait = of_kind(&spans, SpanKind::Internal)[0];
    assert_eq!(wait.name, "wait for slot");
    let server = spans.iter().find(|span| span.span_id == wait.parent_span_id).expect("its parent");
    assert_eq!((server.kind, &server.trace_id), (SpanKind::Server as i32, &wait.trace_id));
    let said = attributes(&wait.attributes);
    assert_eq!(said["andante.rule"], upstream.address().to_string());
    assert_eq!(said["andante.wait.limit"], "1/s");
    assert_eq!((said["andante.wait.position"].as_str(), said["andante.wait.outcome"].as_str()), ("0", "sent"));
    let seconds = |name: &str| said[name].parse::<f64>().unwrap();
    let (predicted, actual) = (seconds("andante.wait.predicted"), seconds("andante.wait.actual"));
    assert!((0.5..1.5).contains(&predicted), "{predicted}");
    assert!((length(wait).as_secs_f64() - actual).abs() < 0.001 && actual > 0.5, "{actual}");
    let client = of_kind(&spans, SpanKind::Client)[1];
    assert!(client.start_time_unix_nano >= wait.end_time_unix_nano && client.parent_span_id == server.span_id);
}

#[test]
fn a_retry_is_a_second_client_span_that_says_why() {
    let (collector, count) = (Collector::start(), AtomicU32::new(0));
    let upstream = Upstream::answering(move |_| match count.fetch_add(1, Ordering::Relaxed) {
        0 => "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n",
        _ => OK,
    });
    let andante = traced(&collector, &[]);
    assert_eq!(get(&andante, &upstream.url("/"), &format!("traceparent: {WORKER}\r\n")).status(), 200);
    let spans = collector.wait_for_spans(of_tries(&collector, 2));
    let tries = of_kind(&spans, SpanKind::Client);
    let said: Vec<_> = tries.iter().map(|span| attributes(&span.attributes)).collect();
    assert_eq!((said[0]["http.response.status_code"].as_str(), said[0]["error.type"].as_str()), ("429", "429"));
    assert!(!said[0].contains_key("http.request.resend_count"), "{said:?}");
    assert_eq!(tries[0].status.as_ref().map(|status| status.code), Some(2));
    assert_eq!(
        (said[1]["http.response.status_code"].as_str(), said[1]["http.request.resend_count"].as_str()),
        ("200", "1")
    );
    assert_eq!(said[1]["andante.retry.reason"], "refused");
    assert_eq!(tries[1].status, None);
    let server = of_kind(&spans, SpanKind::Server)[0];
    assert_eq!(attributes(&server.attributes)["http.response.status_code"], "200");
    // Each try is a parent of its own for the API.
    let parents: Vec<_> = upstream.requests().iter().map(|request| request.field("traceparent").unwrap()).collect();
    let expected: Vec<_> = tries.iter().map(|span| format!("00-{TRACE}-{}-01", hex(&span.span_id))).collect();
    assert_eq!(parents, expected);
}

/// Number of spans of a request after its server span, which ends last. Waits for `tries` spans of tries.
fn of_tries(collector: &Collector, tries: usize) -> usize {
    crate::support::eventually("the server span", || {
        let spans = collector.spans();
        let ended = of_kind(&spans, SpanKind::Server).len() == 1 && of_kind(&spans, SpanKind::Client).len() == tries;
        ended.then_some(spans.len())
    })
}

#[test]
fn a_failure_says_of_which_kind_it_is() {
    let collector = Collector::start();
    let gone = Upstream::ok().address();
    let andante = traced(&collector, &["--retry", "off"]);
    assert_eq!(get(&andante, &format!("http://{gone}/"), "").status(), 502);
    let spans = collector.wait_for_spans(2);
    for span in &spans {
        let said = attributes(&span.attributes);
        assert_eq!(said["error.type"], "connection_refused", "{said:?}");
        assert_eq!(span.status.as_ref().map(|status| status.code), Some(2));
    }
}

#[test]
fn a_request_that_andante_refuses_has_no_client_span() {
    let (collector, upstream) = (Collector::start(), Upstream::ok());
    let andante = traced(&collector, &["--limit", &format!("{}=1/h", upstream.address())]);
    assert_eq!(get(&andante, &upstream.url("/"), "").status(), 200);
    collector.wait_for_spans(2);
    assert_eq!(get(&andante, &upstream.url("/"), "Prefer: wait=0\r\n").status(), 429);
    let spans = collector.wait_for_spans(3);
    let said = attributes(&of_kind(&spans, SpanKind::Server)[1].attributes);
    assert_eq!((said["http.response.status_code"].as_str(), said["andante.outcome"].as_str()), ("429", "refused"));
    assert_eq!(said["error.type"], "http_request_denied");
}

#[test]
fn a_wait_that_the_end_of_the_process_cuts_off_is_refused() {
    let collector = Collector::start();
    let silent = Upstream::scripted(|mut connection| {
        let _ = connection.rest();
    });
    let rule = format!("[[rule]]\nhost = \"{}\"\nin-flight = 1\n", silent.address());
    let mut andante = Andante::with_config(&format!("otlp = \"{}\"\ndrain = \"300ms\"\n{rule}", collector.url()));
    let ask = || {
        let mut client = Client::connect(andante.proxy());
        client.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", silent.url("/"), silent.address()));
        client
    };
    let mut clients = [ask(), ask()];
    andante.wait_for(|status| status["lanes"][0]["waiting"] == 1);
    andante.signal(Signal::TERM);
    clients.iter_mut().for_each(|client| assert_eq!(client.answer().status(), 503));
    andante.ended();
    let spans = collector.wait_for_spans(4);
    let wait = attributes(&of_kind(&spans, SpanKind::Internal)[0].attributes);
    assert_eq!(
        (wait["andante.wait.limit"].as_str(), wait["andante.wait.outcome"].as_str()),
        ("in-flight 1", "refused")
    );
}

#[test]
fn a_client_that_leaves_ends_its_spans() {
    let (collector, upstream) = (Collector::start(), Upstream::ok());
    let andante = traced(&collector, &["--limit", &format!("{}=1/h", upstream.address())]);
    assert_eq!(get(&andante, &upstream.url("/"), "").status(), 200);
    collector.wait_for_spans(2);
    let mut client = Client::connect(andante.proxy());
    client.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.url("/"), upstream.address()));
    andante.wait_for(|status| status["lanes"][0]["waiting"] == 1);
    drop(client);
    let spans = collector.wait_for_spans(4);
    let wait = attributes(&of_kind(&spans, SpanKind::Internal)[0].attributes);
    assert_eq!(wait["andante.wait.outcome"], "left");
    assert_eq!(attributes(&of_kind(&spans, SpanKind::Server)[1].attributes)["andante.outcome"], "left");
}

#[test]
fn spans_last_until_the_last_byte_of_the_answer() {
    let collector = Collector::start();
    let upstream = Upstream::scripted(|mut connection| {
        if connection.request().is_some() {
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nok");
            crate::support::pause(Duration::from_millis(300));
            connection.send("ok");
        }
    });
    let andante = traced(&collector, &[]);
    assert_eq!(get(&andante, &upstream.url("/"), "").text(), "okok");
    let spans = collector.wait_for_spans(2);
    assert!(spans.iter().all(|span| length(span) >= Duration::from_millis(290)), "{spans:?}");
}

#[test]
fn a_try_whose_answer_breaks_off_has_failed() {
    for (beginning, pauses) in [("", false), ("ok", false), ("ok", true)] {
        let collector = Collector::start();
        let upstream = Upstream::scripted(move |mut connection| {
            if connection.request().is_some() {
                connection.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{beginning}"));
                // Read by the worker meanwhile, or together with its end.
                crate::support::pause(Duration::from_millis(if pauses { 200 } else { 0 }));
            }
        });
        let andante = traced(&collector, &["--retry", "off"]);
        let mut client = Client::connect(andante.proxy());
        let (url, host) = (upstream.url("/"), upstream.address());
        client.send(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
        client.rest();
        let spans = collector.wait_for_spans(2);
        let client = of_kind(&spans, SpanKind::Client)[0];
        let case = format!("{beginning:?}, {pauses}: {client:?}");
        assert_eq!(attributes(&client.attributes)["error.type"], "connection_terminated", "{case}");
        let status = client.status.as_ref().expect(&case);
        assert!(status.code == 2 && !status.message.is_empty(), "{case}");
    }
}

#[test]
fn a_try_whose_answer_is_no_answer_has_failed() {
    let collector = Collector::start();
    let upstream = Upstream::always("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok");
    let andante = traced(&collector, &["--retry", "off"]);
    assert_eq!(get(&andante, &upstream.url("/"), "").status(), 502);
    for span in collector.wait_for_spans(2) {
        assert_eq!(attributes(&span.attributes)["error.type"], "http_protocol_error", "{span:?}");
    }
}

#[test]
fn streams_of_http2_are_traced_alike() {
    let (collector, upstream) = (Collector::start(), Upstream::ok());
    let andante = traced(&collector, &[]);
    let mut client = Client2::connect(andante.proxy());
    for _ in 0..2 {
        let request = http::Request::get(upstream.url("/")).header("traceparent", WORKER);
        assert_eq!(client.send(request).answer().status(), 200);
    }
    let spans = collector.wait_for_spans(4);
    for server in of_kind(&spans, SpanKind::Server) {
        assert_eq!(hex(&server.parent_span_id), PARENT);
        assert_eq!(attributes(&server.attributes)["network.protocol.version"], "2");
        assert!(of_kind(&spans, SpanKind::Client).iter().any(|client| client.parent_span_id == server.span_id));
    }
}

#[test]
fn a_gateway_address_is_traced_by_its_own_url_and_the_apis() {
    let (collector, upstream) = (Collector::start(), Upstream::ok());
    let toml =
        format!("otlp = '{}'\n[[gateway]]\npath = '/api'\nto = 'http://{}/v1'\n", collector.url(), upstream.address());
    let andante = Andante::with_environment_and_config("OTEL_BSP_SCHEDULE_DELAY", "10", &toml);
    let at = andante.proxy();
    let request =
        format!("GET /api/things HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\ntraceparent: {WORKER}\r\n\r\n");
    assert_eq!(Client::ask(at, request).status(), 200);
    let spans = collector.wait_for_spans(2);
    let server = attributes(&of_kind(&spans, SpanKind::Server)[0].attributes);
    assert_eq!((server["url.path"].as_str(), server["server.port"].as_str()), ("/api/things", &*at.port().to_string()));
    let client = attributes(&of_kind(&spans, SpanKind::Client)[0].attributes);
    assert_eq!(client["url.full"], upstream.url("/v1/things"));
}

#[test]
fn usage_that_a_preset_reads_is_an_attribute_of_the_try() {
    // By the providers' references: Anthropic's messages, OpenAI's chat completions and responses.
    for (preset, usage) in [
        ("anthropic", r#""input_tokens":25,"output_tokens":15"#),
        ("openai", r#""prompt_tokens":25,"completion_tokens":15,"total_tokens":40"#),
        (
            "openai",
            r#""input_tokens":25,"input_tokens_details":{"cached_tokens":0},"output_tokens":15,"total_tokens":40"#,
        ),
    ] {
        let collector = Collector::start();
        let body = format!(r#"{{"model":"m","usage":{{{usage}}}}}"#);
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        let upstream = Upstream::always(head + &body);
        let toml = format!(
            "otlp = '{}'\n[[rule]]\nhost = '{}'\npreset = '{preset}'\nlimits = '1000/s'\n",
            collector.url(),
            upstream.address()
        );
        let andante = Andante::with_environment_and_config("OTEL_BSP_SCHEDULE_DELAY", "10", &toml);
        assert_eq!(get(&andante, &upstream.url("/v1/messages"), "").status(), 200);
        let spans = collector.wait_for_spans(2);
        let client = attributes(&of_kind(&spans, SpanKind::Client)[0].attributes);
        let used = (client["gen_ai.usage.input_tokens"].as_str(), client["gen_ai.usage.output_tokens"].as_str());
        assert_eq!(used, ("25", "15"), "{usage}");
    }
}

/// The request's model is known only where its body is read for another reason: here for its cost.
#[test]
fn model_that_is_read_anyway_is_an_attribute_of_the_try() {
    for (keys, asked, answered) in [
        ("preset = 'openai'\nread-body = '8KiB'\ncost = 'tokens=body:max_tokens'", Some("gpt-4o"), Some("gpt-4o-2024")),
        ("preset = 'openai'", None, Some("gpt-4o-2024")),
        ("usage = 'tokens=total_tokens'", None, None),
        ("", None, None),
    ] {
        let collector = Collector::start();
        let body = r#"{"id":"1","model":"gpt-4o-2024","usage":{"prompt_tokens":25,"total_tokens":40}}"#;
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        let upstream = Upstream::always(head + body);
        let (host, url) = (upstream.address(), upstream.url("/v1/chat/completions"));
        let rule = format!("[[rule]]\nhost = '{host}'\n{keys}\nlimits = ['1000/s', '100000 tokens/min']\n");
        let toml = format!("otlp = '{}'\n{rule}", collector.url());
        let andante = Andante::with_environment_and_config("OTEL_BSP_SCHEDULE_DELAY", "10", &toml);
        let asks = r#"{"messages":[{"input":{"model":"car"}}],"model":"gpt-4o","max_tokens":50}"#;
        let request = format!(
            "POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{asks}",
            asks.len()
        );
        assert_eq!(Client::ask(andante.proxy(), request).status(), 200, "{keys}");
        let spans = collector.wait_for_spans(2);
        let client = attributes(&of_kind(&spans, SpanKind::Client)[0].attributes);
        let models = ["gen_ai.request.model", "gen_ai.response.model"].map(|name| client.get(name).map(String::as_str));
        assert_eq!(models, [asked, answered], "{keys}");
    }
}
