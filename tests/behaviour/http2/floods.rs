//! What costs a client little, and could cost a server much. A connection may die of it; others must not notice.

use std::net::TcpStream;

use super::streams::frames;
use crate::support::{
    Andante, Client, Upstream,
    h2::{Client2, Frames, block, kind},
};

const MANY: u32 = 20_000;

/// Lets `flood` send for as long as the connection takes it; then asks whether andante serves others as before.
fn survives(what: &str, flood: impl FnOnce(&mut Frames<TcpStream>, &str)) {
    let (andante, upstream) = (Andante::serve(&["--threads", "1"]), Upstream::ok());
    let mut others = Client2::connect(andante.proxy());
    assert_eq!(others.get(&upstream.url("/")).answer().status(), 200, "{what}");
    let mut frames = frames(&andante);
    flood(&mut frames, &upstream.address().to_string());
    assert_eq!(others.get(&upstream.url("/")).answer().status(), 200, "{what}: another connection");
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/")).status(), 200, "{what}: a new connection");
    let memory = crate::lifecycle::memory(&andante, "VmHWM:");
    assert!(memory < 100 << 20, "{what}: {memory} bytes");
    drop(frames);
    andante.wait_for(|status| status["connections"]["client"] == 1 && status["lanes"][0]["in_flight"] == 0);
}

#[test]
fn a_client_that_asks_and_cancels_without_end_is_stopped() {
    survives("rapid reset", |frames, host| {
        let block = block(&[(":method", "GET"), (":scheme", "http"), (":authority", host), (":path", "/")]);
        for stream in 0..MANY {
            let sent = frames.try_send(kind::HEADERS, 5, 2 * stream + 1, &block);
            if sent.and_then(|()| frames.try_send(kind::RST_STREAM, 0, 2 * stream + 1, &[0, 0, 0, 8])).is_err() {
                break;
            }
        }
        let said = frames.next_of(kind::GOAWAY);
        assert!(said.is_none_or(|said| said.reason() == h2::Reason::ENHANCE_YOUR_CALM));
    });
}

#[test]
fn a_head_without_end_is_stopped() {
    survives("continuations", |frames, host| {
        let fields = [(":method", "GET"), (":scheme", "http"), (":authority", host), (":path", "/")];
        frames.send(kind::HEADERS, 0, 1, &block(&fields));
        let more = block(&[("x", &"y".repeat(1000))]);
        let mut sent = 0;
        while sent < MANY && frames.try_send(kind::CONTINUATION, 0, 1, &more).is_ok() {
            sent += 1;
        }
        assert!(sent < MANY, "{sent} pieces were taken");
    });
}

#[test]
fn a_body_of_empty_pieces_is_stopped_or_costs_nothing() {
    survives("empty DATA", |frames, host| {
        let fields = [(":method", "POST"), (":scheme", "http"), (":authority", host), (":path", "/")];
        frames.headers(1, &fields, false);
        for _ in 0..MANY {
            if frames.try_send(kind::DATA, 0, 1, &[]).is_err() {
                break;
            }
        }
    });
}

#[test]
fn pings_and_settings_without_end_are_survived() {
    survives("pings and settings", |frames, _| {
        for _ in 0..MANY / 10 {
            let pinged = frames.try_send(kind::PING, 0, 0, &[0; 8]);
            if pinged.and_then(|()| frames.try_send(kind::SETTINGS, 0, 0, &[])).is_err() {
                break;
            }
        }
    });
}

#[test]
fn frames_of_unknown_types_are_ignored() {
    let (andante, upstream) = (Andante::serve(&[]), Upstream::ok());
    let mut frames = frames(&andante);
    let host = upstream.address().to_string();
    frames.send(0x42, 0xff, 0, b"?");
    frames.headers(1, &[(":method", "GET"), (":scheme", "http"), (":authority", &host), (":path", "/")], true);
    frames.send(0x42, 0xff, 1, b"?");
    assert_eq!(frames.next_on(1).unwrap().status(), 200);
}
