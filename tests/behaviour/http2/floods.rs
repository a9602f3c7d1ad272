//! Traffic that costs a client little, and could cost a server much. Its connection may end; others must not notice.

use std::{net::TcpStream, thread, time::Duration};

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

/// A stream that its own server has to reset: a window beyond 2^31 - 1 (RFC 9113 §6.9.1).
const OVERFLOW: (u8, [u8; 4]) = (kind::WINDOW_UPDATE, [0x7f, 0xff, 0xff, 0xff]);
const CANCEL: (u8, [u8; 4]) = (kind::RST_STREAM, [0, 0, 0, 8]);

#[test]
fn streams_that_end_while_a_connection_is_made_make_no_more_connections_than_slots() {
    for (end, payload) in [OVERFLOW, CANCEL] {
        let upstream = Upstream::ok();
        let rule = format!("[[rule]]\nhost = \"{}\"\nlimits = [\"10/h\"]\n", upstream.address());
        let andante = Andante::with_config_and(&rule, &["--threads", "1"]);
        let mut frames = frames(&andante);
        let host = upstream.address().to_string();
        let block = block(&[(":method", "GET"), (":scheme", "http"), (":authority", &host), (":path", "/")]);
        for stream in 0..200 {
            let sent = frames.try_send(kind::HEADERS, 5, 2 * stream + 1, &block);
            if sent.and_then(|()| frames.try_send(end, 0, 2 * stream + 1, &payload)).is_err() {
                break;
            }
            thread::park_timeout(Duration::from_millis(1));
        }
        andante.wait_for(|status| status["lanes"][0]["in_flight"] == 0);
        // andante may have opened another connection ahead of a slot.
        assert!(upstream.connections() <= 11, "{} connections", upstream.connections());
    }
}

#[test]
fn workers_that_leave_while_a_connection_is_made_make_no_more_connections_than_slots() {
    let upstream = Upstream::ok();
    let rule = format!("[[rule]]\nhost = \"{}\"\nlimits = [\"10/h\"]\n", upstream.address());
    let andante = Andante::with_config_and(&rule, &["--threads", "1"]);
    for head in ["GET http://{}/ HTTP/1.1", "CONNECT {} HTTP/1.1"] {
        for _ in 0..100 {
            let mut client = Client::connect(andante.proxy());
            let host = upstream.address().to_string();
            client.send(format!("{}\r\nHost: {host}\r\n\r\n", head.replace("{}", &host)));
            client.reset();
        }
    }
    andante.wait_for(|status| status["connections"]["client"] == 0);
    assert!(upstream.connections() <= 11, "{} connections", upstream.connections());
}
