//! Simulates fleets larger than these machines in virtual time: usage of each limit, calls, and load of the store. No
//! window has more units than there are tokens.

mod fleet;

use std::{str::FromStr, time::Duration};

use andante_scoreboard::{Scoreboard, seed};

use self::fleet::{Fleet, Load, Outcome, Shape, Taken};
use crate::{LimitSpec, settle};

/// Parses a shape such as `members=1000 lanes=10000 limit=2/s`, based on `shape`. Words after a limit apply to that
/// limit.
fn read(text: &str, mut shape: Shape) -> Shape {
    if text.contains("limit=") {
        shape.limits.clear();
    }
    for word in text.split_whitespace() {
        let (name, value) = word.split_once('=').expect("name=value");
        let number = || value.parse().unwrap_or_else(|_| panic!("a number: {word}"));
        match name {
            "members" => shape.members = number(),
            "lanes" => shape.lanes = number(),
            "each" => shape.each = number(),
            "limit" => shape.limits.push(of_one_each(&value.replace('_', " "))),
            "costs" => last(&mut shape).costs = range(value),
            "takes" => last(&mut shape).takes = Some(range(value)),
            "load" => shape.load = Load::Part(value.parse().expect("a number")),
            "workers" => shape.load = Load::Workers(each(value)),
            "parts" => shape.load = Load::Parts(each(value)),
            "seconds" => shape.length = Duration::from_secs(number() as u64),
            "warm" => shape.warm = Duration::from_secs(number() as u64),
            "seed" => shape.seed = number() as u64,
            "failover" => shape.replaced_at = Some(Duration::from_secs(number() as u64)),
            _ => panic!("no such thing: {word}"),
        }
    }
    shape
}

fn last(shape: &mut Shape) -> &mut Taken {
    shape.limits.last_mut().expect("a limit")
}

/// A limit from which each request takes one unit.
fn of_one_each(limit: &str) -> Taken {
    let mut limits: [LimitSpec; 1] = [limit.parse().expect("a limit")];
    settle(&mut limits);
    Taken { limit: limits[0], costs: (1, 1), takes: None }
}

/// Parses a number for each member, as `30:30:3:3`.
fn each<T: FromStr>(text: &str) -> Vec<T> {
    text.split(':').map(|one| one.parse().ok().expect("a number")).collect()
}

/// Parses a least and a most amount, as `100-4000`.
fn range(text: &str) -> (u32, u32) {
    let (least, most) = text.split_once('-').expect("least-most");
    (least.parse().expect("a number"), most.parse().expect("a number"))
}

/// Prints a line for each shape of
/// `SCALE='members=1000 lanes=10000 each=20 limit=2/s seconds=60; members=…' cargo test --release -p andante-limit a_large_fleet -- --nocapture`.
/// `load` is relative to all limits together; the default is as much as there is.
#[test]
fn a_large_fleet_uses_its_limits_with_few_calls_and_exceeds_none() {
    let small = Shape {
        members: 30,
        lanes: 40,
        each: 4,
        limits: vec![of_one_each("20/s")],
        load: Load::Most,
        warm: Duration::from_secs(8),
        length: Duration::from_secs(20),
        seed: 5 + seed(),
        replaced_at: None,
    };
    if let Ok(shapes) = std::env::var("SCALE") {
        for shape in shapes.split(';').filter(|shape| !shape.trim().is_empty()) {
            println!("{}\n    {}", shape.trim(), Fleet::new(read(shape, small.clone())).run());
        }
        return;
    }
    let mut board = Scoreboard::of("a_large_fleet_uses_its_limits_with_few_calls_and_exceeds_none");
    let steady = Fleet::new(small.clone()).run();
    board.add("calls in a second and member", steady.calls);
    board.add("used", steady.used);
    assert!(steady.used > 0.93 && steady.calls < 15.0, "{steady}");
    // The store is replaced, and the new one does not answer for three seconds, less than a lease.
    let replaced = Fleet::new(Shape { replaced_at: Some(Duration::from_secs(12)), ..small.clone() }).run();
    board.add("used with a replaced store", replaced.used);
    board.judge();
    assert!(replaced.used > 0.9, "{replaced}");
    // At half of the capacity, every request gets its response.
    let light = Fleet::new(Shape { load: Load::Part(0.5), ..small }).run();
    assert!(light.used > 0.45 && light.used < 0.55, "{light}");
}

/// Four members that use one limit; the run counts from the first of these seconds to the second.
fn four_members(limit: &str, load: Load, counts: [u64; 2]) -> Shape {
    let [warm, length] = counts.map(Duration::from_secs);
    let limits = vec![of_one_each(limit)];
    Shape { members: 4, lanes: 1, each: 1, limits, load, warm, length, seed: 5 + seed(), replaced_at: None }
}

/// Each member reports a limit every 1.25 s, 0.8 times a second. With `1/2s`, one token moves with each slot: two calls
/// each 2 s by four members, 0.8 + 0.25 in all. With tokens there are 44 requests a minute, and each may have to ask
/// and be told (0.37 a second and member). At each member 375 tokens a second come free, and 703 are worth a call
/// (0.53).
#[test]
fn while_traffic_is_steady_each_member_calls_once_a_second_and_everything_is_used() {
    let mut board = Scoreboard::of("while_traffic_is_steady_each_member_calls_once_a_second_and_everything_is_used");
    let mut add = |name: &str, outcome: &Outcome| {
        board.add(format!("{name}: calls in a second and member"), outcome.calls);
        board.add(format!("{name}: used"), outcome.used);
    };
    for (limit, costs, warm, seconds, calls, used) in [
        ("100/s", (1, 1), 10, 40, 0.9, 0.98),
        ("1000/s", (1, 1), 10, 20, 0.9, 0.98),
        ("500/min", (1, 1), 120, 240, 0.9, 0.98),
        ("1/2s", (1, 1), 20, 200, 1.05, 0.95),
        ("90000 tokens/min", (100, 4000), 120, 1200, 1.7, 0.97),
    ] {
        let limits = vec![Taken { costs, ..of_one_each(limit) }];
        let outcome = Fleet::new(Shape { limits, ..four_members(limit, Load::Most, [warm, seconds]) }).run();
        add(limit, &outcome);
        assert!(outcome.calls <= calls && outcome.used >= used, "{limit}: {outcome}");
    }
    // Where only responses report the usage, each member learns how much to reserve.
    let limits = vec![Taken { takes: Some((100, 2000)), ..of_one_each("20000 tokens/min") }];
    let shape = Shape { members: 3, limits, ..four_members("1/s", Load::Most, [120, 1200]) };
    let outcome = Fleet::new(shape).run();
    add("20000 tokens/min, reported by answers", &outcome);
    assert!(outcome.calls <= 1.2 && outcome.used >= 0.93 && outcome.beyond <= 2000, "{outcome}");
    // A member with many limits reports all of them in one call.
    let shape = Shape { members: 10, lanes: 100, each: 20, ..four_members("20/s", Load::Most, [10, 30]) };
    let outcome = Fleet::new(shape).run();
    add("20 limits of 20/s", &outcome);
    assert!(outcome.calls <= 1.0 && outcome.least >= 0.98, "{outcome}");
    board.judge();
}

/// The load is as 4:3:2:1, whether or not requests succeed, and totals 0.9 or 1.25 of the limit. At 0.9 each member
/// gets all that it asks for. At 1.25 the last two, which ask for less than an equal part, get everything, and the
/// others half of the rest each. All members begin within five seconds. Shares settle two seconds after the last one
/// has begun, or after one window.
#[test]
fn shares_are_by_demand_after_two_seconds_or_one_window() {
    for (limit, settled, counts) in [("1000/s", 2, 20), ("100/s", 2, 100), ("500/min", 60, 600)] {
        for load in [0.9, 1.25] {
            let asked = [0.4, 0.3, 0.2, 0.1].map(|part| part * load);
            let counts = [5 + settled, 5 + settled + counts];
            let outcome = Fleet::new(four_members(limit, Load::Parts(asked.to_vec()), counts)).run();
            let rest = (outcome.used - asked[2] - asked[3]) / 2.0;
            let due = asked.map(|asked| if load > 1.0 { asked.min(rest) } else { asked });
            let near = |(share, due): (&f64, f64)| (share * outcome.used / due - 1.0).abs() <= 0.05;
            assert!(outcome.shares.iter().zip(due).all(near), "{limit}, {load}: {outcome}");
            assert!(outcome.used >= 0.95 * f64::min(load, 1.0), "{limit}, {load}: {outcome}");
        }
    }
}

/// Workers wait for their responses, which take 11 ms, and ask for no more than they get. Three workers would have 272
/// responses a second, more than an equal part. Two would have 181, and leave the other members 272 each.
#[test]
fn members_with_few_workers_have_what_they_would_use_up_to_an_equal_part() {
    for (workers, due) in [([30, 30, 3, 3], [0.25; 4]), ([40, 40, 40, 2], [0.273, 0.273, 0.273, 0.181])] {
        let load = Load::Workers(workers.to_vec());
        let outcome = Fleet::new(four_members("1000/s", load, [10, 30])).run();
        let near = |(share, due): (&f64, f64)| (share / due - 1.0).abs() <= 0.05;
        assert!(outcome.shares.iter().zip(due).all(near), "{workers:?}: {outcome}");
        assert!(outcome.calls <= 1.0 && outcome.used >= 0.98, "{workers:?}: {outcome}");
    }
}

/// Requests take 100 to 4,000 of 90,000 input tokens a minute. Of 20,000 output tokens they take what only their
/// responses report. The scarce limit admits 44 or 32 requests a minute, 0.18 or 0.13 a second and member. Each has to
/// ask, and others pass tokens on. Besides, a member reports its limits 0.8 times a second, or 0.4 times while requests
/// wait and nothing else happens. Where the input is scarce, no output tokens are requested.
#[test]
fn where_requests_take_of_two_limits_only_the_scarce_one_makes_members_call() {
    let taken = |takes| {
        let inputs = Taken { costs: (100, 4000), ..of_one_each("90000 input-tokens/min") };
        vec![inputs, Taken { takes: Some(takes), ..of_one_each("20000 output-tokens/min") }]
    };
    let mut board = Scoreboard::of("where_requests_take_of_two_limits_only_the_scarce_one_makes_members_call");
    for (scarce, takes, calls, used) in [("input", (25, 900), 1.0, 0.975), ("output", (50, 1800), 1.2, 0.93)] {
        let of = |number| {
            let seed = number + 8 * seed();
            let load = Load::Workers(vec![25]);
            Fleet::new(Shape { limits: taken(takes), seed, ..four_members("1/s", load, [120, 720]) }).run()
        };
        let outcomes: Vec<_> = (1..=8).map(of).collect();
        let mean = |of: fn(&Outcome) -> f64| outcomes.iter().map(of).sum::<f64>() / outcomes.len() as f64;
        let (called, part, beyond) = (mean(|one| one.calls), mean(|one| one.used), mean(|one| one.beyond.into()));
        board.add(format!("{scarce} scarce: calls in a second and member"), called);
        board.add(format!("{scarce} scarce: used"), part);
        assert!(called <= calls && part >= used, "{scarce} scarce: {called} calls, {part} used");
        // The excess is at most the largest response.
        assert!(beyond <= takes.1.into(), "{scarce} scarce: {beyond} beyond");
    }
    board.judge();
}
