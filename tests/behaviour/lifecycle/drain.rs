//! Drain: new clients are not accepted, accepted requests are served, and no request waits longer than the drain may
//! take.

use std::{
    net::TcpStream,
    sync::mpsc::{Sender, channel},
};

use parking_lot::Mutex;
use rustix::process::Signal;

use super::waiting;
use crate::support::{Andante, Client, PATIENCE, Upstream, eventually, h2::Client2};

/// An upstream that answers its first request on command, and all others at once.
fn held() -> (Upstream, Sender<()>) {
    let (release, held) = channel();
    let held = Mutex::new(held);
    let upstream = Upstream::scripted(move |mut connection| {
        while let Some(request) = connection.request() {
            if request.target() == "/held" {
                let _ = held.lock().recv_timeout(PATIENCE);
            }
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    (upstream, release)
}

fn andante(upstream: &Upstream, limit: &str, drain: &str) -> Andante {
    let rule = format!("[[rule]]\nhost = \"{}\"\nlimits = [\"{limit}\"]\n", upstream.address());
    Andante::logging_with_config("info", &format!("drain = \"{drain}\"\n{rule}"), &[])
}

/// Checks the counts in the last line of the log.
fn ends_with_counts(andante: &Andante, counts: &str) {
    let log = andante.stderr();
    let line = log.lines().rfind(|line| line.contains("drained")).unwrap_or_default();
    assert!(line.contains(counts), "{counts}: {log}");
}

fn ask(andante: &Andante, upstream: &Upstream, path: &str) -> Client {
    let mut client = Client::connect(andante.proxy());
    client.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.url(path), upstream.address()));
    client
}

fn closes_its_listener(andante: &Andante) {
    eventually("the listener to be closed", || TcpStream::connect(andante.proxy()).is_err().then_some(()));
}

#[test]
fn who_runs_and_who_waits_is_served_to_the_end() {
    let (upstream, release) = held();
    let mut andante = andante(&upstream, "1/s", "30s");
    assert_eq!(andante.page("/readyz").status(), 200);
    let mut idle = Client::connect(andante.proxy());
    idle.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.url("/held"), upstream.address()));
    upstream.wait_for(1);
    release.send(()).unwrap();
    assert_eq!(idle.answer().status(), 200);
    let mut running = ask(&andante, &upstream, "/held");
    upstream.wait_for(2);
    let mut queued = ask(&andante, &upstream, "/queued");
    andante.wait_for(|status| waiting(status) == 1);

    andante.signal(Signal::TERM);
    closes_its_listener(&andante);
    // A connection without a request is closed at once, one with a request after its answer.
    idle.closed();
    assert_eq!(andante.page("/readyz").status(), 503);
    assert_eq!(andante.page("/healthz").status(), 200);
    assert_eq!(andante.status()["draining"], true);
    release.send(()).unwrap();
    for client in [&mut running, &mut queued] {
        let answer = client.answer();
        assert_eq!((answer.status(), answer.text().as_str()), (200, "ok"));
        client.closed();
    }
    assert!(andante.ended().success());
}

#[test]
fn who_is_not_done_at_the_deadline_is_told_to_come_back() {
    let (upstream, _release) = held();
    let mut andante = andante(&upstream, "1/h", "400ms");
    let mut running = ask(&andante, &upstream, "/held");
    upstream.wait_for(1);
    let mut queued = ask(&andante, &upstream, "/queued");
    andante.wait_for(|status| waiting(status) == 1);
    andante.signal(Signal::TERM);
    for (client, error) in [(&mut running, "connection_terminated"), (&mut queued, "proxy_internal_response")] {
        let answer = client.answer();
        assert_eq!(answer.status(), 503, "{answer:?}");
        assert_eq!(answer.field("proxy-status"), Some(format!("andante; error={error}")), "was it sent? {answer:?}");
        assert!(answer.field("retry-after").is_some_and(|seconds| seconds.parse::<u32>().is_ok()), "{answer:?}");
        assert_eq!(answer.field("connection").as_deref(), Some("close"));
        client.closed();
    }
    assert!(andante.ended().success());
    assert_eq!(upstream.requests().len(), 1);
    ends_with_counts(&andante, "refused=2 cut_off=0");
}

#[test]
fn tunnels_last_until_the_deadline() {
    let upstream = Upstream::echo();
    let mut andante = andante(&upstream, "1/s", "1s");
    let mut client = Client::connect(andante.proxy());
    let host = upstream.address();
    client.send(format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    assert_eq!(client.answer_to_head().status(), 200);
    andante.signal(Signal::TERM);
    closes_its_listener(&andante);
    client.send("still here");
    assert_eq!(client.bytes(10), b"still here");
    client.closed();
    assert!(andante.ended().success());
    ends_with_counts(&andante, "refused=0 cut_off=1");
    eventually("the upstream's connection to end", || (upstream.ended() == 1).then_some(()));
}

#[test]
fn an_answer_that_streams_on_is_cut_at_the_deadline() {
    let upstream = Upstream::scripted(|mut connection| {
        connection.request();
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this");
        let _ = connection.rest();
    });
    let mut andante = andante(&upstream, "100/s", "350ms");
    let mut client = ask(&andante, &upstream, "/");
    assert_eq!(client.bytes(12), b"HTTP/1.1 200");
    let stream = Client2::connect(andante.proxy()).get(&upstream.url("/")).head();
    andante.signal(Signal::TERM);
    assert!(client.rest().ends_with(b"only this"));
    assert!(stream.try_rest().is_err());
    assert!(andante.ended().success());
    ends_with_counts(&andante, "refused=0 cut_off=2");
}

#[test]
fn with_nothing_to_wait_for_it_ends_at_once() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut andante = Andante::serve(&[]);
        // Open connections without any byte sent.
        let _silent = Client::connect(andante.proxy());
        andante.wait_for(|status| status["connections"]["client"] == 1);
        andante.signal(signal);
        assert!(andante.ended().success());
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let (upstream, _release) = held();
        let mut andante = andante(&upstream, "1/h", "1h");
        let _running = ask(&andante, &upstream, "/held");
        upstream.wait_for(1);
        andante.signal(signal);
        andante.wait_for(|status| status["draining"] == true);
        andante.signal(signal);
        assert_eq!(andante.ended().code(), Some(code));
        ends_with_counts(&andante, "answered=0 refused=0 cut_off=1");
    }
}

#[test]
fn a_request_that_cannot_leave_in_time_is_told_so_when_the_drain_begins() {
    let upstream = Upstream::ok();
    let mut andante = andante(&upstream, "1/s", "4s");
    assert_eq!(ask(&andante, &upstream, "/first").answer().status(), 200);
    let mut queued: Vec<_> = (0..12)
        .map(|n| {
            let client = ask(&andante, &upstream, "/queued");
            andante.wait_for(|status| waiting(status) == n + 1);
            client
        })
        .collect();
    let clock = andante::clock::Clock::start();
    andante.signal(Signal::TERM);
    // At 1/s at most five can leave within 4 s. Requests behind them are refused at once, from the last one on.
    let late = queued.split_off(6);
    for mut client in late {
        let answer = client.answer();
        assert_eq!(answer.status(), 503, "{answer:?}");
        let seconds: u64 = answer.field("retry-after").unwrap().parse().unwrap();
        assert!((3..=4).contains(&seconds), "the next process begins when this one has ended: {seconds}");
        assert_eq!(answer.field("connection").as_deref(), Some("close"));
    }
    let took = clock.now().since(andante::clock::Instant::START);
    assert!(took < std::time::Duration::from_secs(2), "{took:?}");
    let served = queued.iter_mut().map(|client| client.answer().status()).filter(|status| *status == 200).count();
    assert!((3..=5).contains(&served), "{served}");
    assert!(andante.ended().success());
}

#[test]
fn by_default_a_drain_lasts_for_two_minutes() {
    let upstream = Upstream::ok();
    let rule = format!("[[rule]]\nhost = \"{}\"\nlimits = [\"1/s\"]\n", upstream.address());
    let mut andante = Andante::logging_with_config("info", &rule, &[]);
    andante.signal(Signal::TERM);
    assert!(andante.ended().success());
    assert!(andante.stderr().contains("within_s=120"), "{}", andante.stderr());
}
