//! Workers that leave, and ends in order, while requests wait to be sent again.

use rustix::process::Signal;
use serde_json::Value;

use super::{DOWN, OK, SECOND, ask, beginning_with, ms, now};
use crate::support::{Andante, Client, DeadPort, Upstream, eventually, h2::Client2};

const LONG: &str = "HTTP/1.1 429 No\r\nRetry-After: 30\r\nContent-Length: 4\r\n\r\nlong";

fn lane(status: &Value) -> (u64, u64) {
    let lane = &status["lanes"][0];
    (lane["waiting"].as_u64().unwrap_or_default(), lane["in_flight"].as_u64().unwrap_or_default())
}

#[test]
fn who_leaves_a_closed_gate_leaves_nothing() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::always(LONG));
    let sent = ask(&andante, &upstream, "POST", "Content-Length: 2\r\n\r\nhi");
    andante.wait_for(|status| lane(status) == (1, 0));
    let fresh = ask(&andante, &upstream, "GET", "\r\n");
    andante.wait_for(|status| lane(status) == (2, 0));
    drop(sent);
    andante.wait_for(|status| lane(status) == (1, 0));
    fresh.reset();
    andante.wait_for(|status| lane(status) == (0, 0));
    assert_eq!(upstream.requests().len(), 1);
}

#[test]
fn the_slot_of_who_has_left_goes_to_the_next() {
    let upstream = beginning_with(&[SECOND]);
    let rule = format!("[[rule]]\nhost = \"{}\"\nin-flight = 1\n", upstream.address());
    let andante = Andante::with_config(&rule);
    let since = now();
    let gone = ask(&andante, &upstream, "POST", "Content-Length: 2\r\n\r\nhi");
    andante.wait_for(|status| lane(status) == (1, 0));
    let mut next = ask(&andante, &upstream, "GET", "\r\n");
    andante.wait_for(|status| lane(status) == (2, 0));
    drop(gone);
    assert_eq!(next.answer().status(), 200);
    let took = now().since(since);
    assert!(took >= ms(950) && took < ms(2500), "{took:?}");
    let lines: Vec<_> = upstream.requests().iter().map(|request| request.line()).collect();
    assert_eq!(lines, ["POST /path?q=1 HTTP/1.1", "GET /path?q=1 HTTP/1.1"]);
}

#[test]
fn who_leaves_during_a_back_off_is_not_sent_again() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::always(DOWN));
    // Requests leave one after the other, since none was served: ten fail, and then the breaker admits one. Failed
    // requests are in a back-off of up to two seconds, or behind the breaker after it.
    let clients: Vec<_> = (0..30).map(|_| ask(&andante, &upstream, "GET", "\r\n")).collect();
    upstream.wait_for(12);
    drop(clients);
    andante.wait_for(|status| lane(status) == (0, 0));
    std::thread::park_timeout(ms(100));
    let seen = upstream.requests().len();
    std::thread::park_timeout(ms(1000));
    assert_eq!(upstream.requests().len(), seen);
    assert_eq!(lane(&andante.status()), (0, 0));
}

#[test]
fn who_leaves_while_it_is_tried_again_leaves_nothing() {
    let first = std::sync::atomic::AtomicBool::new(true);
    let upstream = Upstream::scripted(move |mut connection| {
        while connection.request().is_some() {
            if !first.swap(false, std::sync::atomic::Ordering::AcqRel) {
                // Never answers.
                let _ = connection.rest();
                return;
            }
            connection.send(super::SOON);
        }
    });
    let andante = Andante::serve(&[]);
    let client = ask(&andante, &upstream, "POST", "Content-Length: 2\r\n\r\nhi");
    upstream.wait_for(2);
    andante.wait_for(|status| lane(status) == (0, 1));
    drop(client);
    andante.wait_for(|status| lane(status) == (0, 0));
    eventually("the upstream to be left", || (upstream.ended() >= 1).then_some(()));
}

#[test]
fn an_end_in_order_tells_those_who_wait_to_be_sent_again() {
    let upstream = Upstream::always(LONG);
    let rule = format!("drain = \"500ms\"\n[[rule]]\nhost = \"{}\"\n", upstream.address());
    let mut andante = Andante::with_config(&rule);
    let mut clients: Vec<Client> =
        ["POST", "GET"].map(|method| ask(&andante, &upstream, method, "Content-Length: 2\r\n\r\nhi")).into();
    andante.wait_for(|status| lane(status) == (2, 0));
    let since = now();
    andante.signal(Signal::TERM);
    for client in &mut clients {
        let answer = client.answer();
        assert_eq!(answer.status(), 503, "{answer:?}");
        assert!(answer.has("retry-after") && answer.has("proxy-status"), "{answer:?}");
    }
    assert!(andante.ended().success());
    assert!(now().since(since) < ms(3000));
}

#[test]
fn a_drain_cuts_back_offs_short() {
    let gone = Upstream::once(OK);
    let rule = format!("drain = \"400ms\"\n[[rule]]\nhost = \"{}\"\n", gone.address());
    let mut andante = Andante::with_config(&rule);
    assert_eq!(ask(&andante, &gone, "GET", "\r\n").answer().status(), 200);
    let gone = DeadPort::after(gone);
    let (url, host) = (gone.url(), gone.address());
    let mut client = Client::connect(andante.proxy());
    client.send(format!("POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2\r\n\r\nhi"));
    // Long enough for back-offs of seconds.
    std::thread::park_timeout(ms(2000));
    andante.signal(Signal::TERM);
    let since = now();
    assert_eq!(client.answer().status(), 503);
    assert!(andante.ended().success());
    assert!(now().since(since) < ms(2000));
}

#[test]
fn who_leaves_in_the_midst_of_a_body_that_was_refused_leaves_nothing() {
    let upstream = Upstream::scripted(|mut connection| {
        let _ = connection.head();
        connection.send(LONG);
        let _ = connection.rest();
    });
    let andante = Andante::serve(&[]);
    let client = ask(&andante, &upstream, "POST", "Content-Length: 1000\r\n\r\nhi");
    upstream.wait_for(1);
    std::thread::park_timeout(ms(100));
    drop(client);
    andante.wait_for(|status| lane(status) == (0, 0));
    eventually("the upstream to be left", || (upstream.ended() == 1).then_some(()));
    assert_eq!(upstream.requests().len(), 1);
}

#[test]
fn a_stream_of_http2_that_is_cancelled_at_a_closed_gate_leaves_nothing() {
    let (andante, upstream) = (Andante::serve(&[]), beginning_with(&[SECOND]));
    let mut client = Client2::connect(andante.proxy());
    let mut gone = client.begin(http::Request::post(upstream.url("/gone")));
    gone.push("hi", true);
    andante.wait_for(|status| lane(status) == (1, 0));
    let next = client.get(&upstream.url("/next"));
    andante.wait_for(|status| lane(status) == (2, 0));
    gone.cancel();
    andante.wait_for(|status| lane(status) == (1, 0));
    assert_eq!(next.answer().status(), 200);
    let targets: Vec<_> = upstream.requests().iter().map(|request| request.target()).collect();
    assert_eq!(targets, ["/gone", "/next"]);
}
