//! A client that leaves frees its place, its slot and its upstream at once.

use std::{io::Write, net::TcpStream, thread};

use super::{quiet, waiting};
use crate::support::{Andante, Client, Upstream, eventually};

/// A client that has sent `request` waits in a lane of one request a second; then it `leave`s. The next one has to get
/// the slot that it would have got.
fn costs_no_slot(request: impl FnOnce(&str) -> String, leave: impl FnOnce(Client)) {
    let upstream = Upstream::ok();
    let host = upstream.address().to_string();
    let andante = Andante::serve(&["--limit", &format!("{host}=1/s")]);
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/first")).status(), 200);

    let mut client = Client::connect(andante.proxy());
    client.send(request(&host));
    andante.wait_for(|status| waiting(status) == 1);
    leave(client);
    let status = andante.wait_for(quiet);
    assert_eq!(status["lanes"][0]["sent_total"], 1, "it took until its slot to be gone");
    assert_eq!(status["requests"]["left"], 1);

    let answer = Client::get(andante.proxy(), &upstream.url("/next"));
    assert_eq!(answer.status(), 200);
    let waited = answer.field("server-timing").unwrap();
    let waited = waited.split(',').next().unwrap();
    let waited: f64 = waited.strip_prefix("andante;dur=").unwrap().parse().unwrap();
    assert!(waited < 1500.0, "waited {waited} ms: a slot was lost");
    let targets: Vec<String> = upstream.requests().iter().map(|request| request.target()).collect();
    assert_eq!(targets, ["/first", "/next"]);
}

fn get(host: &str) -> String {
    format!("GET http://{host}/gone HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

fn post(host: &str, body: &str) -> String {
    format!("POST http://{host}/gone HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100000\r\n\r\n{body}")
}

#[test]
fn a_client_that_closes_while_it_waits_costs_no_slot() {
    costs_no_slot(get, drop);
}

#[test]
fn a_client_that_resets_while_it_waits_costs_no_slot() {
    costs_no_slot(get, Client::reset);
}

#[test]
fn a_client_that_leaves_behind_an_unread_body_is_noticed() {
    costs_no_slot(|host| post(host, &"x".repeat(100_000)), drop);
}

#[test]
fn a_client_that_resets_behind_part_of_a_body_is_noticed() {
    costs_no_slot(|host| post(host, "only this"), Client::reset);
}

#[test]
fn a_client_that_leaves_behind_a_pipelined_request_is_noticed() {
    costs_no_slot(|host| get(host) + &get(host), drop);
}

#[test]
fn pipelined_bytes_that_fill_the_buffer_hide_nobody_who_leaves() {
    costs_no_slot(|host| get(host).repeat(3000), Client::reset);
}

#[test]
fn thousands_who_leave_at_once_are_gone_at_once() {
    const CROWD: u64 = 2000;
    let upstream = Upstream::ok();
    let host = upstream.address().to_string();
    let rule = format!("[[rule]]\nhost = \"{host}\"\nlimits = [\"1/h\"]\nmax-wait = \"1000d\"\n");
    let andante = Andante::with_config(&rule);
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/")).status(), 200);
    let crowd: Vec<TcpStream> = (0..CROWD)
        .map(|_| {
            let mut client = TcpStream::connect(andante.proxy()).unwrap();
            client.write_all(get(&host).as_bytes()).unwrap();
            client
        })
        .collect();
    andante.wait_for(|status| waiting(status) == CROWD);
    drop(crowd);
    let status = andante.wait_for(quiet);
    assert_eq!((&status["lanes"][0]["sent_total"], &status["requests"]["left"]), (&1.into(), &CROWD.into()));
    assert_eq!(upstream.requests().len(), 1);
    // The queue is empty: the next request would be the first.
    let _next = {
        let mut client = Client::connect(andante.proxy());
        client.send(get(&host));
        client
    };
    andante.wait_for(|status| waiting(status) == 1);
}

/// A client that leaves once its request has reached the upstream, which does `then`.
fn ends_upstream(request: impl FnOnce(&str) -> String, answer: &'static str, leave: impl FnOnce(Client)) {
    let upstream = Upstream::scripted(move |mut connection| {
        connection.head();
        connection.send(answer);
        let _ = connection.rest();
    });
    let host = upstream.address().to_string();
    // As often as the shortest timeout asks for, a connection is looked at.
    let often = "[timeouts]\nkeep-alive = \"200ms\"\n";
    let andante = Andante::with_config_and(often, &["--limit", &format!("{host}=in-flight 1")]);
    let mut client = Client::connect(andante.proxy());
    client.send(request(&host));
    upstream.wait_for(1);
    if !answer.is_empty() {
        assert_eq!(client.bytes(12), b"HTTP/1.1 200");
    }
    assert_eq!(andante.status()["lanes"][0]["in_flight"], 1);
    leave(client);
    andante.wait_for(quiet);
    eventually("the upstream's connection to end", || (upstream.ended() == 1).then_some(()));
}

#[test]
fn a_client_that_leaves_before_the_answer_ends_the_upstreams_work() {
    ends_upstream(get, "", drop);
}

#[test]
fn a_pipelined_request_does_not_hide_who_leaves_before_the_answer() {
    ends_upstream(|host| get(host) + &get(host), "", drop);
    ends_upstream(|host| get(host).repeat(3000), "", Client::reset);
}

#[test]
fn a_client_that_leaves_in_the_middle_of_its_upload_ends_it() {
    ends_upstream(|host| post(host, "only this"), "", drop);
    ends_upstream(|host| post(host, "only this"), "", Client::reset);
}

#[test]
fn a_client_that_leaves_in_the_middle_of_an_answer_ends_it() {
    const PART: &str = "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nonly this";
    ends_upstream(get, PART, drop);
    ends_upstream(get, PART, Client::reset);
}

#[test]
fn a_client_that_leaves_an_answer_that_streams_ends_it() {
    let upstream = Upstream::scripted(|mut connection| {
        connection.request();
        connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        let piece = format!("4000\r\n{}\r\n", "x".repeat(0x4000));
        while connection.sent(&piece) {}
    });
    let host = upstream.address().to_string();
    let andante = Andante::serve(&["--limit", &format!("{host}=in-flight 1")]);
    let mut client = Client::connect(andante.proxy());
    client.send(get(&host));
    client.bytes(1_000_000);
    drop(client);
    andante.wait_for(quiet);
    eventually("the upstream's connection to end", || (upstream.ended() == 1).then_some(()));
}

#[test]
fn a_client_that_leaves_its_tunnel_ends_it() {
    let (upstream, andante) = (Upstream::echo(), Andante::serve(&[]));
    let host = upstream.address();
    for leave in [drop, Client::reset] {
        let mut client = Client::connect(andante.proxy());
        client.send(format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(client.answer_to_head().status(), 200);
        client.send("x");
        assert_eq!(client.bytes(1), b"x");
        leave(client);
        andante.wait_for(quiet);
    }
    eventually("the upstream's connections to end", || (upstream.ended() == 2).then_some(()));
}

#[test]
fn who_leaves_at_any_moment_leaves_nothing_behind() {
    let upstream = Upstream::ok();
    let host = upstream.address().to_string();
    let andante = Andante::serve(&["--limit", &format!("{host}=300/s,in-flight 3")]);
    let workers: Vec<_> = (0..8)
        .map(|worker: u64| {
            let (proxy, host) = (andante.proxy(), host.clone());
            thread::spawn(move || {
                for turn in 0..40 {
                    let mut client = Client::connect(proxy);
                    client.send(get(&host));
                    thread::park_timeout(std::time::Duration::from_millis((worker * 7 + turn * 3) % 29));
                    if turn % 2 == 0 { drop(client) } else { client.reset() }
                }
            })
        })
        .collect();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    andante.wait_for(quiet);
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/")).status(), 200);
}

/// The timer of andante's end of an open connection: its kind and its jiffies of 10 ms (proc(5), `tr` and `tm->when`).
fn timer(andante: &Andante) -> Option<(u8, u32)> {
    let own = format!("0100007F:{:04X}", andante.proxy().port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let open = lines.find(|fields| fields.len() > 5 && fields[1] == own && fields[3] == "01")?;
    let (kind, when) = open[5].split_once(':')?;
    Some((kind.parse().ok()?, u32::from_str_radix(when, 16).ok()?))
}

#[test]
fn a_worker_that_waits_in_silence_is_probed_within_a_minute() {
    const KEEP_ALIVE: u8 = 2;
    let upstream = Upstream::ok();
    let rule = format!("[[rule]]\nhost = \"{}\"\nlimits = [\"1/h\"]\nmax-wait = \"2h\"\n", upstream.address());
    let andante = Andante::with_config(&rule);
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/")).status(), 200);
    let mut waiting = Client::connect(andante.proxy());
    waiting.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.url("/"), upstream.address()));
    andante.wait_for(|status| status["lanes"][0]["waiting"] == 1);
    let (kind, when) = timer(&andante).expect("an open connection");
    assert_eq!(kind, KEEP_ALIVE);
    assert!((1..=6_000).contains(&when), "{when}");
}
