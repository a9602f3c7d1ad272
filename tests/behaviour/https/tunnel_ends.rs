//! Ends of tunnels: the last bytes of an API reach the worker, and a worker that is still sending is not reset.

use std::{path::Path, time::Duration};

use super::{localhost, server};
use crate::support::{
    Andante, Client, Connection, Upstream, pause,
    tls::{TRUSTED, Worker},
};

/// More than the buffers of all sockets on the way hold.
const UPLOAD_BYTES: usize = 8_000_000;

const TOO_LARGE: &str = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 7\r\nConnection: close\r\n\r\ntoo big";

/// Reads a little of an upload, answers 413, and closes with the rest unread: the system resets the connection.
fn refuse(mut connection: Connection) {
    if connection.head().is_some() && connection.bytes(100_000).is_ok() {
        connection.send(TOO_LARGE);
    }
}

fn tunnel(andante: &Andante, target: &str) -> Client {
    let mut client = Client::connect(andante.proxy());
    client.send(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"));
    client.opened();
    client
}

/// A connection to the API itself, through a tunnel.
fn secured(andante: &Andante, target: &str) -> Client {
    let worker = Worker::trusting(Path::new(TRUSTED.file()), target);
    worker.secure(tunnel(andante, target)).expect("a handshake with the API itself")
}

/// Sends an upload whole, and only then reads: a reset fails it, or takes the answer with it.
fn is_refused(mut client: Client, target: &str) {
    client.send(format!("PUT / HTTP/1.1\r\nHost: {target}\r\nContent-Length: {UPLOAD_BYTES}\r\n\r\n"));
    client.send(vec![b'x'; UPLOAD_BYTES]);
    let answer = client.answer();
    assert_eq!((answer.status(), answer.text().as_str()), (413, "too big"), "{answer:?}");
}

fn uploads_are_refused(rules: &str) -> Andante {
    let api = Upstream::secure(server(&["http/1.1"]), refuse);
    let (andante, target) = (Andante::with_config(rules), localhost(&api));
    for _ in 0..10 {
        is_refused(secured(&andante, &target), &target);
    }
    andante
}

#[test]
fn answer_before_a_reset_reaches_the_worker_through_a_tunnel_without_rules() {
    uploads_are_refused("");
}

#[test]
fn answer_before_a_reset_reaches_the_worker_through_a_tunnel_with_a_slot() {
    uploads_are_refused("[[rule]]\nhost = \"localhost\"\nlimits = \"1000/s\"\nhttps = \"tunnel\"\n");
}

#[test]
fn answer_before_a_reset_reaches_the_worker_in_turns_and_blames_no_queue() {
    let andante = uploads_are_refused("[[rule]]\nhost = \"localhost\"\nlimits = \"1000/s\"\n");
    let log = andante.stderr();
    assert!(!log.contains("the API closed a connection while a request in it waited"), "{log}");
    assert_eq!(andante.status()["incidents"], serde_json::json!([]));
}

#[test]
fn answer_before_a_reset_reaches_the_worker_through_a_tunnel_without_tls() {
    let api = Upstream::scripted(refuse);
    let (andante, target) = (Andante::with_config(""), api.address().to_string());
    for _ in 0..10 {
        is_refused(tunnel(&andante, &target), &target);
    }
}

/// A worker whose upload ends may still get its answer: half of the tunnel stays open.
#[test]
fn answer_after_the_worker_has_closed_its_side_reaches_it() {
    let api = Upstream::scripted(|mut connection| {
        while connection.bytes(1).is_ok() {}
        connection.send(vec![b'y'; 1_000_000]);
    });
    let (andante, target) = (Andante::with_config(""), api.address().to_string());
    let mut client = tunnel(&andante, &target);
    client.send("SSH-2.0-x");
    client.finish();
    assert_eq!(client.bytes(1_000_000).len(), 1_000_000);
    client.closed();
}

fn get(target: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: {target}\r\n\r\n")
}

/// A connection whose first turn has taken the only slot of an hour.
fn served(andante: &Andante, target: &str) -> Client {
    let mut client = secured(andante, target);
    client.send(get(target));
    assert_eq!(client.answer().status(), 200);
    client
}

fn incidents(andante: &Andante) -> Vec<(String, String, u64)> {
    let status = andante.status();
    let of = |incident: &serde_json::Value| {
        let text = |name: &str| incident[name].as_str().unwrap().to_owned();
        (text("kind"), text("detail"), incident["total"].as_u64().unwrap())
    };
    status["incidents"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn turns_whose_clients_leave_are_departures_of_the_lane() {
    let api = Upstream::secure_ok(server(&["http/1.1"]));
    let (andante, target) = (Andante::serve(&["--limit", "localhost=1/1800s"]), localhost(&api));
    let _first = served(&andante, &target);
    let mut waiting: Vec<Client> = (0..2).map(|_| secured(&andante, &target)).collect();
    waiting.iter_mut().for_each(|client| client.send(get(&target)));
    andante.wait_for(|status| status["lanes"][0]["waiting"] == 2);
    drop(waiting);
    andante.wait_for(|status| status["lanes"][0]["left_total"] == 2);
    let (status, lane) = (andante.status(), &andante.status()["lanes"][0]);
    assert_eq!((&lane["left_queued_total"], &status["turns"]["left"]), (&2.into(), &2.into()), "{status}");
    assert!(lane["left_seconds_max"].as_f64().unwrap() > 0.0, "{lane}");
}

#[test]
fn refused_turns_are_incidents_as_refused_requests_are() {
    let api = Upstream::secure_ok(server(&["http/1.1"]));
    let rule = "[[rule]]\nhost = \"localhost\"\nlimits = \"1/h\"\nmax-wait = \"1s\"\n";
    let (andante, target) = (Andante::with_config(rule), localhost(&api));
    let mut client = served(&andante, &target);
    client.send(get(&target));
    client.cut_off();
    let [(kind, detail, total)] = &incidents(&andante)[..] else { panic!("one cause") };
    assert_eq!((kind.as_str(), *total), ("http_request_denied", 1));
    assert!(detail.starts_with("localhost: no slot in the time that a request may wait"), "{detail}");
    assert_eq!(andante.status()["turns"]["refused"], 1);
}

#[test]
fn turns_whose_api_closes_while_they_wait_are_incidents() {
    let api = Upstream::secure(server(&["http/1.1"]), |mut connection| {
        connection.request();
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        pause(Duration::from_millis(500));
    });
    let (andante, target) = (Andante::serve(&["--limit", "localhost=1/h"]), localhost(&api));
    let mut client = served(&andante, &target);
    client.send(get(&target));
    client.closed();
    let [(kind, detail, total)] = &incidents(&andante)[..] else { panic!("one cause") };
    assert_eq!((kind.as_str(), *total), ("closed_in_queue", 1));
    assert!(detail.starts_with("localhost: the API closed a connection"), "{detail}");
    assert_eq!(andante.status()["turns"]["closed"], 1);
}
