//! In-flight limits of a fleet. The API counts the requests, and need not notice which member is killed.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::process::Signal;

use super::{SECOND, work};
use crate::support::{Andante, Redis, Upstream, eventually};

/// An API that counts requests in flight, and the andantes that share the limit on them.
struct World {
    api: Upstream,
    count: Arc<Count>,
    members: Vec<Andante>,
    _store: Redis,
}

#[derive(Default)]
struct Count {
    under_way: AtomicU64,
    /// The most there ever were, and since it was looked at last.
    most: AtomicU64,
    lately: AtomicU64,
    answered: AtomicU64,
}

/// Duration of an answer.
const TAKES: Duration = Duration::from_millis(200);

impl World {
    fn new(members: usize) -> Self {
        let count = Arc::new(Count::default());
        let counts = count.clone();
        let api = Upstream::scripted(move |mut connection| {
            while connection.request().is_some() {
                let now = counts.under_way.fetch_add(1, Ordering::SeqCst) + 1;
                counts.most.fetch_max(now, Ordering::SeqCst);
                counts.lately.fetch_max(now, Ordering::SeqCst);
                thread::park_timeout(TAKES);
                counts.under_way.fetch_sub(1, Ordering::SeqCst);
                counts.answered.fetch_add(1, Ordering::SeqCst);
                connection.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            }
        });
        let store = Redis::for_a_fleet_with(&["--lease", "2s"]);
        let (url, host) = (store.url(), api.address());
        let config = format!(
            "lease = \"2s\"\nin-flight-hold = \"3s\"\nstore = \"{url}\"\n[[rule]]\nname = \"api\"\nhost = \"{host}\"\n\
             in-flight = 6\nallow-private = true\n"
        );
        let mut world = Self { api, count, members: Vec::new(), _store: store };
        for member in 0..members {
            world.members.push(Andante::with_config(&config));
            let joined = || (world.members[member].status()["fleet"]["standing"] == "shared").then_some(());
            eventually("that it joins", joined);
        }
        world
    }

    fn press(&self, member: usize) {
        for _ in 0..8 {
            let proxy: SocketAddr = self.members[member].proxy();
            let (url, host) = (self.api.url("/"), self.api.address());
            let ask = format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            thread::spawn(move || work(proxy, &ask));
        }
    }

    /// Peak of the requests in flight in this time, and the number of answered ones.
    fn watch(&self, time: Duration) -> (u64, u64) {
        let answered = self.count.answered.load(Ordering::SeqCst);
        self.count.lately.store(self.count.under_way.load(Ordering::SeqCst), Ordering::SeqCst);
        thread::park_timeout(time);
        (self.count.lately.load(Ordering::SeqCst), self.count.answered.load(Ordering::SeqCst) - answered)
    }

    fn held(&self, member: usize) -> u64 {
        self.members[member].status()["lanes"][0]["in_flight_share"]["held"].as_u64().unwrap_or(0)
    }

    fn kept(&self) {
        assert_eq!(self.count.most.load(Ordering::SeqCst), 6, "never more, and as many");
    }
}

#[test]
fn as_many_are_under_way_as_may_be_whoever_sends_them_and_whoever_dies() {
    let mut world = World::new(3);
    // All for one, while the others idle.
    world.press(0);
    thread::park_timeout(SECOND);
    let (most, answered) = world.watch(3 * SECOND);
    println!("one alone: {most} at once, {answered} of 90");
    assert!(most == 6 && answered >= 75, "{most} at once, {answered} of 90");
    // An equal part for each.
    (1..3).for_each(|member| world.press(member));
    thread::park_timeout(3 * SECOND);
    let (most, answered) = world.watch(3 * SECOND);
    let held = [0, 1, 2].map(|member| world.held(member));
    println!("three: {most} at once, {answered} of 90, {held:?}");
    assert!(most <= 6 && answered >= 70 && held == [2; 3], "{most} at once, {answered} of 90, {held:?}");
    world.kept();
    // A member is stopped. Its tokens are missing for a lease and the hold, and no longer.
    world.members[2].signal(Signal::STOP);
    thread::park_timeout(2 * SECOND);
    let (most, answered) = world.watch(2 * SECOND);
    println!("one is stopped: {most} at once, {answered} of 40");
    assert!(most <= 4 && answered >= 30, "{most} at once, {answered} of 40");
    thread::park_timeout(5 * SECOND);
    let (most, answered) = world.watch(2 * SECOND);
    println!("for long: {most} at once, {answered} of 60");
    assert!(most == 6 && answered >= 45, "{most} at once, {answered} of 60");
    // The stopped member resumes, and rejoins.
    world.members[2].signal(Signal::CONT);
    eventually("its part", || (world.held(2) == 2).then_some(()));
    world.kept();
    // A member is killed.
    drop(world.members.remove(1));
    thread::park_timeout(8 * SECOND);
    let (most, answered) = world.watch(2 * SECOND);
    println!("one is killed: {most} at once, {answered} of 60");
    assert!(most == 6 && answered >= 45, "{most} at once, {answered} of 60");
    // A member ends properly, and the others wait for nothing.
    let mut last = world.members.remove(1);
    last.signal(Signal::TERM);
    assert!(last.ended().success());
    thread::park_timeout(2 * SECOND);
    let (most, answered) = world.watch(2 * SECOND);
    println!("one has left: {most} at once, {answered} of 60");
    assert!(most == 6 && answered >= 45, "{most} at once, {answered} of 60");
    world.kept();
}
