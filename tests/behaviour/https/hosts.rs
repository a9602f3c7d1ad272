//! Which host a tunnel is for, and which are intercepted.

use std::{fs, os::unix::fs::MetadataExt as _};

use super::{intercepted, localhost, secure, server};
use crate::support::{
    Client, DeadPort, Upstream, eventually, rejected,
    tls::{Interceptor, Server, TRUSTED, Worker},
};

#[test]
fn a_request_for_another_host_than_its_tunnel_is_400() {
    let (upstream, other) = (secure(), secure());
    let interceptor = Interceptor::serve(&["--intercept", "*"]);
    let target = localhost(&upstream);
    let port = upstream.port();
    for host in
        ["other.test".to_owned(), localhost(&other), format!("127.0.0.1:{port}"), format!("sub.localhost:{port}")]
    {
        let mut worker = interceptor.worker(&target);
        worker.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        rejected(&worker.answer(), 400, "http_request_error", &host);
    }
    for url in [format!("https://{}/", localhost(&other)), format!("http://{target}/"), "https://a.test/".to_owned()] {
        let mut worker = interceptor.worker(&target);
        worker.send(format!("GET {url} HTTP/1.1\r\nHost: {target}\r\n\r\n"));
        rejected(&worker.answer(), 400, "http_request_error", &url);
    }
    assert!(upstream.requests().is_empty() && other.requests().is_empty());
}

#[test]
fn any_spelling_of_the_tunnels_host_will_do() {
    let (upstream, interceptor) = (secure(), Interceptor::serve(&["--intercept", "localhost"]));
    let (target, port) = (localhost(&upstream), upstream.port());
    let mut worker = interceptor.worker(&format!("LocalHost.:{port}"));
    for host in [target.clone(), format!("LOCALHOST:{port}"), format!("localhost.:{port}")] {
        worker.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(worker.answer().text(), "ok", "{host}");
    }
    worker.send(format!("GET https://{target}/absolute HTTP/1.1\r\nHost: {target}\r\n\r\n"));
    assert_eq!(worker.answer().text(), "ok");
    assert_eq!(upstream.requests()[3].target(), "/absolute");
    assert_eq!(interceptor.andante.status()["lanes_total"], 1);
}

#[test]
fn an_upstream_whose_certificate_is_for_the_sni_alone_is_refused() {
    let upstream = Upstream::secure_ok(Server::new(&TRUSTED.leaf(&["other.test"]), &["http/1.1"]));
    let interceptor = Interceptor::serve(&["--intercept", "localhost"]);
    let target = localhost(&upstream);
    let mut worker = interceptor.trusting(&target);
    worker.name = Some("other.test".to_owned());
    worker.blind = true;
    let mut worker = worker.secure(interceptor.tunnel(&target)).unwrap();
    worker.send(format!("GET / HTTP/1.1\r\nHost: {target}\r\n\r\n"));
    rejected(&worker.answer(), 502, "tls_certificate_error", "a certificate for other.test");
    assert!(upstream.requests().is_empty());
}

#[test]
fn a_worker_is_offered_what_its_upstream_speaks() {
    const BOTH: &[&str] = &["h2", "http/1.1"];
    for (speaks, agreed) in [(&["http/1.1"][..], "http/1.1"), (BOTH, "h2"), (&[], "http/1.1"), (&["h2"], "h2")] {
        let upstream = Upstream::secure_ok(server(speaks));
        let interceptor = Interceptor::serve(&["--intercept", "localhost"]);
        let target = localhost(&upstream);
        let mut worker = interceptor.trusting(&target);
        worker.alpn = BOTH;
        let worker = worker.secure(interceptor.tunnel(&target)).unwrap();
        assert_eq!(worker.alpn.as_deref(), Some(agreed), "{speaks:?}");
        assert_eq!(upstream.hello().alpn, BOTH);
    }
}

#[test]
fn a_worker_that_speaks_no_alpn_is_served_http_1() {
    let (upstream, interceptor) = (secure(), Interceptor::serve(&["--intercept", "localhost"]));
    let target = localhost(&upstream);
    let mut worker = interceptor.trusting(&target);
    worker.alpn = &[];
    let mut worker = worker.secure(interceptor.tunnel(&target)).unwrap();
    assert_eq!(worker.alpn, None);
    worker.send(format!("GET / HTTP/1.1\r\nHost: {target}\r\n\r\n"));
    assert_eq!(worker.answer().text(), "ok");
}

#[test]
fn an_upstream_that_cannot_be_reached_is_told_in_an_answer_and_not_by_a_failed_handshake() {
    let interceptor = Interceptor::serve(&["--intercept", "localhost"]);
    let dead = DeadPort::reserve();
    let answer = interceptor.get(&format!("localhost:{}", dead.address().port()), "/");
    rejected(&answer, 502, "connection_refused", "a dead port");
}

#[test]
fn the_ca_is_made_at_the_first_interception_with_a_key_for_its_owner_alone() {
    let interceptor = Interceptor::serve(&["--intercept", "localhost"]);
    let mode = |name: &str| fs::metadata(interceptor.data().join(name)).unwrap().mode() & 0o777;
    assert_eq!((mode("ca-key.pem"), mode("ca.pem")), (0o600, 0o644));
    let none = Interceptor::serve(&[]);
    assert_eq!(fs::read_dir(none.data()).unwrap().count(), 0, "nobody asked for a CA");
}

#[test]
fn the_ca_stays_the_same_when_andante_starts_again() {
    let first = Interceptor::serve(&["--intercept", "localhost"]);
    let made = fs::read(first.data().join("ca.pem")).unwrap();
    let dir = first.data().to_str().unwrap().to_owned();
    let again = crate::support::Andante::serve(&["--data", &dir, "--intercept", "localhost"]);
    assert_eq!(fs::read(first.data().join("ca.pem")).unwrap(), made);
    drop(again);
}

#[test]
fn a_pinned_host_passes_though_all_are_intercepted() {
    let (pinned, other) = (secure(), secure());
    let rule = format!("[[rule]]\nhost = \"localhost:{}\"\nhttps = \"tunnel\"\n", pinned.port());
    let interceptor = Interceptor::with_config(&rule, &["--intercept", "*"]);
    let target = localhost(&pinned);
    let own = Worker::trusting(TRUSTED.file().as_ref(), &target);
    let mut worker = own.secure(interceptor.tunnel(&target)).expect("the upstream's own certificate");
    worker.send(format!("GET / HTTP/1.1\r\nHost: {target}\r\n\r\n"));
    let answer = worker.answer();
    assert_eq!((answer.text().as_str(), answer.has("via")), ("ok", false));
    // The hello was the worker's own: andante offers both protocols.
    assert_eq!(pinned.hello().alpn, ["http/1.1"]);
    assert_eq!(interceptor.get(&localhost(&other), "/").text(), "ok");
}

#[test]
fn where_a_rule_asks_for_tunnels_a_limit_that_they_get_around_is_logged_once() {
    let upstream = secure();
    let target = localhost(&upstream);
    let rule = "[[rule]]\nhost = \"localhost\"\nlimits = \"100/s\"\nhttps = \"tunnel\"\n";
    let interceptor = Interceptor::with_config(rule, &[]);
    let own = Worker::trusting(TRUSTED.file().as_ref(), &target);
    for _ in 0..3 {
        let mut worker = own.secure(interceptor.tunnel(&target)).unwrap();
        worker.send(format!("GET / HTTP/1.1\r\nHost: {target}\r\n\r\n"));
        assert!(!worker.answer().has("via"));
    }
    let log = interceptor.andante.stderr();
    let told = log.lines().filter(|line| line.contains("only tunnels to it are counted")).count();
    assert_eq!(told, 1, "{log}");
    assert!(log.contains("--intercept localhost"), "{log}");
}

#[test]
fn a_worker_that_does_not_trust_us_is_told_of_once_counted_each_time_and_never_let_through() {
    let (upstream, interceptor) = (secure(), Interceptor::serve(&["--intercept", "localhost"]));
    let target = localhost(&upstream);
    // This worker trusts the upstream's CA, so that a tunnel that is relayed unseen would work.
    let distrusting = Worker::trusting(TRUSTED.file().as_ref(), &target);
    for _ in 0..3 {
        assert!(distrusting.secure(interceptor.tunnel(&target)).is_err(), "it was let through");
    }
    let andante = &interceptor.andante;
    eventually("three who do not trust us", || (intercepted(andante, "untrusted") == 3).then_some(()));
    let log = andante.stderr();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("does not trust andante's certificates")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    for word in ["WARN", "host=localhost", "UnknownCA", "andante env", "https = \"turns\""] {
        assert!(lines[0].contains(word), "no {word}: {log}");
    }
    assert!(upstream.requests().is_empty());
    assert_eq!(intercepted(andante, "tls"), 0);
}

#[test]
fn https_refuse_is_403_and_the_connection_closed() {
    let upstream = secure();
    let rule = "[[rule]]\nhost = \"localhost\"\nhttps = \"refuse\"\n";
    let interceptor = Interceptor::with_config(rule, &["--intercept", "*"]);
    let target = localhost(&upstream);
    let mut client = Client::connect(interceptor.andante.proxy());
    client.send(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\nGET http://{target}/ HTTP/1.1\r\n\r\n"));
    let answer = client.answer();
    rejected(&answer, 403, "http_request_denied", "refuse");
    assert_eq!(answer.field("connection").as_deref(), Some("close"));
    client.closed();
    assert_eq!(upstream.connections(), 0);
}
