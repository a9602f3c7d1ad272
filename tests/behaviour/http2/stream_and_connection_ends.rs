//! Ends of streams and connections, on either side, and their effects.

use std::{sync::Arc, thread, time::Duration};

use andante::clock::{Clock, Instant};
use h2::Reason;
use http::Request;
use parking_lot::Mutex;
use rustix::process::Signal;

use super::{
    streams::{frames, lane, rejected2},
    upstreams::{MAX_CONCURRENT_STREAMS, andante, framed, framed_first, halt, request},
};
use crate::support::{
    Andante, Client, Upstream, eventually,
    h2::{Client2, Upstream2, kind},
};

#[test]
fn a_stream_that_is_cancelled_frees_its_place() {
    let upstream = Upstream::ok();
    let andante = Andante::serve(&["--limit", &format!("{}=1/20s", upstream.address())]);
    let mut client = Client2::connect(andante.proxy());
    assert_eq!(client.get(&upstream.url("/")).answer().status(), 200);
    let mut waiting: Vec<_> = (0..3).map(|_| client.get(&upstream.url("/"))).collect();
    andante.wait_for(|status| lane(status, "waiting") == 3);
    waiting.remove(1).cancel();
    andante.wait_for(|status| lane(status, "waiting") == 2);
    drop(waiting);
    // Cancelled requests give up their places first, and are counted at their end.
    let status = andante.wait_for(|status| status["requests"]["left"] == 3);
    assert_eq!((lane(&status, "waiting"), &status["connections"]["client"]), (0, &1.into()));
    // The connection is as good as ever.
    let answer = client.send(Request::get(upstream.url("/")).header("prefer", "wait=0")).answer();
    rejected2(&answer, 429, "http_request_denied", "no slot");
    assert_eq!(upstream.requests().len(), 1);
}

#[test]
fn a_connection_that_ends_frees_the_places_of_all_its_streams() {
    let upstream = Upstream::ok();
    let andante = Andante::serve(&["--limit", &format!("{}=1/20s", upstream.address())]);
    let mut frames = frames(&andante);
    let (host, authority) = (upstream.address().to_string(), ":authority");
    for stream in 0..5 {
        let fields = [(":method", "GET"), (":scheme", "http"), (authority, &host), (":path", "/")];
        frames.headers(2 * stream + 1, &fields, true);
    }
    andante.wait_for(|status| lane(status, "waiting") == 4);
    drop(frames);
    andante.wait_for(|status| lane(status, "waiting") == 0 && status["connections"]["client"] == 0);
}

#[test]
fn a_stream_that_is_cancelled_ends_its_request_upstream() {
    let upstream = Upstream::scripted(|mut connection| {
        connection.request();
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
        let _ = connection.rest();
    });
    let andante = Andante::serve(&["--limit", &format!("{}=in-flight 1", upstream.address())]);
    let mut client = Client2::connect(andante.proxy());
    let mut first = client.get(&upstream.url("/")).head();
    assert_eq!(first.next().unwrap().unwrap(), "half");
    let second = client.get(&upstream.url("/"));
    andante.wait_for(|status| lane(status, "waiting") == 1);
    drop(first);
    eventually("the first connection's end", || (upstream.ended() == 1).then_some(()));
    assert_eq!(second.head().head.status(), 200);
}

#[test]
fn a_drain_is_announced_and_lets_requests_finish() {
    let upstream = Upstream::ok();
    let rule = format!("[[rule]]\nhost = \"{}\"\nlimits = [\"1/s\"]\n", upstream.address());
    let mut andante = Andante::with_config(&rule);
    let mut client = Client2::connect(andante.proxy());
    assert_eq!(client.get(&upstream.url("/")).answer().status(), 200);
    let waiting = client.get(&upstream.url("/"));
    andante.wait_for(|status| lane(status, "waiting") == 1);
    let mut watched = frames(&andante);
    watched.next_of(kind::SETTINGS).unwrap();
    andante.signal(Signal::TERM);
    let said = watched.next_of(kind::GOAWAY).expect("to be told");
    assert_eq!(said.reason(), h2::Reason::NO_ERROR);
    while watched.next().is_some() {}
    assert_eq!(waiting.answer().status(), 200);
    client.ended().expect("an end in order");
    assert!(andante.ended().success());
    assert_eq!(upstream.requests().len(), 2);
}

#[test]
fn what_does_not_finish_in_the_drain_is_told_to_come_back() {
    let upstream = Upstream::scripted(|mut connection| {
        connection.request();
        let _ = connection.rest();
    });
    let mut andante = Andante::with_config("drain = \"300ms\"\n");
    let mut client = Client2::connect(andante.proxy());
    let running = client.get(&upstream.url("/"));
    upstream.wait_for(1);
    andante.signal(Signal::TERM);
    let answer = running.answer();
    rejected2(&answer, 503, "connection_terminated", "cut off");
    assert_eq!(answer.field("retry-after").as_deref(), Some("1"));
    assert!(andante.ended().success());
}

#[test]
fn an_upstream_that_goes_away_finishes_what_it_has_seen_and_the_rest_goes_elsewhere() {
    let (halt, halted) = halt();
    let upstream = framed_first(&[(MAX_CONCURRENT_STREAMS, 10)], "elsewhere", move |frames| {
        let (seen, unseen) = (request(frames).unwrap(), request(frames).unwrap());
        assert!(seen < unseen);
        frames.headers(seen, &[(":status", "200")], false);
        frames.data(seen, b"half ", false);
        frames.go_away(seen, Reason::NO_ERROR);
        halt.here();
        frames.data(seen, b"and half", true);
        assert!(request(frames).is_none(), "a new request on a connection that goes away");
    });
    let andante = andante(upstream.port(), "");
    let mut client = Client2::connect(andante.andante.proxy());
    let seen = client.get(&upstream.url("/seen"));
    let mut unseen = Client::connect(andante.andante.proxy());
    andante.andante.wait_for(|status| status["lanes"][0]["in_flight"] == 1);
    unseen.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.url("/unseen"), upstream.address()));
    halted.reached();
    let answer = unseen.answer();
    assert_eq!((answer.status(), answer.text().as_str()), (200, "elsewhere"));
    assert_eq!(client.get(&upstream.url("/new")).answer().text(), "elsewhere");
    halted.go_on();
    assert_eq!(seen.answer().text(), "half and half");
    eventually("the connection's end", || (upstream.ended() == 1).then_some(()));
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn what_an_upstream_has_refused_unseen_is_sent_again() {
    let count = Mutex::new(0);
    let upstream = Upstream2::serving(move |mut exchange| {
        *count.lock() += 1;
        let first = *count.lock() <= 2;
        async move {
            if first {
                return exchange.refuse(Reason::REFUSED_STREAM);
            }
            exchange.read().await;
            exchange.answer(200, &[], "seen");
        }
    });
    let andante = andante(upstream.address().port(), "limits = \"1000/s\"");
    assert_eq!(Client::get(andante.andante.proxy(), &upstream.url("/")).text(), "seen");
    assert_eq!(upstream.requests().len(), 3);
}

/// "Too many" before an answer is a refusal, as gRPC has it (PROTOCOL-HTTP2, errors): a POST, too, is sent again.
#[test]
fn a_stream_that_is_reset_for_excessive_load_is_sent_again() {
    let count = Mutex::new(0);
    let upstream = Upstream2::serving(move |mut exchange| {
        *count.lock() += 1;
        let first = *count.lock() <= 2;
        async move {
            if first {
                return exchange.refuse(Reason::ENHANCE_YOUR_CALM);
            }
            exchange.read().await;
            exchange.answer(200, &[], "seen");
        }
    });
    let andante = andante(upstream.address().port(), "");
    let (up, to) = (upstream.address(), upstream.url("/"));
    let post = format!("POST {to} HTTP/1.1\r\nHost: {up}\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!(Client::ask(andante.andante.proxy(), post).text(), "seen");
    assert_eq!(upstream.requests().len(), 3);
}

#[test]
fn a_stream_that_is_refused_every_time_becomes_a_502() {
    let upstream = Upstream2::serving(|exchange| async { exchange.refuse(Reason::REFUSED_STREAM) });
    let andante = andante(upstream.address().port(), "");
    let answer = Client::get(andante.andante.proxy(), &upstream.url("/"));
    crate::support::rejected(&answer, 502, "connection_terminated", "refused");
    assert!((2..10).contains(&upstream.requests().len()), "{}", upstream.requests().len());
}

/// RFC 9113 §8.7: such a request was not processed, and may be sent again. The slot permits another try, and each
/// further try takes a slot. So no second sees more than two streams for each slot, and one that was in flight.
#[test]
fn an_upstream_that_looks_at_nothing_is_asked_no_faster_for_it() {
    let times = Arc::new(Mutex::new(Vec::new()));
    let (seen, clock) = (times.clone(), Clock::start());
    let upstream = Upstream2::serving(move |exchange| {
        seen.lock().push(clock.now());
        async move { exchange.refuse(Reason::REFUSED_STREAM) }
    });
    let andante = andante(upstream.address().port(), "limits = \"10/s\"");
    thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| assert_eq!(Client::get(andante.andante.proxy(), &upstream.url("/")).status(), 502));
        }
    });
    let times = times.lock();
    let second = Duration::from_secs(1);
    let within_a_second =
        |first: &Instant| times.iter().filter(|time| **time >= *first && **time < *first + second).count();
    let most = times.iter().map(within_a_second).max().unwrap();
    assert!((12..=21).contains(&most), "{most} of {}", times.len());
}

#[test]
fn what_may_have_been_seen_is_not_sent_again() {
    for reason in [Reason::INTERNAL_ERROR, Reason::CANCEL] {
        let upstream = Upstream2::serving(move |exchange| async move { exchange.refuse(reason) });
        let andante = andante(upstream.address().port(), "");
        let (up, to) = (upstream.address(), upstream.url("/"));
        // Idempotent requests are repeated; a POST may not be.
        let post = format!("POST {to} HTTP/1.1\r\nHost: {up}\r\nContent-Length: 2\r\n\r\nhi");
        let answer = Client::ask(andante.andante.proxy(), post);
        crate::support::rejected(&answer, 502, "connection_terminated", &format!("{reason:?}"));
        assert_eq!(upstream.requests().len(), 1);
    }
}

#[test]
fn an_answer_that_breaks_off_is_broken_for_the_worker_too() {
    let arrived = Arc::new(tokio::sync::Notify::new());
    let told = arrived.clone();
    let upstream = Upstream2::serving(move |exchange| {
        let arrived = arrived.clone();
        async move {
            let mut sending = exchange.start(200, &[], false).unwrap();
            sending.send_data("half".into(), false).unwrap();
            arrived.notified().await;
            sending.send_reset(Reason::INTERNAL_ERROR);
        }
    });
    let andante = andante(upstream.address().port(), "");
    let mut older = Client::connect(andante.andante.proxy());
    older.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.url("/"), upstream.address()));
    older.until("\r\n\r\n4\r\nhalf\r\n");
    told.notify_one();
    older.closed();

    let mut newer = Client2::connect(andante.andante.proxy()).get(&upstream.url("/")).head();
    assert_eq!(newer.next().unwrap().unwrap(), "half");
    told.notify_one();
    let broken = newer.next().expect("not an end in order");
    assert!(broken.as_ref().is_err_and(|error| error.is_reset()), "{broken:?}");
    assert_eq!(upstream.connections(), 1, "the connection lives on");
}

#[test]
fn an_answer_that_breaks_off_at_once_shows_what_has_come_of_it() {
    const LENGTH: &[(&str, &str)] = &[("content-length", "9")];
    // Without an error and a length the end is indistinguishable from a complete answer (RFC 9113 §8.1).
    for (reason, length) in [
        (Reason::INTERNAL_ERROR, &[][..]),
        (Reason::INTERNAL_ERROR, LENGTH),
        (Reason::CANCEL, &[]),
        (Reason::CANCEL, LENGTH),
        (Reason::NO_ERROR, LENGTH),
    ] {
        let upstream = framed(&[], move |_, mut frames| {
            while let Some(stream) = request(&mut frames) {
                frames.headers(stream, &[&[(":status", "200")], length].concat(), false);
                frames.data(stream, b"half", false);
                frames.send(kind::RST_STREAM, 0, stream, &u32::from(reason).to_be_bytes());
            }
        });
        let andante = andante(upstream.address().port(), "");
        let mut client = Client::connect(andante.andante.proxy());
        client.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.url("/"), upstream.address()));
        let rest = client.rest();
        let come = String::from_utf8_lossy(&rest);
        let case = format!("{reason:?} {length:?}: {come}");
        assert!(come.starts_with("HTTP/1.1 200 ") && come.contains("half"), "{case}");
        assert!(!come.ends_with("0\r\n\r\n"), "it ended as if all were there: {case}");
    }
}
