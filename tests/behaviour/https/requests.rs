//! Requests inside of TLS are requests like all others: each takes its slot, and nothing in them can hang.

use std::time::Duration;

use andante::clock::{Clock, Instant};
use rustix::process::Signal;

use super::{localhost, secure, server};
use crate::support::{Client, Connection, PATIENCE, Upstream, eventually, rejected, tls::Interceptor};

/// An intercepted upstream that does as `script` says.
fn scripted(script: impl Fn(Connection) + Send + Sync + 'static) -> Upstream {
    Upstream::secure(server(&["http/1.1"]), script)
}

fn get(target: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: {target}\r\n\r\n")
}

/// Duration of `what`.
fn timed(what: impl FnOnce()) -> Duration {
    let clock = Clock::start();
    what();
    clock.now().since(Instant::START)
}

#[test]
fn each_request_on_one_https_connection_takes_a_slot_of_its_own() {
    const REQUESTS: u64 = 30;
    let upstream = secure();
    let target = localhost(&upstream);
    let interceptor = Interceptor::serve(&["--intercept", "localhost", "--limit", "localhost=20/s"]);
    let mut worker = interceptor.worker(&target);
    let took = timed(|| {
        for _ in 0..REQUESTS {
            worker.send(get(&target));
            assert_eq!(worker.answer().status(), 200);
        }
    });
    // 29 spaces of 50 ms, as between separate connections; the window may hold one back that comes too near the last.
    assert!(took > Duration::from_millis(29 * 50 - 100), "{took:?}");
    assert!(took < Duration::from_millis(29 * 50 + 1500), "{took:?}");
    assert_eq!(upstream.requests().len() as u64, REQUESTS);
    assert_eq!(upstream.connections(), 1, "one after the other, on one connection");
    let status = interceptor.andante.status();
    assert_eq!(status["lanes"][0]["sent_total"], REQUESTS);
    assert_eq!(status["requests"]["answered"], REQUESTS);
    assert_eq!((&status["requests"]["tunnelled"], &status["lanes_total"]), (&0.into(), &1.into()));
}

#[test]
fn a_connect_that_is_intercepted_costs_no_slot() {
    let upstream = secure();
    let target = localhost(&upstream);
    let interceptor = Interceptor::serve(&["--intercept", "localhost", "--limit", "localhost=1/h"]);
    let tunnels: Vec<Client> = (0..5).map(|_| interceptor.worker(&target)).collect();
    assert_eq!(interceptor.get(&target, "/").text(), "ok");
    drop(tunnels);
    assert_eq!(interceptor.andante.status()["lanes"][0]["sent_total"], 1);
    let mut impatient = interceptor.worker(&target);
    impatient.send(format!("GET / HTTP/1.1\r\nHost: {target}\r\nPrefer: wait=0\r\n\r\n"));
    let answer = impatient.answer();
    rejected(&answer, 429, "http_request_denied", "no slot");
    assert!(answer.has("retry-after"));
}

/// A worker whose request waits inside of TLS, in a lane of one request a second. The worker then leaves by `leave`.
fn costs_no_slot(leave: impl FnOnce(Client)) {
    let upstream = secure();
    let target = localhost(&upstream);
    let interceptor = Interceptor::serve(&["--intercept", "localhost", "--limit", "localhost=1/s"]);
    assert_eq!(interceptor.get(&target, "/first").text(), "ok");
    let mut worker = interceptor.worker(&target);
    worker.send(format!("GET /gone HTTP/1.1\r\nHost: {target}\r\n\r\n"));
    interceptor.andante.wait_for(|status| status["lanes"][0]["waiting"] == 1);
    leave(worker);
    // The request gives up its place first, and is counted at its end.
    let status = interceptor.andante.wait_for(|status| status["requests"]["left"] == 1);
    assert_eq!(
        (&status["lanes"][0]["waiting"], &status["lanes"][0]["sent_total"]),
        (&0.into(), &1.into()),
        "it took until its slot to be gone"
    );
    interceptor.andante.wait_for(|status| status["connections"]["client"] == 0);
    assert_eq!(interceptor.get(&target, "/next").status(), 200);
    let targets: Vec<String> = upstream.requests().iter().map(|request| request.target()).collect();
    assert_eq!(targets, ["/first", "/next"]);
}

#[test]
fn a_worker_that_closes_while_it_waits_inside_costs_no_slot() {
    costs_no_slot(drop);
}

#[test]
fn a_worker_that_resets_while_it_waits_inside_costs_no_slot() {
    costs_no_slot(Client::reset);
}

#[test]
fn a_worker_that_leaves_before_the_answer_ends_the_upstreams_work() {
    let upstream = scripted(|mut connection| {
        connection.head();
        let _ = connection.rest();
    });
    let target = localhost(&upstream);
    let interceptor = Interceptor::serve(&["--intercept", "localhost", "--limit", "localhost=in-flight 1"]);
    let mut worker = interceptor.worker(&target);
    worker.send(get(&target));
    upstream.wait_for(1);
    drop(worker);
    interceptor.andante.wait_for(|status| status["lanes"][0]["in_flight"] == 0);
    eventually("the upstream's connection to end", || (upstream.ended() == 1).then_some(()));
}

#[test]
fn a_body_that_stops_coming_inside_of_tls_is_answered_408() {
    let upstream = scripted(|mut connection| {
        connection.head();
        let _ = connection.rest();
    });
    let target = localhost(&upstream);
    let interceptor = Interceptor::with_config("[timeouts]\nidle = \"300ms\"\n", &["--intercept", "localhost"]);
    let mut worker = interceptor.worker(&target);
    worker.send(format!("POST / HTTP/1.1\r\nHost: {target}\r\nContent-Length: 10\r\n\r\nonly"));
    let answer = worker.answer();
    assert_eq!((answer.status(), answer.field("connection").as_deref()), (408, Some("close")), "{answer:?}");
    worker.closed();
    interceptor.andante.wait_for(|status| status["connections"]["client"] == 0);
}

#[test]
fn an_answer_that_stops_coming_inside_of_tls_is_cut_off() {
    let upstream = scripted(|mut connection| {
        connection.request();
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this");
        let _ = connection.rest();
    });
    let target = localhost(&upstream);
    let interceptor = Interceptor::with_config("[timeouts]\nidle = \"300ms\"\n", &["--intercept", "localhost"]);
    let mut worker = interceptor.worker(&target);
    worker.send(get(&target));
    worker.until("only this");
    let took = timed(|| worker.cut_off());
    assert!(took < PATIENCE / 2, "it took {took:?}");
    interceptor.andante.wait_for(|status| status["connections"]["client"] == 0);
    eventually("the upstream's connection to end", || (upstream.ended() == 1).then_some(()));
}

#[test]
fn a_connection_without_a_next_request_inside_of_tls_is_closed_as_tls_wants_it() {
    let upstream = secure();
    let target = localhost(&upstream);
    let interceptor = Interceptor::with_config("[timeouts]\nkeep-alive = \"200ms\"\n", &["--intercept", "localhost"]);
    let mut worker = interceptor.worker(&target);
    worker.send(get(&target));
    assert_eq!(worker.answer().status(), 200);
    worker.closed();
}

#[test]
fn a_worker_that_says_nothing_after_its_handshake_is_cut_off() {
    let (upstream, hasty) = (secure(), "[timeouts]\nhead = \"300ms\"\n");
    let interceptor = Interceptor::with_config(hasty, &["--intercept", "localhost"]);
    interceptor.worker(&localhost(&upstream)).closed();
    interceptor.andante.wait_for(|status| status["connections"]["client"] == 0);
}

#[test]
fn what_hyper_cannot_read_inside_of_tls_is_answered_by_us() {
    let (upstream, interceptor) = (secure(), Interceptor::serve(&["--intercept", "localhost"]));
    let target = localhost(&upstream);
    let long = "x".repeat(200_000);
    for (request, status) in [
        (format!("GET / HTTP/1.1\r\nHost : {target}\r\n\r\n"), 400),
        (format!("GET / HTTP/9.9\r\nHost: {target}\r\n\r\n"), 400),
        (format!("GET / HTTP/1.1\r\nHost: {target}\r\nX: {long}\r\n\r\n"), 431),
    ] {
        let mut worker = interceptor.worker(&target);
        worker.send(&request);
        let answer = worker.answer();
        let what = &request[..40];
        rejected(&answer, status, "http_request_error", what);
        assert_eq!(answer.field("connection").as_deref(), Some("close"), "{what}");
        let _ = worker.end();
    }
    assert!(upstream.requests().is_empty());
}

#[test]
fn an_answer_that_ends_with_its_connection_ends_inside_of_tls_too() {
    let upstream = scripted(|mut connection| {
        connection.request();
        connection.send("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end");
    });
    let interceptor = Interceptor::serve(&["--intercept", "localhost"]);
    assert_eq!(interceptor.get(&localhost(&upstream), "/").text(), "until the end");
}

#[test]
fn credentials_of_the_worker_reach_the_upstream_and_those_for_the_proxy_do_not() {
    let (upstream, interceptor) = (secure(), Interceptor::serve(&["--intercept", "localhost"]));
    let target = localhost(&upstream);
    let mut worker = interceptor.worker(&target);
    worker.send(format!(
        "GET /a?b=%20c HTTP/1.1\r\nHost: {target}\r\nAuthorization: Bearer t\r\nCookie: a=b\r\n\
         Proxy-Authorization: Basic eA==\r\nAndante-Flow: x\r\n\r\n"
    ));
    assert_eq!(worker.answer().text(), "ok");
    let request = upstream.request();
    assert_eq!((request.target().as_str(), request.field("host")), ("/a?b=%20c", Some(target)));
    assert_eq!(request.field("authorization").as_deref(), Some("Bearer t"));
    assert_eq!(request.field("cookie").as_deref(), Some("a=b"));
    assert!(request.has("via") && !request.has("proxy-authorization") && !request.has("andante-flow"), "{request:?}");
}

#[test]
fn a_drain_lets_intercepted_requests_finish_and_closes_idle_connections() {
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let gone = parking_lot::Mutex::new(gone);
    let upstream = scripted(move |mut connection| {
        while connection.request().is_some() {
            let _ = gone.lock().recv_timeout(PATIENCE);
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone");
        }
    });
    let target = localhost(&upstream);
    let mut interceptor = Interceptor::serve(&["--intercept", "localhost"]);
    let mut idle = interceptor.worker(&target);
    idle.send(get(&target));
    go.send(()).unwrap();
    assert_eq!(idle.answer().text(), "done");
    let mut busy = interceptor.worker(&target);
    busy.send(get(&target));
    upstream.wait_for(2);
    interceptor.andante.signal(Signal::TERM);
    idle.closed();
    go.send(()).unwrap();
    let answer = busy.answer();
    assert_eq!((answer.text().as_str(), answer.field("connection").as_deref()), ("done", Some("close")));
    busy.closed();
    assert_eq!(interceptor.andante.ended().code(), Some(0));
}

#[test]
fn half_a_handshake_does_not_hold_up_the_end() {
    let upstream = secure();
    let target = localhost(&upstream);
    let mut interceptor = Interceptor::serve(&["--intercept", "localhost"]);
    let hello = interceptor.trusting(&target).hello();
    let mut half = interceptor.tunnel(&target);
    half.send(&hello[..hello.len() / 2]);
    let mut unfinished = interceptor.tunnel(&target);
    unfinished.send(&hello);
    assert_eq!(unfinished.bytes(3), b"\x16\x03\x03");
    // Much less than `head` and `drain` would allow.
    let took = timed(|| {
        interceptor.andante.signal(Signal::TERM);
        half.closed();
        unfinished.rest();
        assert_eq!(interceptor.andante.ended().code(), Some(0));
    });
    assert!(took < PATIENCE / 2, "{took:?}");
}

#[test]
fn what_an_intercepted_worker_cannot_be_given_before_the_end_is_503() {
    let upstream = scripted(|mut connection| {
        connection.request();
        let _ = connection.rest();
    });
    let target = localhost(&upstream);
    let mut interceptor = Interceptor::with_config("drain = \"200ms\"\n", &["--intercept", "localhost"]);
    let mut worker = interceptor.worker(&target);
    worker.send(get(&target));
    upstream.wait_for(1);
    let mut silent = interceptor.tunnel(&target);
    interceptor.andante.signal(Signal::TERM);
    rejected(&worker.answer(), 503, "connection_terminated", "a drain");
    worker.closed();
    silent.closed();
    assert_eq!(interceptor.andante.ended().code(), Some(0));
}
