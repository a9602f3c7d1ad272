//! Whole answers of HTTP/2 upstreams that come before an upload is over, and how the upstream ends stream and connection
//! behind them.

use std::{net::TcpStream, time::Duration};

use andante::clock::Clock;
use bytes::Bytes;
use h2::Reason;
use http::Request;

use super::upstreams::{andante, framed, request};
use crate::support::{
    Client, Message, Upstream,
    h2::{Client2, Frames, Upstream2, kind},
    message::Stream,
    tls::Interceptor,
};

type Server<'a> = &'a mut Frames<Box<dyn Stream>>;

const UPLOAD_BYTES: usize = 4_000_000;
const TOO_BIG: &str = "too big";
/// Bytes of a piece of an upload that is sent frame by frame.
const PIECE_BYTES: usize = 16_000;
/// Window of each stream that andante announces.
const STREAM_WINDOW_BYTES: usize = 65_536;

/// Answers each upload 413 once a first piece of it has come, with or without a length, and then ends as `end` says.
fn refusing(with_length: bool, end: impl Fn(Server<'_>, u32) + Send + Sync + 'static) -> Upstream {
    framed(&[], move |_, mut frames| {
        // Uploads that are cut short use up the window of the connection.
        frames.send(kind::WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes());
        while let Some(stream) = request(&mut frames) {
            frames.next_of(kind::DATA);
            answer(&mut frames, stream, with_length);
            end(&mut frames, stream);
        }
    })
}

fn answer(frames: Server<'_>, stream: u32, with_length: bool) {
    let fields = [(":status", "413"), ("content-length", "7")];
    frames.headers(stream, &fields[..if with_length { 2 } else { 1 }], false);
    frames.data(stream, TOO_BIG.as_bytes(), true);
}

fn by_http1(andante: &Interceptor, upstream: &Upstream, fields: &str) -> Message {
    let mut client = Client::connect(andante.andante.proxy());
    let (url, host) = (upstream.url("/"), upstream.address());
    client.send(format!("POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {UPLOAD_BYTES}\r\n{fields}\r\n"));
    client.send(vec![b'x'; UPLOAD_BYTES]);
    client.answer()
}

fn by_http2(andante: &Interceptor, upstream: &Upstream) -> Message {
    let mut client = Client2::connect(andante.andante.proxy());
    let mut asked = client.begin(Request::post(upstream.url("/")));
    asked.push(Bytes::from(vec![b'x'; 30_000]), false);
    asked.answer()
}

/// Uploads, by each protocol, to an upstream that answers early and ends as `end` says.
fn reaches_the_worker(end: impl Fn(Server<'_>, u32) + Copy + Send + Sync + 'static) {
    for with_length in [true, false] {
        let upstream = refusing(with_length, end);
        let andante = andante(upstream.port(), "breaker = \"off\"");
        for _ in 0..4 {
            for answer in [by_http1(&andante, &upstream, ""), by_http2(&andante, &upstream)] {
                let case = format!("length: {with_length}, {answer:?}");
                assert_eq!((answer.status(), answer.text().as_str()), (413, TOO_BIG), "{case}");
            }
        }
    }
}

fn reset(frames: Server<'_>, stream: u32, reason: Reason) {
    frames.send(kind::RST_STREAM, 0, stream, &u32::from(reason).to_be_bytes());
}

#[test]
fn answer_before_a_reset_without_error_reaches_the_worker() {
    reaches_the_worker(|frames, stream| reset(frames, stream, Reason::NO_ERROR));
}

#[test]
fn whole_answer_before_a_reset_with_an_error_reaches_the_worker() {
    for reason in [Reason::CANCEL, Reason::STREAM_CLOSED, Reason::INTERNAL_ERROR] {
        reaches_the_worker(move |frames, stream| reset(frames, stream, reason));
    }
}

#[test]
fn answer_before_a_goaway_and_the_end_of_the_connection_reaches_the_worker() {
    reaches_the_worker(|frames, stream| {
        reset(frames, stream, Reason::NO_ERROR);
        frames.go_away(stream, Reason::NO_ERROR);
        while frames.next().is_some() {}
    });
}

/// The rest of the upload is unread, so the system resets the connection.
#[test]
fn answer_before_a_goaway_and_a_reset_of_the_connection_reaches_the_worker() {
    let upstream = framed(&[], move |_, mut frames| {
        let Some(stream) = request(&mut frames) else { return };
        frames.next_of(kind::DATA);
        answer(&mut frames, stream, true);
        frames.go_away(stream, Reason::NO_ERROR);
    });
    let andante = andante(upstream.port(), "breaker = \"off\"");
    for _ in 0..12 {
        let answer = by_http1(&andante, &upstream, "");
        assert_eq!((answer.status(), answer.text().as_str()), (413, TOO_BIG), "{answer:?}");
    }
}

#[test]
fn answer_to_a_large_body_with_an_idempotency_key_reaches_the_worker() {
    let upstream = refusing(true, |frames, stream| reset(frames, stream, Reason::NO_ERROR));
    let andante = andante(upstream.port(), "breaker = \"off\"");
    for key in ["a", "b", "a"] {
        let answer = by_http1(&andante, &upstream, &format!("Idempotency-Key: {key}\r\n"));
        assert_eq!((answer.status(), answer.text().as_str()), (413, TOO_BIG), "{key} {answer:?}");
    }
}

/// Begins an upload to `authority`, and reads its answer to the end. Returns the connection and the answer's content.
fn answered_early(andante: &Interceptor, authority: &str) -> (Frames<TcpStream>, String) {
    let mut frames = super::streams::frames(&andante.andante);
    let fields = [(":method", "POST"), (":scheme", "http"), (":authority", authority), (":path", "/")];
    frames.headers(1, &fields, false);
    frames.data(1, &[b'x'; PIECE_BYTES], false);
    let mut content = Vec::new();
    loop {
        let frame = frames.next_on(1).unwrap();
        if frame.kind == kind::DATA {
            content.extend_from_slice(&frame.payload);
        }
        if frame.ends() {
            return (frames, String::from_utf8(content).unwrap());
        }
    }
}

/// A reset right behind the answer makes curl 7.88 lose it, and httpx wait for its timeout.
#[test]
fn rest_of_an_upload_is_read_after_its_answer() {
    let upstream = Upstream2::serving(|exchange| async move { exchange.answer(413, &[], TOO_BIG) });
    let andante = andante(upstream.address().port(), "breaker = \"off\"");
    for (authority, expected) in [(upstream.address().to_string(), TOO_BIG), ("127.0.0.1:1".to_owned(), "502")] {
        let (mut frames, answer) = answered_early(&andante, &authority);
        assert!(answer.contains(expected), "{answer}");
        let (mut sent, mut window) = (PIECE_BYTES, STREAM_WINDOW_BYTES - PIECE_BYTES);
        while sent < UPLOAD_BYTES {
            while window >= PIECE_BYTES {
                frames.data(1, &[b'x'; PIECE_BYTES], false);
                (sent, window) = (sent + PIECE_BYTES, window - PIECE_BYTES);
            }
            let frame = frames.next().unwrap();
            assert_ne!(frame.kind, kind::RST_STREAM, "{authority}: reset after {sent} bytes");
            if (frame.kind, frame.stream) == (kind::WINDOW_UPDATE, 1) {
                window += u32::from_be_bytes(frame.payload.try_into().unwrap()) as usize;
            }
        }
        frames.data(1, b"", true);
    }
}

#[test]
fn upload_that_falls_silent_after_its_answer_is_reset_without_error() {
    let upstream = Upstream2::serving(|exchange| async move { exchange.answer(413, &[], TOO_BIG) });
    let andante = andante(upstream.address().port(), "breaker = \"off\"");
    let clock = Clock::start();
    let begun = clock.now();
    let (mut frames, _) = answered_early(&andante, &upstream.address().to_string());
    let reset = frames.next_on(1).unwrap();
    assert_eq!((reset.kind, reset.reason()), (kind::RST_STREAM, Reason::NO_ERROR));
    let took = clock.now().since(begun);
    assert!(took >= Duration::from_secs(2), "{took:?}");
}
