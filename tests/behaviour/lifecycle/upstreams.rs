//! The other side: an upstream that breaks costs its request, and nothing else.

use super::quiet;
use crate::support::{Andante, Client, Connection, Upstream};

/// A lane with one request at a time: a permit that is not given back would stop it. Each request is sent once, so its
/// outcome reaches the worker.
fn lane_of_one(upstream: &Upstream) -> Andante {
    Andante::serve(&["--limit", &format!("{}=in-flight 1", upstream.address()), "--retry", "off"])
}

/// Does `first` to the first request, and answers the others.
fn breaking(first: impl Fn(Connection) + Send + Sync + 'static) -> Upstream {
    let turn = std::sync::atomic::AtomicUsize::new(0);
    Upstream::scripted(move |mut connection| {
        if turn.fetch_add(1, std::sync::atomic::Ordering::AcqRel) == 0 {
            first(connection);
        } else if connection.request().is_some() {
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
        }
    })
}

fn recovers(andante: &Andante, upstream: &Upstream) {
    andante.wait_for(quiet);
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/next")).status(), 200);
    andante.wait_for(|status| quiet(status) && status["connections"]["upstream"] == 0);
}

#[test]
fn an_upstream_that_breaks_before_its_answer_is_a_502() {
    for reset in [false, true] {
        let upstream = breaking(move |mut connection| {
            connection.request();
            if reset {
                connection.reset();
            }
        });
        let andante = lane_of_one(&upstream);
        let answer = Client::get(andante.proxy(), &upstream.url("/"));
        assert_eq!(answer.status(), 502);
        assert_eq!(answer.field("proxy-status").as_deref(), Some("andante; error=connection_terminated"));
        assert_eq!(andante.wait_for(quiet)["requests"]["failed"], 1);
        recovers(&andante, &upstream);
    }
}

#[test]
fn an_upstream_that_breaks_in_its_body_is_no_whole_answer() {
    for framing in ["Content-Length: 100\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n9\r\n"] {
        let upstream = breaking(move |mut connection| {
            connection.request();
            connection.send(format!("HTTP/1.1 200 OK\r\n{framing}only this"));
        });
        let andante = lane_of_one(&upstream);
        let mut client = Client::connect(andante.proxy());
        client.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.url("/"), upstream.address()));
        let got = String::from_utf8(client.rest()).unwrap();
        assert!(got.starts_with("HTTP/1.1 200") && !got.ends_with("0\r\n\r\n"), "{got}");
        recovers(&andante, &upstream);
    }
}

#[test]
fn a_failure_that_breaks_in_its_body_is_no_whole_answer_either() {
    // andante reads the failure ahead, to hold it while the request is sent again.
    let upstream = breaking(|mut connection| {
        connection.request();
        connection.send("HTTP/1.1 502 Bad Gateway\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nonly this");
    });
    let andante = Andante::serve(&["--limit", &format!("{}=in-flight 1", upstream.address())]);
    let mut client = Client::connect(andante.proxy());
    client.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.url("/"), upstream.address()));
    let got = String::from_utf8(client.rest()).unwrap();
    assert!(got.starts_with("HTTP/1.1 502") && !got.ends_with("0\r\n\r\n"), "{got}");
    recovers(&andante, &upstream);
}

#[test]
fn an_upstream_that_breaks_while_it_is_sent_a_body_is_a_502() {
    let upstream = breaking(|mut connection| {
        connection.head();
        connection.reset();
    });
    let andante = lane_of_one(&upstream);
    let mut client = Client::connect(andante.proxy());
    let host = upstream.address();
    client.send(format!("POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100000\r\n\r\nonly this"));
    assert_eq!(client.answer().status(), 502);
    drop(client);
    recovers(&andante, &upstream);
}

#[test]
fn an_upstream_that_is_not_there_is_a_502() {
    let address = Upstream::ok().address();
    let andante = Andante::serve(&["--limit", &format!("{address}=in-flight 1")]);
    crate::support::eventually("the port to be free", || std::net::TcpStream::connect(address).is_err().then_some(()));
    for _ in 0..3 {
        let answer = Client::get(andante.proxy(), &format!("http://{address}/"));
        assert_eq!(answer.status(), 502);
        assert_eq!(answer.field("proxy-status").as_deref(), Some("andante; error=connection_refused"));
    }
    let status = andante.wait_for(quiet);
    assert_eq!((&status["requests"]["failed"], &status["lanes"][0]["sent_total"]), (&3.into(), &0.into()));
}
