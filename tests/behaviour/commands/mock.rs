//! `andante mock`: dialects over real sockets, and a world that changes while it runs.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    time::{Duration, SystemTime},
};

use serde_json::json;

use super::{andante, outcome};
use crate::support::{Client, Message, Mock, eventually};

/// Dialects that are known by how they count.
const LIMITERS: [&str; 10] = [
    "503",
    "503-retry-after",
    "late-reset",
    "no-burst",
    "token-bucket",
    "sliding-counter",
    "concurrency-503",
    "two-limits",
    "per-route",
    "per-key",
];

const GET: &str = "GET /a HTTP/1.1\r\nHost: mock\r\n\r\n";

fn get(mock: &Mock) -> Message {
    Client::ask(mock.address(), GET)
}

/// The error of a request on a new connection; `None` with an answer.
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

/// The answer to a request with this method and this additional field.
fn ask(mock: &Mock, method: &str, field: &str) -> Message {
    Client::ask(mock.address(), format!("{method} /a HTTP/1.1\r\nHost: mock\r\n{field}Content-Length: 0\r\n\r\n"))
}

/// Hours are long enough that no time passes in between.
#[test]
fn a_dialect_counts_as_its_limiter_does() {
    let (one, two, three) = ("Authorization: Bearer one\r\n", "Authorization: Bearer two\r\n", "X-Api-Key: three\r\n");
    for (dialect, limit, requests) in [
        ("503", "2/h", &[("GET", "", 200), ("GET", "", 200), ("GET", "", 503)][..]),
        ("503-retry-after", "2/h", &[("GET", "", 200), ("GET", "", 200), ("GET", "", 503)]),
        ("late-reset", "2/h", &[("GET", "", 200), ("GET", "", 200), ("GET", "", 429)]),
        ("token-bucket", "2/h", &[("GET", "", 200), ("GET", "", 200), ("GET", "", 429)]),
        ("sliding-counter", "2/h", &[("GET", "", 200), ("GET", "", 200), ("GET", "", 429)]),
        // Two an hour are one in half an hour.
        ("no-burst", "2/h", &[("GET", "", 200), ("GET", "", 429)]),
        ("two-limits", "1/h", &[("GET", "", 200), ("GET", "", 429)]),
        // A fifth of eleven is two.
        ("per-route", "11/h", &[("POST", "", 200), ("POST", "", 200), ("POST", "", 429), ("GET", "", 200)]),
        (
            "per-key",
            "1/h",
            &[("GET", one, 200), ("GET", one, 429), ("GET", two, 200), ("GET", three, 200), ("GET", "", 200)],
        ),
    ] {
        let mock = Mock::start(&["--limit", limit, "--dialect", dialect]);
        for (number, (method, field, status)) in requests.iter().enumerate() {
            let answer = ask(&mock, method, field);
            assert_eq!(answer.status(), *status, "{dialect}, request {number}: {answer:?}");
            let (waits, tells) = match dialect {
                "late-reset" => (true, true),
                "two-limits" => (*status != 200, true),
                "503-retry-after" => (*status != 200, false),
                _ => (false, false),
            };
            assert_eq!(answer.field("retry-after").is_some(), waits, "{dialect}, request {number}: {answer:?}");
            assert_eq!(answer.field("x-ratelimit-reset").is_some(), tells, "{dialect}, request {number}: {answer:?}");
        }
    }
}

#[test]
fn a_concurrency_limit_counts_requests_under_way() {
    let mock = Mock::start(&["--limit", "2/h", "--dialect", "concurrency-503", "--latency", "2s"]);
    let mut clients = [(); 3].map(|()| Client::connect(mock.address()));
    clients.iter_mut().for_each(|client| client.send(GET));
    let mut statuses = clients.each_mut().map(|client| client.answer().status());
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 503]);
    // Both are answered, and the hour is not over.
    assert_eq!(get(&mock).status(), 200);
    // A client that leaves makes room as well.
    for _ in 0..2 {
        Client::connect(mock.address()).send(GET);
    }
    eventually("there is room", || (get(&mock).status() == 200).then_some(()));
}

#[test]
fn the_last_limit_asked_is_told() {
    let epoch = |answer: &Message| answer.field("x-ratelimit-reset").unwrap().parse::<f64>().unwrap();
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
    let mock = Mock::start(&["--limit", "7200/h", "--dialect", "two-limits"]);
    let began = now();
    let answer = get(&mock);
    // 7200 an hour are two a second, and five times two is ten.
    let told = ["limit", "remaining"].map(|name| answer.field(&format!("x-ratelimit-{name}")).unwrap());
    assert_eq!(told, ["10", "9"]);
    // A second from now, rounded up.
    assert!((began + 1.0..now() + 2.0).contains(&epoch(&answer)), "{answer:?}");
    assert_eq!(mock.control("PUT", "limit", "1/h"), json!({ "limit": "1/h" }));
    let answer = get(&mock);
    assert_eq!((answer.status(), answer.field("x-ratelimit-limit")), (429, Some("1".to_owned())));
    assert!((began + 3600.0..now() + 3601.0).contains(&epoch(&answer)), "{answer:?}");
}

#[test]
fn a_reset_may_be_told_a_second_late() {
    let mock = Mock::start(&["--limit", "1/h", "--dialect", "late-reset"]);
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
    let (began, answer) = (now(), get(&mock));
    let reset = answer.field("x-ratelimit-reset").unwrap();
    assert!(reset.contains('.'), "{answer:?}");
    // Decimals are exact to a millionth.
    assert!((began + 3601.0..now() + 3601.0 + 1e-5).contains(&reset.parse().unwrap()), "{answer:?}");
}

#[test]
fn a_window_that_is_named_is_counted_in_any_dialect() {
    let mock = Mock::start(&["--limit", "2/h", "--dialect", "503-retry-after", "--window", "gcra"]);
    assert_eq!([get(&mock), get(&mock)].map(|answer| answer.status()), [200, 503]);
}

#[test]
fn a_dialect_that_there_is_not_is_told_which_there_are() {
    let (code, _, stderr) = outcome(andante(&["mock", "--dialect", "klingon"]));
    assert_eq!(code, Some(2));
    for name in LIMITERS.iter().chain(&["github", "retry-after"]) {
        assert!(stderr.contains(name), "{name}: {stderr}");
    }
}

#[test]
fn help_has_a_line_for_each_dialect() {
    let (code, stdout, _) = outcome(andante(&["mock", "--help"]));
    assert_eq!(code, Some(0));
    for name in LIMITERS.iter().chain(&["github", "ietf-draft3", "retry-after-date", "klaviyo", "none"]) {
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
    // The mock counted none of these requests.
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
fn the_down_page_begins_and_ends_an_outage() {
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
    assert!(wrong.status() == 400 && wrong.text().contains("give a length"), "{wrong:?}");
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
