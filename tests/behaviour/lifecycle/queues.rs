//! A queue is bounded. A request without a chance is told at once, with the time at which to return.

use andante::clock::{Clock, Instant};

use super::{pass, quiet, waiting};
use crate::support::{Andante, Client, Message, Upstream};

/// An upstream whose only slot for now has been used, with the settings `more` in its rule.
fn busy(limit: &str, more: &str) -> (Upstream, Andante) {
    let upstream = Upstream::ok();
    let host = upstream.address();
    let andante = Andante::with_config(&format!("[[rule]]\nhost = \"{host}\"\nlimits = [\"{limit}\"]\n{more}\n"));
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/first")).status(), 200);
    (upstream, andante)
}

/// Sends a GET with `field` that is expected to wait.
fn wait_in_line(andante: &Andante, upstream: &Upstream, field: &str, already: u64) -> Client {
    let mut client = Client::connect(andante.proxy());
    client.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n{field}\r\n", upstream.url("/"), upstream.address()));
    andante.wait_for(|status| waiting(status) == already + 1);
    client
}

fn retry_after(answer: &Message) -> u64 {
    assert_eq!(answer.status(), 429, "{answer:?}");
    assert_eq!(answer.field("proxy-status").as_deref(), Some("andante; error=http_request_denied"));
    assert_eq!(answer.field("content-type").as_deref(), Some("application/problem+json"));
    let seconds: u64 = answer.field("retry-after").unwrap().parse().unwrap();
    let problem = answer.json();
    assert_eq!((&problem["retry_after"], &problem["blame"]), (&seconds.into(), &"proxy".into()));
    seconds
}

/// `exact` seconds after the first request, as it looks from now, rounded up.
fn in_whole_seconds(exact: f64, clock: &Clock) -> std::ops::RangeInclusive<u64> {
    let left = exact - clock.now().since(Instant::START).as_secs_f64();
    // Time between the first request's slot and the clock's start, and the margin.
    (left - 1.0).ceil().max(1.0) as u64..=(left + 1.0).ceil() as u64
}

#[test]
fn one_more_than_may_wait_is_told_when_the_next_place_is_free() {
    let (upstream, andante) = busy("1/20s", "max-waiting = 2");
    let clock = Clock::start();
    let first = wait_in_line(&andante, &upstream, "", 0);
    let _second = wait_in_line(&andante, &upstream, "", 1);
    let seconds = retry_after(&Client::get(andante.proxy(), &upstream.url("/")));
    assert!(in_whole_seconds(20.0, &clock).contains(&seconds), "{seconds}");
    let status = andante.status();
    assert_eq!((&status["lanes"][0]["refused_total"], &status["requests"]["refused"]), (&1.into(), &1.into()));
    // A place that becomes free is one for the next to come.
    drop(first);
    andante.wait_for(|status| waiting(status) == 1);
    let _third = wait_in_line(&andante, &upstream, "", 1);
    assert_eq!(upstream.requests().len(), 1);
}

#[test]
fn who_would_wait_longer_than_he_may_is_told_when_he_would_not() {
    let (upstream, andante) = busy("1/20s", "max-wait = \"30s\"");
    let clock = Clock::start();
    let _first = wait_in_line(&andante, &upstream, "", 0);
    // The request would wait 40 s; 10 s from now it would wait 30.
    let seconds = retry_after(&Client::get(andante.proxy(), &upstream.url("/")));
    assert!(in_whole_seconds(10.0, &clock).contains(&seconds), "{seconds}");
    assert_eq!(waiting(&andante.status()), 1);
}

#[test]
fn a_workers_own_patience_counts_too() {
    let (upstream, andante) = busy("1/20s", "");
    let clock = Clock::start();
    let host = upstream.address();
    let ask = |wait: u32| format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nPrefer: wait={wait}\r\n\r\n");
    let seconds = retry_after(&Client::ask(andante.proxy(), ask(5)));
    assert!(in_whole_seconds(15.0, &clock).contains(&seconds), "{seconds}");
    let _patient = wait_in_line(&andante, &upstream, "Prefer: wait=30\r\n", 0);
}

#[test]
fn a_request_after_retry_after_is_served() {
    let (upstream, andante) = busy("1/2s", "max-wait = \"1s\"");
    let seconds = retry_after(&Client::get(andante.proxy(), &upstream.url("/")));
    assert!((1..=2).contains(&seconds), "{seconds}");
    pass(std::time::Duration::from_secs(seconds));
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/")).status(), 200);
    andante.wait_for(quiet);
}

#[test]
fn a_refusal_keeps_the_connection() {
    let (upstream, andante) = busy("1/20s", "max-waiting = 0");
    let mut client = Client::connect(andante.proxy());
    for _ in 0..3 {
        client.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.url("/"), upstream.address()));
        retry_after(&client.answer());
    }
}

#[test]
fn a_wait_for_a_place_in_flight_ends_when_it_was_said_to() {
    // Reads the request, and answers nothing for as long as the client stays.
    let upstream = Upstream::scripted(|mut connection| {
        connection.request();
        connection.request();
    });
    let host = upstream.address();
    let andante = Andante::serve(&["--limit", &format!("{host}=in-flight 1")]);
    let mut first = Client::connect(andante.proxy());
    first.send(format!("GET {} HTTP/1.1\r\nHost: {host}\r\n\r\n", upstream.url("/")));
    upstream.wait_for(1);
    let ask = |wait: u32| format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nPrefer: wait={wait}\r\n\r\n");
    for (wait, most) in [(0, 1.0), (1, 5.0)] {
        let clock = Clock::start();
        retry_after(&Client::ask(andante.proxy(), ask(wait)));
        let took = clock.now().since(Instant::START).as_secs_f64();
        assert!((f64::from(wait)..most).contains(&took), "wait={wait} took {took} s");
    }
    drop(first);
    andante.wait_for(quiet);
}
