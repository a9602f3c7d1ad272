//! Messages that HTTP/2 cannot carry, or that a proxy must not translate to HTTP/1.

use http::Request;

use super::{
    streams::{frames, rejected2},
    upstreams::{andante, framed},
};
use crate::support::{
    Andante, Client, Message, Upstream,
    h2::{Client2, Frame, block, kind},
    rejected,
};

/// The answer to a request of `fields`, whose stream stays open if there is a `body`.
fn sent(andante: &Andante, fields: &[(&str, &str)], body: Option<&[u8]>) -> Option<Frame> {
    let mut frames = frames(andante);
    frames.headers(1, fields, body.is_none());
    if let Some(body) = body {
        frames.data(1, body, true);
    }
    frames.next_on(1)
}

#[test]
fn malformed_requests_are_reset_and_go_nowhere() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    let host = upstream.address().to_string();
    let good = [(":method", "GET"), (":scheme", "http"), (":authority", &*host), (":path", "/")];
    let with = |more: (&'static str, &'static str)| [&good[..], &[more]].concat();
    for (what, fields) in [
        ("an uppercase name", with(("X-Upper", "1"))),
        ("a connection field", with(("connection", "close"))),
        ("a keep-alive field", with(("keep-alive", "timeout=5"))),
        ("a transfer coding", with(("transfer-encoding", "chunked"))),
        ("an upgrade", with(("upgrade", "websocket"))),
        ("te other than trailers", with(("te", "gzip"))),
        ("a line break in a value", with(("x", "1\r\ny: 2"))),
        ("a null byte in a value", with(("x", "1\0"))),
        ("a line break in a name", with(("x\r\ny", "1"))),
        ("a pseudo-field that is none", with((":proto", "1"))),
        ("a pseudo-field after others", [&[("x", "1")], &good[..]].concat()),
        ("a pseudo-field twice", with((":path", "/"))),
        ("a pseudo-field of answers", with((":status", "200"))),
        ("no scheme", vec![good[0], good[2], good[3]]),
        ("no method", good[1..].to_vec()),
        ("no path", good[..3].to_vec()),
        ("a path that is only a fragment", vec![good[0], good[1], good[2], (":path", "#b")]),
        ("a path that is only a query", vec![good[0], good[1], good[2], (":path", "?b")]),
        ("the path of OPTIONS", vec![good[0], good[1], good[2], (":path", "*")]),
        ("a blank before a value", with(("x", " 1"))),
        ("a blank after a value", with(("x", "1 "))),
        ("a tabulator after a value", with(("x", "1\t"))),
        ("a name that is no token", with(("x\"y", "1"))),
        ("an empty path", vec![good[0], good[1], good[2], (":path", "")]),
        ("a line break in the path", vec![good[0], good[1], good[2], (":path", "/\r\nx: 1")]),
        ("a line break in the authority", vec![good[0], good[1], (":authority", "a\r\nb"), good[3]]),
        ("a line break in the method", vec![(":method", "GET\r\n"), good[1], good[2], good[3]]),
    ] {
        let said = sent(&andante, &fields, None);
        let reset = said.as_ref().is_none_or(|said| said.kind == kind::RST_STREAM);
        assert!(reset || said.as_ref().is_some_and(|said| said.status() == 400), "{what}: {said:?}");
    }
    assert_eq!(sent(&andante, &good, None).unwrap().status(), 200, "without all that it is in order");
    assert_eq!(upstream.requests().len(), 1);
}

/// RFC 9113 §8.1.1 and §8.2.1. Pseudo-fields are only dropped, because h2 drops them itself: see
/// `docs/decisions/http-deviations.md`.
#[test]
fn malformed_trailers_never_arrive_with_a_whole_request() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    let host = upstream.address().to_string();
    let head = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", &*host),
        (":path", "/"),
        ("trailer", "x, x-fine"),
        ("te", "trailers"),
    ];
    let ask = |trailers: &[(&str, &str)]| {
        let mut frames = frames(&andante);
        frames.headers(1, &head, false);
        frames.data(1, b"body", false);
        frames.headers(1, trailers, true);
        frames.next_on(1)
    };
    for (what, trailer) in [
        ("a blank before a value", ("x", " 1")),
        ("a blank after a value", ("x", "1 ")),
        ("a name that is no token", ("x\"y", "1")),
        ("an uppercase name", ("X", "1")),
        ("a connection field", ("connection", "x")),
    ] {
        let said = ask(&[("x-fine", "1"), trailer]);
        let reset = said.as_ref().is_none_or(|said| said.kind == kind::RST_STREAM);
        assert!(reset || said.as_ref().is_some_and(|said| said.status() == 400), "{what}: {said:?}");
    }
    assert!(upstream.requests().is_empty(), "{:?}", upstream.requests());
    assert_eq!(ask(&[("x-fine", "1")]).unwrap().status(), 200, "without all that they are in order");
    let whole = upstream.requests().len();
    // A pseudo-field never gets further than here.
    ask(&[(":path", "/other"), ("x-fine", "1")]);
    for request in &upstream.requests()[whole..] {
        assert_eq!(request.trailers, [("x-fine".to_owned(), "1".to_owned())]);
    }
}

/// RFC 9113 §8.2.1, of answers. Removing blanks is a known deviation: see `docs/decisions/http-deviations.md`.
#[test]
fn answers_lose_outer_blanks_and_have_no_names_that_are_none() {
    let upstream = framed(&[], |number, mut frames| {
        let bad = if number == 1 { ("x-a", " 1\t") } else { ("x\"y", "1") };
        if let Some(request) = frames.next_of(kind::HEADERS) {
            frames.headers(request.stream, &[(":status", "200"), bad], true);
            frames.go_away(request.stream, h2::Reason::NO_ERROR);
        }
        while frames.next().is_some() {}
    });
    let andante = andante(upstream.port(), "");
    let ask = || Client::get(andante.andante.proxy(), &upstream.url("/"));
    let answer = ask();
    assert!(String::from_utf8_lossy(&answer.head).contains("x-a: 1\r\n"), "{answer:?}");
    rejected(&ask(), 502, "http_protocol_error", "a name");
}

#[test]
fn a_body_of_another_length_than_announced_never_arrives_whole() {
    let upstream = Upstream::ok();
    let andante = Andante::serve(&[]);
    let host = upstream.address().to_string();
    for (length, body) in [
        ("5", &b"four"[..]),
        ("3", b"four"),
        ("0", b"x"),
        ("x", b"four"),
        ("-1", b"four"),
        ("18446744073709551615", b"four"),
        ("18446744073709551614", b"four"),
    ] {
        let fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", &*host),
            (":path", "/"),
            ("content-length", length),
        ];
        let said = sent(&andante, &fields, Some(body)).expect("to be told");
        let reset = said.kind == kind::RST_STREAM && said.reason() == h2::Reason::PROTOCOL_ERROR;
        assert!(reset || said.kind == kind::HEADERS && said.status() == 400, "{length}: {said:?}");
    }
    // A length of 0 is all that there is to wait for: the request may have left before its surplus came, without it.
    let empty = |request: &Message| request.field("content-length").as_deref() == Some("0");
    assert!(upstream.requests().iter().all(empty), "{:?}", upstream.requests());
}

#[test]
fn a_host_that_contradicts_the_authority_is_refused() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    let mut client = Client2::connect(andante.proxy());
    let ask =
        |client: &mut Client2, host: &str| client.send(Request::get(upstream.url("/")).header("host", host)).answer();
    for host in ["other.test", "127.0.0.1", "127.0.0.1:1", "", "a b", "u@a"] {
        rejected2(&ask(&mut client, host), 400, "http_request_error", host);
    }
    let twice = Request::get(upstream.url("/")).header("host", upstream.address().to_string());
    let answer = client.send(twice.header("host", upstream.address().to_string())).answer();
    rejected2(&answer, 400, "http_request_error", "two of them");
    assert!(upstream.requests().is_empty());
    assert_eq!(ask(&mut client, &upstream.address().to_string()).status(), 200);
    assert_eq!(upstream.request().all("host").len(), 1);
}

#[test]
fn what_is_for_one_hop_stays_there() {
    let upstream = Upstream::always(
        "HTTP/1.1 200 OK\r\nConnection: x-hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\n\
         Upgrade: h2c\r\nContent-Length: 0\r\n\r\n",
    );
    let andante = Andante::serve(&[]);
    let request = Request::get(upstream.url("/")).header("te", "trailers").header("proxy-authorization", "Basic x");
    let answer = Client2::connect(andante.proxy()).send(request.header("andante-flow", "f")).answer();
    for gone in ["connection", "x-hop", "keep-alive", "proxy-connection", "upgrade", "transfer-encoding"] {
        assert!(!answer.has(gone), "{gone}: {answer:?}");
    }
    let request = upstream.request();
    for gone in ["proxy-authorization", "andante-flow"] {
        assert!(!request.has(gone), "{gone}: {request:?}");
    }
    assert_eq!(request.field("te").as_deref(), Some("trailers"));
}

#[test]
fn heads_are_bounded_as_in_http1() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    let large = "x".repeat(200_000);
    let ask = |fields: usize, value: &str| {
        let mut request = Request::get(upstream.url("/"));
        for field in 0..fields {
            request = request.header(format!("x-{field}"), value);
        }
        Client2::connect(andante.proxy()).send(request).try_answer()
    };
    let ask1 = |fields: usize, value: &str| {
        let fields: String = (0..fields).map(|field| format!("x-{field}: {value}\r\n")).collect();
        let head = format!("GET {} HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", upstream.url("/"), upstream.address());
        Client::ask(andante.proxy(), head).status()
    };
    for (fields, value, status) in [(1023, "1", 200), (1025, "1", 431), (1, &*large, 431), (5000, "1", 431)] {
        assert_eq!(ask1(fields, value), status, "HTTP/1.1: {fields} fields");
        match ask(fields, value) {
            Ok(answer) => assert_eq!(answer.status(), status, "HTTP/2: {fields} fields: {answer:?}"),
            // A header block of too many frames ends the connection before it is read to its end.
            Err(error) => assert_eq!((status, value.len() > 1000), (431, true), "HTTP/2: {fields} fields: {error}"),
        }
    }
    assert_eq!(upstream.requests().len(), 2);
}

#[test]
fn half_a_preface_is_not_waited_for() {
    let andante = Andante::with_config("[timeouts]\nhead = \"200ms\"\n");
    for half in ["P", "PRI * HT", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let mut client = Client::connect(andante.proxy());
        client.send(half);
        client.rest();
    }
    // Half a frame, half a head: the rest has to come in time, too.
    let mut frames = frames(&andante);
    frames.send(kind::HEADERS, 0, 1, &block(&[(":method", "GET")]));
    assert!(frames.next_of(kind::HEADERS).is_none(), "there is nothing to answer");
    andante.wait_for(|status| status["connections"]["client"] == 0);
}

#[test]
fn a_preface_that_becomes_something_else_is_refused() {
    let andante = Andante::serve(&[]);
    let mut client = Client::connect(andante.proxy());
    client.send("PRI * HTTP/2.0\r\n\r\nSOMETHING ELSE\r\n\r\n");
    client.rest();
    andante.wait_for(|status| status["connections"]["client"] == 0);
}
