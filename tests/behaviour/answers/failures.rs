//! Failures: a request that may have been executed is sent again only if it may be repeated.

use std::{
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{CUT, DOWN, OK, ask, beginning_with, ms, now, same, timed};
use crate::support::{Andante, Client, DeadPort, Mock, Name, NameServer, Upstream, eventually, rejected};

const BODY: &str = "Content-Length: 5\r\n\r\nhello";
const KEYED: &str = "Idempotency-Key: \"a\"\r\nContent-Length: 5\r\n\r\nhello";
const BAD: &str = "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 3\r\n\r\nbad";
const LATE: &str = "HTTP/1.1 504 Gateway Timeout\r\nContent-Length: 4\r\n\r\nlate";
const ERROR: &str = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 5\r\n\r\nerror";

/// Number of requests that reach an upstream which begins with `answers`, and the worker's status.
fn tries(answers: &'static [&'static str], method: &str, rest: &str) -> (usize, u16) {
    let (andante, upstream) = (Andante::serve(&[]), beginning_with(answers));
    let (answer, took) = timed(&andante, &upstream, method, rest);
    assert!(took < ms(2500), "{took:?}");
    same(&upstream.requests());
    (upstream.requests().len(), answer.status())
}

#[test]
fn a_503_that_says_when_to_come_back_was_not_served_and_any_method_is_sent_again() {
    const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 4\r\n\r\nbusy";
    for (method, rest) in [("POST", BODY), ("GET", "\r\n"), ("PATCH", BODY), ("DELETE", "\r\n")] {
        let (andante, upstream) = (Andante::serve(&[]), beginning_with(&[BUSY]));
        let (answer, took) = timed(&andante, &upstream, method, rest);
        assert_eq!(answer.status(), 200, "{method}");
        assert!(took >= ms(990), "{method}: {took:?}");
        same(&upstream.requests());
    }
}

#[test]
fn trouble_upstream_is_tried_again_if_the_request_may_be_repeated() {
    for (answer, status) in [(&[DOWN], 503), (&[BAD], 502), (&[LATE], 504)] {
        assert_eq!(tries(answer, "GET", "\r\n"), (2, 200), "{status}");
        assert_eq!(tries(answer, "PUT", BODY), (2, 200), "{status}");
        assert_eq!(tries(answer, "POST", BODY), (1, status), "{status}");
        assert_eq!(tries(answer, "POST", KEYED), (2, 200), "{status}");
    }
    assert_eq!(tries(&[ERROR], "GET", "\r\n"), (1, 500));
}

#[test]
fn trouble_that_lasts_reaches_the_worker_as_the_upstream_has_put_it() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::always(DOWN));
    let (answer, took) = timed(&andante, &upstream, "GET", "\r\n");
    assert_eq!((answer.status(), answer.text().as_str()), (503, "down"));
    assert!(!answer.has("proxy-status"), "{answer:?}");
    assert_eq!(upstream.requests().len(), 5);
    assert!(took < ms(6000), "{took:?}");
}

#[test]
fn a_connection_that_is_cut_before_the_answer_is_tried_again_if_the_request_may_be_repeated() {
    assert_eq!(tries(&[CUT], "GET", "\r\n"), (2, 200));
    assert_eq!(tries(&[CUT, CUT], "PUT", BODY), (3, 200));
    assert_eq!(tries(&[CUT], "POST", KEYED), (2, 200));
    assert_eq!(tries(&[CUT], "POST", BODY), (1, 502));
}

#[test]
fn an_answer_that_is_cut_is_passed_on_as_cut() {
    for (answer, seen) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", "half"),
        ("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{\"a\"", "{\"a\""),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", "half"),
        ("HTTP/1.1 503 Down\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", "half"),
        ("HTTP/1.1 429 No\r\nTransfer-Encoding: chunked\r\nRetry-After-Ms: 50\r\n\r\n4\r\nhalf\r\n", "half"),
    ] {
        let (andante, upstream) = (Andante::serve(&[]), Upstream::once(answer));
        let mut client = ask(&andante, &upstream, "GET", "\r\n");
        let got = String::from_utf8_lossy(&client.end()).into_owned();
        assert!(got.contains(seen), "{answer:?}: {got:?}");
        assert!(!got.ends_with("0\r\n\r\n"), "it looks whole: {got:?}");
        assert_eq!(upstream.requests().len(), 1, "{answer:?}");
    }
}

#[test]
fn a_host_that_was_never_reached_is_tried_three_times() {
    let gone = DeadPort::reserve();
    let address = gone.address();
    let andante = Andante::logging("debug", &[]);
    // A served request of another port says nothing about this one.
    assert_eq!(Client::get(andante.proxy(), &Upstream::ok().url("/")).status(), 200);
    let since = now();
    let answer = Client::ask(andante.proxy(), format!("POST http://{address}/ HTTP/1.1\r\nHost: {address}\r\n{BODY}"));
    rejected(&answer, 502, "connection_refused", "nobody there");
    let took = now().since(since);
    assert!(took >= ms(100) && took < ms(2000), "{took:?}");
    let again = andante.stderr().matches("sending a request again").count();
    assert_eq!(again, 2, "{}", andante.stderr());
}

#[test]
fn who_has_answered_before_and_is_away_for_a_while_is_waited_for() {
    let (andante, mock) = (Andante::serve(&[]), Mock::start(&[]));
    assert_eq!(Client::get(andante.proxy(), &mock.url("/")).status(), 200);
    mock.control("PUT", "down", r#"{"how":"refuse","for":"2s"}"#);
    let since = now();
    let host = mock.address();
    // The API may have processed a request on a connection that it resets right now. The answer would be 502.
    eventually("it to be away", || std::net::TcpStream::connect(host).is_err().then_some(()));
    std::thread::park_timeout(ms(50));
    let post = |body: &'static str| {
        let (proxy, url) = (andante.proxy(), mock.url("/"));
        let request = format!("POST {url} HTTP/1.1\r\nHost: {host}\r\n{body}");
        std::thread::spawn(move || Client::ask(proxy, request))
    };
    let workers: Vec<_> = (0..20).map(|n| post(if n % 2 == 0 { BODY } else { "\r\n" })).collect();
    for worker in workers {
        let answer = worker.join().unwrap();
        assert_eq!(answer.status(), 200, "{answer:?}");
    }
    let took = now().since(since);
    assert!(took >= ms(1500) && took < ms(7000), "{took:?}");
    assert_eq!(mock.stats()["accepted"], 21);
}

#[test]
fn a_kept_connection_that_the_upstream_closed_is_no_failure() {
    let upstream = Upstream::once(OK);
    let andante = Andante::logging("info", &[]);
    for _ in 0..3 {
        assert_eq!(timed(&andante, &upstream, "POST", BODY).0.status(), 200);
        std::thread::park_timeout(ms(50));
    }
    assert_eq!(upstream.requests().len(), 3);
}

#[test]
fn what_is_dead_at_one_port_does_not_hold_up_another() {
    let dead = DeadPort::reserve();
    let (andante, alive) = (Andante::serve(&[]), Upstream::ok());
    assert_eq!(timed(&andante, &alive, "GET", "\r\n").0.status(), 200);
    for _ in 0..6 {
        assert_eq!(Client::get(andante.proxy(), &dead.url()).status(), 502);
    }
    let (answer, took) = timed(&andante, &alive, "GET", "Prefer: wait=5\r\n\r\n");
    assert_eq!(answer.status(), 200);
    assert!(took < ms(200), "{took:?}");
}

#[test]
fn a_name_that_is_gone_does_not_open_the_breaker() {
    let upstream = Upstream::always("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
    let gone = Arc::new(AtomicBool::new(false));
    let names = NameServer::start({
        let gone = gone.clone();
        move |_| if gone.load(Ordering::Acquire) { Name::Unknown } else { Name::Briefly(vec![Ipv4Addr::LOCALHOST]) }
    });
    let toml = format!("dns = [\"{}\"]\n", names.address());
    let andante = Andante::with_config_and(&toml, &["--retry", "off", "--threads", "1"]);
    let get = || Client::get(andante.proxy(), &format!("http://api.test:{}/", upstream.port()));
    assert_eq!(get().status(), 200);
    gone.store(true, Ordering::Release);
    for _ in 0..30 {
        rejected(&get(), 502, "dns_error", "no such name");
    }
    let gate = andante.status()["lanes"][0]["gate"].clone();
    assert!(gate.is_null(), "{gate}");
    gone.store(false, Ordering::Release);
    assert_eq!(get().status(), 200, "the name is back");
}

/// Eight connections that the upstream resets as soon as they carry a second request: the second try of a GET goes to a
/// new one, whatever the pool has.
#[test]
fn a_request_that_broke_on_a_used_connection_is_sent_again_on_a_new_one() {
    const CONNECTIONS: usize = 8;
    let waits = std::sync::Arc::new(std::sync::Barrier::new(CONNECTIONS));
    let fresh = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let opened = fresh.clone();
    let upstream = Upstream::scripted(move |mut connection| {
        let is_stale = fresh.fetch_add(1, std::sync::atomic::Ordering::AcqRel) < CONNECTIONS;
        let _ = connection.request();
        if is_stale {
            waits.wait();
        }
        connection.send(OK);
        let _ = connection.request();
        connection.reset();
    });
    let andante = Andante::serve(&[]);
    let mut clients: Vec<_> = (0..CONNECTIONS).map(|_| ask(&andante, &upstream, "GET", "\r\n")).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.answer().status(), 200));
    let mut last = ask(&andante, &upstream, "GET", "\r\n");
    assert_eq!(last.answer().status(), 200);
    assert_eq!(opened.load(std::sync::atomic::Ordering::Acquire), CONNECTIONS + 1);
}
