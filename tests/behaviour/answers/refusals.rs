//! Refusals: nothing was done, so that any request may be sent again.

use super::{CUT, OK, SECOND, SOON, ask, beginning_with, ms, now, same, send, time_of_day, timed};
use crate::support::{Andante, Client, Mock, Upstream};

const LENGTH: &str = "Content-Length: 5\r\nAuthorization: Bearer abc\r\nX-A: 1\r\nX-A: 2\r\n\r\nhello";
const CHUNKED: &str =
    "Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\nX-Sum: 11\r\n\r\n";

#[test]
fn a_429_is_waited_out_and_the_worker_sees_what_comes_after_it() {
    let (andante, upstream) = (Andante::serve(&[]), beginning_with(&[SECOND]));
    let (answer, took) = timed(&andante, &upstream, "GET", "\r\n");
    assert_eq!((answer.status(), answer.text().as_str()), (200, "ok"));
    assert!(took >= ms(990) && took < ms(3000), "{took:?}");
    let requests = upstream.requests();
    assert_eq!(requests.len(), 2, "each try is seen once");
    same(&requests);
}

#[test]
fn a_post_that_was_refused_is_sent_again_byte_for_byte() {
    let large = format!("Content-Length: 300000\r\n\r\n{}", "0123456789".repeat(30_000));
    let empty = "Content-Length: 0\r\n\r\n";
    let expecting = "Expect: 100-continue\r\nContent-Length: 2\r\n\r\nhi";
    for (rest, body) in [(LENGTH, 5), (CHUNKED, 11), (&large, 300_000), (empty, 0), (expecting, 2)] {
        let (andante, upstream) = (Andante::serve(&[]), beginning_with(&[SOON, SOON]));
        let mut client = ask(&andante, &upstream, "POST", rest);
        let answer = client.answer();
        let answer = if answer.status() == 100 { client.answer() } else { answer };
        assert_eq!(answer.status(), 200, "{body}: {answer:?}");
        let requests = upstream.requests();
        assert_eq!((requests.len(), requests[0].body.len()), (3, body));
        same(&requests);
        assert_eq!(requests[2].trailers.len(), usize::from(rest == CHUNKED), "{:?}", requests[2]);
    }
}

#[test]
fn a_429_that_says_nothing_is_sent_again_after_a_pause() {
    const BARE: &str = "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n";
    let (andante, upstream) = (Andante::serve(&[]), beginning_with(&[BARE]));
    let (answer, took) = timed(&andante, &upstream, "POST", LENGTH);
    assert_eq!(answer.status(), 200);
    assert!(took >= ms(100) && took < ms(3000), "{took:?}");
    assert_eq!(upstream.requests().len(), 2);
    same(&upstream.requests());
}

#[test]
fn a_403_that_says_that_nothing_is_left_is_sent_again_after_the_reset() {
    let github = Upstream::answering({
        let reset = time_of_day() + 1;
        let first = std::sync::atomic::AtomicBool::new(true);
        move |_| {
            if !first.swap(false, std::sync::atomic::Ordering::AcqRel) {
                return OK.to_owned();
            }
            let body = r#"{"message":"API rate limit exceeded for 127.0.0.1."}"#;
            format!(
                "HTTP/1.1 403 rate limit exceeded\r\nX-RateLimit-Limit: 60\r\nX-RateLimit-Remaining: 0\r\n\
                 X-RateLimit-Reset: {reset}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
        }
    });
    let (answer, took) = timed(&Andante::serve(&[]), &github, "POST", LENGTH);
    assert_eq!(answer.status(), 200, "{answer:?}");
    assert!(took < ms(4000), "{took:?}");
    assert_eq!(github.requests().len(), 2);
    same(&github.requests());
}

#[test]
fn a_refusal_in_a_200_of_graphql_is_sent_again() {
    const LIMITED: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json; charset=utf-8\r\nRetry-After-Ms: 100\r\n\
         Content-Length: 76\r\n\r\n\
         {\"errors\":[{\"type\":\"RATE_LIMITED\",\"message\":\"API rate limit exceeded\"}]}  \r\n";
    let (andante, upstream) = (Andante::serve(&[]), beginning_with(&[LIMITED]));
    let (answer, _) = timed(&andante, &upstream, "POST", LENGTH);
    assert_eq!((answer.status(), answer.text().as_str()), (200, "ok"));
    assert_eq!(upstream.requests().len(), 2);
}

/// A JSON answer of unstated length (RFC 9112 §7.1).
fn chunked_json(status: &str, body: &str) -> &'static str {
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
    format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len()).leak()
}

#[test]
fn a_refusal_whose_length_is_not_said_is_sent_again() {
    // As AWS names them: https://docs.aws.amazon.com/awssupport/latest/APIReference/CommonErrors.html
    let throttled = r#"{"__type":"ThrottlingException","message":"Rate exceeded"}"#;
    let upstream = beginning_with(vec![chunked_json("400 Bad Request", throttled)].leak());
    let (answer, _) = timed(&Andante::serve(&[]), &upstream, "POST", LENGTH);
    assert_eq!((answer.text().as_str(), upstream.requests().len()), ("ok", 2));
    // A body longer than a refusal is data, whatever words are in it.
    let data = format!("{{\"message\":\"rate limit exceeded\",\"rows\":\"{}\"}}", "x".repeat(20_000));
    let upstream = beginning_with(vec![chunked_json("400 Bad Request", &data)].leak());
    let (answer, _) = timed(&Andante::serve(&[]), &upstream, "POST", LENGTH);
    assert_eq!((answer.status(), answer.text() == data, upstream.requests().len()), (400, true, 1));
}

#[test]
fn an_error_that_comes_bit_by_bit_is_not_waited_for() {
    let upstream = Upstream::scripted(|mut connection| {
        let _ = connection.request();
        let whole = chunked_json("403 Forbidden", r#"{"message":"rate limit exceeded"}"#);
        let (first, rest) = whole.split_at(whole.find("\"}").unwrap());
        connection.send(first);
        std::thread::park_timeout(ms(2000));
        connection.send(rest);
    });
    let (andante, since) = (Andante::serve(&[]), now());
    let mut client = ask(&andante, &upstream, "POST", LENGTH);
    client.until("rate limit exceeded");
    let took = now().since(since);
    assert!(took < ms(1500), "{took:?}");
    client.until("}");
    assert_eq!(upstream.requests().len(), 1);
}

/// GraphQL's spec, sections "Request errors" and "Execution errors": without `data` and `path` nothing was executed. With either,
/// execution had begun: what failed is null, and null goes up to what may be null.
#[test]
fn of_graphql_only_what_was_not_executed_is_sent_again_and_the_rest_is_passed_on_and_learned_from() {
    let answered = |head: &str, body: &str| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{head}");
        let answer: &'static str = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).leak();
        beginning_with(vec![answer].leak())
    };
    let limited = r#"{"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED"}}]}"#;
    // GitHub and most other APIs send chunks: the length is unknown before the end.
    for path in ["/graphql", "/admin/api/2026-01/graphql.json"] {
        let (andante, upstream) = (Andante::serve(&[]), beginning_with(vec![chunked_json("200 OK", limited)].leak()));
        let (url, host) = (upstream.url(path), upstream.address());
        let request = format!("POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2\r\n\r\n{{}}");
        let answer = Client::ask(andante.proxy(), request);
        assert_eq!((answer.text().as_str(), upstream.requests().len()), ("ok", 2), "{path}");
    }
    let (andante, upstream) = (Andante::serve(&[]), answered("Retry-After: 1\r\n", limited));
    let (answer, took) = timed(&andante, &upstream, "POST", LENGTH);
    assert_eq!((answer.text().as_str(), upstream.requests().len()), ("ok", 2));
    assert!(took >= ms(990), "{took:?}");
    for data in [
        "null",
        r#"{"a":null}"#,
        r#"{"a":null,"b":null}"#,
        r#"{"a":null,"b":{"id":1}}"#,
        r#"{"a":{"id":null,"ok":true}}"#,
    ] {
        let error = r#"{"message":"Throttled","path":["a"],"extensions":{"code":"THROTTLED"}}"#;
        let body = format!(r#"{{"data":{data},"errors":[{error}]}}"#);
        let (andante, upstream) = (Andante::serve(&[]), answered("Retry-After: 1\r\n", &body));
        let (answer, took) = timed(&andante, &upstream, "POST", LENGTH);
        assert_eq!((answer.text(), upstream.requests().len()), (body, 1), "{data}");
        assert!(took < ms(900), "{data}: {took:?}");
        let (_, took) = timed(&andante, &upstream, "POST", LENGTH);
        assert!(took >= ms(500), "the next one waits as was asked: {data}: {took:?}");
    }
}

#[test]
fn an_api_that_enforces_its_limit_refuses_and_no_worker_sees_it() {
    for dialect in ["graphql", "retry-after", "github", "none"] {
        let (andante, mock) = (Andante::serve(&[]), Mock::start(&["--limit", "3/1s", "--dialect", dialect]));
        let work = |_| {
            let (proxy, url) = (andante.proxy(), mock.url("/"));
            std::thread::spawn(move || Client::get(proxy, &url))
        };
        let workers: Vec<_> = (0..5).map(work).collect();
        for worker in workers {
            let answer = worker.join().unwrap();
            assert!(answer.status() == 200 && !answer.text().contains("RATE_LIMITED"), "{dialect}: {answer:?}");
        }
        assert_eq!(mock.stats()["accepted"], 5, "{dialect}");
    }
}

#[test]
fn a_connection_is_good_for_the_next_request_after_one_was_sent_again() {
    let (andante, upstream) = (Andante::serve(&[]), beginning_with(&[SOON, OK, SOON, CUT]));
    let mut client = ask(&andante, &upstream, "POST", LENGTH);
    assert_eq!(client.answer().status(), 200);
    // Two requests at once. The second waits unread until the first is answered.
    send(&mut client, &upstream, "GET", "X-N: 1\r\n\r\n");
    send(&mut client, &upstream, "POST", CHUNKED);
    assert_eq!((client.answer().status(), client.answer().status()), (200, 200));
    client.silent();
    let of = |request: &crate::support::Message| (request.line(), request.text());
    let seen: Vec<_> = upstream.requests().iter().map(of).collect();
    let line = |method: &str| format!("{method} /path?q=1 HTTP/1.1");
    let get = (line("GET"), String::new());
    let posts = [(line("POST"), "hello".to_owned()), (line("POST"), "hello world".to_owned())];
    assert_eq!(seen, [&posts[0], &posts[0], &get, &get, &get, &posts[1]].map(Clone::clone));
}

#[test]
fn the_answer_says_how_long_its_request_waited_for_the_try_that_counts() {
    let (andante, upstream) = (Andante::serve(&[]), beginning_with(&[SOON]));
    let since = now();
    let answer = ask(&andante, &upstream, "GET", "\r\n").answer();
    assert!(now().since(since) >= ms(95));
    assert_eq!(answer.all("server-timing").len(), 1, "{answer:?}");
    assert_eq!(answer.all("via").len(), 1, "{answer:?}");
}

#[test]
fn a_refusal_whose_own_body_is_slow_is_waited_out_all_the_same() {
    let first = std::sync::atomic::AtomicBool::new(true);
    let upstream = Upstream::scripted(move |mut connection| {
        while connection.request().is_some() {
            if !first.swap(false, std::sync::atomic::Ordering::AcqRel) {
                connection.send(OK);
                continue;
            }
            connection.send("HTTP/1.1 429 No\r\nContent-Type: application/json\r\nContent-Length: 6\r\n\r\n{ ");
            std::thread::park_timeout(ms(600));
            connection.send("   }");
        }
    });
    let (answer, _) = timed(&Andante::serve(&[]), &upstream, "POST", LENGTH);
    assert_eq!((answer.status(), answer.text().as_str()), (200, "ok"));
    same(&upstream.requests());
    assert_eq!(upstream.connections(), 1, "the connection was read to its end");
}

/// Ten requests in each two seconds, by a clock that is ten minutes ahead. The answers have no `Date`.
#[test]
fn resets_by_a_clock_that_is_ahead_stop_nobody_without_a_date() {
    let window = parking_lot::Mutex::new((0, 0));
    let api = Upstream::answering(move |_| {
        let seconds = time_of_day();
        let mut window = window.lock();
        if window.0 != seconds / 2 {
            *window = (seconds / 2, 0);
        }
        let (status, used) = if window.1 < 10 { ("200 OK", 1) } else { ("429 Too Many Requests", 0) };
        window.1 += used;
        format!(
            "HTTP/1.1 {status}\r\nX-RateLimit-Limit: 10\r\nX-RateLimit-Remaining: {}\r\nX-RateLimit-Reset: {}\r\n\
             Content-Length: 0\r\n\r\n",
            10 - window.1,
            (seconds / 2 + 1) * 2 + 600
        )
    });
    let andante = Andante::serve(&[]);
    let begun = now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    assert_eq!(Client::get(andante.proxy(), &api.url("/")).status(), 200);
                }
            });
        }
    });
    // Without needless waits it takes eight seconds.
    let took = now().since(begun);
    assert!(took < ms(40_000), "{took:?}");
}
