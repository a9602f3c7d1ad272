//! Fleets larger than these machines, in virtual time: how much of each limit is used, how many calls that takes, and how
//! busy the store is. No window has more than there are tokens.

mod fleet;

use std::time::Duration;

use self::fleet::{Fleet, Shape};

/// A shape that is written as `members=1000 lanes=10000 limit=2/s`, beginning with `shape`.
fn read(text: &str, mut shape: Shape) -> Shape {
    for word in text.split_whitespace() {
        let (name, value) = word.split_once('=').expect("name=value");
        let number = || value.parse().unwrap_or_else(|_| panic!("a number: {word}"));
        match name {
            "members" => shape.members = number(),
            "lanes" => shape.lanes = number(),
            "each" => shape.each = number(),
            "limit" => shape.limit = value.parse().expect("a limit"),
            "load" => shape.load = Some(value.parse().expect("a number")),
            "seconds" => shape.length = Duration::from_secs(number() as u64),
            "warm" => shape.warm = Duration::from_secs(number() as u64),
            "failover" => shape.replaced_at = Some(Duration::from_secs(number() as u64)),
            _ => panic!("no such thing: {word}"),
        }
    }
    shape
}

/// `SCALE='members=1000 lanes=10000 each=20 limit=2/s seconds=60; members=…' cargo test --release --lib a_large_fleet -- --nocapture`
/// prints a line for each; `load` is what is asked for, relative to all limits together, or else as much as there is.
#[test]
fn a_large_fleet_uses_its_limits_with_few_calls_and_exceeds_none() {
    let small = Shape {
        members: 30,
        lanes: 40,
        each: 4,
        limit: "20/s".parse().unwrap(),
        load: None,
        warm: Duration::from_secs(8),
        length: Duration::from_secs(20),
        replaced_at: None,
    };
    if let Ok(shapes) = std::env::var("SCALE") {
        for shape in shapes.split(';').filter(|shape| !shape.trim().is_empty()) {
            println!("{}\n    {}", shape.trim(), Fleet::new(read(shape, small.clone())).run());
        }
        return;
    }
    let steady = Fleet::new(small.clone()).run();
    assert!(steady.used > 0.93 && steady.calls < 15.0, "{steady}");
    // The store is replaced, and the new one does not answer for three seconds, which is less than a lease.
    let replaced = Fleet::new(Shape { replaced_at: Some(Duration::from_secs(12)), ..small.clone() }).run();
    assert!(replaced.used > 0.9, "{replaced}");
    // Half of what there is: whoever asks has its answer.
    let light = Fleet::new(Shape { load: Some(0.5), ..small }).run();
    assert!(light.used > 0.45 && light.used < 0.55, "{light}");
}
