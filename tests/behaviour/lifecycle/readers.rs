//! Slow readers: a client that stops reading holds nothing without end, and a slow client gets all of its answer.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::{memory, pass, quiet};
use crate::support::{Andante, PATIENCE, Upstream, eventually};

const SIZE: usize = 48 << 20;

/// An upstream that sends as fast as it can, and a client that has asked for it.
fn flood(config: &str) -> (Upstream, Andante, TcpStream) {
    let upstream = Upstream::scripted(|mut connection| {
        connection.request();
        connection.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n"));
        let piece = vec![b'x'; 1 << 20];
        let _ = (0..SIZE >> 20).all(|_| connection.sent(&piece));
        let _ = connection.rest();
    });
    let (andante, host) = (Andante::with_config(config), upstream.address());
    let mut client = TcpStream::connect(andante.proxy()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(client, "GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    (upstream, andante, client)
}

#[test]
fn a_client_that_stops_reading_is_cut_off() {
    let (upstream, andante, mut client) = flood("[timeouts]\nidle = \"500ms\"\n");
    client.read_exact(&mut [0; 64]).unwrap();
    andante.wait_for(quiet);
    eventually("the upstream's connection to end", || (upstream.ended() == 1).then_some(()));
}

#[test]
fn a_client_that_reads_slowly_but_steadily_gets_all_of_it() {
    let (_upstream, andante, mut client) = flood("[timeouts]\nidle = \"1s\"\n");
    let (mut piece, mut got) = (vec![0; 1 << 20], 0);
    while got < SIZE {
        client.read_exact(&mut piece).unwrap_or_else(|error| panic!("{error} after {got} bytes"));
        got += piece.len();
        pass(Duration::from_millis(80));
    }
    drop(client);
    andante.wait_for(quiet);
}

/// A client that has asked `proxy` for `http://host/`, has a tiny receive buffer, and never reads the answer.
fn unread(proxy: SocketAddr, host: SocketAddr) -> TcpStream {
    // CLOEXEC: a child process of another test must not hold the socket open.
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    sockopt::set_socket_recv_buffer_size(&socket, 2048).unwrap();
    rustix::net::connect(&socket, &proxy).unwrap();
    let mut client = TcpStream::from(socket);
    write!(client, "GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    client
}

#[test]
fn an_answer_that_nobody_reads_costs_little_memory() {
    const READERS: u64 = 100;
    let (upstream, andante, reader) = flood("");
    drop(reader);
    andante.wait_for(quiet);
    let mut clients = Vec::new();
    // The first readers pay for shared pages of the allocator, so only the later ones are measured.
    let mut with = |readers: u64| {
        clients.resize_with(readers as usize, || unread(andante.proxy(), upstream.address()));
        andante.wait_for(|status| status["lanes"][0]["in_flight"] == readers);
        // Until the last of them is full, so that nothing moves any more.
        pass(Duration::from_secs(3));
        memory(&andante, "VmRSS:")
    };
    let before = with(READERS);
    let each = with(2 * READERS).saturating_sub(before) / READERS;
    println!("{each} bytes each");
    assert!(each <= 128 << 10, "{each} bytes each");
    drop(clients);
    andante.wait_for(quiet);
}
