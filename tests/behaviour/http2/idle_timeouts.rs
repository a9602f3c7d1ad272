//! Silent streams on a shared connection end alone, and a connection in use stays open.

use std::{sync::mpsc, time::Duration};

use parking_lot::Mutex;

use super::streams::frames;
use crate::{
    lifecycle::pass,
    support::{
        Andante, PATIENCE, Upstream, eventually,
        h2::{Client2, kind},
    },
};

#[test]
fn an_answer_that_stops_coming_ends_its_stream_alone() {
    let (answer, answered) = mpsc::channel::<()>();
    let answered = Mutex::new(answered);
    let upstream = Upstream::scripted(move |mut connection| {
        if connection.request().unwrap().target() == "/silent" {
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this");
        } else {
            let _ = answered.lock().recv_timeout(PATIENCE);
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
        let _ = connection.rest();
    });
    let andante = Andante::with_config("[timeouts]\nidle = \"300ms\"\n");
    let mut client = Client2::connect(andante.proxy());
    let slow = client.get(&upstream.url("/slow"));
    let mut silent = client.get(&upstream.url("/silent")).head();
    assert_eq!(silent.next().unwrap().unwrap(), "only this");
    let broken = silent.next().expect("not an end in order");
    assert!(broken.as_ref().is_err_and(|error| error.is_reset() && error.is_remote()), "{broken:?}");
    eventually("the upstream's connection to end", || (upstream.ended() == 1).then_some(()));
    answer.send(()).unwrap();
    assert_eq!(slow.answer().text(), "ok", "the others go on");
}

#[test]
fn a_worker_that_does_not_read_an_answer_is_cut_off() {
    let upstream =
        Upstream::always(format!("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n{}", "x".repeat(1_000_000)));
    let andante = Andante::with_config("[timeouts]\nidle = \"300ms\"\n");
    let mut client = Client2::connect(andante.proxy());
    let unread = client.get(&upstream.url("/")).head();
    andante.wait_for(|status| status["connections"]["client"] == 0);
    eventually("the upstream's connection to end", || (upstream.ended() == 1).then_some(()));
    drop(unread);
}

#[test]
fn a_connection_that_is_used_is_kept_however_short_its_requests() {
    let andante = Andante::with_config("[timeouts]\nhead = \"1s\"\n");
    let upstream = Upstream::ok();
    let mut client = Client2::connect(andante.proxy());
    // A request that begins and ends between two checks of the connection. The first check is at the connection's
    // beginning.
    pass(Duration::from_millis(300));
    assert_eq!(client.get(&upstream.url("/")).answer().status(), 200);
    pass(Duration::from_millis(2500));
    assert_eq!(client.get(&upstream.url("/")).answer().status(), 200);
}

#[test]
fn a_connection_without_a_next_request_is_told_before_it_is_closed() {
    let andante = Andante::with_config("[timeouts]\nkeep-alive = \"300ms\"\n");
    let upstream = Upstream::ok();
    let mut client = Client2::connect(andante.proxy());
    assert_eq!(client.get(&upstream.url("/")).answer().status(), 200);
    client.ended().expect("an end in order");
    let mut watched = frames(&andante);
    let host = upstream.address().to_string();
    watched.headers(1, &[(":method", "GET"), (":scheme", "http"), (":authority", &host), (":path", "/")], true);
    // This client does not answer the ping that comes along, and is closed all the same.
    let mut told = std::iter::from_fn(|| watched.read().ok()).filter(|frame| frame.kind == kind::GOAWAY);
    assert_eq!(told.next().expect("to be told").reason(), h2::Reason::NO_ERROR);
    told.for_each(drop);
    andante.wait_for(|status| status["connections"]["client"] == 0);
}
