//! Places in flight beside a client that holds its own for long.

use std::{
    net::{Ipv4Addr, SocketAddr},
    os::fd::OwnedFd,
    time::Duration,
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, getsockname, listen, socket, socket_with};

use crate::support::{Andante, Client, Upstream};

const VICTIM: u8 = 2;
const NEIGHBOUR: u8 = 3;

/// An upstream whose answers for `/large` do not fit into any socket's buffer, and an andante with four places in
/// flight for all of its host's ports.
fn four_places() -> (Upstream, Andante) {
    let upstream = Upstream::answering(|request| {
        let length = if request.target() == "/large" { 32 << 20 } else { 2 };
        if request.target() == "/slow" {
            crate::lifecycle::pass(Duration::from_millis(100));
        }
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{}", "x".repeat(length))
    });
    let andante = Andante::with_config("identity = \"address\"\n[[rule]]\nhost = \"127.0.0.1\"\nin-flight = 4\n");
    (upstream, andante)
}

fn send(andante: &Andante, source: u8, request: &str) -> Client {
    let mut client = Client::connect_from(source, andante.proxy());
    client.send(request);
    client
}

fn get(address: SocketAddr, path: &str) -> String {
    format!("GET http://{address}{path} HTTP/1.1\r\nHost: {address}\r\nPrefer: wait=10\r\n\r\n")
}

/// A port whose queue of connections is full, so that no SYN is answered, and the sockets that keep it so.
fn silent_port() -> (SocketAddr, Vec<OwnedFd>) {
    let listener = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&listener, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    listen(&listener, 0).unwrap();
    let address: SocketAddr = getsockname(&listener).unwrap().try_into().unwrap();
    let mut sockets = vec![listener];
    for _ in 0..4 {
        let filler = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
        let _ = connect(&filler, &address);
        sockets.push(filler);
    }
    (address, sockets)
}

/// The victim was here, and then the neighbour sends eight of these requests, which do not end. Three get places, and the
/// victim goes on.
fn victim_goes_on_beside(request: impl Fn(SocketAddr) -> String) {
    let (upstream, andante) = four_places();
    let ask = || send(&andante, VICTIM, &get(upstream.address(), "/")).answer().status();
    assert_eq!(ask(), 200);
    let holding: Vec<_> = (0..8).map(|_| send(&andante, NEIGHBOUR, &request(upstream.address()))).collect();
    andante.wait_for(|status| {
        let lane = &status["lanes"][0];
        (lane["in_flight"].as_u64(), lane["waiting"].as_u64()) == (Some(3), Some(5))
    });
    for _ in 0..5 {
        assert_eq!(ask(), 200);
    }
    drop(holding);
}

#[test]
fn withheld_bodies_leave_a_place_to_another_client() {
    victim_goes_on_beside(|host| {
        format!("POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nContent-Length: 10\r\n\r\nx")
    });
}

#[test]
fn unread_answers_leave_a_place_to_another_client() {
    victim_goes_on_beside(|host| get(host, "/large"));
}

#[test]
fn port_that_answers_no_syn_leaves_a_place_to_another_client() {
    let (silent, _sockets) = silent_port();
    victim_goes_on_beside(|_| get(silent, "/"));
}

#[test]
fn lone_client_has_all_places() {
    let (upstream, andante) = four_places();
    let host = upstream.address();
    let withheld = format!("POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nContent-Length: 10\r\n\r\nx");
    let _holding: Vec<_> = (0..8).map(|_| send(&andante, NEIGHBOUR, &withheld)).collect();
    andante.wait_for(|status| {
        let lane = &status["lanes"][0];
        (lane["in_flight"].as_u64(), lane["waiting"].as_u64()) == (Some(4), Some(4))
    });
}
