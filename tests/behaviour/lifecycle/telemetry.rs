//! R64, R65: what andante says about its work betrays nobody, and does not grow without bound.

use std::collections::BTreeSet;

use super::quiet;
use crate::support::{Andante, Client, Upstream};

const SECRET: &str = "hunter2";

#[test]
fn r64_no_credential_is_ever_repeated() {
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
    // What is the upstream's business reaches it.
    let seen = upstream.requests();
    let first = &seen[0];
    assert_eq!(first.field("authorization"), Some(format!("Bearer {SECRET}")));
    assert!(seen.iter().all(|request| !request.has("proxy-authorization")));
}

#[test]
fn r65_hosts_without_a_rule_share_a_label_past_the_cap() {
    const HOSTS: usize = 300;
    let port = Upstream::ok().port();
    let andante = Andante::serve(&["--retry", "off"]);
    for n in 0..HOSTS {
        // All of them are this machine, and nobody listens.
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
