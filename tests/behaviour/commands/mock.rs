//! `andante mock`: dialects over real sockets, and a world that changes while it runs.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    time::{Duration, SystemTime},
};

use serde_json::json;

use super::{andante, outcome};
use crate::support::{Client, Message, Mock, eventually};

const GET: &str = "GET /a HTTP/1.1\r\nHost: mock\r\n\r\n";

fn get(mock: &Mock) -> Message {
    Client::ask(mock.address(), GET)
}

/// What a request on a new connection comes to, short of an answer.
fn failure(mock: &Mock) -> Option<ErrorKind> {
    let mut stream = TcpStream::connect(mock.address()).map_err(|error| error.kind());
    let read = stream.as_mut().map_err(|kind| *kind).and_then(|stream| {
        stream.write_all(GET.as_bytes()).and_then(|()| stream.read(&mut [0])).map_err(|error| error.kind())
    });
    read.err()
}

#[test]
fn refusals_are_those_of_the_dialect_and_dated() {
    for (dialect, status, field, body) in [
        ("github", 403, "x-ratelimit-reset", "API rate limit exceeded"),
        ("graphql", 200, "x-ratelimit-reset", "RATE_LIMITED"),
        ("aws", 400, "date", "ThrottlingException"),
        ("aws-s3", 503, "date", "SlowDown"),
        ("gcp", 429, "date", "RetryInfo"),
        ("mailgun", 420, "date", "try again after"),
        ("reddit", 429, "x-ratelimit-reset", ""),
        ("discord", 429, "x-ratelimit-reset-after", "retry_after"),
    ] {
        let mock = Mock::start(&["--limit", "1/h", "--dialect", dialect]);
        assert_eq!(get(&mock).status(), 200, "{dialect}");
        let refused = get(&mock);
        assert_eq!(refused.status(), status, "{dialect}");
        assert!(refused.field(field).is_some() && refused.field("date").is_some(), "{dialect}: {refused:?}");
        assert!(refused.text().contains(body), "{dialect}: {refused:?}");
        assert_eq!(mock.stats()["refused"], 1, "{dialect}");
    }
}

#[test]
fn help_has_a_line_for_each_dialect() {
    let (code, stdout, _) = outcome(andante(&["mock", "--help"]));
    assert_eq!(code, Some(0));
    for name in ["github", "ietf-draft3", "retry-after-date", "klaviyo", "none"] {
        let line = stdout.lines().find(|line| line.trim_start().starts_with(&format!("- {name}:")));
        assert!(line.is_some(), "{name}: {stdout}");
    }
}

#[test]
fn the_limit_changes_in_mid_run_and_what_was_counted_stays() {
    let mock = Mock::start(&["--limit", "2/h"]);
    let statuses = |count| (0..count).map(|_| get(&mock).status()).collect::<Vec<_>>();
    assert_eq!(statuses(3), [200, 200, 429]);
    assert_eq!(mock.control("PUT", "limit", "3/h"), json!({ "limit": "3/h" }));
    assert_eq!(statuses(2), [200, 429]);
    assert_eq!(mock.control("PUT", "limit", "none"), json!({ "limit": null }));
    assert_eq!(statuses(2), [200, 200]);
    let wrong = mock.try_control("PUT", "limit", "3 an hour");
    assert!(wrong.status() == 400 && wrong.text().contains("3/h"), "{wrong:?}");
    let stats = mock.stats();
    assert_eq!((&stats["accepted"], &stats["refused"]), (&json!(5), &json!(2)));
    assert_eq!(stats["refused_after_first_window"], 0);
    let sum = |what: &str| stats["timeline"].as_array().unwrap().iter().map(|s| s[what].as_u64().unwrap()).sum::<u64>();
    assert_eq!((sum("accepted"), sum("refused")), (5, 2));
}

#[test]
fn the_next_requests_get_exactly_the_answer_laid_down() {
    let mock = Mock::start(&["--limit", "1/h", "--dialect", "github"]);
    let script = r#"{"status":503,"headers":{"retry-after":"5","x-a":["b","c"]},"body":"later","count":2}"#;
    assert_eq!(mock.control("PUT", "next", script), json!({ "next": 2 }));
    for _ in 0..2 {
        let answer = get(&mock);
        assert_eq!(
            (answer.status(), answer.field("retry-after"), &*answer.text()),
            (503, Some("5".to_owned()), "later")
        );
        assert_eq!((answer.field("x-ratelimit-limit"), answer.field("content-type")), (None, None));
    }
    // None of that was counted.
    assert_eq!((get(&mock).status(), get(&mock).status()), (200, 403));
    mock.control("PUT", "next", r#"{"status":418}"#);
    assert_eq!(mock.control("DELETE", "next", ""), json!({ "next": 0 }));
    assert_eq!(get(&mock).status(), 403);
    let wrong = mock.try_control("PUT", "next", r#"{"status":99}"#);
    assert!(wrong.status() == 400 && wrong.text().contains("write {"), "{wrong:?}");
    let stats = mock.stats();
    assert_eq!((&stats["scripted"], &stats["accepted"], &stats["refused"]), (&json!(2), &json!(1), &json!(2)));
}

#[test]
fn it_is_down_as_asked_and_up_again() {
    let mock = Mock::start(&["--limit", "1/h"]);
    for (how, status) in [("503", 503), ("502", 502)] {
        let asked = mock.control("PUT", "down", &format!(r#"{{"how":"{how}"}}"#));
        assert_eq!(asked, json!({ "down": how, "for_seconds": null }));
        assert_eq!(get(&mock).status(), status);
    }
    mock.control("PUT", "down", r#"{"how":"reset"}"#);
    assert_eq!(failure(&mock), Some(ErrorKind::ConnectionReset));
    assert_eq!(mock.control("DELETE", "down", ""), json!({ "down": null, "for_seconds": null }));
    assert_eq!((get(&mock).status(), get(&mock).status()), (200, 429));
    assert_eq!(mock.stats()["scripted"], 3);
}

#[test]
fn what_hangs_is_cut_when_it_is_over() {
    let mock = Mock::start(&[]);
    let asked = mock.control("PUT", "down", r#"{"how":"hang","for":"700ms"}"#);
    assert_eq!(asked["down"], "hang");
    let began = SystemTime::now();
    assert_eq!(failure(&mock), Some(ErrorKind::ConnectionReset));
    assert!(began.elapsed().unwrap() > Duration::from_millis(500), "{:?}", began.elapsed().unwrap());
    assert_eq!(get(&mock).status(), 200);
}

#[test]
fn refusing_is_like_a_process_that_is_away() {
    let mock = Mock::start(&[]);
    let mut open = Client::connect(mock.address());
    open.send(GET);
    assert_eq!(open.answer().status(), 200);
    let wrong = mock.try_control("PUT", "down", r#"{"how":"refuse"}"#);
    assert!(wrong.status() == 400 && wrong.text().contains("say for how long"), "{wrong:?}");
    mock.control("PUT", "down", r#"{"how":"refuse","for":"1s"}"#);
    let began = SystemTime::now();
    open.closed();
    eventually("the port refuses", || (failure(&mock) == Some(ErrorKind::ConnectionRefused)).then_some(()));
    eventually("the API is there again", || failure(&mock).is_none().then_some(()));
    assert!(began.elapsed().unwrap() > Duration::from_millis(900), "{:?}", began.elapsed().unwrap());
    assert_eq!(get(&mock).status(), 200);
}

#[test]
fn control_pages_say_what_they_take() {
    let mock = Mock::start(&[]);
    let answer = mock.try_control("POST", "down", "");
    assert_eq!((answer.status(), answer.field("allow")), (405, Some("PUT, DELETE".to_owned())));
    let answer = mock.try_control("GET", "stat", "");
    assert!(answer.status() == 404 && answer.text().contains("stats, limit, next and down"), "{answer:?}");
    assert_eq!(mock.stats()["accepted"], 0);
}
