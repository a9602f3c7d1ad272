//! Answers that break the rules, or never come: andante tells them from good ones, and no other request suffers.

use rustix::process::Signal;

use crate::support::{
    Andante, Client, Connection, Message, Upstream, rejected,
    tls::{Server, TRUSTED},
};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// The answer to a GET from an upstream that sends `answer` and closes.
fn answered(andante: &Andante, answer: impl AsRef<[u8]> + Send + Sync + 'static) -> Message {
    let upstream = Upstream::once(answer);
    Client::get(andante.proxy(), &upstream.url("/"))
}

#[test]
fn answers_whose_end_is_in_doubt_are_502() {
    let andante = Andante::serve(&[]);
    for (what, fields) in [
        ("chunks and a length", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"),
        ("another coding", "Transfer-Encoding: gzip, chunked\r\n"),
        ("no chunks", "Transfer-Encoding: gzip\r\n"),
        ("chunks twice", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        ("two lengths", "Content-Length: 5\r\nContent-Length: 6\r\n"),
        ("two lengths in one", "Content-Length: 5, 6\r\n"),
        ("a signed length", "Content-Length: +5\r\n"),
        ("a negative length", "Content-Length: -5\r\n"),
        ("too large a length", "Content-Length: 18446744073709551616\r\n"),
        ("a length that hyper has another meaning for", "Content-Length: 18446744073709551615\r\n"),
        ("a bare CR", "X-A: b\rc\r\n"),
        ("a NUL", "X-A: b\0c\r\n"),
        ("no colon", "X-A\r\n"),
        ("a name with a blank", "X A: b\r\n"),
        ("a name with a parenthesis", "X(A: b\r\n"),
        ("no name", ": b\r\n"),
        ("a coding with a control character", "Transfer-Encoding: \u{1}chunked\r\nContent-Length: 5\r\n"),
        ("a coding whose name has a control character", "Transfer-Encoding\u{1}: chunked\r\nContent-Length: 5\r\n"),
        ("a blank before the colon of a coding, and a length", "Transfer-Encoding : chunked\r\nContent-Length: 5\r\n"),
        ("a folded coding, and a length", "Transfer-Encoding:\r\n chunked\r\nContent-Length: 5\r\n"),
        ("a coding folded into two", "Transfer-Encoding: gzip,\r\n chunked\r\n"),
        ("a folded length", "Content-Length: 5\r\n 5\r\n"),
        ("two lengths, one with a blank before the colon", "Content-Length: 5\r\nContent-Length : 6\r\n"),
        ("a folded first line", " X-A: b\r\n"),
    ] {
        let answer = answered(&andante, format!("HTTP/1.1 200 OK\r\n{fields}\r\n5\r\nhello\r\n0\r\n\r\n"));
        rejected(&answer, 502, "http_protocol_error", what);
        assert_eq!(answer.json()["blame"], "upstream", "{what}");
    }
    for (what, text) in [
        ("no HTTP", "SSH-2.0-OpenSSH_9.9\r\n"),
        ("a version to come", "HTTP/2.0 200 OK\r\n\r\n"),
        ("a status of letters", "HTTP/1.1 abc OK\r\n\r\n"),
        ("chunks in HTTP/1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("another protocol", "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"),
    ] {
        rejected(&answered(&andante, text), 502, "http_protocol_error", what);
    }
    // The next answer does not suffer from these.
    assert_eq!(answered(&andante, OK).text(), "ok");
}

/// RFC 9112 §5.1: a proxy removes blanks before the colon. §5.2: it may make one of a fold.
#[test]
fn blanks_before_colons_and_folds_are_repaired_in_answers_and_refused_in_requests() {
    let andante = Andante::serve(&[]);
    for (fields, name, value) in [
        ("X-XSS-Protection : 1; mode=block\r\n", "x-xss-protection", "1; mode=block"),
        ("X-A\t: b\r\n", "x-a", "b"),
        (
            "Content-Security-Policy: default-src 'self';\r\n img-src *\r\n",
            "content-security-policy",
            "default-src 'self';",
        ),
        ("X-A: b\r\n\tc\r\n", "x-a", "b"),
    ] {
        let answer = answered(&andante, format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 2\r\n\r\nok"));
        assert_eq!((answer.status(), answer.text().as_str()), (200, "ok"), "{fields}: {answer:?}");
        let repaired = answer.field(name).unwrap_or_else(|| panic!("{fields}: {answer:?}"));
        assert!(repaired.starts_with(value) && !repaired.contains(['\r', '\n']), "{fields}: {repaired:?}");
    }
    // The repaired fields decide the framing.
    for fields in [
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding:\r\n chunked\r\n",
        "Content-Length : 5\r\n",
        "Content-Length: 5, 5\r\n",
    ] {
        let body = if fields.starts_with('T') { "5\r\nhello\r\n0\r\n\r\n" } else { "hello" };
        let answer = answered(&andante, format!("HTTP/1.1 200 OK\r\n{fields}\r\n{body}"));
        assert_eq!((answer.status(), answer.text().as_str()), (200, "hello"), "{fields}: {answer:?}");
    }
    let upstream = Upstream::ok();
    for fields in ["X-A : b\r\n", "X-A: b\r\n c\r\n", "Transfer-Encoding : chunked\r\n", "Content-Length : 0\r\n"] {
        let (url, host) = (upstream.url("/"), upstream.address());
        let request = format!("POST {url} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n0\r\n\r\n");
        assert_eq!(Client::ask(andante.proxy(), request).status(), 400, "{fields}");
    }
}

#[test]
fn a_length_that_is_none_is_not_passed_on_to_head() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::once("HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n"));
    let up = upstream.address();
    let mut client = Client::connect(andante.proxy());
    client.send(format!("HEAD http://{up}/ HTTP/1.1\r\nHost: {up}\r\n\r\n"));
    assert_eq!(client.answer_to_head().status(), 502);
    client.send(format!("GET http://{up}/ HTTP/1.1\r\nHost: {up}\r\n\r\n"));
    assert_eq!(client.answer().status(), 502, "our answer to HEAD has no body");
}

#[test]
fn an_answer_cut_short_cuts_the_workers_connection_short_too() {
    let andante = Andante::serve(&[]);
    for (what, text) in [
        ("a length", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"),
        ("chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"),
        ("a broken chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nxyz\r\n"),
    ] {
        let upstream = Upstream::once(text);
        let up = upstream.address();
        let mut client = Client::connect(andante.proxy());
        client.send(format!("GET http://{up}/ HTTP/1.1\r\nHost: {up}\r\n\r\n"));
        let all = String::from_utf8_lossy(&client.rest()).into_owned();
        assert!(all.starts_with("HTTP/1.1 200 OK\r\n"), "{what}: {all}");
        assert!(!all.ends_with("0\r\n\r\n"), "{what} looks complete: {all}");
    }
}

#[test]
fn what_follows_an_answer_is_never_anybodys_answer() {
    let evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
    for (what, first) in [
        ("after a length", format!("{OK}{evil}")),
        ("junk", format!("{OK}\r\n\r\njunk")),
        ("a body of 204", format!("HTTP/1.1 204 No Content\r\n\r\n{evil}")),
        ("a body of 304", format!("HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\n{evil}")),
        ("a body of HEAD", format!("HTTP/1.1 200 OK\r\nContent-Length: 47\r\n\r\n{evil}")),
        ("after chunks", format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{evil}")),
    ] {
        let method = if what.ends_with("HEAD") { "HEAD" } else { "GET" };
        let upstream = Upstream::scripted(move |mut connection| {
            while let Some(request) = connection.request() {
                connection.send(if request.target() == "/first" { first.as_str() } else { OK });
            }
        });
        // On one thread, so that both requests have the chance of the same connection.
        let (andante, up) = (Andante::serve(&["--threads", "1"]), upstream.address());
        let mut client = Client::connect(andante.proxy());
        for _ in 0..10 {
            // In one piece: nothing could be quicker to take the connection over.
            client.send(format!(
                "{method} http://{up}/first HTTP/1.1\r\nHost: {up}\r\n\r\n\
                 GET http://{up}/second HTTP/1.1\r\nHost: {up}\r\n\r\n"
            ));
            if method == "HEAD" {
                client.answer_to_head()
            } else {
                client.answer()
            };
            let second = client.answer();
            assert_eq!((second.status(), second.text().as_str()), (200, "ok"), "{what}");
        }
    }
}

#[test]
fn a_line_feed_alone_in_a_trailer_section_ends_the_connection() {
    let upstream = Upstream::always(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-A\r\n\r\n2\r\nok\r\n0\r\nX-A: 1\r\n\n\
         HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX: y\r\n\r\n",
    );
    let andante = Andante::serve(&["--threads", "1"]);
    for all in 1..=3 {
        assert_eq!(Client::get(andante.proxy(), &upstream.url("/")).text(), "ok");
        assert_eq!(upstream.connections(), all);
    }
}

/// andante examines bytes that come with the head before it passes the head on.
#[test]
fn a_body_that_is_broken_from_its_first_byte_is_a_502_and_no_success() {
    for (what, error, text) in [
        ("no chunk", "http_protocol_error", "Transfer-Encoding: chunked\r\n\r\nxyz\r\nhello"),
        (
            "a chunk of too many digits",
            "http_protocol_error",
            "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nh",
        ),
        ("an empty chunk line", "http_protocol_error", "Transfer-Encoding: chunked\r\n\r\n\r\nhello"),
    ] {
        let (andante, upstream) = (Andante::serve(&[]), Upstream::once(format!("HTTP/1.1 200 OK\r\n{text}")));
        let answer = Client::get(andante.proxy(), &upstream.url("/"));
        rejected(&answer, 502, error, what);
        assert_eq!(answer.json()["blame"], "upstream", "{what}");
        let metrics = andante.metrics();
        let counted = |outcome: &str| {
            metrics.lines().any(|line| {
                line.starts_with(&format!("andante_requests_total{{outcome=\"{outcome}\"")) && !line.ends_with(" 0")
            })
        };
        assert_eq!((counted("answered"), counted("failed")), (false, true), "{what}: {metrics}");
        assert!(
            !metrics.lines().any(|line| line.starts_with("andante_answers_total") && !line.ends_with(" 0")),
            "{what}"
        );
    }
}

#[test]
fn a_body_where_there_is_none_does_not_reach_the_worker() {
    let andante = Andante::serve(&[]);
    for text in ["HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\nbody", "HTTP/1.1 304 Not Modified\r\n\r\nbody"] {
        let (upstream, mut client) = (Upstream::once(text), Client::connect(andante.proxy()));
        let up = upstream.address();
        client.send(format!("GET http://{up}/ HTTP/1.1\r\nHost: {up}\r\nConnection: close\r\n\r\n"));
        let answer = client.answer();
        assert!([204, 304].contains(&answer.status()));
        assert!(answer.status() == 304 || !answer.has("content-length"), "{answer:?}");
        client.closed();
    }
}

#[test]
fn an_answer_that_ends_with_its_connection_is_whole() {
    let andante = Andante::serve(&[]);
    for version in ["1.0", "1.1"] {
        let answer = answered(&andante, format!("HTTP/{version} 200 OK\r\n\r\nall of it"));
        assert_eq!((answer.status(), answer.text().as_str()), (200, "all of it"));
    }
}

#[test]
fn a_connection_that_ends_before_the_answer_is_502() {
    let andante = Andante::serve(&[]);
    for (what, text) in
        [("at once", ""), ("in the head", "HTTP/1.1 200 OK\r\nX-A: "), ("after a 100", "HTTP/1.1 100 C\r\n\r\n")]
    {
        rejected(&answered(&andante, text), 502, "connection_terminated", what);
    }
    let upstream = Upstream::scripted(|mut connection| {
        connection.request();
        connection.reset();
    });
    rejected(&Client::get(andante.proxy(), &upstream.url("/")), 502, "connection_terminated", "a reset");
}

#[test]
fn an_upstream_that_never_answers_is_504_and_its_connection_closed() {
    let upstream = Upstream::scripted(|mut connection| {
        connection.request();
        let _ = connection.rest();
    });
    let andante = Andante::with_config("[timeouts]\nanswer = \"300ms\"\n");
    rejected(&Client::get(andante.proxy(), &upstream.url("/")), 504, "http_response_timeout", "silence");
    crate::support::eventually("the upstream's connection to end", || (upstream.ended() == 1).then_some(()));
}

#[test]
fn what_andante_cannot_finish_before_it_ends_is_503_and_the_connection_closed() {
    let upstream = Upstream::scripted(|mut connection| {
        connection.request();
        let _ = connection.rest();
    });
    let mut andante = Andante::with_config("drain = \"200ms\"\n");
    let mut client = Client::connect(andante.proxy());
    let up = upstream.address();
    client.send(format!("GET http://{up}/ HTTP/1.1\r\nHost: {up}\r\n\r\n"));
    upstream.wait_for(1);
    andante.signal(Signal::TERM);
    let answer = client.answer();
    rejected(&answer, 503, "connection_terminated", "a drain");
    assert!(answer.has("retry-after"));
    client.closed();
    assert_eq!(andante.ended().code(), Some(0));
}

#[test]
fn what_failed_is_counted_as_what_it_was() {
    let andante = Andante::serve(&[]);
    let (good, bad) = (Upstream::ok(), Upstream::once("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"));
    for url in [good.url("/"), bad.url("/"), "http://a:0/".to_owned()] {
        Client::get(andante.proxy(), &url);
    }
    let counted = andante.status()["requests"].clone();
    assert_eq!((&counted["answered"], &counted["failed"], &counted["rejected"]), (&1.into(), &1.into(), &1.into()));
    let metrics = andante.metrics();
    let line = |outcome: &str| {
        let counter = format!("andante_requests_total{{outcome=\"{outcome}\"");
        metrics.lines().any(|line| line.starts_with(&counter) && line.ends_with(" 1"))
    };
    assert!(line("answered") && line("failed") && line("rejected"), "{metrics}");
}

#[test]
fn heads_of_answers_are_bounded() {
    let andante = Andante::serve(&[]);
    let field = |bytes: usize| format!("X-Long: {}\r\n", "x".repeat(bytes));
    let answer = answered(&andante, format!("HTTP/1.1 200 OK\r\n{}Content-Length: 2\r\n\r\nok", field(100_000)));
    assert_eq!((answer.status(), answer.text().as_str()), (200, "ok"));
    rejected(
        &answered(&andante, format!("HTTP/1.1 200 OK\r\n{}\r\n", field(1_500_000))),
        502,
        "http_protocol_error",
        "long",
    );
    let fields = |count: usize| (0..count).map(|i| format!("X-{i}: {i}\r\n")).collect::<String>();
    let many = |count| answered(&andante, format!("HTTP/1.1 200 OK\r\n{}Content-Length: 2\r\n\r\nok", fields(count)));
    let answer = many(1000);
    assert_eq!((answer.status(), answer.field("x-999").as_deref()), (200, Some("999")));
    let answer = many(1024);
    rejected(&answer, 502, "http_protocol_error", "many");
    assert!(answer.text().contains("more than 1024 fields"), "{}", answer.text());
    let upstream = Upstream::ok();
    let asked = |count| {
        let (url, host) = (upstream.url("/"), upstream.address());
        Client::ask(andante.proxy(), format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{}\r\n", fields(count))).status()
    };
    assert_eq!((asked(1000), asked(1024)), (200, 431));
}

#[test]
fn compressed_answers_stay_as_they_are() {
    let bomb =
        [&b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 6\r\n\r\n"[..], b"\x1f\x8b\x08\x00\xff\xff"];
    let answer = answered(&Andante::serve(&[]), bomb.concat());
    assert_eq!(answer.body, b"\x1f\x8b\x08\x00\xff\xff");
}

/// Answers a first piece, and the rest only once it has been asked to on another connection.
#[test]
fn answers_stream_as_they_come() {
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let receiver = parking_lot::Mutex::new(receiver);
    let upstream = Upstream::scripted(move |mut connection: Connection| {
        connection.request();
        connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n");
        let _ = receiver.lock().recv();
        connection.send("4\r\nlast\r\n0\r\n\r\n");
    });
    let (andante, up) = (Andante::serve(&[]), upstream.address());
    let mut client = Client::connect(andante.proxy());
    client.send(format!("GET http://{up}/ HTTP/1.1\r\nHost: {up}\r\n\r\n"));
    client.until("first");
    sender.send(()).unwrap();
    client.until("last\r\n0\r\n\r\n");
}

/// Servers of TLS meet plain HTTP in one of these ways: by an alert (RFC 8446 §6), or by the end of the connection.
#[test]
fn plain_http_to_a_port_for_tls_is_told_with_what_to_write() {
    let alert = [0x15, 3, 1, 0, 2, 2, 70];
    let rustls = Upstream::secure_ok(Server::new(&TRUSTED.leaf(&["127.0.0.1"]), &[]));
    // Reset any earlier, the connection does not come about.
    let resets = Upstream::scripted(|mut connection| {
        let _ = connection.bytes(1);
        connection.reset();
    });
    for (what, upstream) in
        [("an alert", Upstream::once(alert)), ("an end", Upstream::once("")), ("a reset", resets), ("rustls", rustls)]
    {
        let andante = Andante::serve(&[]);
        let (url, host) = (upstream.address(), upstream.address());
        for method in ["POST", "GET"] {
            let request = format!("{method} http://{url}/ HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n");
            let answer = Client::ask(andante.proxy(), request);
            assert_eq!(answer.status(), 502, "{what}, {method}: {answer:?}");
            let hint = answer.json()["hint"].as_str().unwrap().to_owned();
            assert!(hint.contains("https://") && hint.contains("TLS"), "{what}, {method}: {answer:?}");
        }
    }
}

#[test]
fn a_connection_that_ends_without_an_answer_where_answers_have_come_is_no_matter_of_tls() {
    let count = std::sync::atomic::AtomicUsize::new(0);
    let upstream = Upstream::scripted(move |mut connection| {
        if connection.request().is_some() && count.fetch_add(1, std::sync::atomic::Ordering::AcqRel) == 0 {
            connection.send(OK);
        }
    });
    let andante = Andante::serve(&[]);
    let mut client = Client::connect(andante.proxy());
    let (url, host) = (upstream.url("/"), upstream.address());
    for status in [200, 502] {
        client.send(format!("POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n"));
        let answer = client.answer();
        assert_eq!(answer.status(), status);
        assert!(!answer.text().contains("https://"), "{answer:?}");
    }
}
