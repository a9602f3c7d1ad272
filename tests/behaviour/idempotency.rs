//! Requests with an `Idempotency-Key` are sent once, where the rule says so.

use std::{sync::mpsc::channel, time::Duration};

use andante::clock::{Clock, Instant};
use parking_lot::Mutex;

use crate::{
    coalesce::{connected, counts_saved, first_slot_used, held, keeps_its_patience, refusing_once, waiting},
    support::{Andante, Client, DeadPort, Upstream},
};

const CREATED: &str = "HTTP/1.1 201 Created\r\nX-Order: 7\r\nContent-Length: 4\r\n\r\ndone";

/// An andante whose rule for `upstream` keeps answers for 10 minutes, and says `rule`.
fn keeping(upstream: &Upstream, rule: &str) -> Andante {
    let keep = if rule.contains("idempotency-keys") { "" } else { "idempotency-keys = \"10m\"" };
    Andante::with_config(&format!("[[rule]]\nhost = \"{}\"\n{keep}\n{rule}\n", upstream.address()))
}

/// An andante with `idempotency-keys` and `limit`, whose first slot has been used.
fn busy(upstream: &Upstream, limit: &str) -> Andante {
    first_slot_used(keeping(upstream, &format!("limits = [\"{limit}\"]")), upstream)
}

/// Posts `body` with `key` and `fields`, and does not wait for the answer.
fn post(andante: &Andante, upstream: &Upstream, key: &str, fields: &str, body: &str) -> Client {
    let mut client = Client::connect(andante.proxy());
    send(&mut client, upstream, "/orders", &format!("Idempotency-Key: \"{key}\"\r\n{fields}"), body);
    client
}

fn send(client: &mut Client, upstream: &Upstream, path: &str, fields: &str, body: &str) {
    let (url, host, length) = (upstream.url(path), upstream.address(), body.len());
    client.send(format!("POST {url} HTTP/1.1\r\nHost: {host}\r\n{fields}Content-Length: {length}\r\n\r\n{body}"));
}

fn posts(upstream: &Upstream) -> usize {
    upstream.requests().iter().filter(|request| request.head.starts_with(b"POST")).count()
}

fn saved(andante: &Andante) -> u64 {
    andante.status()["slots_saved_total"].as_u64().unwrap()
}

#[test]
fn a_thousand_replays_are_one_call_and_have_one_answer() {
    let upstream = Upstream::answering(|request| {
        if request.head.starts_with(b"GET") { "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" } else { CREATED }
    });
    let andante = busy(&upstream, "1/s");
    let clock = Clock::start();
    let mut clients: Vec<_> = (0..1000).map(|_| post(&andante, &upstream, "one", "", "{\"buy\": 1}")).collect();
    for client in &mut clients {
        let answer = client.answer();
        assert_eq!((answer.status(), answer.body.as_slice()), (201, &b"done"[..]));
        assert_eq!(answer.field("x-order").as_deref(), Some("7"));
    }
    let elapsed = clock.now().since(Instant::START);
    assert!(elapsed < Duration::from_secs(3), "{elapsed:?}");
    let late = post(&andante, &upstream, "one", "", "{\"buy\": 1}").answer();
    assert_eq!((late.status(), late.field("cache-status").as_deref()), (201, Some("andante; hit")));
    assert_eq!(posts(&upstream), 1);
    assert!(counts_saved(&andante, "replayed", 1000));
}

#[test]
fn without_the_key_of_the_rule_each_request_is_sent() {
    let upstream = Upstream::ok();
    let andante = Andante::serve(&[]);
    for _ in 0..2 {
        assert!(!post(&andante, &upstream, "one", "", "body").answer().has("cache-status"));
    }
    assert_eq!(posts(&upstream), 2);
}

#[test]
fn another_body_is_told_so_whether_the_call_is_under_way_or_over() {
    let (upstream, go) = held(CREATED);
    let andante = keeping(&upstream, "");
    let mut first = post(&andante, &upstream, "one", "", "a body");
    upstream.wait_for(1);
    let mut other = post(&andante, &upstream, "one", "", "a bodY");
    let mut same = post(&andante, &upstream, "one", "", "a body");
    connected(&andante, 3);
    go();
    assert_eq!((first.answer().status(), same.answer().status()), (201, 201));
    let refused = other.answer();
    assert_eq!(refused.status(), 422);
    let problem: serde_json::Value = serde_json::from_slice(&refused.body).unwrap();
    assert_eq!(problem["detail"], "the Idempotency-Key was used for a request with another body");
    assert_eq!(post(&andante, &upstream, "one", "", "a bodY").answer().status(), 422);
    assert_eq!(post(&andante, &upstream, "one", "", "").answer().status(), 422);
    assert_eq!(post(&andante, &upstream, "one", "", "a body").answer().status(), 201);
    assert_eq!((posts(&upstream), saved(&andante)), (1, 2));
}

#[test]
fn a_body_is_compared_by_its_bytes_however_it_comes() {
    let upstream = Upstream::answering(|_| CREATED);
    let andante = keeping(&upstream, "");
    let large = "x".repeat(3_000_000);
    assert_eq!(post(&andante, &upstream, "one", "", &large).answer().status(), 201);
    assert_eq!(post(&andante, &upstream, "one", "", &large).answer().status(), 201);
    let mut chunked = Client::connect(andante.proxy());
    let (url, host) = (upstream.url("/orders"), upstream.address());
    chunked.send(format!(
        "POST {url} HTTP/1.1\r\nHost: {host}\r\nIdempotency-Key: \"one\"\r\nTransfer-Encoding: chunked\r\n\r\n"
    ));
    for _ in 0..30 {
        chunked.send(format!("{:x}\r\n{}\r\n", 100_000, &large[..100_000]));
    }
    chunked.send("0\r\n\r\n");
    assert_eq!(chunked.answer().status(), 201);
    // The connection is fit for the next one.
    send(&mut chunked, &upstream, "/orders", "Idempotency-Key: \"two\"\r\n", "x");
    assert_eq!(chunked.answer().status(), 201);
    assert_eq!((posts(&upstream), saved(&andante)), (2, 2));
}

#[test]
fn keys_of_other_credentials_accounts_and_paths_are_others() {
    let upstream = Upstream::answering(|_| CREATED);
    let andante = keeping(&upstream, "");
    for fields in ["Authorization: a\r\n", "Authorization: b\r\n", "Authorization: a\r\nStripe-Account: c\r\n"] {
        assert_eq!(post(&andante, &upstream, "one", fields, "").answer().status(), 201);
    }
    let mut other = Client::connect(andante.proxy());
    send(&mut other, &upstream, "/refunds", "Authorization: a\r\nIdempotency-Key: \"one\"\r\n", "");
    assert_eq!((other.answer().status(), posts(&upstream)), (201, 4));
    let traced = "Authorization: a\r\nX-Stainless-Retry-Count: 1\r\n";
    assert_eq!(post(&andante, &upstream, "one", traced, "").answer().status(), 201);
    assert_eq!(posts(&upstream), 4);
}

#[test]
fn whoever_leaves_the_queue_leaves_the_request_to_the_next_one_with_its_key() {
    let upstream = Upstream::ok();
    let andante = busy(&upstream, "1/2s");
    let leader = post(&andante, &upstream, "one", "", "body");
    waiting(&andante, 1);
    let mut others: Vec<_> = (0..3).map(|_| post(&andante, &upstream, "one", "", "body")).collect();
    connected(&andante, 4);
    drop(leader);
    andante.wait_for(|status| status["requests"]["left"] == 1);
    for client in &mut others {
        assert_eq!(client.answer().status(), 200);
    }
    assert_eq!((posts(&upstream), saved(&andante)), (1, 2));
    let sent = upstream.requests();
    assert_eq!(sent.last().unwrap().body, b"body");
}

#[test]
fn a_request_that_all_have_left_takes_no_slot() {
    let upstream = Upstream::ok();
    let andante = busy(&upstream, "1/s");
    let leader = post(&andante, &upstream, "one", "", "body");
    waiting(&andante, 1);
    drop(leader);
    waiting(&andante, 0);
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/next")).status(), 200);
    assert_eq!(posts(&upstream), 0);
}

#[test]
fn what_was_sent_goes_on_without_its_worker_that_has_the_answer_when_it_asks_again() {
    let (upstream, go) = held(CREATED);
    let andante = keeping(&upstream, "");
    let impatient = post(&andante, &upstream, "one", "", "body");
    upstream.wait_for(1);
    drop(impatient);
    andante.wait_for(|status| status["requests"]["left"] == 1);
    let follower = post(&andante, &upstream, "one", "", "body");
    connected(&andante, 1);
    drop(follower);
    andante.wait_for(|status| status["requests"]["left"] == 2);
    go();
    andante.wait_for(|status| status["lanes"][0]["in_flight"] == 0);
    let answer = post(&andante, &upstream, "one", "", "body").answer();
    assert_eq!((answer.status(), posts(&upstream)), (201, 1));
}

#[test]
fn a_twin_with_less_patience_than_a_call_that_is_sent_again_is_refused_at_once() {
    let (upstream, refuse) = refusing_once(CREATED);
    let andante = keeping(&upstream, "");
    let ask = |fields: &str| post(&andante, &upstream, "one", fields, "body");
    assert_eq!(keeps_its_patience(&andante, &upstream, refuse, ask).status(), 201);
    assert_eq!(posts(&upstream), 2);
}

#[test]
fn what_was_refused_is_sent_again_without_its_worker_for_the_twin_that_asks_for_it() {
    let (upstream, refuse) = refusing_once(CREATED);
    let andante = keeping(&upstream, "");
    let impatient = post(&andante, &upstream, "one", "", "body");
    upstream.wait_for(1);
    refuse();
    waiting(&andante, 1);
    drop(impatient);
    andante.wait_for(|status| status["requests"]["left"] == 1);
    assert_eq!(post(&andante, &upstream, "one", "", "body").answer().status(), 201);
    assert_eq!((posts(&upstream), saved(&andante)), (2, 1));
}

#[test]
fn what_failed_is_not_remembered_and_a_result_is() {
    for (status, sent) in [("400 Bad", 1), ("500 No", 1), ("401 Who", 2), ("409 Busy", 2), ("503 Later", 2)] {
        let answer: &'static str = Box::leak(format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nno").into());
        let upstream = Upstream::answering(move |_| answer);
        let andante = keeping(&upstream, "retry = \"off\"");
        for _ in 0..2 {
            let answer = post(&andante, &upstream, "one", "", "body").answer();
            assert_eq!(answer.body, b"no", "{status}");
        }
        assert_eq!(posts(&upstream), sent, "{status}");
    }
}

#[test]
fn what_reached_nobody_is_not_remembered() {
    let port = DeadPort::reserve();
    let address = port.address();
    let andante =
        Andante::with_config(&format!("[[rule]]\nhost = \"{address}\"\nidempotency-keys = \"10m\"\nretry = \"off\"\n"));
    for _ in 0..2 {
        let mut client = Client::connect(andante.proxy());
        client.send(format!(
            "POST http://{address}/ HTTP/1.1\r\nHost: {address}\r\nIdempotency-Key: one\r\nContent-Length: 1\r\n\r\nx"
        ));
        let answer = client.answer();
        assert_eq!((answer.status(), answer.has("proxy-status")), (502, true));
    }
    assert_eq!(andante.status()["slots_saved_total"], 0);
}

#[test]
fn a_key_is_forgotten_after_its_time() {
    let upstream = Upstream::answering(|_| CREATED);
    let andante = keeping(&upstream, "idempotency-keys = \"1s\"");
    for _ in 0..2 {
        assert_eq!(post(&andante, &upstream, "one", "", "body").answer().status(), 201);
    }
    assert_eq!(posts(&upstream), 1);
    std::thread::park_timeout(Duration::from_millis(1100));
    assert_eq!(post(&andante, &upstream, "one", "", "body").answer().status(), 201);
    assert_eq!(posts(&upstream), 2);
}

#[test]
fn a_stream_is_shared_as_it_comes_and_one_too_large_to_be_kept_is_a_conflict_and_then_forgotten() {
    const SIZE: usize = 8 * 1024 * 1024;
    let (go, told) = channel::<()>();
    let told = Mutex::new(told);
    let upstream = Upstream::scripted(move |mut connection| {
        while connection.request().is_some() {
            connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n");
            let _ = told.lock().recv_timeout(Duration::from_secs(20));
            for _ in 0..SIZE / 65536 {
                connection.send([b"10000\r\n", &[b'x'; 65536][..], b"\r\n"].concat());
            }
            let _ = told.lock().recv_timeout(Duration::from_secs(20));
            connection.send("0\r\n\r\n");
        }
    });
    let andante = keeping(&upstream, "");
    let mut first = post(&andante, &upstream, "one", "", "body");
    first.until("first\r\n");
    let mut second = post(&andante, &upstream, "one", "", "body");
    second.until("first\r\n");
    go.send(()).unwrap();
    let reader = std::thread::spawn(move || {
        second.bytes(SIZE);
        second
    });
    first.bytes(SIZE);
    let mut second = reader.join().unwrap();
    let conflict = post(&andante, &upstream, "one", "", "body").answer();
    assert_eq!((conflict.status(), conflict.has("retry-after")), (409, true));
    go.send(()).unwrap();
    for client in [&mut first, &mut second] {
        client.until("0\r\n\r\n");
    }
    let mut next = post(&andante, &upstream, "one", "", "body");
    next.until("first\r\n");
    assert_eq!((posts(&upstream), saved(&andante)), (2, 1));
    (0..2).for_each(|_| go.send(()).unwrap());
}

#[test]
fn the_cookie_of_an_answer_goes_to_one_worker() {
    const WITH_COOKIE: &str =
        "HTTP/1.1 201 Created\r\nSet-Cookie: sid=1\r\nSet-Cookie: lang=en\r\nContent-Length: 4\r\n\r\ndone";
    let upstream = Upstream::always(WITH_COOKIE);
    let andante = keeping(&upstream, "");
    let answers: Vec<_> = (0..3).map(|_| post(&andante, &upstream, "one", "", "hi").answer()).collect();
    let cookies: Vec<_> = answers.iter().map(|answer| answer.has("set-cookie")).collect();
    assert_eq!(cookies, [true, false, false]);
    assert!(answers.iter().all(|answer| (answer.status(), answer.body.as_slice()) == (201, &b"done"[..])));
    assert_eq!(posts(&upstream), 1, "it is done once all the same");
}

#[test]
fn fields_keep_their_order_where_a_cookie_is_left_out() {
    const WITH_COOKIE: &str =
        "HTTP/1.1 201 Created\r\nX-A: 1\r\nSet-Cookie: sid=1\r\nX-B: 2\r\nX-C: 3\r\nContent-Length: 4\r\n\r\ndone";
    let upstream = Upstream::always(WITH_COOKIE);
    let andante = keeping(&upstream, "");
    for cookies in [1, 0] {
        let answer = post(&andante, &upstream, "one", "", "hi").answer();
        let names: Vec<_> = answer.fields().into_iter().map(|(name, _)| name.to_lowercase()).collect();
        let known: Vec<_> = names.iter().filter(|name| name.starts_with("x-") || *name == "set-cookie").collect();
        let expected = ["x-a", "set-cookie", "x-b", "x-c"];
        assert!(known.iter().eq(expected.iter().filter(|name| cookies == 1 || **name != "set-cookie")), "{names:?}");
    }
}

#[test]
fn the_cookie_goes_to_the_next_worker_if_the_first_has_left() {
    let (release, released) = channel::<()>();
    let released = Mutex::new(released);
    let upstream = Upstream::answering(move |_| {
        released.lock().recv().unwrap();
        "HTTP/1.1 201 Created\r\nSet-Cookie: sid=1\r\nContent-Length: 4\r\n\r\ndone"
    });
    let andante = keeping(&upstream, "");
    let first = post(&andante, &upstream, "one", "", "hi");
    upstream.wait_for(1);
    let mut second = post(&andante, &upstream, "one", "", "hi");
    drop(first);
    andante.wait_for(|status| status["requests"]["left"] == 1);
    release.send(()).unwrap();
    assert!(second.answer().has("set-cookie"));
    assert!(!post(&andante, &upstream, "one", "", "hi").answer().has("set-cookie"));
}
