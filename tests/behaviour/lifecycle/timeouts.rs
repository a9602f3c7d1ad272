//! Time-outs: a peer that stops moving does not hold a connection without end, and a slow peer keeps its connection.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    thread,
    time::Duration,
};

use andante::clock::{Clock, Instant};

use super::{pass, quiet};
use crate::support::{Andante, Client, PATIENCE, Upstream};

#[test]
fn a_connection_that_sends_nothing_is_cut_off() {
    let andante = Andante::with_config("[timeouts]\nhead = \"200ms\"\n");
    Client::connect(andante.proxy()).closed();
    andante.wait_for(quiet);
}

#[test]
fn a_head_that_comes_byte_by_byte_is_cut_off() {
    let (upstream, andante) = (Upstream::ok(), Andante::with_config("[timeouts]\nhead = \"400ms\"\n"));
    let mut client = TcpStream::connect(andante.proxy()).unwrap();
    client.set_read_timeout(Some(Duration::from_millis(40))).unwrap();
    let head = format!("GET {} HTTP/1.1\r\nHost: {}\r\nX: {:500}", upstream.url("/"), upstream.address(), "");
    let mut sent = 0;
    let ended = head.bytes().any(|byte| {
        sent += 1;
        client.write_all(&[byte]).is_err() || !matches!(client.read(&mut [0; 64]), Err(error) if slow(&error))
    });
    assert!(ended, "all of {} bytes were taken", head.len());
    assert!(sent < 200, "{sent} bytes were taken");
    assert!(upstream.requests().is_empty());
    andante.wait_for(quiet);
}

fn slow(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

#[test]
fn a_connection_without_a_next_request_is_closed() {
    let (upstream, andante) = (Upstream::ok(), Andante::with_config("[timeouts]\nkeep-alive = \"200ms\"\n"));
    let mut client = Client::connect(andante.proxy());
    client.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.url("/"), upstream.address()));
    assert_eq!(client.answer().status(), 200);
    client.closed();
    andante.wait_for(quiet);
}

#[test]
fn an_answer_whose_body_stops_coming_is_cut_off() {
    let upstream = Upstream::scripted(|mut connection| {
        connection.request();
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this");
        let _ = connection.rest();
    });
    // `head` makes andante look more often than `idle` asks for: looking must not count as moving.
    let andante = Andante::with_config("[timeouts]\nidle = \"500ms\"\nhead = \"100ms\"\n");
    let mut client = Client::connect(andante.proxy());
    client.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.url("/"), upstream.address()));
    let clock = Clock::start();
    let got = String::from_utf8(client.rest()).unwrap();
    assert!(got.ends_with("\r\n\r\nonly this"), "{got}");
    let took = clock.now().since(Instant::START);
    assert!(took < PATIENCE / 2, "it took {took:?}");
    andante.wait_for(quiet);
    crate::support::eventually("the upstream's connection to end", || (upstream.ended() == 1).then_some(()));
}

#[test]
fn a_body_that_comes_slowly_but_steadily_comes_to_its_end() {
    let upstream = Upstream::scripted(|mut connection| {
        connection.request();
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n");
        for _ in 0..10 {
            pass(Duration::from_millis(120));
            connection.send("x");
        }
    });
    let andante = Andante::with_config("[timeouts]\nidle = \"900ms\"\n");
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/")).text(), "xxxxxxxxxx");
}

#[test]
fn an_answer_may_pause_while_the_request_still_comes() {
    let upstream = Upstream::scripted(|mut connection| {
        connection.head();
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n");
        connection.bytes(10).expect("the body");
        connection.send("done");
        let _ = connection.rest();
    });
    let andante = Andante::with_config("[timeouts]\nidle = \"900ms\"\n");
    let (mut client, host) = (Client::connect(andante.proxy()), upstream.address());
    client.send(format!("POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nContent-Length: 10\r\n\r\n"));
    for _ in 0..10 {
        client.send("x");
        pass(Duration::from_millis(120));
    }
    assert_eq!(client.answer().text(), "done");
}

#[test]
fn a_request_whose_body_stops_coming_is_answered_408() {
    let upstream = Upstream::scripted(|mut connection| {
        connection.head();
        let _ = connection.rest();
    });
    let andante = Andante::with_config("[timeouts]\nidle = \"300ms\"\n");
    let mut client = Client::connect(andante.proxy());
    let host = upstream.address();
    client.send(format!("POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nContent-Length: 10\r\n\r\nonly"));
    let answer = client.answer();
    assert_eq!((answer.status(), answer.field("connection").as_deref()), (408, Some("close")), "{answer:?}");
    client.closed();
    andante.wait_for(quiet);
    crate::support::eventually("the upstream's connection to end", || (upstream.ended() == 1).then_some(()));
}

#[test]
fn an_upstream_that_takes_but_never_answers_is_a_504() {
    let upstream = Upstream::scripted(|mut connection| {
        connection.request();
        let _ = connection.rest();
    });
    let andante = Andante::with_config("[timeouts]\nanswer = \"300ms\"\n");
    let answer = Client::get(andante.proxy(), &upstream.url("/"));
    assert_eq!(answer.status(), 504);
    assert_eq!(answer.field("proxy-status").as_deref(), Some("andante; error=http_response_timeout"));
    assert!(answer.text().contains("does not send the request again"), "{answer:?}");
    andante.wait_for(quiet);
    crate::support::eventually("the upstream's connection to end", || (upstream.ended() == 1).then_some(()));
}

#[test]
fn an_upstream_that_stops_taking_the_body_is_a_504() {
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let stopped = parking_lot::Mutex::new(stopped);
    let upstream = Upstream::scripted(move |mut connection| {
        connection.head();
        let _ = stopped.lock().recv_timeout(PATIENCE);
    });
    let andante = Andante::with_config("[timeouts]\nanswer = \"300ms\"\n");
    let client = TcpStream::connect(andante.proxy()).unwrap();
    client.set_write_timeout(Some(PATIENCE)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut writes, host, length) = (client.try_clone().unwrap(), upstream.address(), 64 << 20);
    let writer = thread::spawn(move || {
        let head = format!("POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n");
        writes.write_all(head.as_bytes()).and_then(|()| writes.write_all(&vec![b'x'; length])).is_err()
    });
    let mut start = [0; 12];
    (&client).read_exact(&mut start).unwrap();
    assert_eq!(String::from_utf8_lossy(&start), "HTTP/1.1 504");
    andante.wait_for(|status| status["lanes"][0]["in_flight"] == 0);
    drop(client);
    let _ = writer.join();
    let _ = stop.send(());
    andante.wait_for(quiet);
}

#[test]
fn a_tunnel_in_which_nothing_moves_is_closed() {
    // An answer inside may take as long as in any other way.
    let timeouts = "[timeouts]\nidle = \"500ms\"\nanswer = \"500ms\"\n";
    let (upstream, andante) = (Upstream::echo(), Andante::with_config(timeouts));
    let mut client = Client::connect(andante.proxy());
    let host = upstream.address();
    client.send(format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    assert_eq!(client.answer_to_head().status(), 200);
    for _ in 0..4 {
        // Longer than the limit in total: a peer that moves may stay.
        pass(Duration::from_millis(200));
        client.send("x");
        assert_eq!(client.bytes(1), b"x");
    }
    assert_eq!(andante.status()["tunnels"], 1);
    client.closed();
    andante.wait_for(quiet);
}

#[test]
fn an_upload_that_its_upstream_never_reads_ends_with_its_request() {
    let upstream = Upstream::scripted(|mut connection| {
        connection.head();
        pass(PATIENCE);
    });
    let andante = Andante::with_config("[timeouts]\nanswer = \"500ms\"\nkeep-alive = \"500ms\"\n");
    let mut client = TcpStream::connect(andante.proxy()).unwrap();
    let (url, host) = (upstream.url("/"), upstream.address());
    write!(client, "POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100000000\r\n\r\n").unwrap();
    let mut writer = client.try_clone().unwrap();
    // More than the sockets on the way hold.
    let upload = thread::spawn(move || writer.write_all(&vec![b'x'; 100_000_000]));
    let mut answer = [0; 12];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 504");
    andante.wait_for(|status| {
        quiet(status) && status["connections"]["upstream"] == 0 && status["connections"]["client"] == 0
    });
    drop(client);
    assert!(upload.join().unwrap().is_err());
}

#[test]
fn an_answer_inside_of_a_tunnel_may_take_as_long_as_any_other() {
    let upstream = Upstream::scripted(|mut connection| {
        let asked = connection.bytes(4).unwrap();
        pass(Duration::from_millis(1200));
        connection.send(asked);
        let _ = connection.rest();
    });
    let timeouts = "[timeouts]\nidle = \"300ms\"\nanswer = \"2500ms\"\n";
    let turns = format!("{timeouts}[[rule]]\nhost = \"127.0.0.1\"\nlimits = \"100/s\"\n");
    for config in [timeouts, &turns] {
        let andante = Andante::with_config(config);
        let mut client = Client::connect(andante.proxy());
        let host = upstream.address();
        client.send(format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client.opened();
        client.send("\x01ask");
        assert_eq!(client.bytes(4), b"\x01ask");
        client.closed();
        let log = andante.stderr();
        let line = log.lines().find(|line| line.contains("ended a silent tunnel")).expect(&log);
        assert!(line.contains("timeout=\"answer\"") && line.contains("silent_s=2.5"), "{line}");
    }
}
