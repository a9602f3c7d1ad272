//! What an API reports of a limit that nobody has configured is divided among the andantes that share a store.

use std::{thread, time::Duration};

use serde_json::Value;

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

/// Which part of what the API reports is a member's.
fn part(status: &Value) -> Option<f64> {
    status["lanes"][0]["limits"][0]["part"].as_f64()
}

/// A little longer than two windows: each member sends most of its third as soon as a window begins, and each has its own
/// beginnings, so that two of them are in any such time, and three in some.
const TWO_WINDOWS: Duration = Duration::from_secs(21);

/// Each has a third: 33 of 100. The store is away for longer than the lease then, and each goes on with what it has.
#[test]
fn three_divide_what_an_api_reports() {
    let mut world = world("100/10s");
    world.press_all();
    for member in &world.members {
        member.wait_for(|status| part(status).is_some_and(|part| (0.3..=0.37).contains(&part)));
    }
    // A window of before.
    thread::park_timeout(11 * SECOND);
    let (refused, before) = (world.count("refused"), [0, 1, 2].map(|member| world.sent(member)));
    let accepted = world.accepts_in(TWO_WINDOWS);
    assert!(accepted >= 188, "{accepted} of 200");
    let late = world.count("refused") - refused;
    assert!(late <= 10, "{late} of 200 were refused");
    for (member, before) in before.into_iter().enumerate() {
        let sent = world.sent(member) - before;
        assert!((58..=99).contains(&sent), "{sent} of 67 by {member}");
        let part = part(&world.members[member].status());
        assert!(part.is_some_and(|part| (0.3..=0.37).contains(&part)), "{part:?} of it for {member}");
    }
    world.store.kill();
    let refused = world.count("refused");
    let accepted = world.accepts_in(TWO_WINDOWS);
    assert!(accepted >= 188, "{accepted} of 200 without the store");
    let late = world.count("refused") - refused;
    assert!(late <= 10, "{late} of 200 were refused");
}
