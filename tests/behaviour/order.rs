//! Whose turn it is: clients share what waits, flows share what their client gets, and the urgent go first.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use crate::support::{Andante, Client, Upstream, rejected};

/// A rule of 20 requests a second, the first of which has been used.
fn busy(more: &str) -> (Upstream, Andante) {
    let upstream = Upstream::ok();
    let host = upstream.address();
    let andante = Andante::with_config(&format!("[[rule]]\nhost = \"{host}\"\nlimits = [\"20/s\"]\n{more}\n"));
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/first")).status(), 200);
    (upstream, andante)
}

/// Sends a GET for `path` from 127.0.0.`source`, with `fields`, and does not wait for the answer.
fn send(andante: &Andante, upstream: &Upstream, source: u8, path: &str, fields: &str) -> Client {
    let stream = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&stream, &SocketAddr::from((Ipv4Addr::new(127, 0, 0, source), 0))).unwrap();
    connect(&stream, &andante.proxy()).unwrap();
    let mut client = Client::over(TcpStream::from(stream));
    client.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", upstream.url(path), upstream.address()));
    client
}

fn wait_for(andante: &Andante, waiting: u64) {
    andante.wait_for(|status| status["lanes"][0]["waiting"].as_u64() >= Some(waiting));
}

/// The paths in the order in which they came, from the first one called `path` on.
fn order(upstream: &Upstream, from: &str, count: usize) -> Vec<String> {
    let all: Vec<String> = upstream.wait_for(count).iter().map(|request| request.target()).collect();
    let first = all.iter().position(|target| target == from).expect("it has come");
    all[first..].to_vec()
}

/// One client has 60 requests sent, the fields of which are `fields`; another one that comes then has every other slot.
fn every_other_slot_is_anothers(fields: impl Fn(usize) -> String) {
    let (upstream, andante) = busy("");
    let _flood: Vec<_> = (0..60).map(|n| send(&andante, &upstream, 1, "/flood", &fields(n))).collect();
    wait_for(&andante, 40);
    let _other: Vec<_> = (0..10).map(|_| send(&andante, &upstream, 2, "/other", "")).collect();
    let order = order(&upstream, "/other", 71);
    let turns = order.iter().rposition(|target| target == "/other").unwrap();
    // The first of them came before the second was sent, perhaps.
    assert!((18..=22).contains(&turns), "ten slots of every other one: {order:?}");
}

#[test]
fn another_client_gets_every_other_slot() {
    every_other_slot_is_anothers(|_| String::new());
}

#[test]
fn many_names_of_one_client_gain_nothing() {
    every_other_slot_is_anothers(|n| format!("Andante-Flow: name-{n}\r\n"));
}

#[test]
fn the_status_says_who_waits_most() {
    let (upstream, andante) = busy("");
    let named = |source, name: &str| send(&andante, &upstream, source, "/", &format!("Andante-Flow: {name}\r\n"));
    let _waiting: Vec<_> = (0..20).map(|_| named(1, "batch")).chain((0..9).map(|_| named(2, "live"))).collect();
    wait_for(&andante, 20);
    let flows = andante.status()["lanes"][0]["flows"].clone();
    assert_eq!((&flows[0]["client"], &flows[1]["client"]), (&"127.0.0.1".into(), &"127.0.0.2".into()), "{flows}");
    assert!(flows[0]["waiting"].as_u64() > flows[1]["waiting"].as_u64(), "{flows}");
    assert!(flows[0]["urgency"] == 3 && flows[0]["flow"].is_string() && flows[2].is_null(), "{flows}");
}

#[test]
fn an_urgent_request_leaves_in_the_next_slot() {
    let (upstream, andante) = busy("");
    let _flood: Vec<_> = (0..40).map(|_| send(&andante, &upstream, 1, "/flood", "")).collect();
    wait_for(&andante, 30);
    let before = upstream.requests().len();
    let mut urgent = send(&andante, &upstream, 1, "/urgent", "Priority: u=0\r\n");
    assert_eq!(urgent.answer().status(), 200);
    let place = upstream.requests().iter().position(|request| request.target() == "/urgent").unwrap();
    assert!(place <= before + 2, "{place}, where {before} had left when it was sent");
}

#[test]
fn the_least_urgent_get_their_share_under_a_flood() {
    let (upstream, andante) = busy("");
    let _last: Vec<_> = (0..5).map(|_| send(&andante, &upstream, 1, "/last", "Priority: u=7\r\n")).collect();
    let _flood: Vec<_> = (0..90).map(|_| send(&andante, &upstream, 2, "/flood", "Priority: u=0\r\n")).collect();
    let all: Vec<String> = upstream.wait_for(80).iter().map(|request| request.target()).collect();
    // One after each twenty of the others; one or two had left before the flood came.
    let last = all.iter().filter(|target| *target == "/last").count();
    assert!((3..=5).contains(&last), "{last} in {all:?}");
    let urgent = all.iter().filter(|target| *target == "/flood").count();
    assert!(urgent >= 74, "{urgent} in {all:?}");
}

#[test]
fn only_those_whom_the_rule_names_may_be_urgent() {
    let (upstream, andante) = busy("urgent = [\"127.0.0.2\"]");
    let _flood: Vec<_> = (0..30).map(|_| send(&andante, &upstream, 1, "/flood", "")).collect();
    wait_for(&andante, 25);
    let _pushy = send(&andante, &upstream, 1, "/pushy", "Priority: u=0\r\n");
    wait_for(&andante, 20);
    let mut named = send(&andante, &upstream, 2, "/named", "Priority: u=0\r\n");
    assert_eq!(named.answer().status(), 200);
    assert!(upstream.requests().iter().all(|request| request.target() != "/pushy"));
}

#[test]
fn flows_share_by_their_weights() {
    let (upstream, andante) = busy("weights = [\"live=3\"]");
    let flow = |name: &str| send(&andante, &upstream, 1, &format!("/{name}"), &format!("Andante-Flow: {name}\r\n"));
    let _both: Vec<_> = (0..32).flat_map(|_| [flow("batch"), flow("live")]).collect();
    wait_for(&andante, 56);
    let before = upstream.requests().len();
    let all = upstream.wait_for(before + 24);
    let live = all[before..before + 24].iter().filter(|request| request.target() == "/live").count();
    assert!((17..=19).contains(&live), "{live} of 24 at three to one");
}

#[test]
fn what_costs_more_takes_more_and_what_costs_too_much_is_refused() {
    let (upstream, andante) = busy("");
    let ask = |cost: &str| send(&andante, &upstream, 1, "/", &format!("Andante-Cost: {cost}\r\n")).answer();
    for wrong in ["0", "many", "21"] {
        rejected(&ask(wrong), 400, "http_request_error", wrong);
    }
    assert_eq!(ask("20").status(), 200);
    // The whole second is used.
    let wait = upstream.address();
    let next = format!("GET http://{wait}/ HTTP/1.1\r\nHost: {wait}\r\nPrefer: wait=0\r\n\r\n");
    assert_eq!(Client::ask(andante.proxy(), next).status(), 429);
}

#[test]
fn what_is_meant_for_andante_stays_with_it() {
    let upstream =
        Upstream::always("HTTP/1.1 200 OK\r\nAndante-Flow: x\r\nAndante-Cost: 1\r\nContent-Length: 2\r\n\r\nok");
    let andante = Andante::serve(&[]);
    let fields = "Andante-Flow: x\r\nAndante-Cost: 2\r\nPriority: u=1\r\n";
    let answer = send(&andante, &upstream, 1, "/", fields).answer();
    let request = upstream.request();
    for name in ["andante-flow", "andante-cost"] {
        assert!(!answer.has(name) && !request.has(name), "{name}");
    }
    assert_eq!(request.field("priority").as_deref(), Some("u=1"));
}
