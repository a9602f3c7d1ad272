//! Answers of hostile upstreams.

use std::{io::Write as _, net::TcpStream, thread, time::Duration};

use super::{MAX_MEMORY, answers::with_windows, withstands};
use crate::support::{
    Andante, Client, Upstream, alone,
    h2::{Exchange, Upstream2, block, kind},
    tls::{Interceptor, Server, TRUSTED},
};

/// Length of a head that is shorter than the longest that andante reads, 512 KiB.
const HEAD_BYTES: usize = 440 * 1024;
/// Length of each of its fields.
const FIELD_BYTES: usize = 8000;

/// Connections to andante, each of which asks for `url` once.
fn ask(andante: &Andante, url: &str, count: usize) -> Vec<TcpStream> {
    let authority = url.strip_prefix("http://").unwrap().trim_end_matches('/');
    let request = format!("GET {url} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
    let ask = |_| {
        // Below full speed: the attack is on memory, and not on the processor.
        thread::park_timeout(Duration::from_millis(3));
        let mut stream = TcpStream::connect(andante.proxy()).ok()?;
        stream.write_all(request.as_bytes()).ok()?;
        Some(stream)
    };
    (0..count).filter_map(ask).collect()
}

/// An upstream that takes one request on each connection, and sends the head of its answer without an end.
fn endless_heads() -> Upstream {
    /// SETTINGS_MAX_CONCURRENT_STREAMS
    const MAX_CONCURRENT_STREAMS: u16 = 3;
    Upstream::secure(Server::new(&TRUSTED.leaf(&["127.0.0.1"]), &["h2"]), |connection| {
        let Some(mut frames) = connection.frames(&[(MAX_CONCURRENT_STREAMS, 1)]) else { return };
        let Some(stream) = frames.next_of(kind::HEADERS).map(|head| head.stream) else { return };
        let value = "x".repeat(FIELD_BYTES);
        let piece = block(&[("x-long", &value), ("x-longer", &value)]);
        let mut sent = frames.try_send(kind::HEADERS, 0, stream, &block(&[(":status", "200")]));
        for _ in 0..HEAD_BYTES / piece.len() {
            sent = sent.and_then(|()| frames.try_send(kind::CONTINUATION, 0, stream, &piece));
        }
        while sent.is_ok() && frames.read().is_ok() {}
    })
}

#[test]
fn heads_that_http2_upstreams_do_not_end_stay_below_the_bound() {
    let _alone = alone();
    let (upstream, beside) = (endless_heads(), Upstream::ok());
    let rule = format!("[[rule]]\nhost = \"{}\"\nupstream = \"https\"\n", upstream.address());
    let interceptor = Interceptor::with_config(&format!("{MAX_MEMORY}{rule}"), &[]);
    let andante = &interceptor.andante;
    withstands(andante, &beside, || {
        let _waiting = ask(andante, &format!("http://{}/", upstream.address()), 800);
        thread::park_timeout(Duration::from_secs(2));
    });
    assert_eq!(Client::get(andante.proxy(), &beside.url("/")).status(), 200, "room again");
    assert!(upstream.connections() >= 50, "heads on {} connections", upstream.connections());
}

/// A stream's window has 512 KiB, and 1,600 of them would fill 800 MiB.
#[test]
fn windows_of_http2_upstreams_that_workers_do_not_read_stay_below_the_bound() {
    let _alone = alone();
    let settings = h2::server::Builder::new().max_concurrent_streams(60).clone();
    let upstream = Upstream2::with(settings, |exchange| async move {
        let Some(mut sending) = exchange.start(200, &[], false) else { return };
        while Exchange::push(&mut sending, "x".repeat(16_000), false).await.is_ok() {}
    });
    let (authority, beside) = (upstream.address().to_string(), Upstream::ok());
    let rule = format!("[[rule]]\nhost = \"{authority}\"\nupstream = \"https\"\n");
    let interceptor = Interceptor::with_config(&format!("{MAX_MEMORY}{rule}"), &[]);
    let andante = &interceptor.andante;
    withstands(andante, &beside, || {
        let _unread: Vec<_> = (0..16).map(|_| with_windows(0, andante, &authority, 100)).collect();
        thread::park_timeout(Duration::from_secs(3));
    });
    assert!(andante.stderr().contains("max-memory"), "{}", andante.stderr());
}
