//! Waiting requests, and their memory.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    thread,
    time::Duration,
};

use super::{MAX_MEMORY, withstands, withstands_beside};
use crate::support::{
    Andante, Client, Upstream, alone,
    h2::{Frames, block, kind},
};

/// An andante whose lane for the first upstream lets 100 requests a minute go one by one, and a second upstream without a limit.
fn full_lane() -> (Andante, Upstream, Upstream) {
    full_lane_with("")
}

fn full_lane_with(keys: &str) -> (Andante, Upstream, Upstream) {
    let (full, beside) = (Upstream::ok(), Upstream::ok());
    let rule = format!("[[rule]]\nhost = \"{}\"\nlimits = [\"100/min burst 1\"]\nmax-wait = \"1d\"\n", full.address());
    let andante = Andante::with_config(&format!("{MAX_MEMORY}{keys}{rule}"));
    assert_eq!(Client::get(andante.proxy(), &full.url("/")).status(), 200);
    (andante, full, beside)
}

/// An HTTP/2 connection with `count` POSTs whose heads have `head` bytes; their bodies have 10 KB.
fn post_many(andante: &Andante, upstream: &Upstream, count: u32, head: usize) -> Option<TcpStream> {
    let stream = TcpStream::connect(andante.proxy()).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut frames = Frames::client(stream.try_clone().unwrap(), &[]);
    let (filler, authority) = ("x".repeat(head), upstream.address().to_string());
    for number in 0..count {
        let id = 2 * number + 1;
        let fields = [(":method", "POST"), (":scheme", "http"), (":authority", &authority), (":path", "/")];
        let mut block = block(&fields);
        block.extend(self::block(&[("x-fill", &filler), ("content-length", "10000")]));
        let mut pieces = block.chunks(16_000).peekable();
        let mut kind = kind::HEADERS;
        while let Some(piece) = pieces.next() {
            let flags = if pieces.peek().is_none() { 4 } else { 0 };
            frames.try_send(kind, flags, id, piece).ok()?;
            kind = kind::CONTINUATION;
        }
        frames.try_send(kind::DATA, 1, id, &[b'y'; 10_000]).ok()?;
    }
    Some(stream)
}

#[test]
fn long_heads_and_bodies_of_waiting_http2_requests_stay_below_the_bound() {
    let _alone = alone();
    let (andante, full, beside) = full_lane();
    withstands(&andante, &beside, || {
        let _held: Vec<_> = (0..60).map(|_| post_many(&andante, &full, 100, 60_000)).collect();
        thread::park_timeout(Duration::from_millis(500));
    });
    andante.wait_for(|status| status["lanes"][0]["waiting"] == 0);
    let request = format!("GET {} HTTP/1.1\r\nHost: {}\r\n", beside.url("/"), beside.address());
    let long = "x".repeat(60_000);
    assert_eq!(Client::ask(andante.proxy(), format!("{request}X-Fill: {long}\r\n\r\n")).status(), 200, "room again");
}

#[test]
fn many_small_http2_requests_that_wait_stay_below_the_bound() {
    let _alone = alone();
    let (andante, full, beside) = full_lane();
    withstands(&andante, &beside, || {
        let _held: Vec<_> = (0..60).map(|_| post_many(&andante, &full, 900, 200)).collect();
        thread::park_timeout(Duration::from_millis(500));
    });
}

#[test]
fn long_heads_of_waiting_http1_requests_stay_below_the_bound() {
    let _alone = alone();
    let (andante, full, beside) = full_lane();
    let request =
        format!("GET {} HTTP/1.1\r\nHost: {}\r\nX-Fill: {}\r\n\r\n", full.url("/"), full.address(), "x".repeat(60_000));
    withstands(&andante, &beside, || {
        // Below full speed: the test is about memory, and not about the speed of accepting.
        let pace = || thread::park_timeout(Duration::from_millis(3));
        let held: Vec<_> = (0..2000)
            .map(|_| {
                pace();
                sent(&andante, request.as_bytes())
            })
            .collect();
        thread::park_timeout(Duration::from_millis(500));
        // The others are read once there is room for them.
        for answer in held.iter().filter_map(answer) {
            let is_refusal = answer.starts_with("http/1.1 503 ") && answer.contains("max-memory");
            assert!(answer.starts_with("http/1.1 200 ") || is_refusal, "{answer}");
        }
    });
}

/// A connection on which a request was sent, or the part of it that was taken.
fn sent(andante: &Andante, request: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(andante.proxy()).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let _ = stream.write_all(request);
    stream.set_nonblocking(true).unwrap();
    stream
}

/// The beginning of the answer, in small letters; `None` without an answer.
fn answer(mut stream: &TcpStream) -> Option<String> {
    let mut answer = [0; 4096];
    let read = stream.read(&mut answer).ok().filter(|read| *read > 0)?;
    Some(String::from_utf8_lossy(&answer[..read]).to_lowercase())
}

#[test]
fn heads_that_never_end_stay_below_the_bound() {
    let _alone = alone();
    // Beginnings of heads fill all that their client may have, down to its smallest requests.
    let (andante, full, beside) = full_lane_with("identity = \"address\"\n");
    let begun = format!("GET {} HTTP/1.1\r\nHost: {}\r\nX-Fill: ", full.url("/"), full.address());
    let head = begun + &"x".repeat(60_000);
    withstands_beside(2, &andante, &beside, || {
        let _held: Vec<_> = (0..3000).map(|_| send(&andante, head.as_bytes())).collect();
        thread::park_timeout(Duration::from_millis(500));
    });
}

/// An HTTP/2 connection with the beginning of a header block of about 50 KB.
fn begin_block(andante: &Andante, block: &[u8]) -> Option<TcpStream> {
    thread::park_timeout(Duration::from_millis(2));
    let stream = TcpStream::connect(andante.proxy()).ok()?;
    stream.set_write_timeout(Some(Duration::from_secs(5))).ok()?;
    let mut frames = Frames::client(stream.try_clone().ok()?, &[]);
    let mut kind = kind::HEADERS;
    for piece in block.chunks(16_000) {
        frames.try_send(kind, 0, 1, piece).ok()?;
        kind = kind::CONTINUATION;
    }
    Some(stream)
}

#[test]
fn http2_header_blocks_that_never_end_stay_below_the_bound() {
    let _alone = alone();
    let (andante, full, beside) = full_lane_with("identity = \"address\"\n");
    let authority = full.address().to_string();
    let fields = [(":method", "GET"), (":scheme", "http"), (":authority", authority.as_str()), (":path", "/")];
    let mut open = block(&fields);
    open.extend(block(&[("x-fill", &"x".repeat(50_000))]));
    withstands_beside(2, &andante, &beside, || {
        let held: Vec<_> = (0..3000).map(|_| begin_block(&andante, &open)).collect();
        thread::park_timeout(Duration::from_millis(500));
        let last = held.into_iter().flatten().last().expect("the last connection");
        last.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut refused = Frames::over(last);
        assert!(refused.next_of(kind::GOAWAY).is_some());
    });
}

fn send(andante: &Andante, bytes: &[u8]) -> Option<TcpStream> {
    // Below full speed: the test is about memory, and not about the speed of accepting.
    thread::park_timeout(Duration::from_millis(3));
    let mut stream = TcpStream::connect(andante.proxy()).ok()?;
    stream.set_nonblocking(true).ok()?;
    stream.write_all(bytes).ok()?;
    // A refusal is read, as a worker would.
    let _ = stream.read(&mut [0; 1024]);
    Some(stream)
}
