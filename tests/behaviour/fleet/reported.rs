//! What an API reports of a limit that nobody has configured is divided among the andantes that share a store.

use std::thread;

use super::{SECOND, World};
use crate::support::{Andante, Mock, Redis};

/// An API that says limit, remaining and reset, and three andantes that know nothing of it.
fn world(limit: &str) -> World {
    let (api, store) = (Mock::start(&["--limit", limit, "--dialect", "ietf"]), Redis::for_a_fleet());
    let mut world = World { api, url: store.url(), store, limits: String::new(), members: Vec::new() };
    for _ in 0..3 {
        let member = Andante::serve(&["--store", &world.url]);
        member.wait_for(|status| status["fleet"]["standing"] == "shared");
        world.members.push(member);
    }
    world
}

/// Each has a third: 33 of 100. The store is away for longer than the lease then, and each goes on with what it has.
#[test]
fn three_divide_what_an_api_reports() {
    let mut world = world("100/10s");
    world.press_all();
    thread::park_timeout(11 * SECOND);
    let (refused, before) = (world.count("refused"), [0, 1, 2].map(|member| world.sent(member)));
    let accepted = world.accepts_in(20 * SECOND);
    assert!(accepted >= 188, "{accepted} of 200");
    let late = world.count("refused") - refused;
    assert!(late <= 2, "{late} of 200 were refused");
    for (member, before) in before.into_iter().enumerate() {
        let sent = world.sent(member) - before;
        assert!((58..=75).contains(&sent), "{sent} of 67 by {member}");
    }
    world.store.kill();
    let refused = world.count("refused");
    let accepted = world.accepts_in(20 * SECOND);
    assert!(accepted >= 188, "{accepted} of 200 without the store");
    let late = world.count("refused") - refused;
    assert!(late <= 2, "{late} of 200 were refused");
}
