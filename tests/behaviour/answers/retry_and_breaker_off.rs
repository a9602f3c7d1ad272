//! `retry = "off"` and `breaker = "off"`.

use super::{CUT, DOWN, SOON, ask, beginning_with, ms, timed};
use crate::support::{Andante, Client, DeadPort, Upstream, rejected};

#[test]
fn without_retries_everything_is_passed_on_as_it_is() {
    const BUSY: &str = "HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 4\r\n\r\nbusy";
    for (answer, status) in [(&[SOON], 429), (&[DOWN], 503), (&[BUSY], 503), (&[CUT], 502)] {
        let (andante, upstream) = (Andante::serve(&["--retry", "off"]), beginning_with(answer));
        let (got, took) = timed(&andante, &upstream, "GET", "\r\n");
        assert_eq!(got.status(), status, "{got:?}");
        assert_eq!(got.has("proxy-status"), answer[0] == CUT, "{got:?}");
        assert!(took < ms(900), "{took:?}");
        assert_eq!(upstream.requests().len(), 1);
    }
    let dead = DeadPort::reserve();
    let andante = Andante::logging("info", &["--retry", "off"]);
    rejected(&Client::get(andante.proxy(), &dead.url()), 502, "connection_refused", "nobody there");
    assert!(!andante.stderr().contains("again"), "{}", andante.stderr());
}

#[test]
fn without_retries_a_refusal_closes_the_gate_all_the_same() {
    let (andante, upstream) = (Andante::serve(&["--retry", "off"]), beginning_with(&[super::SECOND]));
    assert_eq!(timed(&andante, &upstream, "GET", "\r\n").0.status(), 429);
    let (answer, took) = timed(&andante, &upstream, "GET", "\r\n");
    assert_eq!(answer.status(), 200);
    assert!(took >= ms(900), "{took:?}");
}

/// The closed gate of the lane after `requests`, none of them served.
fn gate_after(andante: &Andante, upstream: &Upstream, requests: usize) -> serde_json::Value {
    for _ in 0..requests {
        let _ = timed(andante, upstream, "POST", "Prefer: wait=0\r\nContent-Length: 2\r\n\r\nhi");
    }
    andante.status()["lanes"][0]["gate"].clone()
}

#[test]
fn an_upstream_that_fails_again_and_again_is_left_alone() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::always(DOWN));
    let gate = gate_after(&andante, &upstream, 12);
    assert_eq!(gate["reason"], "breaker", "{gate}");
    assert!(upstream.requests().len() <= 11, "{}", upstream.requests().len());
    // A request with time left waits, and gets the upstream's answer in the end.
    let (answer, _) = timed(&andante, &upstream, "POST", "Prefer: wait=2\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!((answer.status(), answer.text().as_str()), (503, "down"));
}

#[test]
fn without_a_breaker_a_failing_upstream_is_not_left_alone() {
    let (andante, upstream) = (Andante::serve(&["--breaker", "off"]), Upstream::always(DOWN));
    let gate = gate_after(&andante, &upstream, 20);
    assert!(gate.is_null(), "{gate}");
    assert_eq!(upstream.requests().len(), 20);
}

#[test]
fn retries_of_failures_are_a_share_of_all_requests() {
    // All requests fail. The retry budget is ten at the start, and a fifth of the sent requests.
    let upstream = Upstream::always(DOWN);
    let andante = Andante::serve(&["--breaker", "off"]);
    let clients: Vec<_> = (0..30).map(|_| ask(&andante, &upstream, "GET", "\r\n")).collect();
    for mut client in clients {
        assert_eq!(client.answer().status(), 503);
    }
    let seen = upstream.requests().len();
    assert!((31..=30 + 10 + 8).contains(&seen), "{seen}");
}
