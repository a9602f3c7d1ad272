//! Limits that an API reports and no rule configures are divided among the andantes that share a store.

use std::{thread, time::Duration};

use serde_json::Value;

use super::{SECOND, World};
use crate::support::{Andante, Mock, Redis};

/// An API that says limit, remaining and reset in this dialect, and andantes that know nothing of it.
fn world(dialect: &str, members: usize) -> World {
    let (api, store) = (Mock::start(&["--limit", "100/10s", "--dialect", dialect]), Redis::for_a_fleet());
    let mut world = World { api, url: store.url(), store, limits: String::new(), keys: "", members: Vec::new() };
    (0..members).for_each(|_| join(&mut world));
    world
}

fn join(world: &mut World) {
    let member = Andante::serve(&["--store", &world.url]);
    member.wait_for(|status| status["fleet"]["standing"] == "shared");
    world.members.push(member);
}

/// A member's part of the reported limit.
fn part(status: &Value) -> Option<f64> {
    status["lanes"][0]["limits"][0]["part"].as_f64()
}

/// A little longer than two windows. Each member sends most of its third as soon as its window begins, and each has its
/// own beginnings. So any such time has two of these, and some have three.
const TWO_WINDOWS: Duration = Duration::from_secs(21);

/// Each member has a third: 33 of 100. Then the store is away for longer than the lease, and each member continues with
/// its part.
#[test]
fn three_divide_what_an_api_reports() {
    let mut world = world("ietf", 3);
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

/// The member that joins has seen no window begin, and no answer says how long a window is. When it joins, the others
/// have used all of their halves, and its ten workers ask at once. So up to ten requests are refused, and each that
/// retries before any quota comes back. In the next two windows a third is 67. The member has more than .6 of that, and
/// 2% are refused at most.
fn one_that_joins_has_its_part(dialect: &str) {
    let mut world = world(dialect, 2);
    world.press_all();
    thread::park_timeout(15 * SECOND);
    join(&mut world);
    world.press(2, 10);
    thread::park_timeout(11 * SECOND);
    let (refused, before) = (world.count("refused"), world.sent(2));
    let accepted = world.accepts_in(TWO_WINDOWS);
    let (late, sent) = (world.count("refused") - refused, world.sent(2) - before);
    assert!(accepted >= 188, "{accepted} of 200");
    assert!((40..=99).contains(&sent), "{sent} of 67");
    assert!(late <= 4, "{late} of 200 were refused");
}

#[test]
fn one_that_joins_busy_ones_has_its_part_of_resets_with_decimals() {
    one_that_joins_has_its_part("openai");
}

#[test]
fn one_that_joins_busy_ones_has_its_part_of_resets_in_whole_seconds() {
    one_that_joins_has_its_part("github");
}
