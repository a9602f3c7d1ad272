//! Identical requests share one call, where the rule says so.

use std::{
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, channel},
    },
    time::Duration,
};

use andante::clock::{Clock, Instant};
use parking_lot::Mutex;

use crate::support::{Andante, Client, Message, Upstream};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// An andante with the settings `rule` in its rule for `upstream`.
fn sharing(upstream: &Upstream, rule: &str) -> Andante {
    Andante::with_config(&format!("[[rule]]\nhost = \"{}\"\ncoalesce = true\n{rule}\n", upstream.address()))
}

/// An andante with `coalesce` and `limit`, whose first slot has been used.
fn busy(upstream: &Upstream, limit: &str) -> Andante {
    first_slot_used(sharing(upstream, &format!("limits = [\"{limit}\"]")), upstream)
}

/// `andante`, once it has sent one request to `upstream`.
pub(crate) fn first_slot_used(andante: Andante, upstream: &Upstream) -> Andante {
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/first")).status(), 200);
    andante
}

/// Sends `method` for `path` with `fields`, and does not wait for the answer.
fn send(andante: &Andante, upstream: &Upstream, method: &str, path: &str, fields: &str) -> Client {
    let mut client = Client::connect(andante.proxy());
    let (url, host) = (upstream.url(path), upstream.address());
    client.send(format!("{method} {url} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n"));
    client
}

fn get(andante: &Andante, upstream: &Upstream, fields: &str) -> Client {
    send(andante, upstream, "GET", "/same", fields)
}

/// An upstream that answers each request on command.
pub(crate) fn held(answer: &'static str) -> (Upstream, impl Fn()) {
    let (go, told) = channel::<()>();
    let told: Mutex<Receiver<()>> = Mutex::new(told);
    let upstream = Upstream::answering(move |_| {
        let _ = told.lock().recv_timeout(Duration::from_secs(20));
        answer
    });
    (upstream, move || go.send(()).unwrap())
}

/// An upstream that refuses the first request on command, for 3 seconds, and answers further ones with `answer`.
pub(crate) fn refusing_once(answer: &'static str) -> (Upstream, impl Fn()) {
    let (go, told) = channel::<()>();
    let (told, turn) = (Mutex::new(told), AtomicUsize::new(0));
    let upstream = Upstream::answering(move |_| {
        if turn.fetch_add(1, Ordering::AcqRel) > 0 {
            return answer;
        }
        let _ = told.lock().recv_timeout(Duration::from_secs(20));
        "HTTP/1.1 503 Busy\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n"
    });
    (upstream, move || go.send(()).unwrap())
}

/// Returns the answer to the request that is sent.
pub(crate) fn keeps_its_patience(
    andante: &Andante,
    upstream: &Upstream,
    refuse: impl Fn(),
    ask: impl Fn(&str) -> Client,
) -> Message {
    let mut first = ask("");
    upstream.wait_for(1);
    let mut hasty = ask("Prefer: wait=1\r\n");
    connected(andante, 2);
    refuse();
    waiting(andante, 1);
    let clock = Clock::start();
    let mut hasty_later = ask("Prefer: wait=1\r\n");
    let mut patient = ask("Prefer: wait=20\r\n");
    for client in [&mut hasty, &mut hasty_later] {
        let refused = client.answer();
        assert_eq!((refused.status(), refused.has("proxy-status")), (429, true));
        let retry_after: u32 = refused.field("retry-after").unwrap().parse().unwrap();
        assert!((1..=3).contains(&retry_after), "{retry_after}");
    }
    assert!(elapsed(&clock) < Duration::from_secs(1), "{:?}", elapsed(&clock));
    let shared = patient.answer();
    assert_eq!(shared.field("cache-status").as_deref(), Some("andante; fwd=miss; collapsed"));
    let timing = shared.field("server-timing").unwrap();
    let waited: f64 = timing.strip_prefix("andante;dur=").unwrap().parse().unwrap();
    assert!((1000.0..4000.0).contains(&waited), "{timing}");
    first.answer()
}

fn elapsed(clock: &Clock) -> Duration {
    clock.now().since(Instant::START)
}

pub(crate) fn waiting(andante: &Andante, count: u64) {
    andante.wait_for(|status| status["lanes"][0]["waiting"].as_u64() == Some(count));
}

/// Waits until `count` workers are connected: andante reads their requests at once.
pub(crate) fn connected(andante: &Andante, count: u64) {
    andante.wait_for(|status| status["connections"]["client"].as_u64() >= Some(count));
    std::thread::park_timeout(Duration::from_millis(100));
}

/// Whether status and metrics count this number of saved slots, all of them saved by `by`.
pub(crate) fn counts_saved(andante: &Andante, by: &str, count: u64) -> bool {
    let (sample, value) = (format!("andante_slots_saved_total{{by=\"{by}\","), format!(" {count}"));
    andante.status()["slots_saved_total"] == count
        && andante.metrics().lines().any(|line| line.starts_with(&sample) && line.ends_with(&value))
}

fn calls(upstream: &Upstream, path: &str) -> usize {
    upstream.requests().iter().filter(|request| request.target() == path).count()
}

#[test]
fn a_thousand_identical_requests_take_one_slot() {
    let upstream = Upstream::ok();
    let andante = busy(&upstream, "1/s");
    let clock = Clock::start();
    let mut clients: Vec<_> = (0..1000).map(|_| get(&andante, &upstream, "Authorization: Bearer one\r\n")).collect();
    let mut collapsed = 0;
    for client in &mut clients {
        let answer = client.answer();
        assert_eq!((answer.status(), answer.body.as_slice()), (200, &b"ok"[..]));
        collapsed += usize::from(answer.field("cache-status").as_deref() == Some("andante; fwd=miss; collapsed"));
    }
    assert!(elapsed(&clock) < Duration::from_secs(2), "{:?}", elapsed(&clock));
    assert_eq!((calls(&upstream, "/same"), collapsed), (1, 999));
    assert!(counts_saved(&andante, "coalesced", 999));
}

#[test]
fn without_the_key_each_request_is_sent() {
    let upstream = Upstream::ok();
    let andante = Andante::serve(&[]);
    let mut clients: Vec<_> = (0..5).map(|_| get(&andante, &upstream, "")).collect();
    for client in &mut clients {
        assert!(!client.answer().has("cache-status"));
    }
    assert_eq!(calls(&upstream, "/same"), 5);
}

#[test]
fn credentials_and_other_fields_tell_requests_apart_and_names_of_traces_do_not() {
    let upstream = Upstream::ok();
    let andante = busy(&upstream, "2/s");
    let fields = ["Authorization: a\r\n", "Authorization: b\r\n", "Authorization: a\r\nAccept: text/css\r\n"];
    let mut clients: Vec<_> = fields.iter().map(|fields| get(&andante, &upstream, fields)).collect();
    let traced = ["X-Request-Id: 1\r\nAuthorization: a\r\n", "Authorization: a\r\nTraceparent: 2\r\n"];
    clients.extend(traced.iter().map(|fields| get(&andante, &upstream, fields)));
    let answers: Vec<_> = clients.iter_mut().map(|client| client.answer().status()).collect();
    assert_eq!((answers, calls(&upstream, "/same")), (vec![200; 5], 3));
}

#[test]
fn who_comes_while_an_answer_is_under_way_gets_all_of_it_as_it_comes() {
    let (go, told) = channel::<()>();
    let told = Mutex::new(told);
    let upstream = Upstream::scripted(move |mut connection| {
        while connection.request().is_some() {
            connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n");
            let _ = told.lock().recv_timeout(Duration::from_secs(20));
            connection.send("4\r\nlast\r\n0\r\n\r\n");
        }
    });
    let andante = sharing(&upstream, "");
    let mut leader = get(&andante, &upstream, "");
    leader.until("first\r\n");
    let mut late = get(&andante, &upstream, "");
    late.until("first\r\n");
    go.send(()).unwrap();
    for client in [&mut leader, &mut late] {
        client.until("4\r\nlast\r\n0\r\n\r\n");
    }
    // The shared call is over: a later request gets an answer of its own.
    go.send(()).unwrap();
    assert_eq!(get(&andante, &upstream, "").answer().body, b"firstlast");
    assert_eq!(calls(&upstream, "/same"), 2);
}

#[test]
fn whoever_leaves_the_queue_leaves_its_place_to_the_others() {
    let upstream = Upstream::ok();
    let andante = busy(&upstream, "1/s");
    let clock = Clock::start();
    let leader = get(&andante, &upstream, "");
    waiting(&andante, 1);
    let mut others: Vec<_> = (0..3).map(|_| get(&andante, &upstream, "")).collect();
    let mut behind = send(&andante, &upstream, "GET", "/behind", "");
    waiting(&andante, 2);
    drop(leader);
    andante.wait_for(|status| status["requests"]["left"] == 1);
    for client in &mut others {
        assert_eq!(client.answer().status(), 200);
    }
    assert!(elapsed(&clock) < Duration::from_millis(1800), "in the next slot: {:?}", elapsed(&clock));
    assert_eq!(behind.answer().status(), 200);
    assert_eq!(calls(&upstream, "/same"), 1);
}

#[test]
fn whoever_leaves_an_answer_leaves_it_to_the_others_and_the_last_one_ends_the_call() {
    let (upstream, go) = held(OK);
    let andante = sharing(&upstream, "");
    let leader = get(&andante, &upstream, "");
    upstream.wait_for(1);
    let mut other = get(&andante, &upstream, "");
    connected(&andante, 2);
    drop(leader);
    andante.wait_for(|status| status["requests"]["left"] == 1);
    go();
    assert_eq!(other.answer().status(), 200);
    let last = get(&andante, &upstream, "");
    upstream.wait_for(2);
    drop(last);
    andante.wait_for(|status| status["requests"]["left"] == 2 && status["lanes"][0]["in_flight"] == 0);
}

#[test]
fn an_answer_that_is_for_one_alone_lets_the_others_go_on() {
    for (answer, rule) in [
        ("HTTP/1.1 200 OK\r\nVary: *\r\nContent-Length: 2\r\n\r\nok", ""),
        ("HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 2\r\n\r\nok", ""),
        ("HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nok", ""),
        ("HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nok", "cache = \"1MiB\""),
    ] {
        let (upstream, go) = held(answer);
        let andante = sharing(&upstream, rule);
        let mut clients: Vec<_> = (0..4).map(|_| get(&andante, &upstream, "")).collect();
        upstream.wait_for(1);
        connected(&andante, 4);
        (0..4).for_each(|_| go());
        let answers: Vec<_> = clients.iter_mut().map(Client::answer).collect();
        assert!(answers.iter().all(|answer| answer.body == b"ok"), "{answers:?}");
        let alone = answers
            .iter()
            .filter(|answer| answer.field("cache-status").as_deref() == Some("andante; fwd=miss; collapsed=?0"));
        assert_eq!((calls(&upstream, "/same"), alone.count()), (4, 3), "{answer}");
    }
}

#[test]
fn a_more_urgent_request_does_not_wait_for_a_lazier_one() {
    let upstream = Upstream::ok();
    let andante = busy(&upstream, "4/s");
    let _lazy = get(&andante, &upstream, "Priority: u=7\r\n");
    waiting(&andante, 1);
    let _others: Vec<_> = (0..12).map(|n| send(&andante, &upstream, "GET", &format!("/{n}"), "")).collect();
    andante.wait_for(|status| status["lanes"][0]["waiting"].as_u64() >= Some(10));
    let before = upstream.requests().len();
    let mut urgent = get(&andante, &upstream, "Priority: u=0\r\n");
    assert_eq!(urgent.answer().status(), 200);
    let place = upstream.requests().iter().position(|request| request.target() == "/same").unwrap();
    assert!(place <= before + 2, "{place}, where {before} had left when it was sent");
    upstream.wait_for(14);
    assert_eq!(calls(&upstream, "/same"), 1, "the lazier one has had its answer");
}

#[test]
fn what_was_asked_before_a_change_is_not_for_whoever_asks_after_it() {
    let (go, told) = channel::<()>();
    let told = Mutex::new(told);
    let upstream = Upstream::answering(move |request| {
        if request.head.starts_with(b"GET") {
            let _ = told.lock().recv_timeout(Duration::from_secs(20));
        }
        OK
    });
    let andante = sharing(&upstream, "");
    let mut before = get(&andante, &upstream, "");
    upstream.wait_for(1);
    assert_eq!(send(&andante, &upstream, "PUT", "/same", "Content-Length: 0\r\n").answer().status(), 200);
    let mut after = get(&andante, &upstream, "");
    upstream.wait_for(3);
    (0..2).for_each(|_| go.send(()).unwrap());
    assert_eq!((before.answer().status(), after.answer().status()), (200, 200));
}

#[test]
fn whoever_has_less_patience_than_the_call_is_refused_at_once() {
    let upstream = Upstream::ok();
    let andante = busy(&upstream, "1/10s");
    let _leader = get(&andante, &upstream, "");
    waiting(&andante, 1);
    let clock = Clock::start();
    let refused = get(&andante, &upstream, "Prefer: wait=3\r\n").answer();
    assert_eq!(refused.status(), 429);
    assert!(elapsed(&clock) < Duration::from_secs(1), "{:?}", elapsed(&clock));
}

#[test]
fn whoever_has_less_patience_than_a_call_that_is_sent_again_is_refused_at_once() {
    let (upstream, refuse) = refusing_once(OK);
    let andante = sharing(&upstream, "");
    let answer = keeps_its_patience(&andante, &upstream, refuse, |fields| get(&andante, &upstream, fields));
    assert_eq!((answer.status(), calls(&upstream, "/same")), (200, 2));
}

#[test]
fn whoever_leaves_a_call_that_is_sent_again_leaves_it_to_the_others_and_the_last_one_ends_it() {
    for ends in [false, true] {
        let (upstream, refuse) = refusing_once(OK);
        let andante = sharing(&upstream, "");
        let leader = get(&andante, &upstream, "");
        upstream.wait_for(1);
        let mut other = get(&andante, &upstream, "");
        connected(&andante, 2);
        refuse();
        waiting(&andante, 1);
        drop(leader);
        andante.wait_for(|status| status["requests"]["left"] == 1);
        if ends {
            drop(other);
            waiting(&andante, 0);
        } else {
            assert_eq!(other.answer().status(), 200);
        }
        assert_eq!(calls(&upstream, "/same"), if ends { 1 } else { 2 });
    }
}

#[test]
fn a_reader_that_stops_does_not_stop_the_others() {
    const SIZE: usize = 24 * 1024 * 1024;
    let upstream = Upstream::scripted(|mut connection| {
        while connection.request().is_some() {
            connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            for _ in 0..SIZE / 65536 {
                connection.send([b"10000\r\n", &[b'x'; 65536][..], b"\r\n"].concat());
            }
            connection.send("0\r\n\r\n");
        }
    });
    let andante = busy(&upstream, "1/3s");
    let stopped = get(&andante, &upstream, "");
    waiting(&andante, 1);
    let mut reader = get(&andante, &upstream, "");
    assert_eq!(reader.answer().body.len(), SIZE);
    assert_eq!(calls(&upstream, "/same"), 1);
    drop(stopped);
}
