//! Blind tunnels carry any protocol, also where a limit makes andante look at the first bytes.

use serde_json::Value;

use crate::support::{
    Andante, Client, Mock, Upstream, rejected,
    tls::{Server, TRUSTED, Worker},
};

/// A tunnel to `target`.
fn tunnel(andante: &Andante, target: impl std::fmt::Display) -> Client {
    let mut client = Client::connect(andante.proxy());
    client.send(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"));
    client.opened();
    client
}

/// An andante with a limit for all of this machine, so that it inspects the bytes of tunnels.
fn limited(limit: &str) -> Andante {
    Andante::serve(&["--limit", &format!("127.0.0.1={limit}")])
}

fn lane(status: &Value, of: &str) -> u64 {
    status["lanes"][0][of].as_u64().unwrap_or(0)
}

#[test]
fn bytes_that_the_upstream_sends_first_arrive_at_once() {
    let upstream = Upstream::scripted(|mut connection| {
        connection.send("220 hello\r\n");
        while let Ok(byte) = connection.bytes(1) {
            connection.send(byte);
        }
        connection.send("221 bye");
    });
    for andante in [Andante::serve(&[]), limited("100/s")] {
        let mut client = tunnel(&andante, upstream.address());
        assert_eq!(client.bytes(11), b"220 hello\r\n");
        client.send("EHLO me\r\n");
        assert_eq!(client.bytes(9), b"EHLO me\r\n");
        client.finish();
        assert_eq!(client.rest(), b"221 bye");
        andante.wait_for(|status| status["tunnels"] == 0 && lane(status, "in_flight") == 0);
    }
}

/// Clients that save a round trip send their first bytes before they know of the tunnel.
#[test]
fn bytes_that_come_before_the_tunnel_is_open_arrive_as_they_are() {
    let upstream = Upstream::scripted(|mut connection| {
        while let Ok(byte) = connection.bytes(1) {
            connection.send(byte);
        }
    });
    let early = b"a \"<word>\" caf\xe9 \x88\xff\r\n";
    for andante in [Andante::serve(&[]), limited("100/s"), limited("2/s")] {
        for _ in 0..3 {
            let mut client = Client::connect(andante.proxy());
            client.send(format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", upstream.address()));
            client.send(early);
            client.opened();
            assert_eq!(client.bytes(early.len()), early);
        }
    }
}

#[test]
fn an_upstream_that_has_said_all_can_still_be_talked_to() {
    let (said, heard) = std::sync::mpsc::channel();
    let said = parking_lot::Mutex::new(said);
    let upstream = Upstream::scripted(move |mut connection| {
        connection.send("that is all");
        connection.finish();
        said.lock().send(connection.rest().unwrap()).unwrap();
    });
    for andante in [Andante::serve(&[]), limited("100/s")] {
        let mut client = tunnel(&andante, upstream.address());
        assert_eq!(client.rest(), b"that is all");
        client.send("but this is not");
        drop(client);
        assert_eq!(heard.recv_timeout(crate::support::PATIENCE).unwrap(), b"but this is not");
    }
}

#[test]
fn plain_http_in_a_tunnel_is_paced_request_by_request() {
    let mock = Mock::start(&["--limit", "20/s"]);
    let andante = limited("20/s");
    let mut client = tunnel(&andante, mock.address());
    let host = mock.address();
    for _ in 0..20 {
        client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let answer = client.answer();
        assert_eq!(answer.status(), 200);
        assert!(answer.has("via") && answer.has("server-timing"), "{answer:?}");
    }
    let stats = mock.stats();
    assert_eq!((&stats["accepted"], &stats["refused"]), (&20.into(), &0.into()), "{stats:#}");
    // The tunnel itself has cost nothing.
    assert!(stats["used_share"].as_f64().unwrap() > 0.8, "{stats:#}");
    assert_eq!(lane(&andante.status(), "sent_total"), 20);
}

#[test]
fn plain_http_in_a_tunnel_stays_where_the_tunnel_leads() {
    let (upstream, other) = (Upstream::ok(), Upstream::ok());
    let andante = limited("100/s");
    let mut client = tunnel(&andante, upstream.address());
    client.send(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.address()));
    assert_eq!(client.answer().status(), 200);
    client.send(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", other.address()));
    rejected(&client.answer(), 400, "http_request_error", "another host");
    assert_eq!((upstream.requests().len(), upstream.connections(), other.connections()), (1, 1, 0));
}

#[test]
fn tls_in_a_tunnel_that_a_rule_asks_for_passes_unseen_for_one_slot() {
    let leaf = TRUSTED.leaf(&["127.0.0.1"]);
    let upstream = Upstream::secure_ok(Server::new(&leaf, &["http/1.1"]));
    let rule = "[[rule]]\nhost = \"127.0.0.1\"\nlimits = \"100/s\"\nhttps = \"tunnel\"\n";
    let andante = Andante::with_config(rule);
    let target = upstream.address().to_string();
    let worker = Worker::trusting(std::path::Path::new(TRUSTED.file()), &target);
    let mut client = worker.secure(tunnel(&andante, &target)).expect("a handshake with the upstream itself");
    assert_eq!(client.certificate, leaf.chain()[0].to_vec());
    for _ in 0..5 {
        client.send(format!("GET / HTTP/1.1\r\nHost: {target}\r\n\r\n"));
        let answer = client.answer();
        assert!(answer.text() == "ok" && !answer.has("via"), "{answer:?}");
    }
    let status = andante.status();
    assert_eq!((lane(&status, "sent_total"), lane(&status, "in_flight")), (1, 1), "{status:#}");
    assert!(andante.stderr().contains("--intercept 127.0.0.1"), "what to do about it is said");
    drop(client);
    andante.wait_for(|status| lane(status, "in_flight") == 0);
}

#[test]
fn tunnels_that_nobody_speaks_in_do_not_hold_up_their_lane() {
    let (andante, upstream) = (limited("10/s"), Upstream::ok());
    let silent: Vec<Client> = (0..10).map(|_| tunnel(&andante, upstream.address())).collect();
    // As many tunnels as the limit has slots. A single one more would suffice if tunnels kept their slots.
    for _ in 0..2 {
        assert_eq!(Client::get(andante.proxy(), &upstream.url("/")).text(), "ok");
    }
    drop(silent);
    andante.wait_for(|status| status["tunnels"] == 0 && lane(status, "in_flight") == 0);
}

#[test]
fn that_tunnels_to_a_host_are_blind_is_said_once_with_what_to_do() {
    let upstream = Upstream::echo();
    let andante = Andante::serve(&[]);
    for _ in 0..3 {
        let mut client = tunnel(&andante, upstream.address());
        client.send("hello");
        assert_eq!(client.bytes(5), b"hello");
    }
    let log = andante.stderr();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("a blind tunnel")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains("INFO") && lines[0].contains("host=127.0.0.1"), "{log}");
    for remedy in ["--intercept 127.0.0.1", "andante run", "gateway address"] {
        assert!(lines[0].contains(remedy), "{remedy}: {log}");
    }
}

#[test]
fn a_tunnel_that_a_rule_asks_for_is_not_talked_about() {
    let upstream = Upstream::echo();
    let rule = format!("[[rule]]\nhost = \"{}\"\nhttps = \"tunnel\"\n", upstream.address());
    let andante = Andante::with_config(&rule);
    let mut client = tunnel(&andante, upstream.address());
    client.send("hello");
    assert_eq!(client.bytes(5), b"hello");
    assert!(!andante.stderr().contains("blind"), "{}", andante.stderr());
}

/// Number of sockets that each of andante's threads waits for. Each thread has an epoll instance, which lists them.
fn sockets_by_thread(andante: &Andante) -> Vec<usize> {
    let process = format!("/proc/{}", andante.pid().as_raw_nonzero());
    let target = |fd: &str| {
        let target = std::fs::read_link(format!("{process}/fd/{fd}"));
        target.unwrap_or_default().to_string_lossy().into_owned()
    };
    let fds = std::fs::read_dir(format!("{process}/fd")).unwrap();
    let epolls =
        fds.map(|fd| fd.unwrap().file_name().into_string().unwrap()).filter(|fd| target(fd).contains("[eventpoll]"));
    // An instance may have two descriptors.
    let watched: std::collections::BTreeSet<Vec<String>> = epolls
        .map(|epoll| {
            let info = std::fs::read_to_string(format!("{process}/fdinfo/{epoll}")).unwrap_or_default();
            let fds = info.lines().filter_map(|line| line.strip_prefix("tfd:")?.split_whitespace().next());
            fds.filter(|fd| target(fd).starts_with("socket:")).map(str::to_owned).collect()
        })
        .collect();
    let mut counts: Vec<_> = watched.iter().map(Vec::len).collect();
    counts.sort_unstable();
    counts
}

/// Connections that last must not pile up on one core, and a tunnel lasts longest.
#[test]
fn tunnels_spread_over_all_threads() {
    let upstream = Upstream::scripted(|mut connection| drop(connection.rest()));
    let andante = Andante::serve(&["--threads", "4"]);
    let idle = sockets_by_thread(&andante)[0];
    let tunnels: Vec<_> = (0..20).map(|_| tunnel(&andante, upstream.address())).collect();
    let busy = sockets_by_thread(&andante);
    // Five on each of four threads, with a socket on either side. The accepting thread has none of them.
    assert_eq!(busy.iter().filter(|sockets| **sockets == idle + 10).count(), 4, "{busy:?}, {idle} without a tunnel");
    drop(tunnels);
}
