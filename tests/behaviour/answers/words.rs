//! Words that any sender may have written: they repeat no POST, and delay no other request.

use super::{OK, ms, now, timed};
use crate::support::{Andante, Client, Upstream};

fn answer(head: &str, body: &str) -> String {
    let kind = match body.as_bytes().first() {
        Some(b'<') => "text/xml",
        Some(b'{' | b'[') => "application/json",
        _ => "text/event-stream",
    };
    let length = body.len();
    format!("HTTP/1.1 {head}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}")
}

#[test]
fn a_post_that_may_have_been_done_is_sent_once_and_its_answer_is_passed_on() {
    for (head, body) in [
        // An executed mutation: a field below it was throttled, and null went up.
        (
            "200 OK",
            r#"{"data":null,"errors":[{"message":"x","path":["createOrder","invoice","pdf"],"extensions":{"code":"THROTTLED"}}]}"#,
        ),
        (
            "200 OK",
            r#"{"data":{"b":null},"errors":[{"message":"x","path":["b"],"extensions":{"code":"RATE_LIMITED"}}]}"#,
        ),
        (
            "200 OK",
            r#"{"data":null,"errors":[{"path":["a","x"],"extensions":{"code":"INTERNAL"}},{"path":["a","y"],"extensions":{"code":"THROTTLED"}}]}"#,
        ),
        // Results that quote a limit, or were done in part.
        ("200 OK", r#"{"code":1,"msg":"Ticket \"Rate limit exceeded\" created","success":true}"#),
        ("200 OK", r#"{"success":false,"status":"created","errors":["SMTP: too many requests"],"count":1}"#),
        (
            "200 OK",
            r#"{"requestId":"a","success":false,"errors":[{"code":"606","message":"Max rate limit '100' exceeded with in '20' secs"}],"count":7}"#,
        ),
        (
            "200 OK",
            r#"{"status":"error","title":"Too many requests","message":"Too many requests on host a","type":"alert"}"#,
        ),
        ("200 OK", r#"{"Note":"about our api rate limit: see the wiki"}"#),
        ("200 OK", r#"{"status":"failed","error":{"code":"rate_limit_exceeded","message":"Rate limit exceeded"}}"#),
        (
            "200 OK",
            r#"[{"jsonrpc":"2.0","id":1,"error":{"code":429,"message":"rate limit exceeded"}},{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"execution reverted after transfer"}}]"#,
        ),
        (
            "200 OK",
            "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":429,\"message\":\"mail API limited after order 17 was stored\"}}\n\n",
        ),
        // Quotes in an error.
        ("400 Bad", r#"{"error":"unknown command: rate limit exceeded, please retry after 86400 seconds"}"#),
        ("400 Bad", r#"{"error":{"code":"invalid","message":"field title may not contain: rate limit exceeded"}}"#),
        ("403 No", r#"{"error":{"message":"Page Too Many Requests is private"}}"#),
        ("403 No", r#"{"message":"you may not post: too many requests, try again in 50 seconds"}"#),
        // Codes in the wrong place.
        (
            "500 Oops",
            "<soap:Envelope><soap:Body><soap:Fault><faultcode>soap:Server</faultcode><detail><order><id>17</id><state>created</state><mailCode>THROTTLED</mailCode></order></detail></soap:Fault></soap:Body></soap:Envelope>",
        ),
        ("503 Down", r#"{"error":"order 17 was created; the mail server is overloaded"}"#),
        ("400 Bad", r#"{"orderId":17,"mail":{"code":"THROTTLED","retry_after":60}}"#),
        ("400 Bad", r#"{"orderId":17,"mail":{"code":"overloaded"}}"#),
        ("401 No", r#"{"orderId":17,"mail":{"code":"server_busy"}}"#),
        ("403 No", r#"{"orderId":17,"mail":{"code":"overloaded"}}"#),
        ("200 OK", r#"{"success":false,"code":"overloaded","message":"order 17 was stored; the \"error\": no mail"}"#),
        ("200 OK", r#"{"success":false,"code":"overloaded","errors":[{"message":"no mail for order 17"}]}"#),
        // Waits that a body tells, beside what was done.
        ("400 Bad", r#"{"error":"order 17 was created; mail later","retry_after":60}"#),
        ("503 Down", r#"{"error":"order 17 was created; mail later","retry_after":60}"#),
        // Markup that is quoted.
        ("400 Bad", "<html><body>cannot parse <Error><Code>SlowDown</Code></Error></body></html>"),
    ] {
        let (andante, upstream) = (Andante::serve(&[]), Upstream::always(answer(head, body)));
        let (got, took) = timed(&andante, &upstream, "POST", "Content-Length: 2\r\n\r\nhi");
        assert_eq!((got.text().as_str(), upstream.requests().len()), (body, 1), "{head} {body}");
        assert!(took < ms(900), "{body}: {took:?}");
    }
}

#[test]
fn a_sentence_that_an_api_quotes_holds_nobody_up() {
    let upstream = Upstream::answering(|request| {
        if request.line().starts_with("GET") {
            return OK.to_owned();
        }
        answer("400 Bad Request", &format!(r#"{{"error":"unknown command: {}"}}"#, request.text()))
    });
    let andante = Andante::serve(&[]);
    let since = now();
    let text = "rate limit exceeded, please retry after 86400 seconds";
    for _ in 0..3 {
        let rest = format!("Content-Length: {}\r\n\r\n{text}", text.len());
        assert_eq!(timed(&andante, &upstream, "POST", &rest).0.status(), 400);
        assert_eq!(timed(&andante, &upstream, "GET", "\r\n").0.status(), 200);
    }
    assert!(now().since(since) < ms(1500), "{:?}", now().since(since));
    let lane = &andante.status()["lanes"][0];
    assert!(lane["gate"].is_null() && lane["limits"] == serde_json::json!([]), "{lane:#}");
    assert_eq!(upstream.requests().len(), 6);
}

#[test]
fn a_get_that_words_alone_refuse_is_sent_again_and_pauses_its_kind_alone() {
    let count = std::sync::atomic::AtomicUsize::new(0);
    let upstream = Upstream::answering(move |request| {
        let is_first = request.line().contains("/a") && count.fetch_add(1, std::sync::atomic::Ordering::AcqRel) == 0;
        if is_first { answer("403 No", r#"{"message":"Sorry: too many requests"}"#) } else { OK.to_owned() }
    });
    let andante = Andante::serve(&[]);
    let get = |path: &str| format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.url(path), upstream.address());
    let mut first = Client::connect(andante.proxy());
    first.send(get("/a"));
    upstream.wait_for(1);
    let since = now();
    assert_eq!(Client::ask(andante.proxy(), get("/b")).status(), 200);
    assert!(now().since(since) < ms(700), "{:?}", now().since(since));
    assert_eq!(first.answer().status(), 200);
    assert_eq!(upstream.requests().len(), 3);
}

#[test]
fn a_get_that_words_alone_refuse_pauses_its_kind_where_nothing_is_sent_again() {
    let upstream = Upstream::answering(|request| match request.line().contains("/a") {
        true => answer("403 No", r#"{"message":"Sorry: too many requests, try again in 2 seconds"}"#),
        false => OK.to_owned(),
    });
    let config = format!("[[rule]]\nhost = \"{}\"\nretry = \"off\"\n", upstream.address());
    let andante = Andante::with_config(&config);
    let get = |path: &str| format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.url(path), upstream.address());
    let since = now();
    assert_eq!(Client::ask(andante.proxy(), get("/a")).status(), 403);
    assert_eq!(Client::ask(andante.proxy(), get("/b")).status(), 200);
    assert!(now().since(since) < ms(900), "{:?}", now().since(since));
    assert_eq!(Client::ask(andante.proxy(), get("/a")).status(), 403);
    assert!(now().since(since) > ms(1900), "{:?}", now().since(since));
    assert_eq!(upstream.requests().len(), 3);
}

#[test]
fn a_get_that_is_overloaded_in_words_alone_is_sent_again_once_its_kind_has_paused() {
    let count = std::sync::atomic::AtomicUsize::new(0);
    let upstream = Upstream::answering(move |_| match count.fetch_add(1, std::sync::atomic::Ordering::AcqRel) {
        0 => answer("400 Bad", r#"{"orderId":17,"mail":{"code":"overloaded"}}"#),
        _ => OK.to_owned(),
    });
    let andante = Andante::serve(&[]);
    assert_eq!(timed(&andante, &upstream, "GET", "\r\n").0.status(), 200);
    assert_eq!(upstream.requests().len(), 2);
}

#[test]
fn a_body_test_of_a_rule_looks_at_no_stream() {
    let body = "data: {\"choices\":[{\"delta\":{\"content\":\"the daily limit of salt\"}}]}\n\n";
    let upstream = Upstream::always(answer("200 OK", body));
    let config = format!("[[rule]]\nhost = \"{}\"\nrefused = \"body ~ 'daily limit'\"\n", upstream.address());
    let andante = Andante::with_config(&config);
    for method in ["POST", "GET"] {
        let (got, _) = timed(&andante, &upstream, method, "Content-Length: 0\r\n\r\n");
        assert_eq!(got.text(), body, "{method}");
    }
    assert_eq!(upstream.requests().len(), 2);
}
