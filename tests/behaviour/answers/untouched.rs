//! Answers that are no refusals pass as they are, at once, and once.

use super::{ask, ms, now, timed};
use crate::support::{Andante, Message, Upstream};

/// Fields of the upstream's answer, without those that andante has added.
fn as_sent(answer: &Message) -> Vec<(String, String)> {
    let own = |name: &str| ["via", "server-timing", "date"].contains(&name);
    answer.fields().into_iter().filter(|(name, _)| !own(name)).collect()
}

#[test]
fn answers_that_are_no_refusals_pass_unchanged() {
    let json = "Content-Type: application/json\r\n";
    for (status, rest) in [
        (200, format!("{json}Content-Length: 13\r\n\r\n{{\"errors\":[]}}")),
        (200, format!("{json}Content-Length: 0\r\n\r\n")),
        (200, format!("{json}Content-Length: 9\r\n\r\n{{\"broken\"")),
        (200, format!("{json}Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\n\x1f!\x08")),
        (200, format!("{json}Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n")),
        (201, format!("{json}Content-Length: 2\r\n\r\n[]")),
        (204, "X-A: b\r\n\r\n".to_owned()),
        (304, "ETag: \"x\"\r\n\r\n".to_owned()),
        (400, format!("{json}Content-Length: 17\r\n\r\n{{\"error\":\"wrong\"}}")),
        (401, format!("{json}WWW-Authenticate: Basic\r\nContent-Length: 2\r\n\r\n{{}}")),
        (403, format!("{json}Content-Length: 33\r\n\r\n{{\"message\":\"must be an admin\"}}   ")),
        (403, "Content-Length: 2\r\n\r\nno".to_owned()),
        (404, format!("{json}Content-Length: 23\r\n\r\n{{\"message\":\"Not Found\"}}")),
        (500, format!("{json}Content-Length: 2\r\n\r\n{{}}")),
        (501, "Content-Length: 0\r\n\r\n".to_owned()),
    ] {
        let answer = format!("HTTP/1.1 {status} Some\r\n{rest}");
        let (andante, upstream) = (Andante::serve(&[]), Upstream::always(answer));
        let (got, took) = timed(&andante, &upstream, "GET", "\r\n");
        assert_eq!(got.status(), status, "{rest:?}: {got:?}");
        let (head, body) = rest.split_once("\r\n\r\n").unwrap();
        let fields = head.split("\r\n").filter(|line| !line.is_empty()).map(|line| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_ascii_lowercase(), value.to_owned())
        });
        let mut fields: Vec<_> = fields.collect();
        let mut seen = as_sent(&got);
        fields.sort();
        seen.sort();
        assert_eq!(seen, fields, "{rest:?}: {got:?}");
        assert_eq!(String::from_utf8_lossy(&got.framed), body, "{rest:?}");
        assert!(took < ms(900), "{rest:?}: {took:?}");
        assert_eq!(upstream.requests().len(), 1, "{rest:?}");
    }
}

/// A request that may have been executed is not sent twice, whatever an answer says about limits, and no request has to
/// wait.
#[test]
fn a_post_that_was_answered_otherwise_than_by_a_refusal_is_sent_once() {
    for (head, body) in [
        ("500 Oops", r#"{"message":"order 17 saved, but the mail provider said: Rate limit exceeded"}"#),
        ("500 Oops", r#"{"orderId":17,"error":{"code":"ThrottlingException"}}"#),
        ("500 Oops", r#"{"error":{"type":"overloaded_error"}}"#),
        ("500 Oops\r\nX-Retry-After: 1", "{}"),
        ("502 Oops\r\nRetry-After-Ms: 500", "{}"),
        ("504 Oops\r\nX-RateLimit-Retry-After: 1", "{}"),
        ("404 Oops\r\nX-Retry-After: 1", "{}"),
        ("409 Oops\r\nX-Ms-Retry-After-Ms: 1000", "{}"),
        ("400 Oops", r#"{"message":"This room is booked; available in 5 days"}"#),
        ("400 Oops", r#"{"message":"invalid title: please wait for 2 h"}"#),
        ("200 OK\r\nRetry-After: 2", r#"{"message":"Job accepted","job_id":17}"#),
        ("200 OK\r\nRetry-After: 2", r#"{"message":"ok","data":[]}"#),
        ("200 OK\r\nX-Ms-Retry-After-Ms: 2000", r#"{"message":"accepted","id":1}"#),
        ("200 OK\r\nX-Retry-After: 5", "{}"),
        ("200 OK", r#"{"errors":[{"code":"THROTTLED","index":3}],"results":[{"id":1},{"id":2}]}"#),
        ("200 OK", r#"{"errors":[{"message":"Throttled"}],"created":[1,2]}"#),
        ("200 OK", r#"{"id":5,"error":{"message":"card declined after too many requests"}}"#),
        ("200 OK", r#"{"error":0,"message":"Order placed. You have a rate limited plan","order":{"id":1}}"#),
        ("200 OK", r#"{"id":"r","status":"failed","error":{"code":"rate_limit_exceeded"},"output":[]}"#),
    ] {
        let length = body.len();
        let answer =
            format!("HTTP/1.1 {head}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}");
        let (andante, upstream) = (Andante::serve(&[]), Upstream::always(answer));
        for count in 1..=2 {
            let (got, took) = timed(&andante, &upstream, "POST", "Content-Length: 2\r\n\r\nhi");
            assert_eq!(got.text(), body, "{head:?}: {got:?}");
            assert!(took < ms(900), "{head:?} {body:?}: {took:?}");
            assert_eq!(upstream.requests().len(), count, "{head:?} {body:?}");
        }
    }
}

#[test]
fn the_answer_to_a_head_keeps_its_length_and_is_not_waited_for() {
    let upstream = Upstream::always("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 40\r\n\r\n");
    let andante = Andante::serve(&[]);
    let since = now();
    let mut client = ask(&andante, &upstream, "HEAD", "\r\n");
    let answer = client.answer_to_head();
    assert_eq!((answer.status(), answer.field("content-length").as_deref()), (200, Some("40")));
    assert!(now().since(since) < ms(900));
    client.silent();
}

#[test]
fn a_head_that_was_refused_is_sent_again_too() {
    let first = std::sync::atomic::AtomicBool::new(true);
    let upstream = Upstream::answering(move |_| {
        let refused = first.swap(false, std::sync::atomic::Ordering::AcqRel);
        let refusal = "HTTP/1.1 429 No\r\nRetry-After-Ms: 50\r\nContent-Type: application/json\r\n\
             Content-Length: 40\r\n\r\n";
        if refused { refusal } else { "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n" }
    });
    let answer = ask(&Andante::serve(&[]), &upstream, "HEAD", "\r\n").answer_to_head();
    assert_eq!((answer.status(), answer.field("content-length").as_deref()), (200, Some("7")));
    assert_eq!(upstream.requests().len(), 2);
}

#[test]
fn json_that_trickles_in_passes_as_it_comes() {
    let upstream = Upstream::scripted(|mut connection| {
        while connection.request().is_some() {
            connection.send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n");
            for piece in ["{\"a\":", "\"b", "c\"", " } "] {
                std::thread::park_timeout(ms(150));
                connection.send(piece);
            }
        }
    });
    let andante = Andante::serve(&[]);
    let mut client = ask(&andante, &upstream, "GET", "\r\n");
    let since = now();
    client.until("\r\n\r\n{\"a\":");
    assert!(now().since(since) < ms(540), "it was held back");
    assert_eq!(client.bytes(7), b"\"bc\" } ");
    // No byte of the first answer is left over.
    super::send(&mut client, &upstream, "GET", "\r\n");
    assert_eq!(client.answer().text(), "{\"a\":\"bc\" } ");
    assert_eq!(upstream.requests().len(), 2);
}

#[test]
fn an_upgrade_is_not_sent_again() {
    let upstream = super::beginning_with(&[super::SOON]);
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let (answer, _) = timed(&Andante::serve(&[]), &upstream, "GET", upgrade);
    assert_eq!((answer.status(), answer.text().as_str()), (429, "soon"));
    assert_eq!(upstream.requests().len(), 1);
}
