//! Retries: requests that are sent again, requests that are not, and the equality of the resent request.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Andante, Client, Message, Upstream};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Answers the first `times` requests with `answer`, and the others with 200.
fn at_first(times: usize, answer: &'static str) -> Upstream {
    let turn = AtomicUsize::new(0);
    Upstream::answering(move |_| if turn.fetch_add(1, Ordering::AcqRel) < times { answer } else { OK })
}

fn post(andante: &Andante, upstream: &Upstream, fields: &str, body: &str) -> Message {
    let head = format!("POST {} HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", upstream.url("/"), upstream.address());
    Client::ask(andante.proxy(), head + body)
}

fn bodies(upstream: &Upstream) -> Vec<String> {
    upstream.requests().iter().map(Message::text).collect()
}

#[test]
fn a_body_is_the_same_in_every_try() {
    let upstream = at_first(2, "HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n");
    let andante = Andante::serve(&[]);
    let long = "x".repeat(100_000);
    let answer = post(&andante, &upstream, &format!("Content-Length: {}\r\n", long.len()), &long);
    assert_eq!(answer.status(), 200);
    assert!(bodies(&upstream) == [long.clone(), long.clone(), long], "not the same");
    let lengths: Vec<_> = upstream.requests().iter().map(|request| request.field("content-length")).collect();
    assert_eq!(lengths, vec![Some("100000".to_owned()); 3]);
}

#[test]
fn a_body_in_chunks_is_the_same_in_every_try() {
    let upstream = at_first(1, "HTTP/1.1 429 Slow\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n");
    let andante = Andante::serve(&[]);
    let chunks = "3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n";
    assert_eq!(post(&andante, &upstream, "Transfer-Encoding: chunked\r\n", chunks).status(), 200);
    assert_eq!(bodies(&upstream), ["onetwo", "onetwo"]);
}

#[test]
fn a_body_that_is_too_large_to_be_kept_is_sent_once() {
    let upstream = at_first(1, "HTTP/1.1 429 Slow\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n");
    let andante = Andante::with_config("retry = { body = \"10B\" }\n");
    let answer = post(&andante, &upstream, "Content-Length: 11\r\n", "hello world");
    assert_eq!((answer.status(), answer.field("proxy-status"), upstream.requests().len()), (429, None, 1));
}

#[test]
fn who_has_no_patience_gets_the_apis_own_answer_and_nothing_is_counted_that_was_not_sent() {
    let upstream = at_first(9, "HTTP/1.1 429 Slow\r\nRetry-After: 30\r\nX-Own: 1\r\nContent-Length: 4\r\n\r\nslow");
    let andante = Andante::serve(&[]);
    let answer = post(&andante, &upstream, "Prefer: wait=2\r\nContent-Length: 2\r\n", "hi");
    assert_eq!((answer.status(), answer.text().as_str()), (429, "slow"));
    assert_eq!((answer.field("x-own").as_deref(), answer.field("proxy-status")), (Some("1"), None));
    assert_eq!((upstream.requests().len(), &andante.status()["retries_total"]), (1, &0.into()));
    let metrics = andante.metrics();
    assert!(metrics.contains("andante_gate_closed{rule=\"127.0.0.1\",reason=\"retry-after\"} 1\n"), "{metrics}");
    assert_eq!(andante.status()["lanes"][0]["gate"]["reason"], "retry-after");
}

#[test]
fn what_was_cut_is_sent_again_only_if_it_may_be_repeated() {
    for (fields, tries) in [("", 1), ("Idempotency-Key: 1\r\n", 2)] {
        let turn = AtomicUsize::new(0);
        let upstream = Upstream::scripted(move |mut connection| {
            if connection.request().is_none() {
                return;
            }
            if turn.fetch_add(1, Ordering::AcqRel) > 0 {
                connection.send(OK);
            }
        });
        let andante = Andante::serve(&[]);
        let answer = post(&andante, &upstream, &format!("{fields}Content-Length: 2\r\n"), "hi");
        assert_eq!(answer.status(), if tries == 1 { 502 } else { 200 });
        assert_eq!(bodies(&upstream), vec!["hi"; tries], "{fields}");
        assert_eq!(andante.status()["retries_total"], tries - 1);
    }
}
