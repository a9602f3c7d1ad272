//! Interim answers: 100, and other early statuses of an API.

use super::{OK, exchange, own_name};
use crate::support::{Andante, Client, Upstream, h2::Client2, rejected};

#[test]
fn no_100_before_admission_and_one_after_it() {
    let (sender, released) = std::sync::mpsc::channel::<()>();
    let released = parking_lot::Mutex::new(released);
    let upstream = Upstream::answering(move |request| {
        if request.target() == "/first" {
            released.lock().recv().unwrap();
        }
        OK
    });
    let andante = Andante::with_config("[[rule]]\nhost = \"127.0.0.1\"\nin-flight = 1\n");
    let up = upstream.address();
    let mut first = Client::connect(andante.proxy());
    first.send(format!("GET http://{up}/first HTTP/1.1\r\nHost: {up}\r\n\r\n"));
    upstream.wait_for(1);
    let mut second = Client::connect(andante.proxy());
    second.send(format!(
        "POST http://{up}/second HTTP/1.1\r\nHost: {up}\r\nExpect: 100-Continue\r\nContent-Length: 4\r\n\r\n"
    ));
    andante.wait_for(|status| status["lanes"][0]["waiting"] == 1);
    second.silent();
    sender.send(()).unwrap();
    assert_eq!(first.answer().status(), 200);
    assert_eq!(second.answer().status(), 100);
    second.send("body");
    assert_eq!(second.answer().status(), 200);
    let request = upstream.requests().pop().unwrap();
    assert_eq!((request.text().as_str(), request.has("expect")), ("body", false));
}

#[test]
fn a_final_status_needs_no_100_before_it() {
    let andante = Andante::serve(&["--limit", "127.0.0.1=1/h"]);
    let upstream = Upstream::ok();
    let (request, _) = exchange(&andante, &upstream, "");
    assert_eq!(request.line(), "GET / HTTP/1.1");
    let up = upstream.address();
    for (what, fields) in [("refused", "Expect: 100-continue\r\nPrefer: wait=1\r\n"), ("unknown", "Expect: tea\r\n")] {
        let request = format!("POST http://{up}/ HTTP/1.1\r\nHost: {up}\r\n{fields}Content-Length: 4\r\n\r\n");
        let answer = Client::ask(andante.proxy(), request);
        match what {
            "refused" => rejected(&answer, 429, "http_request_denied", what),
            _ => rejected(&answer, 417, "http_request_error", what),
        }
    }
    assert_eq!(upstream.requests().len(), 1);
}

#[test]
fn http_1_0_knows_no_expectations() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    let url = upstream.url("/");
    let request = format!("POST {url} HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nbody");
    assert_eq!(Client::ask(andante.proxy(), request).status(), 200);
    assert_eq!(upstream.request().text(), "body");
}

#[test]
fn interim_answers_are_passed_on_as_they_come() {
    let (sender, released) = std::sync::mpsc::channel::<()>();
    let released = parking_lot::Mutex::new(released);
    let upstream = Upstream::scripted(move |mut connection| {
        while connection.request().is_some() {
            connection.send(
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\
                 Connection: x-hop\r\nX-Hop: 1\r\nAndante-Flow: x\r\nServer-Timing: andante;dur=1, db\r\n\r\n",
            );
            released.lock().recv().unwrap();
            connection.send(OK);
        }
    });
    let andante = Andante::serve(&["--threads", "1"]);
    let (up, name) = (upstream.address(), own_name(&andante));
    let mut client = Client::connect(andante.proxy());
    // Two pipelined requests, so that an interim answer to the second could precede the first one's answer.
    client.send(format!("GET http://{up}/ HTTP/1.1\r\nHost: {up}\r\n\r\n").repeat(2));
    for _ in 0..2 {
        // RFC 9110 §15.2: all of them, but for 100, which the worker had not asked for.
        let processing = client.answer();
        assert_eq!(processing.line(), "HTTP/1.1 102 Processing");
        let hints = client.answer();
        assert_eq!(hints.line(), "HTTP/1.1 103 Early Hints");
        assert_eq!(hints.field("link").as_deref(), Some("</a>"));
        assert_eq!(hints.field("via"), Some(format!("1.1 {name}")), "RFC 9110 §7.6.3");
        assert_eq!(hints.field("server-timing").as_deref(), Some("db"));
        for gone in ["connection", "x-hop", "andante-flow"] {
            assert!(!hints.has(gone), "{gone}: {hints:?}");
        }
        client.silent();
        sender.send(()).unwrap();
        let answer = client.answer();
        assert_eq!((answer.status(), answer.text().as_str(), answer.has("link")), (200, "ok", false));
    }
}

#[test]
fn many_interim_answers_at_once_harm_nobody() {
    let early = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let upstream = Upstream::always(format!("{}{OK}", early.repeat(200)));
    let andante = Andante::serve(&[]);
    let mut client = Client::connect(andante.proxy());
    let up = upstream.address();
    for _ in 0..3 {
        client.send(format!("GET http://{up}/ HTTP/1.1\r\nHost: {up}\r\n\r\n"));
        let mut answers = 0;
        let last = loop {
            let answer = client.answer();
            if answer.status() != 103 {
                break answer;
            }
            answers += 1;
        };
        assert_eq!((last.status(), last.text().as_str()), (200, "ok"));
        assert!((1..=200).contains(&answers), "{answers}");
    }
}

/// RFC 9110 §15.2: a server sends none to a client of HTTP/1.0. In HTTP/2 it is a known deviation: see
/// `docs/decisions/http-deviations.md`.
#[test]
fn who_cannot_be_sent_interim_answers_gets_the_answer_alone() {
    let upstream = Upstream::always(format!("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n{OK}"));
    let andante = Andante::serve(&[]);
    let answer = Client::ask(andante.proxy(), format!("GET {} HTTP/1.0\r\n\r\n", upstream.url("/")));
    assert_eq!((answer.status(), answer.text().as_str(), answer.has("link")), (200, "ok", false));
    let answer = Client2::connect(andante.proxy()).get(&upstream.url("/")).answer();
    assert_eq!((answer.status(), answer.text().as_str(), answer.has("link")), (200, "ok", false));
}
