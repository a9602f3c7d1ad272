//! The evidence of a limit is one line in `/status` and in the log, and contains no secret.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use serde_json::Value;

use super::{OK, ms, now};
use crate::support::{Andante, Client, Mock, Upstream};

const SECRET: &str = "hunter2hunter2";

/// The evidence of the limit of the first lane that was learned.
fn learned(status: &Value) -> Option<String> {
    let limits = status["lanes"][0]["limits"].as_array()?;
    let learned = limits.iter().find(|limit| limit["source"] == "learned")?;
    assert!(learned["evidence"].is_string(), "{learned:#}");
    Some(learned["evidence"].as_str()?.to_owned())
}

/// A lane that has sent a burst to `mock`, when it has learned a limit.
fn after_a_burst(mock: &Mock) -> (Andante, Value) {
    let andante = Andante::logging("info", &[]);
    let get = format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", mock.url("/"), mock.address());
    let mut clients: Vec<_> = (0..60).map(|_| Client::connect(andante.proxy())).collect();
    clients.iter_mut().for_each(|client| client.send(&get));
    let status = andante.wait_for(|status| learned(status).is_some());
    (andante, status)
}

#[test]
fn a_limit_that_was_found_says_how_many_were_served_and_when_again() {
    let mock = Mock::start(&["--limit", "20/s", "--window", "fixed", "--dialect", "none"]);
    let (andante, status) = after_a_burst(&mock);
    let evidence = learned(&status).unwrap();
    assert!(evidence.contains(" served in "), "{evidence}");
    let log = andante.stderr();
    let line = log.lines().find(|line| line.contains("learned a limit")).expect("it is logged");
    assert!(line.contains("evidence=") && line.contains(" served in "), "{line}");
    let lane = &status["lanes"][0];
    assert_eq!((&lane["at_once"], &lane["own_limits"]), (&Value::Null, &serde_json::json!([])), "{lane:#}");
}

#[test]
fn a_limit_that_is_told_says_by_whom() {
    let mock = Mock::start(&["--limit", "20/s", "--window", "fixed", "--dialect", "ietf"]);
    let (andante, status) = after_a_burst(&mock);
    let evidence = learned(&status).unwrap();
    assert!(evidence.starts_with("ietf fields: 20, said ") && evidence.contains("a window of 1 s"), "{evidence}");
    assert!(andante.stderr().contains("ietf fields: 20, said "), "{}", andante.stderr());
}

#[test]
fn a_limit_of_one_key_is_shown_and_the_key_is_not() {
    let free = AtomicU64::new(0);
    let upstream = Upstream::scripted(move |mut connection| {
        while let Some(request) = connection.request() {
            let millis = now().since(andante::clock::Instant::START).as_millis() as u64;
            // The API allows a single request with the key every half second.
            let refused = request.has("authorization")
                && free
                    .fetch_update(Ordering::AcqRel, Ordering::Acquire, |at| (at <= millis).then_some(millis + 500))
                    .is_err();
            connection.send(if refused { "HTTP/1.1 429 No\r\nContent-Length: 2\r\n\r\nno" } else { OK });
        }
    });
    let andante = Andante::logging("debug", &[]);
    let get = |rest: &str| {
        let (url, host) = (upstream.url("/items/7"), upstream.address());
        format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{rest}\r\n")
    };
    let found = |status: &Value| status["lanes"][0]["own_limits"][0]["requests"].is_string();
    let until = now() + ms(30_000);
    let status = thread::scope(|scope| {
        for key in [true, true, false, false] {
            let rest = if key { format!("Authorization: Bearer {SECRET}\r\n") } else { String::new() };
            let (request, andante) = (get(&rest), &andante);
            scope.spawn(move || {
                let mut client = Client::connect(andante.proxy());
                while now() < until && !found(&andante.status()) {
                    client.send(&request);
                    client.answer();
                }
            });
        }
        andante.wait_for(found)
    });
    let own = &status["lanes"][0]["own_limits"][0];
    assert_eq!(own["requests"], "credential 1", "{own:#}");
    let evidence = own["evidence"].as_str().unwrap();
    assert!(evidence.starts_with("at least ") && evidence.contains("others were served"), "{evidence}");
    let log = andante.stderr();
    let line = log.lines().find(|line| line.contains("pacing it separately")).expect("it is logged");
    assert!(line.contains("requests=\"credential 1\"") && line.contains("others were served"), "{line}");
    for shown in [&status.to_string(), &log, &andante.metrics()] {
        assert!(!shown.contains(SECRET), "{shown}");
    }
}
