//! Answers that come before an upload is over: they reach the worker, whatever becomes of the rest of the upload.

use std::{net::SocketAddr, time::Duration};

use crate::support::{
    Andante, Client, Connection, Message, Upstream, pause, rejected,
    tls::{Interceptor, Server, TRUSTED},
};

const BYTES: usize = 8_000_000;

/// Reads a little of an upload, says `answer`, and closes with the rest unread: the system resets the connection.
fn refusing(answer: &'static str) -> impl Fn(Connection) + Send + Sync + 'static {
    move |mut connection| {
        if connection.head().is_some() && connection.bytes(100_000).is_ok() {
            connection.send(answer);
        }
    }
}

const TOO_LARGE: &str = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 7\r\nConnection: close\r\n\r\ntoo big";

fn upload(mut client: Client, target: &str, host: &str, framing: &str) -> Message {
    client.send(format!("POST {target} HTTP/1.1\r\nHost: {host}\r\n{framing}\r\n\r\n"));
    client.send(vec![b'x'; BYTES]);
    client.answer()
}

fn length() -> String {
    format!("Content-Length: {BYTES}")
}

#[test]
fn answer_before_a_reset_reaches_the_worker() {
    let (upstream, andante) = (Upstream::scripted(refusing(TOO_LARGE)), Andante::serve(&["--breaker", "off"]));
    let host = upstream.address().to_string();
    for _ in 0..12 {
        let answer = upload(Client::connect(andante.proxy()), &upstream.url("/"), &host, &length());
        assert_eq!((answer.status(), answer.text().as_str()), (413, "too big"), "{answer:?}");
    }
}

#[test]
fn answer_before_a_reset_reaches_the_worker_by_gateway_and_under_interception() {
    let upstream = Upstream::secure(Server::new(&TRUSTED.leaf(&["localhost"]), &["http/1.1"]), refusing(TOO_LARGE));
    let andante = Interceptor::serve(&["--breaker", "off", "--intercept", "localhost"]);
    let (proxy, target) = (andante.andante.proxy(), format!("localhost:{}", upstream.address().port()));
    for _ in 0..6 {
        let gateway = format!("/https://{target}/");
        let answers = [
            upload(Client::connect(proxy), &gateway, &proxy.to_string(), &length()),
            upload(andante.worker(&target), "/", &target, &length()),
        ];
        for answer in answers {
            assert_eq!((answer.status(), answer.text().as_str()), (413, "too big"), "{answer:?}");
        }
    }
}

#[test]
fn answer_before_an_orderly_close_reaches_the_worker_under_interception() {
    let leaf = TRUSTED.leaf(&["localhost"]);
    let upstream = Upstream::secure(Server::new(&leaf, &["http/1.1"]), |mut connection| {
        if connection.head().is_some() {
            connection.send(TOO_LARGE);
            connection.finish();
            let _ = connection.rest();
        }
    });
    let andante = Interceptor::serve(&["--breaker", "off", "--intercept", "localhost"]);
    let target = format!("localhost:{}", upstream.address().port());
    for _ in 0..6 {
        let answer = upload(andante.worker(&target), "/", &target, &length());
        assert_eq!((answer.status(), answer.text().as_str()), (413, "too big"), "{answer:?}");
    }
}

#[test]
fn answer_to_a_large_body_with_an_idempotency_key_reaches_the_worker() {
    let upstream = Upstream::scripted(refusing(TOO_LARGE));
    let host = upstream.address().to_string();
    let rule = format!("[[rule]]\nhost = \"{host}\"\nidempotency-keys = \"1m\"\nbreaker = \"off\"\n");
    for andante in [Andante::serve(&["--breaker", "off"]), Andante::with_config(&rule)] {
        for number in 0..6 {
            let fields = format!("{}\r\nIdempotency-Key: \"{number}\"", length());
            let answer = upload(Client::connect(andante.proxy()), &upstream.url("/"), &host, &fields);
            assert_eq!((answer.status(), answer.text().as_str()), (413, "too big"), "{answer:?}");
        }
    }
}

#[test]
fn reset_without_an_answer_is_a_502_at_once() {
    let (upstream, andante) = (Upstream::scripted(refusing("")), Andante::serve(&["--breaker", "off"]));
    let host = upstream.address().to_string();
    let answer = upload(Client::connect(andante.proxy()), &upstream.url("/"), &host, &length());
    rejected(&answer, 502, "connection_terminated", "a reset");
}

/// An andante that answers a request early: the request has to go elsewhere.
fn full() -> (Upstream, Andante) {
    let upstream = Upstream::ok();
    let rule = format!("[[rule]]\nhost = \"{}\"\nlimits = [\"1/min\"]\nmax-wait = \"1s\"\n", upstream.address());
    let andante = Andante::with_config(&rule);
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/")).status(), 200);
    (upstream, andante)
}

fn refused(proxy: SocketAddr, upstream: &Upstream, bytes: usize) -> (Client, Message) {
    let (mut client, up) = (Client::connect(proxy), upstream.address());
    let head = format!("POST http://{up}/ HTTP/1.1\r\nHost: {up}\r\nContent-Length: {bytes}\r\n\r\n");
    // Together, as clients send small bodies.
    client.send([head.as_bytes(), &vec![b'x'; bytes]].concat());
    let answer = client.answer();
    assert_eq!(answer.status(), 429, "{answer:?}");
    (client, answer)
}

#[test]
fn refusal_of_an_upload_says_that_the_connection_closes() {
    let (upstream, andante) = full();
    let (mut client, answer) = refused(andante.proxy(), &upstream, 5_000_000);
    assert_eq!(answer.field("connection").as_deref(), Some("close"));
    client.end();
    let (mut client, answer) = refused(andante.proxy(), &upstream, 100);
    assert_eq!(answer.field("connection"), None, "a small body is passed over");
    let up = upstream.address();
    client.send(format!("GET http://{up}/ HTTP/1.1\r\nHost: {up}\r\n\r\n"));
    assert_eq!(client.answer().status(), 429);
}

/// hyper passes over a body that has come, and closes the connection if it has not.
#[test]
fn refusal_before_a_small_body_has_come_says_that_the_connection_closes() {
    let (upstream, andante) = full();
    let up = upstream.address();
    for (target, proxy) in [(format!("http://{up}/"), andante.proxy()), (format!("/{up}/"), andante.proxy())] {
        for sent in [0, 99] {
            let mut client = Client::connect(proxy);
            let head = format!("POST {target} HTTP/1.1\r\nHost: {up}\r\nContent-Length: 100\r\n\r\n");
            client.send([head.as_bytes(), &vec![b'x'; sent]].concat());
            let answer = client.answer();
            assert!(answer.status() >= 400, "{answer:?}");
            assert_eq!(answer.field("connection").as_deref(), Some("close"), "{sent} bytes to {target}: {answer:?}");
            client.end();
        }
    }
}

#[test]
fn slow_upload_may_go_on_after_its_refusal() {
    let (upstream, andante) = full();
    let (mut client, up) = (Client::connect(andante.proxy()), upstream.address());
    client.send(format!("POST http://{up}/ HTTP/1.1\r\nHost: {up}\r\nContent-Length: 5000000\r\n\r\n"));
    // A client that looks for an answer only when it has sent all: a reset would take the answer with it.
    for _ in 0..20 {
        client.send(vec![b'x'; 250_000]);
        pause(Duration::from_millis(200));
    }
    let answer = client.answer();
    assert_eq!((answer.status(), answer.field("connection").as_deref()), (429, Some("close")));
}
