//! Unread answers.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use super::{MAX_MEMORY, withstands};
use crate::support::{
    Andante, Client, Upstream, alone,
    h2::{Frames, kind},
};

/// An upstream whose answers have a body of 7 MiB and may be stored, with the head of each answer in `head`.
fn large(head: &str) -> Upstream {
    let answer = format!("HTTP/1.1 200 OK\r\n{head}Content-Length: {}\r\n\r\n{}", 7 << 20, "x".repeat(7 << 20));
    Upstream::always(answer)
}

#[test]
fn stored_answers_that_workers_do_not_read_stay_below_the_bound() {
    let _alone = alone();
    let (upstream, beside) = (large("Cache-Control: max-age=600\r\n"), Upstream::ok());
    let rule = format!("[[rule]]\nhost = \"{}\"\ncache = \"64MiB\"\n", upstream.address());
    let andante = Andante::with_config(&format!("{MAX_MEMORY}{rule}"));
    withstands(&andante, &beside, || {
        let unread = (0..60).map(|number| {
            let url = upstream.url(&format!("/{number}"));
            assert_eq!(Client::get(andante.proxy(), &url).body.len(), 7 << 20);
            let mut stream = TcpStream::connect(andante.proxy()).unwrap();
            let request = format!("GET {url} HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.address());
            stream.write_all(request.as_bytes()).unwrap();
            stream
        });
        let _unread: Vec<_> = unread.collect();
    });
    // A worker that reads gets all of it, stored or not.
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/0")).body.len(), 7 << 20);
}

/// The part of each answer that [`stalling`] sends: more than andante reads for a worker that takes nothing.
const SENT_BYTES: usize = 192 * 1024;

/// An upstream whose answers have a body of 7 MiB and stall after [`SENT_BYTES`]. One thread serves all, so that an
/// attack by many connections does not take the machine from other tests.
fn stalling() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let answer =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", 7 << 20, "x".repeat(SENT_BYTES)).into_bytes();
    thread::spawn(move || {
        // Requested and sent so far, and stalled.
        let (mut open, mut stalled) = (Vec::<(TcpStream, usize)>::new(), Vec::new());
        loop {
            while let Ok((stream, _)) = listener.accept() {
                if stream.set_nonblocking(true).is_ok() {
                    open.push((stream, 0));
                }
            }
            for (mut stream, mut sent) in std::mem::take(&mut open) {
                if sent == 0 && stream.read(&mut [0; 4096]).is_err() {
                    open.push((stream, sent));
                    continue;
                }
                while let Ok(written @ 1..) = stream.write(&answer[sent..]) {
                    sent += written;
                }
                if sent == answer.len() { stalled.push(stream) } else { open.push((stream, sent.max(1))) }
            }
            thread::park_timeout(Duration::from_millis(10));
        }
    });
    address
}

/// An HTTP/2 connection with `count` GETs, which lets andante send answers of any length and reads none of them.
fn unread(andante: &Andante, authority: &str, count: u32) -> Option<TcpStream> {
    with_windows(1 << 30, andante, authority, count)
}

/// An HTTP/2 connection with `count` GETs, whose answers may have `window` bytes. It reads none of them.
pub(super) fn with_windows(window: u32, andante: &Andante, authority: &str, count: u32) -> Option<TcpStream> {
    let stream = TcpStream::connect(andante.proxy()).ok()?;
    let mut frames = Frames::client(stream.try_clone().ok()?, &[(4, window)]);
    frames.try_send(kind::WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes()).ok()?;
    let fields = [(":method", "GET"), (":scheme", "http"), (":authority", authority), (":path", "/")];
    for number in 0..count {
        // About 300 a second: the attack is on memory, and not on the processor.
        if number % 10 == 0 {
            thread::park_timeout(Duration::from_millis(33));
        }
        frames.headers(2 * number + 1, &fields, true);
    }
    Some(stream)
}

/// Whether the log says that an answer was cut short for lack of memory.
fn says_so(andante: &Andante) -> bool {
    andante.stderr().contains("another request or answer") && andante.stderr().contains("max-memory")
}

#[test]
fn answers_that_http2_workers_do_not_read_stay_below_the_bound() {
    let _alone = alone();
    let (upstream, beside) = (stalling().to_string(), Upstream::ok());
    let andante = Andante::with_config(MAX_MEMORY);
    withstands(&andante, &beside, || {
        let _unread: Vec<_> = (0..16).map(|_| unread(&andante, &upstream, 100)).collect();
        thread::park_timeout(Duration::from_secs(2));
    });
    assert!(says_so(&andante), "{}", andante.stderr());
    let whole = large("");
    assert_eq!(Client::get(andante.proxy(), &whole.url("/")).body.len(), 7 << 20, "room again");
}

#[test]
fn answers_that_http1_workers_do_not_read_stay_below_the_bound() {
    let _alone = alone();
    let (upstream, beside) = (stalling(), Upstream::ok());
    let andante = Andante::with_config(MAX_MEMORY);
    let request = format!("GET http://{upstream}/ HTTP/1.1\r\nHost: {upstream}\r\n\r\n");
    withstands(&andante, &beside, || {
        let ask = |_| {
            // Below full speed: the test is about memory, and not about the speed of accepting.
            thread::park_timeout(Duration::from_millis(2));
            let mut stream = TcpStream::connect(andante.proxy()).ok()?;
            stream.write_all(request.as_bytes()).ok()?;
            Some(stream)
        };
        let _unread: Vec<_> = (0..2000).map(ask).collect();
        thread::park_timeout(Duration::from_secs(2));
    });
    let whole = large("");
    assert_eq!(Client::get(andante.proxy(), &whole.url("/")).body.len(), 7 << 20, "room again");
}

#[test]
fn refusals_that_a_client_has_no_memory_for_are_passed_on_at_once() {
    let refusal = format!(
        "HTTP/1.1 429 Wait\r\nRetry-After: 600\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n\r\n{}",
        " ".repeat(60_000)
    );
    let upstream = Upstream::scripted(move |mut connection| {
        while connection.request().is_some() {
            // All of them are in flight by then.
            thread::park_timeout(Duration::from_secs(3));
            connection.send(&refusal);
        }
    });
    let rule = format!("[[rule]]\nhost = \"{}\"\nlimits = [\"100000/s\"]\nmax-wait = \"1d\"\n", upstream.address());
    let andante = Andante::with_config(&format!("max-memory = \"64MiB\"\n{rule}"));
    let authority = upstream.address().to_string();
    let connections: Vec<_> = (0..4).filter_map(|_| unread(&andante, &authority, 100)).collect();
    assert_eq!(connections.len(), 4);
    let answered: usize = connections.into_iter().map(answers).sum();
    assert!((1..400).contains(&answered), "{answered} of 400 are passed on, the others wait");
}

/// Counts the answers on an HTTP/2 connection until none has come for some seconds.
fn answers(stream: TcpStream) -> usize {
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut frames = Frames::over(stream);
    std::iter::from_fn(|| frames.read().ok()).filter(|frame| frame.kind == kind::HEADERS).count()
}
