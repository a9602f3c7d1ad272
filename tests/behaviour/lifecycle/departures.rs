//! Clients that give up before their turn: counted, with the time that they had waited, and told of where a time-out of
//! their own is behind it.

use std::time::Duration;

use serde_json::Value;

use super::{pass, quiet, waiting};
use crate::support::{Andante, Client, Upstream, eventually};

/// `count` clients that wait in a lane of one request an hour, and leave together after `patience`.
fn give_up(andante: &Andante, upstream: &Upstream, count: u64, patience: Duration) -> Value {
    let host = upstream.address();
    let ask = |_| {
        let mut client = Client::connect(andante.proxy());
        client.send(format!("GET {} HTTP/1.1\r\nHost: {host}\r\n\r\n", upstream.url("/")));
        client
    };
    let clients: Vec<Client> = (0..count).map(ask).collect();
    andante.wait_for(|status| waiting(status) == count);
    pass(patience);
    drop(clients);
    andante.wait_for(quiet)
}

fn busy(upstream: &Upstream) -> Andante {
    busy_with(upstream, "")
}

/// A lane of one request an hour, which has been used; its rule says `more`.
fn busy_with(upstream: &Upstream, more: &str) -> Andante {
    let host = upstream.address();
    let rule = format!("[[rule]]\nhost = \"{host}\"\nlimits = [\"1/h\"]\nmax-wait = \"1000d\"\n{more}\n");
    let andante = Andante::with_config(&rule);
    assert_eq!(Client::get(andante.proxy(), &upstream.url("/")).status(), 200);
    andante
}

fn told(andante: &Andante) -> Vec<String> {
    let log = andante.stderr();
    log.lines().filter(|line| line.contains("clients keep leaving")).map(str::to_owned).collect()
}

#[test]
fn who_leaves_the_queue_is_counted_with_the_time_that_it_had_waited() {
    let upstream = Upstream::ok();
    let andante = busy(&upstream);
    let status = give_up(&andante, &upstream, 3, Duration::from_millis(300));
    let lane = &status["lanes"][0];
    assert_eq!((&lane["left_total"], &lane["left_queued_total"]), (&3.into(), &3.into()), "{status:#}");
    let seconds = |name: &str| lane[name].as_f64().unwrap();
    assert!((0.3..3.0).contains(&seconds("left_seconds_max")), "{status:#}");
    assert!((0.9..9.0).contains(&seconds("left_seconds_total")), "{status:#}");
    assert_eq!(lane["left_after_s"], Value::Null, "three are too few to conclude anything");
    assert_eq!(told(&andante), [""; 0]);
}

#[test]
fn who_leaves_while_the_api_is_thinking_is_counted_apart() {
    let upstream = Upstream::scripted(|mut connection| {
        connection.request();
        let _ = connection.rest();
    });
    let andante = Andante::serve(&[]);
    let mut client = Client::connect(andante.proxy());
    client.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.url("/"), upstream.address()));
    upstream.wait_for(1);
    drop(client);
    let lane = &andante.wait_for(quiet)["lanes"][0];
    assert_eq!((&lane["left_total"], &lane["left_queued_total"]), (&1.into(), &0.into()), "{lane:#}");
}

#[test]
fn clients_that_keep_leaving_after_the_same_time_are_told_of_once() {
    let upstream = Upstream::ok();
    let andante = busy(&upstream);
    for _ in 0..3 {
        give_up(&andante, &upstream, 8, Duration::from_millis(500));
    }
    let lines = eventually("a line about those who leave", || Some(told(&andante)).filter(|lines| !lines.is_empty()));
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("WARN") && lines[0].contains("docs/troubleshooting.md"), "{lines:?}");
    let after = lines[0].split("after_s=").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok());
    assert!(after.is_some_and(|after| (0.5..0.8).contains(&after)), "{lines:?}");
    let lane = &andante.status()["lanes"][0];
    assert_eq!(lane["left_total"], 24);
    assert!((0.5..0.8).contains(&lane["left_after_s"].as_f64().unwrap()), "{lane:#}");
}

#[test]
fn what_clients_would_not_wait_for_is_refused_at_once_if_the_rule_says_so() {
    let upstream = Upstream::ok();
    let andante = busy_with(&upstream, "patience = \"learn\"");
    for _ in 0..2 {
        give_up(&andante, &upstream, 8, Duration::from_millis(500));
    }
    let left_after = |status: &Value| status["lanes"][0]["left_after_s"].as_f64();
    andante.wait_for(|status| left_after(status).is_some());
    for _ in 0..15 {
        let answer = Client::get(andante.proxy(), &upstream.url("/"));
        assert_eq!(answer.status(), 429, "it would wait for an hour");
        let retry_after: u64 = answer.field("retry-after").unwrap().parse().unwrap();
        // An hour from the first request on, less the waits of the others, and the time that has passed.
        assert!((3500..=3600).contains(&retry_after), "{retry_after}");
    }
    let mut sixteenth = Client::connect(andante.proxy());
    sixteenth.send(format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", upstream.url("/"), upstream.address()));
    andante.wait_for(|status| waiting(status) == 1);
    assert_eq!(andante.status()["requests"]["refused"], 15);
}
