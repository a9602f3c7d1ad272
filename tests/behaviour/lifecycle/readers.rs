//! R57, on the way back: a client that stops reading holds nothing for ever; one that reads slowly gets all of it.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use super::{pass, quiet};
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
fn r57_a_client_that_stops_reading_is_cut_off() {
    let (upstream, andante, mut client) = flood("[timeouts]\nidle = \"500ms\"\n");
    client.read_exact(&mut [0; 64]).unwrap();
    andante.wait_for(quiet);
    eventually("the upstream's connection to end", || (upstream.ended() == 1).then_some(()));
}

#[test]
fn r57_a_client_that_reads_slowly_but_steadily_gets_all_of_it() {
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
