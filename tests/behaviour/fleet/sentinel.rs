//! A store watched by Sentinels: real servers, where a replica replaces the primary.

use std::{net::TcpListener, thread, time::Duration};

use rustix::process::Signal;

use super::{SECOND, World};
use crate::support::{Andante, Redis, eventually, eventually_within};

/// A server with replicas, and the Sentinels that watch them.
struct Watched {
    replicas: Vec<Redis>,
    sentinels: Vec<Redis>,
}

impl Watched {
    /// Replicas begin to follow at once.
    const SOON: [&str; 2] = ["--repl-diskless-sync-delay", "0"];

    /// Two replicas and three Sentinels, which all know each other.
    fn over(server: &Redis) -> Self {
        let port = server.address().port().to_string();
        let follow = [&["--replicaof", "127.0.0.1", &port][..], &Self::SOON].concat();
        let replicas = vec![Redis::start_with(&follow), Redis::start_with(&follow)];
        eventually("that the replicas follow", || {
            (server.ask("INFO replication")?.matches("state=online").count() == 2).then_some(())
        });
        let sentinels: Vec<Redis> = (0..3).map(|_| Redis::sentinel(server)).collect();
        for sentinel in &sentinels {
            eventually("that all know of each other", || {
                let said = sentinel.ask("SENTINEL MASTER main")?;
                let count = |name: &str| said.split(name).nth(1)?.lines().nth(2)?.parse().ok();
                (count("num-slaves") == Some(2) && count("num-other-sentinels") == Some(2)).then_some(())
            });
        }
        Self { replicas, sentinels }
    }

    /// URL of the Sentinels, behind an address without a Sentinel.
    fn url(&self) -> String {
        let hosts: Vec<String> = self.sentinels.iter().map(|sentinel| sentinel.address().to_string()).collect();
        format!("redis+sentinel://127.0.0.1:1,{}/main", hosts.join(","))
    }

    /// The port of the server that decides, as the first of the Sentinels has it.
    fn decides(&self) -> String {
        let said = self.sentinels[0].ask("SENTINEL GET-MASTER-ADDR-BY-NAME main").unwrap();
        said.lines().nth(4).unwrap_or_default().to_owned()
    }
}

/// Number of times that members have rejoined to report their tokens.
fn epoch(world: &World, member: usize) -> u64 {
    world.members[member].status()["fleet"]["epoch"].as_u64().unwrap()
}

#[test]
fn no_window_has_more_when_another_server_takes_over_and_the_first_one_comes_back() {
    let store = Redis::start_with(&Watched::SOON);
    let watched = Watched::over(&store);
    let done = Andante::command().args(["fleet", "init", "--store", &watched.url()]).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let mut world = World::found_by(&watched.url(), store, "60/s", 3);
    for at in 0..3 {
        eventually("that it joins", || (world.standing(at) == "shared").then_some(()));
    }
    world.press_all();
    thread::park_timeout(2 * SECOND);
    let (first, before) = (watched.decides(), epoch(&world, 0));
    // The primary answers no call: a replica takes its place. When the old primary resumes, no member trusts its
    // answers.
    world.store.signal(Signal::STOP);
    let stopped = world.accepts_in(5 * SECOND);
    let second = watched.decides();
    assert_ne!(second, first);
    world.store.signal(Signal::CONT);
    let back = world.accepts_in(3 * SECOND);
    for at in 0..3 {
        eventually("that it has found the other one", || (epoch(&world, at) > before).then_some(()));
        // Tokens that no member has reported are not granted yet.
        assert_eq!(world.standing(at), "learning");
    }
    // The second server is killed, and another replica takes over. A member dies meanwhile.
    let before = epoch(&world, 1);
    let killed = watched.replicas.iter().find(|replica| replica.address().port().to_string() == second).unwrap();
    killed.signal(Signal::KILL);
    drop(world.members.remove(0));
    thread::park_timeout(5 * SECOND);
    assert_ne!(watched.decides(), second);
    // The third server decides nothing before the first one follows it. A Sentinel may announce the third only after
    // two looks at it, every ten seconds (SENTINEL_INFO_PERIOD of Redis's sentinel.c). By then the lease is over, and
    // for the time of a lease no token is granted.
    let patience = Duration::from_secs(40);
    for at in 0..2 {
        eventually_within(patience, "that it has found the third", || (epoch(&world, at) > before).then_some(()));
    }
    let accepted = world.count("accepted");
    eventually_within(patience, "that requests leave", || (world.count("accepted") > accepted).then_some(()));
    // A third is missing.
    let third = world.accepts_in(3 * SECOND);
    assert!(
        stopped >= 270 && back >= 160 && third >= 95,
        "{stopped} of 300, {back} of 180, {third} of 120 that are left"
    );
    world.kept(60);
}

#[test]
fn a_server_that_hears_of_none_of_its_replicas_decides_nothing() {
    let store = Redis::start_with(&Watched::SOON);
    let watched = Watched::over(&store);
    // The first address accepts connections and stays silent.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = watched.url().replace("127.0.0.1:1,", &format!("{},", mute.local_addr().unwrap()));
    let world = World::found_by(&url, store, "60/s", 1);
    eventually("that it joins", || (world.standing(0) == "learning").then_some(()));
    // Of three servers two are needed.
    watched.replicas[0].signal(Signal::STOP);
    thread::park_timeout(4 * SECOND);
    assert!(world.members[0].status()["fleet"]["problem"].is_null());
    watched.replicas[1].signal(Signal::STOP);
    let problem = eventually("that it is refused", || {
        let problem = world.members[0].status()["fleet"]["problem"].clone();
        problem.is_string().then_some(problem)
    });
    assert!(problem.as_str().unwrap().contains("hears of 0 of its replicas and has to hear of 1"), "{problem}");
    watched.replicas.iter().for_each(|replica| replica.signal(Signal::CONT));
    eventually("that it is back", || world.members[0].status()["fleet"]["problem"].is_null().then_some(()));
    // A name that no Sentinel knows.
    let url = watched.url().replace("/main", "/other");
    let done = Andante::command().args(["fleet", "init", "--store", &url]).output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(!done.status.success() && said.contains("the Sentinel at 127.0.0.1:") && said.contains("name"), "{said}");
}
