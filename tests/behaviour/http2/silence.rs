//! Who goes silent on a shared connection is ended alone: R57.

use std::sync::mpsc;

use parking_lot::Mutex;

use crate::support::{Andante, PATIENCE, Upstream, eventually, h2::Client2};

#[test]
fn r57_an_answer_that_stops_coming_ends_its_stream_alone() {
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
fn r57_a_worker_that_does_not_read_an_answer_is_cut_off() {
    let upstream =
        Upstream::always(format!("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n{}", "x".repeat(1_000_000)));
    let andante = Andante::with_config("[timeouts]\nidle = \"300ms\"\n");
    let mut client = Client2::connect(andante.proxy());
    let unread = client.get(&upstream.url("/")).head();
    andante.wait_for(|status| status["connections"]["client"] == 0);
    eventually("the upstream's connection to end", || (upstream.ended() == 1).then_some(()));
    drop(unread);
}
