//! Translation between HTTP/1.1 and HTTP/2, in both directions: bodies, trailers, and answers without any.

use http::Request;

use super::upstreams::andante;
use crate::support::{
    Client, Message, Upstream,
    h2::{Client2, Exchange, Upstream2},
    tls::{Interceptor, Server, TRUSTED},
};

/// `request` by HTTP/1.1 and by HTTP/2.
fn both(andante: &Interceptor, upstream: &Upstream2, method: &str, path: &str) -> [Message; 2] {
    let (url, host) = (upstream.url(path), upstream.address());
    let mut older = Client::connect(andante.andante.proxy());
    older.send(format!("{method} {url} HTTP/1.1\r\nHost: {host}\r\nTE: trailers\r\nConnection: te\r\n\r\n"));
    let older = if method == "HEAD" { older.answer_to_head() } else { older.answer() };
    let request = Request::builder().method(method).uri(url).header("te", "trailers");
    [older, Client2::connect(andante.andante.proxy()).send(request).answer()]
}

#[test]
fn trailers_like_those_of_grpc_pass_for_workers_of_either_version() {
    let upstream = Upstream2::serving(|mut exchange| async move {
        exchange.read().await;
        let fields = [("content-type", "application/grpc"), ("trailer", "grpc-status")];
        let mut sending = exchange.start(200, &fields, false).unwrap();
        sending.send_data("reply".into(), false).unwrap();
        sending.send_trailers([("grpc-status".parse().unwrap(), "0".parse().unwrap())].into_iter().collect()).unwrap();
    });
    let andante = andante(upstream.address().port(), "");
    let (proxy, url) = (andante.andante.proxy(), upstream.url("/svc/Method"));
    let mut client = Client2::connect(proxy);
    let request = Request::post(&url).header("te", "trailers").header("content-type", "application/grpc");
    let mut asked = client.begin(request.header("trailer", "x-sum"));
    asked.push("call", false);
    asked.end_with(&[("x-sum", "1")]);
    let newer = asked.answer();
    let older = Client::ask(
        proxy,
        format!(
            "POST {url} HTTP/1.1\r\nHost: {}\r\nTE: trailers\r\nConnection: te\r\nContent-Type: application/grpc\r\n\
             Trailer: x-sum\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ncall\r\n0\r\nx-sum: 1\r\n\r\n",
            upstream.address()
        ),
    );
    for answer in [newer, older] {
        assert_eq!((answer.status(), answer.text().as_str()), (200, "reply"));
        assert_eq!(answer.trailers, [("grpc-status".to_owned(), "0".to_owned())], "{answer:?}");
        assert_eq!(answer.field("content-type").as_deref(), Some("application/grpc"));
    }
    for request in upstream.requests() {
        assert_eq!((request.text().as_str(), &request.trailers[..]), ("call", &[("x-sum".into(), "1".into())][..]));
        assert_eq!(request.field("te").as_deref(), Some("trailers"), "{request:?}");
    }
}

#[test]
fn an_answer_of_trailers_only_stays_one() {
    let upstream = Upstream2::serving(|mut exchange| async move {
        exchange.read().await;
        exchange.answer(200, &[("grpc-status", "12"), ("content-type", "application/grpc")], "");
    });
    let andante = andante(upstream.address().port(), "");
    for answer in both(&andante, &upstream, "POST", "/svc/None") {
        assert_eq!((answer.status(), answer.text().as_str()), (200, ""));
        assert_eq!(answer.field("grpc-status").as_deref(), Some("12"), "{answer:?}");
    }
}

#[test]
fn answers_without_a_body_have_none_on_the_other_side() {
    let upstream = Upstream2::serving(|mut exchange| async move {
        exchange.read().await;
        let target = exchange.request.target();
        match target.rsplit('/').next().unwrap() {
            "204" => exchange.answer(204, &[], ""),
            "304" => exchange.answer(304, &[("content-length", "7"), ("etag", "\"a\"")], ""),
            "empty" => exchange.answer(200, &[("content-length", "0")], ""),
            _ => exchange.answer(200, &[("content-length", "12345")], ""),
        }
    });
    let andante = andante(upstream.address().port(), "");
    for (method, path, status, length) in [
        ("HEAD", "/", 200, Some("12345")),
        ("GET", "/204", 204, None),
        ("GET", "/304", 304, Some("7")),
        ("GET", "/empty", 200, Some("0")),
        ("POST", "/empty", 200, Some("0")),
    ] {
        for answer in both(&andante, &upstream, method, path) {
            assert_eq!(answer.status(), status, "{method} {path}: {answer:?}");
            // HTTP/1.1 loses it: `docs/decisions/http-deviations.md`.
            let newer = answer.line().starts_with("HTTP/2");
            let length = length.filter(|_| newer || status != 304);
            let said = answer.field("content-length");
            // HTTP/2 says it by ending the stream.
            let left_out = newer && path == "/empty" && said.is_none();
            assert!(left_out || said.as_deref() == length, "{method} {path}: {answer:?}");
            assert!(answer.body.is_empty() && !answer.has("transfer-encoding"), "{method} {path}: {answer:?}");
        }
    }
}

#[test]
fn lengths_that_are_known_stay_known() {
    let upstream = Upstream2::serving(|mut exchange| async move {
        exchange.read().await;
        exchange.answer(200, &[("content-length", "2")], "ok");
    });
    let andante = andante(upstream.address().port(), "");
    for answer in both(&andante, &upstream, "GET", "/") {
        assert_eq!(
            (answer.field("content-length").as_deref(), answer.text().as_str()),
            (Some("2"), "ok"),
            "{answer:?}"
        );
    }
    let (url, host) = (upstream.url("/"), upstream.address());
    Client::ask(andante.andante.proxy(), format!("POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2\r\n\r\nhi"));
    let request = upstream.requests().pop().unwrap();
    assert_eq!((request.field("content-length").as_deref(), request.text().as_str()), (Some("2"), "hi"), "{request:?}");
}

#[test]
fn an_early_answer_comes_while_the_upload_goes_on() {
    let upstream = Upstream2::serving(|mut exchange| async move {
        let mut sending = exchange.head(200, &[], false).unwrap();
        while let Some(Ok(piece)) = exchange.next().await {
            if Exchange::push(&mut sending, piece, false).await.is_err() {
                return;
            }
        }
        let _ = sending.send_data("".into(), true);
    });
    let andante = andante(upstream.address().port(), "");
    let mut newer = Client2::connect(andante.andante.proxy()).begin(Request::post(upstream.url("/"))).head();
    let mut older = Client::connect(andante.andante.proxy());
    let head = format!("POST {} HTTP/1.1\r\nHost: {}\r\n", upstream.url("/"), upstream.address());
    older.send(format!("{head}Transfer-Encoding: chunked\r\n\r\n"));
    older.until("\r\n\r\n");
    for piece in ["one", "two", "six"] {
        newer.push(piece, false);
        assert_eq!(newer.next().unwrap().unwrap(), piece);
        older.send(format!("3\r\n{piece}\r\n"));
        assert_eq!(older.bytes(8), format!("3\r\n{piece}\r\n").as_bytes());
    }
    newer.push("", true);
    assert_eq!(newer.rest().text(), "");
    older.send("0\r\n\r\n");
    assert_eq!(older.bytes(5), b"0\r\n\r\n");
}

#[test]
fn a_body_that_is_refused_early_is_answered_at_once() {
    let upstream = Upstream2::serving(|exchange| async move { exchange.answer(413, &[], "too much") });
    let andante = andante(upstream.address().port(), "");
    let mut older = Client::connect(andante.andante.proxy());
    let head = format!("POST {} HTTP/1.1\r\nHost: {}\r\n", upstream.url("/"), upstream.address());
    older.send(format!("{head}Content-Length: 100000000\r\n\r\nonly this"));
    let answer = older.answer();
    assert_eq!((answer.status(), answer.text().as_str()), (413, "too much"));
    let newer = Client2::connect(andante.andante.proxy()).begin(Request::post(upstream.url("/"))).head();
    assert_eq!(newer.head.status(), 413);
}

#[test]
fn a_worker_is_offered_no_http2_that_the_upstream_does_not_speak() {
    let tls = Server::new(&TRUSTED.leaf(&["127.0.0.1"]), &["http/1.1"]);
    let upstream = Upstream::secure(tls, |mut connection| {
        while connection.request().is_some() {
            connection.send(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x\r\n\r\n2\r\nok\r\n0\r\nX: 1\r\n\r\n",
            );
        }
    });
    let target = upstream.address().to_string();
    let andante = Interceptor::serve(&["--intercept", "127.0.0.1", "--threads", "1"]);
    // The upstream's protocol is offered to the worker, too.
    let alpn = crate::support::tls::Worker { alpn: &["h2", "http/1.1"], ..andante.trusting(&target) };
    assert_eq!(alpn.secure(andante.tunnel(&target)).unwrap().alpn.as_deref(), Some("http/1.1"));
    assert_eq!(andante.get(&target, "/").text(), "ok");
}

#[test]
fn a_worker_of_http2_in_a_tunnel_reaches_an_upstream_of_http2() {
    let upstream = Upstream2::ok();
    let target = upstream.address().to_string();
    let andante = Interceptor::serve(&["--intercept", "127.0.0.1", "--threads", "1"]);
    let mut client = Client2::inside(&andante, &target);
    for path in ["/1", "/2"] {
        assert_eq!(client.get(&format!("https://{target}{path}")).answer().text(), "ok");
    }
    for other in [format!("http://{target}/"), "https://localhost/".to_owned()] {
        super::streams::rejected2(&client.get(&other).answer(), 400, "http_request_error", &other);
    }
    let asked: Vec<_> = upstream.requests().iter().map(Message::line).collect();
    assert_eq!(asked, [format!("GET https://{target}/1 HTTP/2"), format!("GET https://{target}/2 HTTP/2")]);
    assert_eq!(upstream.connections(), 1);
    assert_eq!(andante.get(&target, "/3").text(), "ok", "HTTP/1.1 in a tunnel, to the same");
    assert_eq!(upstream.connections(), 1);
}
