//! Retries inside of intercepted HTTPS, with HTTP/2 on either side, through gateways and parents.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use h2::Reason;
use http::Request;

use super::{SOON, ms, now, same};
use crate::support::{
    Andante, Client, Upstream,
    h2::{Client2, Exchange, Upstream2, kind},
    rejected,
    tls::{Interceptor, Server, TRUSTED},
};

/// An upstream that does `first` with its first `count` requests once they are read, and answers all others.
fn beginning_with(count: usize, first: impl Fn(Exchange) + Copy + Send + Sync + 'static) -> Upstream2 {
    let number = Arc::new(AtomicUsize::new(0));
    Upstream2::serving(move |mut exchange| {
        let number = number.clone();
        async move {
            exchange.read().await;
            if number.fetch_add(1, Ordering::AcqRel) < count {
                first(exchange);
            } else {
                exchange.answer(200, &[], "done");
            }
        }
    })
}

fn refused(exchange: Exchange) {
    exchange.answer(429, &[("retry-after-ms", "100"), ("x-a", "b")], "soon");
}

/// `POST /path` in HTTP/2, with a body and a trailer.
fn post(client: &mut Client2, target: &str, prefer: &str) -> crate::support::Message {
    let request = Request::post(format!("https://{target}/path")).header("x-own", "1").header("prefer", prefer);
    let mut asked = client.begin(request);
    asked.push("hello ", false);
    asked.push("world", false);
    asked.end_with(&[("x-sum", "11")]);
    asked.answer()
}

#[test]
fn a_post_that_was_refused_is_sent_again_with_http2_on_both_sides() {
    let (andante, upstream) = (Interceptor::serve(&["--intercept", "*"]), beginning_with(2, refused));
    let target = upstream.address().to_string();
    let mut client = Client2::inside(&andante, &target);
    let since = now();
    let answer = post(&mut client, &target, "return=minimal");
    assert_eq!((answer.status(), answer.text().as_str()), (200, "done"));
    assert!(now().since(since) >= ms(190));
    let seen = upstream.requests();
    assert_eq!((seen.len(), seen[0].text().as_str(), seen[0].trailers.len()), (3, "hello world", 1));
    same(&seen);
    // Without time for it, the refusal itself.
    let upstream = beginning_with(9, |exchange| exchange.answer(429, &[("retry-after", "5"), ("x-a", "b")], "later"));
    let target = upstream.address().to_string();
    let andante = Interceptor::serve(&["--intercept", "*"]);
    let answer = post(&mut Client2::inside(&andante, &target), &target, "wait=1");
    assert_eq!((answer.status(), answer.text().as_str()), (429, "later"));
    assert_eq!((answer.field("x-a").as_deref(), answer.field("retry-after").as_deref()), (Some("b"), Some("5")));
    assert_eq!(upstream.requests().len(), 1);
}

#[test]
fn a_post_of_http1_that_was_refused_is_sent_again_in_http2() {
    let (andante, upstream) = (Interceptor::serve(&["--intercept", "*"]), beginning_with(1, refused));
    let target = upstream.address().to_string();
    let mut worker = andante.worker(&target);
    for body in ["Content-Length: 5\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"] {
        worker.send(format!("POST /path HTTP/1.1\r\nHost: {target}\r\n{body}"));
        assert_eq!(worker.answer().text(), "done");
    }
    let seen = upstream.requests();
    assert_eq!((seen.len(), seen[0].text().as_str()), (3, "hello"));
    same(&seen[..2]);
}

#[test]
fn a_post_of_http2_that_was_refused_is_sent_again_in_http1() {
    let number = AtomicUsize::new(0);
    let leaf = TRUSTED.leaf(&["127.0.0.1"]);
    let upstream = Upstream::secure(Server::new(&leaf, &["http/1.1"]), move |mut connection| {
        while connection.request().is_some() {
            let first = number.fetch_add(1, Ordering::AcqRel) == 0;
            connection.send(if first { SOON } else { super::OK });
        }
    });
    let andante = Interceptor::serve(&["--intercept", "*"]);
    let target = upstream.address().to_string();
    let answer = post(&mut Client2::inside(&andante, &target), &target, "return=minimal");
    assert_eq!((answer.status(), answer.text().as_str()), (200, "ok"));
    let seen = upstream.requests();
    assert_eq!((seen.len(), seen[0].text().as_str()), (2, "hello world"));
    same(&seen);
}

#[test]
fn a_body_that_an_upstream_has_refused_unseen_is_sent_again() {
    let refuse = |exchange: Exchange| exchange.refuse(Reason::REFUSED_STREAM);
    let (andante, upstream) = (Interceptor::serve(&["--intercept", "*"]), beginning_with(2, refuse));
    let target = upstream.address().to_string();
    let answer = post(&mut Client2::inside(&andante, &target), &target, "return=minimal");
    assert_eq!((answer.status(), answer.text().as_str()), (200, "done"));
    assert_eq!(upstream.requests().len(), 3);
    same(&upstream.requests());
}

#[test]
fn a_body_on_its_way_is_sent_again_elsewhere_when_the_upstream_goes_away() {
    let connections = AtomicUsize::new(0);
    let leaf = TRUSTED.leaf(&["127.0.0.1"]);
    let upstream = Upstream::secure(Server::new(&leaf, &["h2"]), move |connection| {
        let first = connections.fetch_add(1, Ordering::AcqRel) == 0;
        let Some(mut frames) = connection.frames(&[]) else { return };
        while let Some(head) = frames.next_of(kind::HEADERS) {
            if first {
                // The upstream reports that it has processed no stream.
                frames.go_away(0, Reason::NO_ERROR);
                while frames.next().is_some() {}
                return;
            }
            let mut body = Vec::new();
            while let Some(frame) = frames.next_on(head.stream) {
                if frame.kind == kind::DATA {
                    body.extend_from_slice(&frame.payload);
                }
                if frame.ends() {
                    break;
                }
            }
            frames.headers(head.stream, &[(":status", "200")], false);
            frames.data(head.stream, &body, true);
        }
    });
    let andante = Interceptor::serve(&["--intercept", "*"]);
    let target = upstream.address().to_string();
    let mut client = Client2::inside(&andante, &target);
    let mut asked = client.begin(Request::post(format!("https://{target}/path")));
    asked.push("hello ", false);
    std::thread::park_timeout(ms(200));
    asked.push("world", true);
    let answer = asked.answer();
    assert_eq!((answer.status(), answer.text().as_str()), (200, "hello world"), "{answer:?}");
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn a_request_of_a_gateway_keeps_its_rewriting_when_it_is_sent_again() {
    let number = AtomicUsize::new(0);
    let upstream = Upstream::answering(move |request| {
        let host = request.field("host").unwrap();
        if number.fetch_add(1, Ordering::AcqRel) == 0 {
            return SOON.to_owned();
        }
        format!("HTTP/1.1 302 Found\r\nLocation: http://{host}/v1/there\r\nContent-Length: 0\r\n\r\n")
    });
    let andante = Andante::with_config(&format!("[[gateway]]\npath = \"/api\"\nto = \"{}\"\n", upstream.url("/v1")));
    let own = andante.proxy();
    let ask = format!("POST /api/x?y HTTP/1.1\r\nHost: {own}\r\nContent-Length: 2\r\n\r\nhi");
    let answer = Client::ask(own, ask);
    assert_eq!(answer.status(), 302, "{answer:?}");
    assert_eq!(answer.field("location"), Some("/api/there".to_owned()));
    let seen = upstream.requests();
    assert_eq!((seen.len(), seen[1].target().as_str()), (2, "/v1/x?y"));
    assert_eq!(seen[1].field("host"), Some(upstream.address().to_string()));
    same(&seen);
}

#[test]
fn a_parent_that_refuses_our_password_is_not_asked_again() {
    const WANTS: &str = "HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=x\r\nContent-Length: 0\r\n\r\n";
    let parent = Upstream::always(WANTS);
    let andante = Andante::with_config(&format!("[[rule]]\nhost = \"*\"\nvia = \"http://u:p@{}\"\n", parent.address()));
    let answer = Client::get(andante.proxy(), "http://api.test/");
    rejected(&answer, 502, "destination_unavailable", "407");
    assert_eq!(parent.requests().len(), 1);
    // Neither is one that does so to a CONNECT.
    let parent = Upstream::always(WANTS);
    let rule = format!("[[rule]]\nhost = \"*\"\nvia = \"http://u:p@{}\"\n", parent.address());
    let andante = Interceptor::logging("info", &rule, &["--intercept", "*"]);
    let answer = andante.get("a.localhost:443", "/");
    rejected(&answer, 502, "destination_unavailable", "407 to CONNECT");
    // A first connection to find out the API's protocol, a second for the request.
    assert!(parent.requests().len() <= 2, "{:?}", parent.requests());
    assert!(!andante.andante.stderr().contains("again"), "{}", andante.andante.stderr());
}

#[test]
fn a_parent_passes_refusals_of_the_api_which_are_sent_again() {
    let parent = super::beginning_with(&[SOON]);
    let andante = Andante::with_config(&format!("[[rule]]\nhost = \"*\"\nvia = \"http://u:p@{}\"\n", parent.address()));
    let answer = Client::get(andante.proxy(), "http://api.test/x");
    assert_eq!((answer.status(), answer.text().as_str()), (200, "ok"));
    let seen = parent.requests();
    assert_eq!((seen.len(), seen[1].target().as_str()), (2, "http://api.test/x"));
    same(&seen);
}

#[test]
fn what_is_refused_unseen_again_and_again_fails_soon() {
    let refuse = |exchange: Exchange| exchange.refuse(Reason::REFUSED_STREAM);
    let (andante, upstream) = (Interceptor::serve(&["--intercept", "*"]), beginning_with(99, refuse));
    let answer = andante.get(&upstream.address().to_string(), "/");
    assert_eq!(answer.status(), 502);
    assert!(upstream.requests().len() < 10, "{}", upstream.requests().len());
}
