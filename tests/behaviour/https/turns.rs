//! Blind tunnels that are paced by turns: the limit holds for workers that trust no CA of andante's.

use std::{
    collections::VecDeque,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;
use rustix::process::Signal;

use super::{localhost, server};
use crate::support::{
    Andante, Client, Upstream, pause,
    tls::{TRUSTED, Worker},
};

/// The window of the API's limit.
const WINDOW: Duration = Duration::from_secs(1);

/// Record of an API that limits the requests in a sliding second.
#[derive(Default)]
struct Seen {
    window: VecDeque<SystemTime>,
    accepted: Vec<SystemTime>,
    refused: usize,
}

impl Seen {
    fn admits(&mut self, limit: usize) -> bool {
        let now = SystemTime::now();
        while self.window.front().is_some_and(|first| now.duration_since(*first).unwrap_or_default() >= WINDOW) {
            self.window.pop_front();
        }
        let admitted = self.window.len() < limit;
        if admitted {
            self.window.push_back(now);
            self.accepted.push(now);
        } else {
            self.refused += 1;
        }
        admitted
    }
}

/// An API that accepts `limit` requests a second.
fn limiting(limit: usize) -> (Upstream, Arc<Mutex<Seen>>) {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let of_api = seen.clone();
    let api = Upstream::secure(server(&["http/1.1"]), move |mut connection| {
        while connection.request().is_some() {
            let status = if of_api.lock().admits(limit) { "200 OK" } else { "429 Too Many Requests" };
            connection.send(format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok"));
        }
    });
    (api, seen)
}

/// A tunnel to `target`.
fn tunnel(andante: &Andante, target: &str) -> Client {
    let mut client = Client::connect(andante.proxy());
    client.send(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"));
    client.opened();
    client
}

/// Believes the upstream itself.
fn trusting(target: &str) -> Worker {
    Worker::trusting(Path::new(TRUSTED.file()), target)
}

/// A connection to the API itself, through a tunnel.
fn connect(andante: &Andante, target: &str) -> Client {
    trusting(target).secure(tunnel(andante, target)).expect("a handshake with the API itself")
}

fn get(target: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: {target}\r\n\r\n")
}

fn turns(andante: &Andante, outcome: &str) -> u64 {
    let (metrics, label) = (andante.metrics(), format!("outcome=\"{outcome}\""));
    let lines = metrics.lines().filter(|line| line.starts_with("andante_turns_total{") && line.contains(&label));
    lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

/// A TLS 1.3 server sends session tickets before it reads the first request of a connection (RFC 8446 §4.6.1).
#[test]
fn session_tickets_are_no_answer_that_waives_the_margin() {
    const LATE: Duration = Duration::from_millis(100);
    let (seen, late) = (Arc::new(Mutex::new(Seen::default())), AtomicBool::new(true));
    let of_api = seen.clone();
    let api = Upstream::secure(server(&["http/1.1"]), move |mut connection| {
        while connection.request().is_some() {
            // The first request of each pair counts late.
            if late.fetch_not(Ordering::Relaxed) {
                pause(LATE);
            }
            let status = if of_api.lock().admits(1) { "200 OK" } else { "429 Too Many Requests" };
            connection.send(format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok"));
        }
    });
    let target = localhost(&api);
    let andante =
        Andante::with_config("[[rule]]\nhost = \"localhost\"\nlimits = \"1/s burst 1\"\nmargin = \"900ms\"\n");
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let mut client = connect(&andante, &target);
                client.send(get(&target));
                assert_eq!(client.answer().status(), 200);
            });
        }
    });
    assert_eq!(seen.lock().refused, 0);
}

#[test]
fn pooled_clients_keep_a_limit_inside_of_their_tunnels() {
    let (api, seen) = limiting(20);
    // With this margin 20 requests take 1.05 s: a stall of 50 ms does not exceed the limit of the API.
    let andante = Andante::with_config("[[rule]]\nhost = \"localhost\"\nlimits = \"20/s\"\nmargin = \"50ms\"\n");
    let target = localhost(&api);
    thread::scope(|scope| {
        for _ in 0..9 {
            scope.spawn(|| {
                let mut client = connect(&andante, &target);
                for _ in 0..12 {
                    client.send(get(&target));
                    assert_eq!(client.answer().status(), 200);
                }
            });
        }
    });
    let seen = seen.lock();
    assert_eq!((seen.accepted.len(), seen.refused), (9 * 12, 0));
    let took = seen.accepted.last().unwrap().duration_since(seen.accepted[0]).unwrap();
    let used = (seen.accepted.len() - 1) as f64 / took.as_secs_f64();
    assert!(used >= 18.0, "{used:.1}/s of 20/s were used");
    assert_eq!(turns(&andante, "sent"), 9 * 12);
}

#[test]
fn clients_of_tls_1_2_and_connections_for_one_request_keep_it_too() {
    let (api, seen) = limiting(20);
    let andante = Andante::serve(&["--limit", "localhost=20/s"]);
    let target = localhost(&api);
    for old in [true, false] {
        for _ in 0..30 {
            let worker = Worker { old, ..trusting(&target) };
            let mut client = worker.secure(tunnel(&andante, &target)).expect("a handshake");
            client.send(get(&target));
            assert_eq!(client.answer().status(), 200);
        }
    }
    let seen = seen.lock();
    assert_eq!((seen.accepted.len(), seen.refused), (60, 0));
    assert_eq!(turns(&andante, "sent"), 60, "what closes a connection is no turn");
}

#[test]
fn a_turn_counts_as_in_flight_and_a_tunnel_does_not() {
    let (api, _) = limiting(1000);
    let andante = Andante::serve(&["--limit", "localhost=in-flight 1"]);
    let target = localhost(&api);
    let _idle: Vec<Client> = (0..5).map(|_| connect(&andante, &target)).collect();
    assert_eq!(andante.status()["lanes"][0]["in_flight"].as_u64().unwrap_or(0), 0);
    let (mut one, mut other) = (connect(&andante, &target), connect(&andante, &target));
    one.send(get(&target));
    assert_eq!(one.answer().status(), 200);
    other.send(get(&target));
    andante.wait_for(|status| status["lanes"][0]["waiting"] == 1);
    // The connection ends, and with it its turn.
    drop(one);
    assert_eq!(other.answer().status(), 200);
}

#[test]
fn a_turn_that_may_not_wait_closes_its_tunnel_and_is_logged() {
    let (api, seen) = limiting(1000);
    let target = localhost(&api);
    let andante = Andante::with_config("[[rule]]\nhost = \"localhost\"\nlimits = \"1/h\"\nmax-wait = \"1s\"\n");
    let mut client = connect(&andante, &target);
    client.send(get(&target));
    assert_eq!(client.answer().status(), 200);
    client.send(get(&target));
    client.cut_off();
    assert_eq!(seen.lock().accepted.len(), 1);
    assert_eq!((turns(&andante, "sent"), turns(&andante, "refused")), (1, 1));
    let log = andante.stderr();
    assert_eq!(log.matches("closed a tunnel: a request inside may not wait").count(), 1, "{log}");
}

#[test]
fn a_client_that_leaves_while_its_turn_waits_takes_no_slot() {
    let (api, _) = limiting(1000);
    let target = localhost(&api);
    let andante = Andante::serve(&["--limit", "localhost=1/h"]);
    let mut client = connect(&andante, &target);
    client.send(get(&target));
    assert_eq!(client.answer().status(), 200);
    client.send(get(&target));
    andante.wait_for(|status| status["lanes"][0]["waiting"] == 1);
    drop(client);
    andante.wait_for(|status| status["lanes"][0]["waiting"] == 0 && status["tunnels"] == 0);
    assert_eq!(turns(&andante, "left"), 1);
}

#[test]
fn an_upload_is_one_turn_and_arrives_unchanged() {
    let api = Upstream::secure(server(&["http/1.1"]), |mut connection| {
        while let Some(request) = connection.request() {
            let length = request.body.len();
            connection.send(format!("HTTP/1.1 200 OK\r\nX-Got: {length}\r\nContent-Length: 0\r\n\r\n"));
        }
    });
    let andante = Andante::serve(&["--limit", "localhost=100/s"]);
    let target = localhost(&api);
    let mut client = connect(&andante, &target);
    client.send(get(&target));
    client.answer();
    for length in [0, 1, 5000, 300_000] {
        client.send(format!("POST / HTTP/1.1\r\nHost: {target}\r\nContent-Length: {length}\r\n\r\n"));
        client.send(vec![b'x'; length]);
        assert_eq!(client.answer().field("x-got"), Some(length.to_string()));
    }
    assert_eq!(turns(&andante, "sent"), 5);
}

#[test]
fn a_client_that_offers_http_2_is_named_once() {
    let (api, _) = limiting(1000);
    let andante = Andante::serve(&["--limit", "localhost=100/s"]);
    let target = localhost(&api);
    for _ in 0..3 {
        let worker = Worker { alpn: &["h2", "http/1.1"], ..trusting(&target) };
        worker.secure(tunnel(&andante, &target)).expect("a handshake");
    }
    drop(connect(&andante, &target));
    andante.wait_for(|status| status["tunnels"] == 0);
    assert_eq!(andante.stderr().matches("offers HTTP/2").count(), 1, "{}", andante.stderr());
    let metrics = andante.metrics();
    let line = metrics.lines().find(|line| line.starts_with("andante_http2_offers_total{")).unwrap();
    assert!(line.ends_with(" 3"), "{line}");
}

#[test]
fn a_turn_whose_api_closes_while_it_waits_takes_no_slot_and_is_logged() {
    let api = Upstream::secure(server(&["http/1.1"]), |mut connection| {
        connection.request();
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        pause(Duration::from_millis(300));
    });
    let andante = Andante::serve(&["--limit", "localhost=1/h"]);
    let target = localhost(&api);
    let mut client = connect(&andante, &target);
    client.send(get(&target));
    assert_eq!(client.answer().status(), 200);
    client.send(get(&target));
    client.closed();
    assert_eq!((turns(&andante, "sent"), turns(&andante, "closed")), (1, 1));
    let log = andante.stderr();
    assert_eq!(log.matches("the API closed a connection while a request in it waited").count(), 1, "{log}");
    assert_eq!(andante.status()["lanes"][0]["waiting"], 0);
}

#[test]
fn a_tunnel_without_tls_takes_one_slot_until_its_end() {
    let upstream = Upstream::echo();
    let andante = Andante::serve(&["--limit", "127.0.0.1=in-flight 1"]);
    let target = upstream.address().to_string();
    let mut client = tunnel(&andante, &target);
    client.send("SSH-2.0-x");
    assert_eq!(client.bytes(9), b"SSH-2.0-x");
    assert_eq!(andante.status()["lanes"][0]["in_flight"], 1);
    let log = andante.stderr();
    assert!(log.contains("carries neither TLS nor HTTP") && !log.contains("only tunnels to it are counted"), "{log}");
    drop(client);
    andante.wait_for(|status| status["lanes"][0]["in_flight"] == 0);
}

#[test]
fn tunnels_of_a_rule_that_asks_for_them_hold_a_slot_each() {
    let (api, _) = limiting(1000);
    let target = localhost(&api);
    let rule = "[[rule]]\nhost = \"localhost\"\nlimits = \"in-flight 2\"\nhttps = \"tunnel\"\n";
    let andante = Andante::with_config(rule);
    let mut open = [connect(&andante, &target), connect(&andante, &target)];
    for client in &mut open {
        client.send(get(&target));
        assert_eq!(client.answer().status(), 200);
    }
    let status = andante.status();
    assert_eq!((&status["lanes"][0]["in_flight"], turns(&andante, "sent")), (&2.into(), 0));
    assert!(andante.stderr().contains("only tunnels to it are counted"), "{}", andante.stderr());
}

/// A client whose second turn waits.
fn waiting(andante: &Andante, target: &str) -> Client {
    let mut client = connect(andante, target);
    client.send(get(target));
    assert_eq!(client.answer().status(), 200);
    client.send(get(target));
    andante.wait_for(|status| status["lanes"][0]["waiting"] == 1);
    client
}

#[test]
fn a_turn_that_waits_may_be_sent_within_the_drain() {
    let (api, _) = limiting(1000);
    let (mut andante, target) = (Andante::serve(&["--limit", "localhost=1/2s"]), localhost(&api));
    let mut client = waiting(&andante, &target);
    andante.signal(Signal::TERM);
    assert_eq!(client.answer().status(), 200);
    drop(client);
    assert!(andante.ended().success());
}

#[test]
fn a_turn_that_waits_is_cut_off_at_the_end_of_the_drain() {
    let (api, seen) = limiting(1000);
    let target = localhost(&api);
    let rule = "drain = \"500ms\"\n[[rule]]\nhost = \"localhost\"\nlimits = \"1/h\"\n";
    let mut andante = Andante::with_config(rule);
    let mut client = waiting(&andante, &target);
    andante.signal(Signal::TERM);
    client.cut_off();
    assert!(andante.ended().success());
    assert_eq!(seen.lock().accepted.len(), 1);
}

/// The end of the log of an andante that is told to drain.
fn drained(mut andante: Andante) -> String {
    andante.signal(Signal::TERM);
    assert!(andante.ended().success());
    let log = andante.stderr();
    log.lines().rfind(|line| line.contains("drained")).unwrap_or_else(|| panic!("no last line: {log}")).to_owned()
}

#[test]
fn the_end_of_a_drain_counts_the_turns_that_it_has_closed() {
    let serve = |limit: &str| {
        let rule = format!("drain = \"500ms\"\n[[rule]]\nhost = \"localhost\"\nlimits = \"{limit}\"\n");
        Andante::logging_with_config("info", &rule, &[])
    };
    let (api, _) = limiting(1000);
    let (target, andante) = (localhost(&api), serve("1/h"));
    let _waits = waiting(&andante, &target);
    let line = drained(andante);
    assert!(line.contains("refused=1 cut_off=0"), "it could not leave within the drain: {line}");
    // An API that never answers.
    let silent = Upstream::secure(server(&["http/1.1"]), |mut connection| drop(connection.rest()));
    let (target, andante) = (localhost(&silent), serve("100/s"));
    let mut open = connect(&andante, &target);
    open.send(get(&target));
    andante.wait_for(|status| status["lanes"][0]["in_flight"] == 1);
    let line = drained(andante);
    assert!(line.contains("refused=0 cut_off=1"), "{line}");
    // A connection that its client has closed before is not cut off.
    let (target, andante) = (localhost(&api), serve("100/s"));
    let mut idle = connect(&andante, &target);
    idle.send(get(&target));
    assert_eq!(idle.answer().status(), 200);
    idle.finish();
    let line = drained(andante);
    assert!(line.contains("refused=0 cut_off=0"), "{line}");
}

/// An andante whose rules are reloaded.
struct Reloaded {
    andante: Andante,
    folder: tempfile::TempDir,
}

impl Reloaded {
    fn start(rules: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("andante.toml");
        std::fs::write(&file, Self::toml(rules)).unwrap();
        Self { andante: Andante::serve(&["--config", file.to_str().unwrap()]), folder }
    }

    /// A rule for each host, with its limit.
    fn toml(rules: &[(&str, &str)]) -> String {
        let rule = |(host, limit): &(&str, &str)| {
            format!("[[rule]]\nhost = \"{host}\"\nlimits = \"{limit}\"\nmax-wait = \"1s\"\n")
        };
        rules.iter().map(rule).collect()
    }

    fn reload(&self, rules: &[(&str, &str)]) {
        let before = self.andante.status()["config"]["reloads_total"].as_u64().unwrap();
        std::fs::write(self.folder.path().join("andante.toml"), Self::toml(rules)).unwrap();
        self.andante.signal(Signal::HUP);
        self.andante.wait_for(|status| status["config"]["reloads_total"] == before + 1);
    }
}

#[test]
fn a_reloaded_limit_holds_for_the_turns_of_open_tunnels() {
    let (api, seen) = limiting(1000);
    let target = localhost(&api);
    let world = Reloaded::start(&[("localhost", "1/h")]);
    let mut client = connect(&world.andante, &target);
    client.send(get(&target));
    assert_eq!(client.answer().status(), 200);
    world.reload(&[("localhost", "100/s")]);
    for _ in 0..5 {
        client.send(get(&target));
        assert_eq!(client.answer().status(), 200);
    }
    world.reload(&[("localhost", "1/h")]);
    client.send(get(&target));
    client.cut_off();
    assert_eq!(seen.lock().accepted.len(), 6);
}

#[test]
fn a_new_rule_for_a_port_holds_for_the_turns_of_open_tunnels() {
    let (api, seen) = limiting(1000);
    let target = localhost(&api);
    let world = Reloaded::start(&[("localhost", "100/s")]);
    let mut client = connect(&world.andante, &target);
    for _ in 0..5 {
        client.send(get(&target));
        assert_eq!(client.answer().status(), 200);
    }
    // What was sent to the port counts: the sixth of an hour waits for 12 minutes.
    world.reload(&[("localhost", "100/s"), (&target, "5/h burst 5")]);
    client.send(get(&target));
    client.cut_off();
    assert_eq!(seen.lock().accepted.len(), 5);
    // A tunnel goes back to the host's lane when the rule for its port goes.
    let mut client = connect(&world.andante, &target);
    world.reload(&[("localhost", "100/s")]);
    client.send(get(&target));
    assert_eq!(client.answer().status(), 200);
}

/// Limits with `key` hold for turns (docs/https.md), and the CONNECT has the field that the key names.
#[test]
fn turns_are_told_apart_by_a_key_and_cost_what_the_connect_states() {
    let (api, _) = limiting(1000);
    let target = localhost(&api);
    let andante = Andante::with_config(
        "[[rule]]\nhost = \"localhost\"\nlimits = \"100/s burst 100\"\nmax-wait = \"1s\"\n\
         [[rule]]\nhost = \"localhost\"\nkey = \"header:x-team\"\nlimits = \"20/h burst 20\"\nmax-cost = 20\nmax-wait = \"1s\"\n",
    );
    let ask = |fields: &str| {
        let mut client = Client::connect(andante.proxy());
        client.send(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{fields}\r\n"));
        client.opened();
        let mut client = trusting(&target).secure(client).expect("a handshake with the API itself");
        client.send(get(&target));
        client
    };
    // Each team has 20 an hour. A turn of 15 leaves no room for another one in its own team only.
    for team in ["a", "b"] {
        let fields = format!("X-Team: {team}\r\nAndante-Cost: 15\r\n");
        assert_eq!(ask(&fields).answer().status(), 200, "{team}");
        ask(&fields).cut_off();
    }
}

/// Each tunnel needs a slot of the host that its CONNECT names and of the one in its handshake, which are each other's.
#[test]
fn blind_tunnels_that_need_the_same_two_lanes_do_not_wait_for_each_other() {
    let (api, _) = limiting(1000);
    let (name, address) = (localhost(&api), api.address().to_string());
    let rule = |host: &str| {
        format!(
            "[[rule]]\nhost = \"{host}\"\nhttps = \"tunnel\"\nlimits = \"1000/s burst 1000\"\nin-flight = 1\nmax-wait = \"5s\"\nallow-private = true\n"
        )
    };
    let andante = Andante::with_config(&(rule("localhost") + &rule("127.0.0.1")));
    thread::scope(|scope| {
        for target in [&name, &address] {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        // The handshake names localhost.
                        let mut client = trusting(&name).secure(tunnel(&andante, target)).expect("a handshake");
                        client.send(get(&name));
                        assert_eq!(client.answer().status(), 200);
                    }
                });
            }
        }
    });
}

/// The rule by path is for requests that are seen. The tunnel itself takes the slot of its CONNECT, and no second one.
#[test]
fn a_blind_tunnel_to_a_host_without_limits_takes_one_slot() {
    let (api, _) = limiting(1000);
    let target = localhost(&api);
    let andante = Andante::with_config(
        "[[rule]]\nhost = \"localhost\"\nhttps = \"tunnel\"\n\
         [[rule]]\nhost = \"localhost\"\npath = \"/search\"\nlimits = \"1/h\"\n",
    );
    let mut client = connect(&andante, &target);
    client.send(get(&target));
    assert_eq!(client.answer().status(), 200);
    assert_eq!(andante.status()["lanes"][0]["sent_total"], 1);
}

/// A connection to the API itself through a tunnel to its address, with these `fields` in the CONNECT.
fn by_address(andante: &Andante, api: &Upstream, fields: &str) -> Client {
    let address = api.address();
    let mut client = Client::connect(andante.proxy());
    client.send(format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n{fields}\r\n"));
    client.opened();
    trusting(&localhost(api)).secure(client).expect("a handshake with the API itself")
}

/// By the rule of the name, requests that state nothing have urgency 6. By that of the address they would have 3.
#[test]
fn turns_at_an_address_have_the_urgency_of_the_names_rule() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let seen = order.clone();
    let api = Upstream::secure(server(&["http/1.1"]), move |mut connection| {
        while let Some(request) = connection.request() {
            seen.lock().push(request.target());
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let andante = Andante::with_config("[[rule]]\nhost = \"localhost\"\nlimits = \"1/s\"\nurgency = 6\n");
    let paths = ["/first", "/usual/1", "/usual/2", "/stated"];
    let mut clients =
        paths.map(|path| by_address(&andante, &api, if path == "/stated" { "Priority: u=5\r\n" } else { "" }));
    for (sent, (path, client)) in paths.iter().zip(&mut clients).enumerate() {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        andante.wait_for(|status| {
            let mut lanes = status["lanes"].as_array().into_iter().flatten();
            let lane = lanes.find(|lane| lane["host"].as_str().is_some_and(|host| host.starts_with("localhost")));
            let count = |key: &str| lane.map_or(0, |lane| lane[key].as_u64().unwrap());
            count("sent_total") + count("waiting") == sent as u64 + 1
        });
    }
    for client in &mut clients {
        assert_eq!(client.answer().status(), 200);
    }
    assert_eq!(*order.lock(), ["/first", "/stated", "/usual/1", "/usual/2"]);
}

#[test]
fn turn_at_an_address_waits_no_longer_than_the_names_rule_allows() {
    let (api, seen) = limiting(1000);
    let andante = Andante::with_config("[[rule]]\nhost = \"localhost\"\nlimits = \"1/h\"\nmax-wait = \"1s\"\n");
    let mut client = by_address(&andante, &api, "");
    client.send(get("localhost"));
    assert_eq!(client.answer().status(), 200);
    client.send(get("localhost"));
    client.cut_off();
    assert_eq!((seen.lock().accepted.len(), turns(&andante, "refused")), (1, 1));
}
