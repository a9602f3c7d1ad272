//! Bodies stream at fixed memory, no faster than the slower side, and not before a request's turn has come.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use super::{memory, quiet, waiting};
use crate::support::{Andante, Client, PATIENCE, Upstream, eventually};

const MIB: usize = 1 << 20;
/// Possible content of the sockets on both sides of andante. The system decides it, and it is not andante's memory.
const IN_SOCKETS: usize = 40 * MIB;

fn connect(andante: &Andante) -> TcpStream {
    let client = TcpStream::connect(andante.proxy()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.set_write_timeout(Some(PATIENCE)).unwrap();
    client
}

/// Reads `count` bytes and forgets them.
fn swallow(mut from: impl Read, mut count: usize) {
    let mut piece = vec![0; 256 * 1024];
    while count > 0 {
        let room = piece.len().min(count);
        count -= from.read(&mut piece[..room]).ok().filter(|n| *n > 0).expect("more of the body");
    }
}

/// Reads a head, and no byte more.
fn head(mut from: impl Read) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        from.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// Counts the bytes that can be written until no byte has been taken for a while.
fn pour(mut into: impl Write, count: &AtomicUsize, at_most: usize) {
    let piece = vec![b'x'; 64 * 1024];
    while count.load(Ordering::Acquire) < at_most {
        match into.write(&piece) {
            Ok(n) if n > 0 => count.fetch_add(n, Ordering::AcqRel),
            _ => return,
        };
    }
}

/// Waits until `count` stays as it is.
fn settled(count: &AtomicUsize) -> usize {
    let mut last = (usize::MAX, 0);
    eventually("the flow to stop", || {
        let now = count.load(Ordering::Acquire);
        last = if now == last.0 { (now, last.1 + 1) } else { (now, 0) };
        (last.1 > 60 && now > 0).then_some(now)
    })
}

#[test]
fn large_bodies_take_no_more_memory_than_small_ones() {
    const SIZE: usize = 300 * MIB;
    let upstream = Upstream::scripted(|mut connection| {
        if connection.head().is_some_and(|request| request.line().starts_with("POST")) {
            for _ in 0..SIZE / MIB {
                connection.bytes(MIB).expect("more of the body");
            }
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        } else {
            connection.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\nConnection: close\r\n\r\n"));
            let piece = vec![b'x'; MIB];
            (0..SIZE / MIB).for_each(|_| connection.send(&piece));
        }
    });
    let (host, andante) = (upstream.address(), Andante::serve(&[]));
    andante.status();
    let before = memory(&andante, "VmHWM:");

    let mut client = connect(&andante);
    write!(client, "POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nContent-Length: {SIZE}\r\n\r\n").unwrap();
    let piece = vec![b'x'; MIB];
    (0..SIZE / MIB).for_each(|_| client.write_all(&piece).unwrap());
    assert!(head(&client).starts_with("HTTP/1.1 200"));

    write!(client, "GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    let answer = head(&client);
    assert!(answer.to_ascii_lowercase().contains(&format!("content-length: {SIZE}\r\n")), "{answer}");
    swallow(&client, SIZE);
    drop(client);
    andante.wait_for(quiet);
    let grown = memory(&andante, "VmHWM:").saturating_sub(before);
    assert!(grown < 20 << 20, "it took {grown} bytes more");
}

#[test]
fn an_upstream_is_read_no_faster_than_the_client_reads() {
    const SIZE: usize = 128 * MIB;
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = sent.clone();
    let upstream = Upstream::scripted(move |mut connection| {
        connection.request();
        connection.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\nConnection: close\r\n\r\n"));
        let piece = vec![b'x'; 64 * 1024];
        while counted.load(Ordering::Acquire) < SIZE && connection.sent(&piece) {
            counted.fetch_add(piece.len(), Ordering::AcqRel);
        }
    });
    let (host, andante) = (upstream.address(), Andante::serve(&[]));
    let before = memory(&andante, "VmRSS:");
    let mut client = connect(&andante);
    write!(client, "GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    head(&client);
    let stuck = settled(&sent);
    assert!(stuck < IN_SOCKETS, "{stuck} bytes went to a client that reads none");
    let grown = memory(&andante, "VmRSS:").saturating_sub(before);
    assert!(grown < 10 << 20, "it took {grown} bytes more");
    swallow(&client, SIZE);
    drop(client);
    andante.wait_for(quiet);
}

#[test]
fn a_client_is_read_no_faster_than_the_upstream_reads() {
    const SIZE: usize = 128 * MIB;
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = parking_lot::Mutex::new(held);
    let upstream = Upstream::scripted(move |mut connection| {
        connection.head();
        let _ = held.lock().recv_timeout(PATIENCE);
        for _ in 0..SIZE / MIB {
            connection.bytes(MIB).expect("more of the body");
        }
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        let _ = connection.rest();
    });
    let (host, andante) = (upstream.address(), Andante::serve(&[]));
    let mut client = connect(&andante);
    write!(client, "POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nContent-Length: {SIZE}\r\n\r\n").unwrap();
    let (sent, writes) = (Arc::new(AtomicUsize::new(0)), client.try_clone().unwrap());
    let counted = sent.clone();
    let writer = thread::spawn(move || pour(writes, &counted, SIZE));
    let stuck = settled(&sent);
    assert!(stuck < IN_SOCKETS, "{stuck} bytes were taken for an upstream that reads none");
    release.send(()).unwrap();
    writer.join().unwrap();
    assert!(head(&client).starts_with("HTTP/1.1 200"));
    drop(client);
    andante.wait_for(quiet);
}

/// An upstream that takes one request in two seconds, and has had one.
fn after_a_first() -> (Upstream, Andante) {
    let upstream = Upstream::ok();
    let andante = Andante::serve(&["--limit", &format!("{}=1/2s", upstream.address())]);
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/first")).status(), 200);
    (upstream, andante)
}

#[test]
fn no_client_is_asked_for_its_body_before_its_slot() {
    let (upstream, andante) = after_a_first();
    let (host, mut client) = (upstream.address(), connect(&andante));
    let fields = "Content-Length: 5\r\nExpect: 100-continue";
    write!(client, "POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n\r\n").unwrap();
    andante.wait_for(|status| waiting(status) == 1);
    client.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let early = client.read(&mut [0; 64]);
    assert!(early.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "{early:?}");
    assert_eq!((waiting(&andante.status()), upstream.requests().len()), (1, 1));

    client.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(head(&client), "HTTP/1.1 100 Continue\r\n\r\n");
    client.write_all(b"hello").unwrap();
    assert!(head(&client).starts_with("HTTP/1.1 200"));
    assert_eq!(upstream.requests()[1].text(), "hello");
}

#[test]
fn a_body_whose_turn_has_not_come_stays_where_it_is() {
    const SIZE: usize = 24 * MIB;
    let (upstream, andante) = after_a_first();
    let before = memory(&andante, "VmRSS:");
    let (host, mut client) = (upstream.address(), connect(&andante));
    write!(client, "POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nContent-Length: {SIZE}\r\n\r\n").unwrap();
    let (sent, writes) = (Arc::new(AtomicUsize::new(0)), client.try_clone().unwrap());
    let counted = sent.clone();
    let writer = thread::spawn(move || pour(writes, &counted, SIZE));
    let stuck = settled(&sent);
    assert_eq!((waiting(&andante.status()), upstream.requests().len()), (1, 1));
    assert!(stuck < IN_SOCKETS / 2, "{stuck} bytes were taken from a request that waits");
    let grown = memory(&andante, "VmRSS:").saturating_sub(before);
    assert!(grown < 4 << 20, "it took {grown} bytes more");

    assert!(head(&client).starts_with("HTTP/1.1 200"));
    writer.join().unwrap();
    assert_eq!(upstream.requests()[1].body.len(), SIZE);
}
