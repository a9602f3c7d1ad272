//! Reuse of a connection to an API, up to the known or announced time of its end.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use andante::clock::Clock;

use crate::support::{
    Andante, Client, Name, NameServer, PATIENCE, Upstream,
    h2::{Client2, Upstream2},
    pause,
    tls::Interceptor,
};

fn ok(fields: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n{fields}\r\nok")
}

/// Sends POSTs with these pauses before them, and returns how many connections that took.
fn posts(upstream: &Upstream, pauses_ms: &[u64], andante: &Andante) -> usize {
    let (mut client, up) = (Client::connect(andante.proxy()), upstream.address());
    for pause_ms in pauses_ms {
        pause(Duration::from_millis(*pause_ms));
        client.send(format!("POST http://{up}/ HTTP/1.1\r\nHost: {up}\r\nContent-Length: 1\r\n\r\nx"));
        assert_eq!(client.answer().status(), 200);
    }
    upstream.connections()
}

#[test]
fn post_is_not_put_on_a_connection_within_a_second_of_its_announced_end() {
    for (fields, pauses, connections) in [
        ("Keep-Alive: timeout=2\r\n", &[0, 0, 1_200][..], 2),
        ("Connection: keep-alive\r\nkeep-alive: max=100, TIMEOUT=\"2\"\r\n", &[0, 1_200], 2),
        ("Keep-Alive: timeout=1\r\n", &[0, 0], 2),
        ("Keep-Alive: timeout=0\r\n", &[0, 0], 2),
        ("Keep-Alive: timeout=60\r\n", &[0, 1_200], 1),
    ] {
        let upstream = Upstream::always(ok(fields));
        assert_eq!(posts(&upstream, pauses, &Andante::serve(&["--threads", "1"])), connections, "{fields}");
    }
}

#[test]
fn keep_alive_that_makes_no_sense_changes_nothing() {
    for fields in [
        "Keep-Alive: timeout=abc, max=many\r\n",
        "Keep-Alive: timeout=-5\r\n",
        "Keep-Alive: timeout=99999999999999999999, max=99999999999999999999\r\n",
        "Keep-Alive: \r\n",
        "Keep-Alive: timeout=\"\", =, ;;\r\n",
    ] {
        let upstream = Upstream::always(ok(fields));
        assert_eq!(posts(&upstream, &[0, 0, 0], &Andante::serve(&["--threads", "1"])), 1, "{fields}");
    }
}

#[test]
fn connection_carries_as_many_requests_as_its_upstream_has_announced() {
    for (what, counts_down) in [("Apache: those that are left", true), ("Node: all of them", false)] {
        let upstream = Upstream::scripted(move |mut connection| {
            for left in (0..3).rev() {
                let Some(_) = connection.request() else { return };
                let max = if counts_down { left } else { 3 };
                connection.send(ok(&format!("Keep-Alive: timeout=60, max={max}\r\n")));
            }
            // Sent here, a request would be lost.
            let _ = connection.request();
        });
        assert_eq!(posts(&upstream, &[0; 6], &Andante::serve(&["--threads", "1"])), 2, "{what}");
    }
}

#[test]
fn upstream_keep_alive_is_kept_to_when_a_connection_is_taken() {
    let upstream = Upstream::always(ok(""));
    let andante = Andante::with_config_and("[timeouts]\nupstream-keep-alive = \"300ms\"\n", &["--threads", "1"]);
    assert_eq!(posts(&upstream, &[0, 0, 500, 0], &andante), 2);
}

const SHORT_LIFE: &str = "[timeouts]\nupstream-max-age = \"1s\"\n";

#[test]
fn connection_in_steady_use_is_replaced_at_its_maximum_age() {
    let upstream = Upstream::always(ok(""));
    let andante = Andante::with_config_and(SHORT_LIFE, &["--threads", "1"]);
    assert_eq!(posts(&upstream, &[0, 300, 300, 300, 300, 300], &andante), 2);
}

#[test]
fn connection_of_http2_in_steady_use_is_replaced_at_its_maximum_age() {
    let upstream = Upstream2::ok();
    let port = upstream.address().port();
    let rule = format!("{SHORT_LIFE}[[rule]]\nhost = \"127.0.0.1:{port}\"\nupstream = \"https\"\n");
    let andante = Interceptor::with_config(&rule, &["--threads", "1"]);
    let mut client = Client2::connect(andante.andante.proxy());
    for _ in 0..6 {
        assert_eq!(client.get(&upstream.url("/")).answer().status(), 200);
        pause(Duration::from_millis(300));
    }
    assert_eq!(upstream.connections(), 2);
}

/// Answers every request on `address` with `new`.
fn answers_new(address: SocketAddr) {
    let listener = TcpListener::bind(address).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().take(8) {
            let mut stream = stream.unwrap();
            while stream.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nnew").unwrap();
            }
        }
    });
}

/// An API at 127.0.0.1 that moves to 127.0.0.2 when the flag is set; and its name server.
fn moving() -> (Upstream, NameServer, Arc<AtomicBool>) {
    let (upstream, moved) = (Upstream::always(ok("")), Arc::new(AtomicBool::new(false)));
    answers_new((Ipv4Addr::new(127, 0, 0, 2), upstream.address().port()).into());
    let now = moved.clone();
    let names = NameServer::start(move |_| {
        Name::Briefly(vec![Ipv4Addr::new(127, 0, 0, if now.load(Ordering::Acquire) { 2 } else { 1 })])
    });
    (upstream, names, moved)
}

#[test]
fn busy_connection_moves_with_its_name() {
    let (upstream, names, moved) = moving();
    let config = format!("dns = \"{}\"\nthreads = 1\n", names.address());
    let andante = Andante::with_config(&config);
    let (mut client, target) = (Client::connect(andante.proxy()), format!("moves.test:{}", upstream.address().port()));
    let mut ask = || {
        client.send(format!("GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n"));
        client.answer().text()
    };
    let clock = Clock::start();
    let begun = clock.now();
    while clock.now().since(begun) < Duration::from_secs(5) {
        assert_eq!(ask(), "ok");
        pause(Duration::from_millis(50));
    }
    assert_eq!(upstream.connections(), 1, "as long as its address is one of the name's, a connection is kept");
    moved.store(true, Ordering::Release);
    let begun = clock.now();
    while ask() != "new" {
        assert!(clock.now().since(begun) < PATIENCE, "it stays where it was");
        pause(Duration::from_millis(50));
    }
}
