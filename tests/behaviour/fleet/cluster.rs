//! A store in a cluster: real servers, where a replica replaces the primary.

use std::{net::TcpListener, thread};

use rustix::process::Signal;

use super::{SECOND, World};
use crate::support::{Andante, Redis, eventually};

/// Three servers that divide the slots, and a replica of each. The first one has ours.
struct Cluster {
    servers: Vec<Redis>,
    replicas: Vec<Redis>,
}

impl Cluster {
    fn start() -> Self {
        let start = || {
            let bus = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
            let args = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-port", &bus];
            (Redis::start_with(&[&args[..], &["--repl-diskless-sync-delay", "0"]].concat()), bus)
        };
        let (mut servers, mut replicas): (Vec<_>, Vec<_>) =
            ((0..3).map(|_| start()).collect(), (0..3).map(|_| start()).collect());
        let slot = number(&servers[0].0.ask("CLUSTER KEYSLOT {andante}:ledger").unwrap());
        let ranges = [(0, 5461), (5462, 10_923), (10_924, 16_383)];
        for (other, bus) in servers.iter().chain(&replicas).skip(1) {
            let meet = format!("CLUSTER MEET 127.0.0.1 {} {bus}", other.address().port());
            assert_eq!(servers[0].0.ask(&meet).as_deref(), Some("+OK\r\n"));
        }
        for ((server, _), (from, to)) in servers.iter().zip(ranges) {
            let taken = server.ask(&format!("CLUSTER ADDSLOTSRANGE {from} {to}"));
            assert_eq!(taken.as_deref(), Some("+OK\r\n"));
        }
        for ((replica, _), (server, _)) in replicas.iter().zip(&servers) {
            let id = server.ask("CLUSTER MYID").unwrap().lines().nth(1).unwrap().to_owned();
            eventually("that it knows of it", || {
                let done = replica.ask(&format!("CLUSTER REPLICATE {id}"))?;
                done.starts_with("+OK").then_some(())
            });
        }
        let at = (slot / 5462) as usize;
        servers.swap(0, at);
        replicas.swap(0, at);
        let strip = |pairs: Vec<(Redis, String)>| pairs.into_iter().map(|(redis, _)| redis).collect();
        let cluster = Self { servers: strip(servers), replicas: strip(replicas) };
        for one in cluster.servers.iter().chain(&cluster.replicas) {
            eventually("that all is served", || one.ask("CLUSTER INFO")?.contains("cluster_state:ok").then_some(()));
        }
        for replica in &cluster.replicas {
            eventually("that it follows", || replica.ask("INFO replication")?.contains("link_status:up").then_some(()));
        }
        cluster
    }
}

fn number(said: &str) -> u32 {
    said.trim().trim_start_matches(':').parse().unwrap()
}

#[test]
fn no_window_has_more_when_a_server_of_a_cluster_is_replaced() {
    let Cluster { mut servers, replicas } = Cluster::start();
    let ours = servers.remove(0);
    // A server with other slots, and an address without a server.
    let url = format!("redis+cluster://127.0.0.1:1,{}", servers[0].address());
    let init = |url: &str| {
        let done = Andante::command().args(["fleet", "init", "--store", url]).output().unwrap();
        (done.status.success(), String::from_utf8(done.stdout).unwrap() + &String::from_utf8(done.stderr).unwrap())
    };
    for wrong in [&servers[0], &ours] {
        let (done, said) = init(&wrong.url());
        assert!(!done && said.contains("part of a cluster") && said.contains("redis+cluster://"), "{said}");
    }
    // The first one is not there.
    assert!(!init(&url).0);
    let url = format!("redis+cluster://{},{}", servers[0].address(), servers[1].address());
    let (done, said) = init(&url);
    assert!(done && said.contains("is new"), "{said}");
    let world = World::found_by(&url, ours, "60/s", 3);
    for at in 0..3 {
        eventually("that it joins", || (world.standing(at) == "shared").then_some(()));
    }
    world.press_all();
    thread::park_timeout(2 * SECOND);
    let steady = world.accepts_in(2 * SECOND);
    let epoch = |at: usize| world.members[at].status()["fleet"]["epoch"].as_u64().unwrap();
    let before = epoch(0);
    world.store.signal(Signal::STOP);
    let replaced = world.accepts_in(6 * SECOND);
    assert!(replicas[0].ask("ROLE").unwrap().contains("master"));
    world.store.signal(Signal::CONT);
    for at in 0..3 {
        eventually("that it has found the other one", || (epoch(at) > before).then_some(()));
    }
    let after = world.accepts_in(2 * SECOND);
    assert!(steady >= 105 && replaced >= 325 && after >= 100, "{steady} of 120, {replaced} of 360, {after} of 120");
    world.kept(60);
}
