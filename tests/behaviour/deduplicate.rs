//! Equal requests are one call for a time, where the rule says so (`deduplicate`).

use std::{thread, time::Duration};

use parking_lot::Mutex;

use crate::{
    coalesce::{connected, counts_saved, held},
    lifecycle::pass,
    support::{Andante, Client, Message, Upstream},
};

const CREATED: &str = "HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\ndone";

fn ruled(upstream: &Upstream, rule: &str) -> Andante {
    Andante::with_config(&format!("[[rule]]\nhost = \"{}\"\n{rule}\n", upstream.address()))
}

fn send(andante: &Andante, upstream: &Upstream, method: &str, path: &str, fields: &str, body: &str) -> Client {
    let mut client = Client::connect(andante.proxy());
    let (url, host, length) = (upstream.url(path), upstream.address(), body.len());
    client.send(format!("{method} {url} HTTP/1.1\r\nHost: {host}\r\n{fields}Content-Length: {length}\r\n\r\n{body}"));
    client
}

fn post(andante: &Andante, upstream: &Upstream, fields: &str, body: &str) -> Message {
    send(andante, upstream, "POST", "/publish", fields, body).answer()
}

/// An upstream whose n-th answer has `status`, `fields` and n as its body.
fn counting(status: &'static str, fields: &'static str) -> Upstream {
    let count = Mutex::new(0);
    Upstream::answering(move |_| {
        let mut count = count.lock();
        *count += 1;
        let body = count.to_string();
        format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
    })
}

#[test]
fn ten_equal_posts_are_one_call_in_flight_and_afterwards() {
    let (upstream, go) = held(CREATED);
    let andante = ruled(&upstream, "deduplicate = \"10m\"");
    let ask = || send(&andante, &upstream, "POST", "/publish", "Authorization: Bearer one\r\n", "{\"id\":1}");
    let mut clients: Vec<_> = (0..10).map(|_| ask()).collect();
    connected(&andante, 10);
    go();
    for client in &mut clients {
        let answer = client.answer();
        assert_eq!((answer.status(), answer.text().as_str()), (201, "done"));
    }
    let late = ask().answer();
    assert_eq!((late.status(), late.text().as_str()), (201, "done"));
    assert_eq!(late.field("cache-status").as_deref(), Some("andante; hit"));
    assert_eq!(upstream.requests().len(), 1);
    assert_eq!(upstream.requests()[0].text(), "{\"id\":1}");
    assert!(counts_saved(&andante, "replayed", 10));
}

#[test]
fn another_method_url_credential_or_body_is_another_call() {
    let upstream = counting("200 OK", "");
    let andante = ruled(&upstream, "deduplicate = \"10m\"");
    let answers = |method: &str, path: &str, fields: &str, body: &str| {
        send(&andante, &upstream, method, path, fields, body).answer().text()
    };
    let one = "Authorization: Bearer one\r\n";
    assert_eq!(answers("POST", "/a", one, "x"), "1");
    assert_eq!(answers("PUT", "/a", one, "x"), "2");
    assert_eq!(answers("POST", "/a?b", one, "x"), "3");
    assert_eq!(answers("POST", "/a", "Authorization: Bearer two\r\n", "x"), "4");
    assert_eq!(answers("POST", "/a", "X-Api-Key: one\r\n", "x"), "5");
    assert_eq!(answers("POST", "/a", one, "y"), "6");
    assert_eq!(answers("POST", "/a", one, ""), "7");
    // Names of tries and traces tell no requests apart, nor how a body comes.
    assert_eq!(answers("POST", "/a", &format!("{one}X-Request-Id: 7\r\nTraceparent: 00-1-2-3\r\n"), "x"), "1");
    let mut chunked = Client::connect(andante.proxy());
    let (url, host) = (upstream.url("/a"), upstream.address());
    chunked.send(format!("POST {url} HTTP/1.1\r\nHost: {host}\r\n{one}Transfer-Encoding: chunked\r\n\r\n"));
    chunked.send("1\r\nx\r\n0\r\n\r\n");
    assert_eq!(chunked.answer().text(), "1");
    assert_eq!(answers("GET", "/a", one, ""), "8");
    assert_eq!(answers("GET", "/a", one, ""), "8");
}

#[test]
fn when_the_time_is_over_an_equal_request_is_a_call_again() {
    let upstream = counting("200 OK", "");
    let andante = ruled(&upstream, "deduplicate = \"500ms\"");
    assert_eq!(post(&andante, &upstream, "", "x").text(), "1");
    assert_eq!(post(&andante, &upstream, "", "x").text(), "1");
    thread::park_timeout(Duration::from_millis(700));
    assert_eq!(post(&andante, &upstream, "", "x").text(), "2");
}

#[test]
fn an_answer_that_says_that_nothing_was_done_is_not_kept() {
    for status in ["400 Bad", "404 No", "409 Conflict", "500 Broken"] {
        let upstream = counting(status, "");
        let andante = ruled(&upstream, "deduplicate = \"10m\"");
        assert_eq!(post(&andante, &upstream, "", "x").text(), "1", "{status}");
        assert_eq!(post(&andante, &upstream, "", "x").text(), "2", "{status}");
    }
}

#[test]
fn a_cookie_goes_to_the_first_worker_alone() {
    let upstream = counting("200 OK", "Set-Cookie: session=1\r\n");
    let andante = ruled(&upstream, "deduplicate = \"10m\"");
    assert!(post(&andante, &upstream, "", "x").has("set-cookie"));
    assert!(!post(&andante, &upstream, "", "x").has("set-cookie"));
    assert_eq!(upstream.requests().len(), 1);
}

#[test]
fn a_narrower_rule_has_its_requests_deduplicated_and_no_others() {
    let upstream = counting("200 OK", "");
    let host = upstream.address();
    let narrower = format!("[[rule]]\nname = \"publish\"\nhost = \"{host}\"\nmethod = \"POST\"\npath = \"/publish\"\n");
    let andante = ruled(&upstream, &format!("limits = [\"1000/s\"]\n{narrower}deduplicate = \"10m\""));
    let ask = |method: &str, path: &str| send(&andante, &upstream, method, path, "", "x").answer().text();
    assert_eq!([ask("POST", "/publish"), ask("POST", "/publish")], ["1", "1"]);
    assert_eq!([ask("POST", "/other"), ask("POST", "/other")], ["2", "3"]);
    assert_eq!([ask("PUT", "/publish"), ask("PUT", "/publish")], ["4", "5"]);
    let off = ruled(&upstream, &format!("deduplicate = \"10m\"\n{narrower}deduplicate = \"off\""));
    let ask = |path: &str| send(&off, &upstream, "POST", path, "", "x").answer().text();
    assert_eq!([ask("/publish"), ask("/publish")], ["6", "7"]);
    assert_eq!([ask("/other"), ask("/other")], ["8", "8"]);
}

#[test]
fn an_idempotency_key_says_what_is_the_same() {
    let upstream = counting("200 OK", "");
    let andante = ruled(&upstream, "deduplicate = \"10m\"\nidempotency-keys = \"10m\"");
    let ask = |key: &str, body: &str| post(&andante, &upstream, &format!("Idempotency-Key: {key}\r\n"), body);
    assert_eq!([ask("a", "x").text(), ask("a", "x").text(), ask("b", "x").text()], ["1", "1", "2"]);
    assert_eq!(ask("a", "y").status(), 422);
}

#[test]
fn a_body_too_large_to_be_compared_is_sent_each_time() {
    let upstream = counting("200 OK", "");
    let andante = ruled(&upstream, "deduplicate = \"10m\"");
    let large = "x".repeat(2_000_000);
    assert_eq!(
        [post(&andante, &upstream, "", &large).text(), post(&andante, &upstream, "", &large).text()],
        ["1", "2"]
    );
    assert!(upstream.requests().iter().all(|request| request.body.len() == 2_000_000));
}

#[test]
fn reads_of_a_rule_with_a_cache_are_the_caches() {
    let upstream = counting("200 OK", "Cache-Control: no-store\r\n");
    let andante = ruled(&upstream, "deduplicate = \"10m\"\ncache = \"64KiB\"");
    let ask = |method: &str| send(&andante, &upstream, method, "/", "", "").answer().text();
    assert_eq!([ask("GET"), ask("GET")], ["1", "2"]);
    assert_eq!([ask("POST"), ask("POST")], ["3", "3"]);
}

#[test]
fn a_stream_that_its_worker_has_left_gives_its_place_back() {
    let upstream = Upstream::scripted(|mut connection| {
        while let Some(request) = connection.request() {
            if request.target() != "/events" {
                connection.send(CREATED);
                continue;
            }
            connection.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
            while connection.sent("9\r\ndata: a\n\n\r\n") {
                thread::park_timeout(Duration::from_millis(100));
            }
        }
    });
    let andante = ruled(&upstream, "in-flight = 1\ndeduplicate = \"10m\"");
    let mut leaving = send(&andante, &upstream, "POST", "/events", "", "x");
    assert!(!leaving.bytes(20).is_empty());
    leaving.reset();
    assert_eq!(send(&andante, &upstream, "POST", "/other", "", "x").answer().status(), 201);
}

#[test]
fn an_answer_without_a_length_goes_on_for_the_worker_that_comes_back() {
    let upstream = Upstream::scripted(|mut connection| {
        while connection.request().is_some() {
            connection
                .send("HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
            connection.send("2\r\n{}\r\n");
            // Longer than an unread stream lasts.
            thread::park_timeout(Duration::from_millis(6500));
            connection.send("0\r\n\r\n");
        }
    });
    let andante = ruled(&upstream, "deduplicate = \"10m\"");
    let ask = || send(&andante, &upstream, "POST", "/publish", "", "x");
    let mut leaving = ask();
    assert!(!leaving.bytes(20).is_empty());
    leaving.reset();
    pass(Duration::from_millis(6500));
    andante.wait_for(|status| status["lanes"][0]["in_flight"] == 0);
    let answer = ask().answer();
    assert_eq!((answer.status(), answer.text().as_str()), (201, "{}"));
    assert_eq!(upstream.requests().len(), 1);
}
