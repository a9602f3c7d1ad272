//! Events, chunks, frames: each is passed on as it comes.
//!
//! An upstream writes the next only after the worker has had the one before: an event that is held back is never seen,
//! however loaded the machine is.

use std::sync::{
    Arc,
    mpsc::{Receiver, Sender, channel},
};

use parking_lot::Mutex;

use crate::support::{
    Andante, Client, Connection, PATIENCE, Upstream,
    h2::{Client2, Exchange, Upstream2, kind},
    tls::{Interceptor, Server, TRUSTED},
};

const EVENTS: usize = 200;

fn event(number: usize) -> String {
    format!("data: {number:04}\n\n")
}

/// Channel that tells an upstream that an event has arrived.
fn receipts() -> (Sender<()>, Mutex<Receiver<()>>) {
    let (got, receipts) = channel();
    (got, Mutex::new(receipts))
}

/// Sends an event, waits until it has arrived, sends the next.
fn events(mut connection: Connection, receipts: &Mutex<Receiver<()>>) {
    connection.request();
    connection.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
    for number in 0..EVENTS {
        let event = event(number);
        connection.send(format!("{:x}\r\n{event}\r\n", event.len()));
        if receipts.lock().recv_timeout(PATIENCE).is_err() {
            return;
        }
    }
    connection.send("0\r\n\r\n");
}

fn read(client: &mut Client, got: &Sender<()>) {
    client.until("\r\n\r\n");
    for number in 0..EVENTS {
        let event = event(number);
        let chunk = format!("{:X}\r\n{event}\r\n", event.len());
        assert_eq!(String::from_utf8(client.bytes(chunk.len())).unwrap().to_uppercase(), chunk.to_uppercase());
        got.send(()).unwrap();
    }
    assert_eq!(client.bytes(5), b"0\r\n\r\n");
}

#[test]
fn each_event_passes_before_the_next_is_sent() {
    let (got, receipts) = receipts();
    let upstream = Upstream::scripted(move |connection| events(connection, &receipts));
    let andante = Andante::serve(&[]);
    let mut client = Client::connect(andante.proxy());
    client.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.url("/"), upstream.address()));
    read(&mut client, &got);
}

#[test]
fn each_event_passes_interception_before_the_next_is_sent() {
    let (got, receipts) = receipts();
    let tls = Server::new(&TRUSTED.leaf(&["127.0.0.1"]), &["http/1.1"]);
    let upstream = Upstream::secure(tls, move |connection| events(connection, &receipts));
    let target = upstream.address().to_string();
    let andante = Interceptor::serve(&["--intercept", "127.0.0.1"]);
    let mut client = andante.worker(&target);
    client.send(format!("GET / HTTP/1.1\r\nHost: {target}\r\n\r\n"));
    read(&mut client, &got);
}

#[test]
fn each_event_passes_http2_on_both_sides_before_the_next_is_sent() {
    let (got, receipts) = tokio::sync::mpsc::unbounded_channel();
    let receipts = Arc::new(tokio::sync::Mutex::new(receipts));
    let upstream = Upstream2::serving(move |exchange| {
        let receipts = receipts.clone();
        async move {
            let mut sending = exchange.start(200, &[("content-type", "text/event-stream")], false).unwrap();
            for number in 0..EVENTS {
                Exchange::push(&mut sending, event(number), false).await.unwrap();
                receipts.lock().await.recv().await.unwrap();
            }
            let _ = sending.send_data("".into(), true);
        }
    });
    let target = upstream.address().to_string();
    let andante = Interceptor::serve(&["--intercept", "127.0.0.1"]);
    let mut answer = Client2::inside(&andante, &target).get(&format!("https://{target}/")).head();
    for number in 0..EVENTS {
        assert_eq!(answer.next().unwrap().unwrap(), event(number));
        got.send(()).unwrap();
    }
    assert!(answer.next().is_none_or(|end| end.unwrap().is_empty()));
}

#[test]
fn each_piece_of_an_upload_passes_before_the_next_is_sent() {
    let (arrived, arrivals) = channel();
    let arrived = Mutex::new(arrived);
    let upstream = Upstream::scripted(move |mut connection| {
        connection.head();
        for number in 0..EVENTS {
            let event = event(number);
            let chunk = format!("{:X}\r\n{event}\r\n", event.len());
            assert_eq!(
                String::from_utf8(connection.bytes(chunk.len()).unwrap()).unwrap().to_uppercase(),
                chunk.to_uppercase()
            );
            arrived.lock().send(()).unwrap();
        }
        let _ = connection.bytes(5);
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    });
    let andante = Andante::serve(&[]);
    let mut client = Client2::connect(andante.proxy());
    let mut asked = client.begin(http::Request::post(upstream.url("/")));
    for number in 0..EVENTS {
        asked.push(event(number), false);
        arrivals.recv_timeout(PATIENCE).expect("the piece to arrive");
    }
    asked.push("", true);
    assert_eq!(asked.answer().status(), 200);
}

#[test]
fn the_head_of_an_answer_does_not_wait_for_its_body() {
    let (go, held) = receipts();
    let upstream = Upstream::scripted(move |mut connection| {
        connection.request();
        connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        let _ = held.lock().recv_timeout(PATIENCE);
        connection.send("2\r\nok\r\n0\r\n\r\n");
    });
    let andante = Andante::serve(&[]);
    let mut frames = crate::http2::streams::frames(&andante);
    let host = upstream.address().to_string();
    frames.headers(1, &[(":method", "GET"), (":scheme", "http"), (":authority", &host), (":path", "/")], true);
    let head = frames.next_of(kind::HEADERS).unwrap();
    assert_eq!((head.status(), head.ends()), (200, false));
    go.send(()).unwrap();
    assert_eq!(frames.next_of(kind::DATA).unwrap().payload, b"ok");
}
