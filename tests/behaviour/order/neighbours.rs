//! Shares beside a neighbour whose requests cost much.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use crate::support::{Andante, Client, Upstream};

/// A sender of requests, one after another, on a connection of its own.
#[derive(Clone, Copy)]
struct Sender {
    /// The last byte of its address, 127.0.0.N.
    source: u8,
    path: &'static str,
    fields: &'static str,
    /// Units that each request takes.
    cost: usize,
}

impl Sender {
    fn connect(self, andante: &Andante, upstream: &Upstream) -> (Client, String) {
        let Self { source, path, fields, .. } = self;
        let request = format!("GET {} HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", upstream.url(path), upstream.address());
        (Client::connect_from(source, andante.proxy()), request)
    }
}

/// Has the victim send 20 requests, each after the answer to the one before, while four connections of the neighbour do
/// the same. Returns the victim's share of all units that both took.
fn share_of_victim(limits: &str, max_cost: &str, victim: Sender, neighbour: Sender) -> f64 {
    const REQUESTS: usize = 20;
    let upstream = Upstream::ok();
    let host = upstream.address();
    let andante = Andante::with_config(&format!(
        "identity = \"address\"\n[[rule]]\nhost = \"{host}\"\nlimits = [{limits}]\nmax-cost = \"{max_cost}\"\n"
    ));
    let over = Arc::new(AtomicBool::new(false));
    let neighbours: Vec<_> = (0..4)
        .map(|_| {
            let ((mut client, request), over) = (neighbour.connect(&andante, &upstream), over.clone());
            thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    client.send(&request);
                    assert_eq!(client.answer().status(), 200);
                }
            })
        })
        .collect();
    andante.wait_for(|status| status["lanes"][0]["waiting"].as_u64() >= Some(3));
    let sent = |path: &str| upstream.requests().iter().filter(|request| request.target() == path).count();
    let before = sent(neighbour.path);
    let (mut client, request) = victim.connect(&andante, &upstream);
    for _ in 0..REQUESTS {
        client.send(&request);
        assert_eq!(client.answer().status(), 200);
    }
    let (of_victim, of_neighbour) = (REQUESTS * victim.cost, (sent(neighbour.path) - before) * neighbour.cost);
    over.store(true, Ordering::Relaxed);
    neighbours.into_iter().for_each(|neighbour| neighbour.join().unwrap());
    of_victim as f64 / (of_victim + of_neighbour) as f64
}

/// A fair share is half, and the last large request counts whole: 45% is 10% less.
fn is_fair(share: f64) -> bool {
    (0.45..=0.6).contains(&share)
}

const VICTIM: Sender = Sender { source: 2, path: "/victim", fields: "", cost: 1 };

#[test]
fn client_has_its_share_beside_one_whose_requests_cost_the_most_allowed() {
    let neighbour = Sender { source: 3, path: "/neighbour", fields: "Andante-Cost: 4\r\n", cost: 4 };
    let share = share_of_victim("\"10/s\"", "requests=4", VICTIM, neighbour);
    assert!(is_fair(share), "{share}");
}

#[test]
fn flow_has_its_share_beside_one_whose_requests_cost_the_most_allowed() {
    let victim = Sender { fields: "Andante-Flow: victim\r\n", ..VICTIM };
    let fields = "Andante-Flow: neighbour\r\nAndante-Cost: 4\r\n";
    let share =
        share_of_victim("\"10/s\"", "requests=4", victim, Sender { path: "/neighbour", fields, cost: 4, ..VICTIM });
    assert!(is_fair(share), "{share}");
}

#[test]
fn client_has_its_share_of_tokens_beside_one_whose_requests_take_the_most_allowed() {
    let victim = Sender { fields: "Andante-Cost: tokens=10\r\n", cost: 10, ..VICTIM };
    let fields = "Andante-Cost: tokens=40\r\n";
    let neighbour = Sender { source: 3, path: "/neighbour", fields, cost: 40 };
    let share = share_of_victim("\"1000/s\", \"100 tokens/s\"", "tokens=40", victim, neighbour);
    assert!(is_fair(share), "{share}");
}
