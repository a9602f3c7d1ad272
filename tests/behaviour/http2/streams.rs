//! Requests that share a connection fare as if each had one of its own.

use std::{net::TcpStream, thread};

use http::Request;
use serde_json::Value;

use crate::support::{
    Andante, Client, Message, Mock, PATIENCE, Upstream,
    h2::{Client2, Frames, block, kind},
};

const MAX_CONCURRENT_STREAMS: u16 = 3;
const ENABLE_CONNECT_PROTOCOL: u16 = 8;

/// A connection on which each frame is looked at.
pub(crate) fn frames(andante: &Andante) -> Frames<TcpStream> {
    let stream = TcpStream::connect(andante.proxy()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    Frames::client(stream, &[])
}

pub(super) fn lane(status: &Value, of: &str) -> u64 {
    status["lanes"][0][of].as_u64().unwrap_or(0)
}

/// An answer of andante's own: with `status`, this RFC 9209 `error`, and a problem that helps.
pub(super) fn rejected2(answer: &Message, status: u16, error: &str, what: &str) {
    assert_eq!(answer.status(), status, "{what}: {answer:?}");
    assert_eq!(answer.field("proxy-status"), Some(format!("andante; error={error}")), "{what}: {answer:?}");
    assert_eq!(answer.field("content-type").as_deref(), Some("application/problem+json"), "{what}: {answer:?}");
    assert!(!answer.has("connection"), "{what}: {answer:?}");
    assert_eq!(answer.json()["status"], status, "{what}: {answer:?}");
    assert!(answer.json()["hint"].as_str().is_some_and(|hint| !hint.is_empty()), "{what}: {answer:?}");
}

#[test]
fn a_request_passes_in_the_clear_with_prior_knowledge() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    let mut client = Client2::connect(andante.proxy());
    let answer = client.get(&upstream.url("/a?b=%2F")).answer();
    assert_eq!((answer.status(), answer.text().as_str()), (200, "ok"));
    assert_eq!(answer.field("content-length").as_deref(), Some("2"));
    assert!(answer.field("via").unwrap().starts_with("1.1 andante-"), "the upstream spoke 1.1: {answer:?}");
    let request = upstream.request();
    assert_eq!(request.line(), "GET /a?b=%2F HTTP/1.1");
    assert_eq!(request.field("host"), Some(upstream.address().to_string()));
    assert!(request.field("via").unwrap().starts_with("2 andante-"), "{request:?}");
}

#[test]
fn a_hundred_streams_are_paced_like_connections() {
    // A machine that is busy for a moment makes the trial slow. The delay never causes refusals.
    const TRIALS: usize = 3;
    let mut shares = Vec::new();
    while shares.len() < TRIALS && shares.iter().all(|share| *share < 0.9) {
        let mock = Mock::start(&["--limit", "100/s"]);
        let andante = Andante::serve(&["--limit", &format!("{}=100/s", mock.address())]);
        let mut client = Client2::connect(andante.proxy());
        let asked: Vec<_> = (0..100).map(|_| client.get(&mock.url("/"))).collect();
        for asked in asked {
            assert_eq!(asked.answer().status(), 200);
        }
        let stats = mock.stats();
        assert_eq!((&stats["accepted"], &stats["refused"]), (&100.into(), &0.into()), "{stats:#}");
        let share = stats["used_share"].as_f64().unwrap();
        assert!(share <= 1.05, "{stats:#}");
        shares.push(share);
    }
    assert!(shares.iter().any(|share| *share >= 0.9), "{shares:?}");
}

#[test]
fn a_thousand_streams_are_allowed_and_the_next_is_refused() {
    let upstream = Upstream::ok();
    let andante = Andante::serve(&["--limit", &format!("{}=1/5s", upstream.address())]);
    let mut frames = frames(&andante);
    let settings = frames.next_of(kind::SETTINGS).unwrap();
    assert_eq!(settings.setting(MAX_CONCURRENT_STREAMS), Some(1000));
    assert_eq!(settings.setting(ENABLE_CONNECT_PROTOCOL), None, "not advertised");
    let host = upstream.address().to_string();
    let get = [(":method", "GET"), (":scheme", "http"), (":authority", &*host), (":path", "/")];
    // The first is answered, and leaves its place to another.
    frames.headers(1, &get, true);
    while !frames.next_on(1).expect("an answer").ends() {}
    (1..=1001).for_each(|stream| frames.headers(2 * stream + 1, &get, true));
    let refused = frames.next_of(kind::RST_STREAM).expect("the last to be refused");
    assert_eq!((refused.stream, refused.reason()), (2003, h2::Reason::REFUSED_STREAM));
    andante.wait_for(|status| lane(status, "waiting") >= 990);
}

/// A hundred with heads of 64 KiB: RFC 9113 §6.5.2 wants no fewer.
#[test]
fn requests_with_long_heads_are_refused_once_a_connection_holds_seven_megabytes_of_them() {
    const STREAMS: u32 = 250;
    let upstream = Upstream::ok();
    let andante = Andante::serve(&["--limit", &format!("{}=1/20s", upstream.address())]);
    let mut frames = frames(&andante);
    let host = upstream.address().to_string();
    let long = "y".repeat(15_000);
    let get = [(":method", "GET"), (":scheme", "http"), (":authority", &*host), (":path", "/")];
    let fields = [&get[..], &[("a", &*long), ("b", &*long), ("c", &*long), ("d", &*long)]].concat();
    let block = block(&fields);
    for stream in 0..STREAMS {
        let pieces: Vec<_> = block.chunks(16 * 1024).collect();
        for (number, piece) in pieces.iter().enumerate() {
            let (first, last) = (number == 0, number + 1 == pieces.len());
            let kind = if first { kind::HEADERS } else { kind::CONTINUATION };
            frames.send(kind, u8::from(first) | if last { 4 } else { 0 }, 2 * stream + 1, piece);
        }
    }
    let refused = frames.next_of(kind::RST_STREAM).expect("one to be refused");
    assert_eq!(refused.reason(), h2::Reason::REFUSED_STREAM);
    let status = andante.wait_for(|status| lane(status, "waiting") >= 100);
    assert!(lane(&status, "waiting") < 120, "{status:#}");
}

#[test]
fn tunnels_are_for_http1_only() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::echo());
    let mut client = Client2::connect(andante.proxy());
    let answer = client.send(Request::connect(upstream.address().to_string())).answer();
    rejected2(&answer, 501, "http_request_error", "CONNECT");
    assert_eq!(client.get("http://127.0.0.1:1/").answer().status(), 502, "the others go on");
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn errors_say_in_http2_what_they_say_in_http1() {
    let andante = Andante::serve(&[]);
    let mut client = Client2::connect(andante.proxy());
    for (url, status, error) in [
        ("http://127.0.0.1:1/", 502, "connection_refused"),
        ("ftp://127.0.0.1/", 501, "http_request_error"),
        (&format!("http://{}/", andante.admin()), 403, "proxy_loop_detected"),
        (&format!("http://{}/nowhere", andante.proxy()), 403, "proxy_loop_detected"),
        ("http://u:p@127.0.0.1:1/", 400, "http_request_error"),
    ] {
        let answer = client.get(url).answer();
        rejected2(&answer, status, error, url);
        assert_eq!(answer.json()["type"], "about:blank");
    }
}

#[test]
fn a_worker_that_does_not_read_one_answer_gets_the_others() {
    const SIZE: usize = 8 << 20;
    let upstream = Upstream::answering(|request| {
        let size = if request.target() == "/large" { SIZE } else { 2 };
        format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n{}", "x".repeat(size))
    });
    let andante = Andante::serve(&[]);
    // Windows as most clients have them: a stream's is as large as the connection's.
    let settings =
        h2::client::Builder::new().initial_window_size(65_535).initial_connection_window_size(1 << 20).clone();
    let mut client = Client2::with(&settings, andante.proxy());
    let slow = client.get(&upstream.url("/large")).head();
    for _ in 0..20 {
        assert_eq!(client.get(&upstream.url("/small")).answer().text(), "xx");
    }
    assert_eq!(slow.rest().body.len(), SIZE);
}

#[test]
fn cookies_that_came_apart_are_joined_for_http1() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    let request = Request::get(upstream.url("/")).header("cookie", "a=1").header("cookie", "b=2").header("x", "1");
    assert_eq!(Client2::connect(andante.proxy()).send(request.header("x", "2")).answer().status(), 200);
    let request = upstream.request();
    assert_eq!(request.all("cookie"), ["a=1; b=2"]);
    assert_eq!(request.all("x"), ["1", "2"], "others stay apart");
}

#[test]
fn bodies_and_trailers_pass_from_http2_to_http1_and_back() {
    let upstream = Upstream::always(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: grpc-status\r\nConnection: close\r\n\r\n\
         5\r\nhello\r\n0\r\nGrpc-Status: 0\r\n\r\n",
    );
    let andante = Andante::serve(&[]);
    let mut client = Client2::connect(andante.proxy());
    let request = Request::post(upstream.url("/")).header("te", "trailers").header("trailer", "x-sum");
    let mut asked = client.begin(request);
    asked.push("wor", false);
    asked.push("ld", false);
    asked.end_with(&[("x-sum", "9")]);
    let answer = asked.answer();
    assert_eq!(answer.text(), "hello");
    assert_eq!(answer.trailers, [("grpc-status".to_owned(), "0".to_owned())]);
    assert!(!answer.has("transfer-encoding") && !answer.has("connection"), "{answer:?}");
    let request = upstream.request();
    assert_eq!((request.text().as_str(), &request.trailers[..]), ("world", &[("x-sum".into(), "9".into())][..]));
    assert_eq!(request.field("te").as_deref(), Some("trailers"));
    assert_eq!(request.field("transfer-encoding").as_deref(), Some("chunked"));
}

#[test]
fn answers_without_a_body_end_with_their_head() {
    let upstream = Upstream::answering(|request| match &*request.target() {
        "/204" => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
        "/304" => "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\nETag: \"a\"\r\n\r\n".to_owned(),
        _ => "HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n".to_owned(),
    });
    let andante = Andante::serve(&[]);
    let mut client = Client2::connect(andante.proxy());
    let answer = client.send(Request::head(upstream.url("/"))).answer();
    assert_eq!((answer.status(), answer.field("content-length").as_deref()), (200, Some("12345")));
    assert_eq!(client.get(&upstream.url("/204")).answer().status(), 204);
    let answer = client.get(&upstream.url("/304")).answer();
    assert_eq!((answer.status(), answer.field("content-length").as_deref()), (304, Some("7")));
    assert_eq!(upstream.connections(), 1, "each of them leaves the connection in order");
}

#[test]
fn an_upstream_that_breaks_off_resets_the_stream_alone() {
    let upstream = Upstream::scripted(|mut connection| {
        connection.request();
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
        connection.reset();
    });
    let andante = Andante::serve(&[]);
    let mut client = Client2::connect(andante.proxy());
    let broken = client.get(&upstream.url("/")).try_answer();
    assert!(broken.as_ref().is_err_and(|error| error.is_reset() && error.is_remote()), "{broken:?}");
    assert_eq!(client.get("http://127.0.0.1:1/").answer().status(), 502, "the others go on");
}

#[test]
fn an_early_answer_comes_while_the_upload_goes_on() {
    let upstream = Upstream::scripted(|mut connection| {
        connection.head();
        connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        for _ in 0..3 {
            // Echoes each chunk at once.
            let line = connection.bytes(8).unwrap();
            connection.send(line);
        }
        let _ = connection.bytes(5);
        connection.send("0\r\n\r\n");
    });
    let andante = Andante::serve(&[]);
    let mut client = Client2::connect(andante.proxy());
    let mut answer = client.begin(Request::post(upstream.url("/"))).head();
    for piece in ["one", "two", "six"] {
        answer.push(piece, false);
        assert_eq!(answer.next().unwrap().unwrap(), piece);
    }
    answer.push("", true);
    assert_eq!(answer.rest().text(), "");
}

#[test]
fn one_connection_serves_http1_and_another_http2_on_the_same_port() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    let both = thread::scope(|scope| {
        let older = scope.spawn(|| Client::get(andante.proxy(), &upstream.url("/1")).status());
        let newer = scope.spawn(|| Client2::connect(andante.proxy()).get(&upstream.url("/2")).answer().status());
        (older.join().unwrap(), newer.join().unwrap())
    });
    assert_eq!(both, (200, 200));
    // `PR` alone could still become either.
    let mut client = Client::connect(andante.proxy());
    client.send("PR");
    client.silent();
    client.send(format!("OPFIND {} HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.url("/3"), upstream.address()));
    assert_eq!(client.answer().status(), 200);
}
