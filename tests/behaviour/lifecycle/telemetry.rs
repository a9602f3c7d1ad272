//! andante's logs, metrics and status reveal no secret, and do not grow without bound.

use std::collections::{BTreeMap, BTreeSet};

use super::quiet;
use crate::support::{Andante, Client, Collector, Redis, Upstream};

const SECRET: &str = "hunter2";

#[test]
fn no_credential_is_ever_repeated() {
    let upstream = Upstream::answering(|request| {
        let close = "HTTP/1.1 200 OK\r\nSet-Cookie: s=hunter2\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        if request.target() == "/broken" { "HTTP/1.1 2x0 hunter2\r\n\r\n" } else { close }
    });
    let host = upstream.address();
    let gone = Upstream::ok().address();
    let secrets = format!(
        "Authorization: Bearer {SECRET}\r\nProxy-Authorization: Basic {SECRET}\r\nCookie: s={SECRET}\r\n\
         X-Api-Key: {SECRET}\r\n"
    );
    let targets = [
        format!("GET http://{host}/?key={SECRET}"),
        format!("GET http://{host}/broken"),
        format!("GET http://user:{SECRET}@{host}/"),
        format!("GET http://{SECRET}@{host}/"),
        format!("GET http://user:{SECRET}@nowhere.invalid/"),
        format!("GET http://{gone}/?key={SECRET}"),
        format!("GET ftp://user:{SECRET}@{host}/"),
        format!("GET /?key={SECRET}"),
        format!("CONNECT user:{SECRET}@{host}"),
        format!("CONNECT {gone}"),
        format!("GET http://{host}/ {SECRET}"),
        format!("TRACE http://user:{SECRET}@{host}/"),
        format!("OPTIONS http://user:{SECRET}@{host}/"),
    ];
    for level in ["debug", "trace"] {
        let andante = Andante::logging(level, &["--access-log", "stderr", "--limit", &format!("{host}=1000/s")]);
        for target in &targets {
            let fields = format!("Host: {host}\r\nMax-Forwards: 0\r\nConnection: close\r\n{secrets}");
            let answer = Client::ask(andante.proxy(), format!("{target} HTTP/1.1\r\n{fields}\r\n"));
            assert!(answer.status() == 200 || !format!("{answer:?}").contains(SECRET), "{target}: {answer:?}");
            assert!(!answer.text().contains(SECRET), "{target}: {answer:?}");
        }
        andante.wait_for(quiet);
        assert!(andante.stderr().contains("DEBUG"), "nothing was logged");
        for (place, text) in
            [("log", andante.stderr()), ("metrics", andante.metrics()), ("status", andante.status().to_string())]
        {
            assert!(!text.contains(SECRET), "{place}: {text}");
        }
    }
    // The upstream receives the fields that are meant for it.
    let seen = upstream.requests();
    let first = &seen[0];
    assert_eq!(first.field("authorization"), Some(format!("Bearer {SECRET}")));
    assert!(seen.iter().all(|request| !request.has("proxy-authorization")));
}

#[test]
fn hosts_without_a_rule_share_a_label_past_the_cap() {
    const HOSTS: usize = 300;
    let port = Upstream::ok().port();
    let andante = Andante::serve(&["--retry", "off"]);
    for n in 0..HOSTS {
        // All of these addresses are this machine, without a listener.
        let url = format!("http://127.1.{}.{}:{port}/", n / 200, n % 200 + 1);
        assert_eq!(Client::get(andante.proxy(), &url).status(), 502);
    }
    let metrics = andante.metrics();
    let label = |line: &str| line.split_once("rule=\"")?.1.split('"').next().map(str::to_owned);
    let labels: BTreeSet<String> = metrics.lines().filter_map(label).collect();
    assert!((100..=103).contains(&labels.len()), "{} labels", labels.len());
    let failed = |line: &&str| line.starts_with("andante_requests_total{") && line.contains("outcome=\"failed\"");
    let counts = metrics.lines().filter(failed).filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok());
    assert_eq!(counts.sum::<usize>(), HOSTS);
    let other = metrics.lines().find(|line| failed(line) && line.contains("rule=\"other\"")).unwrap();
    assert!(other.ends_with(&format!(" {}", HOSTS - 100)), "{other}");
}

#[test]
fn the_page_on_metrics_has_each_metric_with_its_type_and_no_other() {
    const PAGE: &str = include_str!("../../../docs/metrics.md");
    let upstream = Upstream::always(
        "HTTP/1.1 200 OK\r\nX-RateLimit-Limit: 100\r\nX-RateLimit-Remaining: 50\r\nX-RateLimit-Reset: 60\r\n\
         Content-Length: 0\r\n\r\n",
    );
    let host = upstream.address();
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("limits.redb");
    let store = Redis::for_a_fleet();
    let collector = Collector::start();
    let rule = format!("[[rule]]\nhost = \"{host}\"\nlimits = [\"100/s\"]\nin-flight = \"auto\"\n");
    let andante = Andante::with_config_and(
        &format!("fleet-size = 2\n{rule}{rule}name = \"some\"\nmethod = \"GET\"\n"),
        &["--state", state.to_str().unwrap(), "--store", &store.url(), "--otlp", &collector.url()],
    );
    assert_eq!(Client::get(andante.proxy(), &format!("http://{host}/")).status(), 200);
    let metrics = andante.metrics();
    // # TYPE name type
    let shown: BTreeMap<&str, &str> =
        metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    // | `name`, `name` | type | …
    let mut written = BTreeMap::new();
    for line in PAGE.lines().filter(|line| line.starts_with("| `andante_") || line.starts_with("| `process_")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        written.extend(cells[1].split(", ").map(|name| (name.trim_matches('`'), cells[2])));
    }
    assert_eq!(written, shown);
    // Names in queries and alerts, with the series of histograms.
    let series = |name: &str| {
        let of_histogram = |end| name.strip_suffix(end).is_some_and(|family| shown.get(family) == Some(&"histogram"));
        shown.contains_key(name) || ["_bucket", "_sum", "_count"].into_iter().any(of_histogram)
    };
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let asked = PAGE.split("```").skip(1).step_by(2).flat_map(|block| block.split(|c| !is_of_name(c)));
    let unknown: Vec<&str> = asked
        .filter(|word| word.starts_with("andante_") || word.starts_with("process_"))
        .filter(|name| !series(name))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn openmetrics_is_for_those_who_ask_for_it() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/")).status(), 200);
    let at = andante.admin();
    let ask = |accept: &str| {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {at}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n");
        Client::ask(at, request)
    };
    let openmetrics = ask("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5");
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(openmetrics.field("content-type").as_deref(), Some(kind));
    let text = openmetrics.text();
    assert!(text.contains("# TYPE andante_requests counter\n") && text.ends_with("\n# EOF\n"), "{text}");
    // No request is traced.
    assert!(!text.contains(" # {"), "{text}");
    let families: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert_eq!(families.iter().collect::<BTreeSet<_>>().len(), families.len(), "{families:?}");
    let plain = ask("*/*");
    assert_eq!(plain.field("content-type").as_deref(), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert!(plain.text().contains("# TYPE andante_requests_total counter\n"));
}

#[test]
fn connections_are_counted_by_whether_they_were_used_before() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    for _ in 0..2 {
        let mut client = Client::connect(andante.proxy());
        for _ in 0..3 {
            client.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.url("/"), upstream.address()));
            assert_eq!(client.answer().status(), 200);
        }
    }
    let metrics = andante.metrics();
    let value = |labels: &str| {
        let start = format!("andante_connections_total{{{labels}}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&start)?.parse::<u64>().ok()).expect("the counter")
    };
    let client = [value("reused=\"false\",side=\"client\""), value("reused=\"true\",side=\"client\"")];
    assert_eq!(client, [2, 4]);
    // Each thread has connections of its own.
    let upstream = [value("reused=\"false\",side=\"upstream\""), value("reused=\"true\",side=\"upstream\"")];
    assert!((1..=2).contains(&upstream[0]) && upstream.iter().sum::<u64>() == 6, "{upstream:?}");
}

#[test]
fn time_between_two_tries_is_counted_by_its_reason() {
    let andante = Andante::serve(&[]);
    let count = std::sync::atomic::AtomicU32::new(0);
    let upstream = Upstream::answering(move |_| match count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
        0 => "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n",
        _ => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    });
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/")).status(), 200);
    let metrics = andante.metrics();
    let start = "andante_back_off_seconds_total{reason=\"failed\",rule=\"127.0.0.1\"} ";
    let seconds: f64 = metrics.lines().find_map(|line| line.strip_prefix(start)?.parse().ok()).expect("the counter");
    // 50 ms at least, and 250 ms at most before the second try.
    assert!((0.05..=0.25).contains(&seconds), "{seconds}");
}
