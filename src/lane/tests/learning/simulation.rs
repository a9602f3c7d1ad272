//! Unconfigured lanes against limiters that announce nothing: the engine beside careful workers that act alone, and
//! beside several andantes that share a store. Three of the tests print a table of more limiters if a variable asks for
//! it, which takes minutes:
//!
//! ```sh
//! ZOO=nginx SEEDS=3 FROM=1 cargo test -p andante-lane recorded_limiters -- --nocapture
//! RANDOM=200 FROM=1 cargo test -p andante-lane random_limiters -- --nocapture
//! FLEET=hdr SEEDS=2 MEMBERS=3 cargo test -p andante-lane three_that_share -- --nocapture
//! ```

mod at_once;
mod clients;
mod dice;
mod distributions;
mod fleet;
mod joining;
mod limiter;
mod pauses;
mod random;
mod recorded_limiters;
mod tells;
mod world;

use andante_clock::Instant;
use andante_scoreboard::{Scoreboard, quantile, seed};

use self::{
    clients::{Andante, Careful, Client},
    fleet::Fleet,
    limiter::Limiter,
    world::{Outcome, World},
};
use super::MORNING;

/// Runs andante in this world: its outcome, and what it has learned.
fn run(world: &World, seed: u64) -> (Outcome, String) {
    let mut andante = Andante::new(world, Instant::START);
    let outcome = world.run(&mut andante, seed);
    if variable("TRACE", 0) > 0 {
        andante.log.iter().for_each(|(at, change)| println!("{:10.3} {change:?}", at.as_nanos() as f64 / 1e9));
    }
    let end = Instant::from_nanos(((100.0 + world.lasts) * 1e9) as u64);
    (outcome, andante.note(end))
}

/// Runs both clients in the same world: andante's outcome, what it has learned, and the careful workers' outcome.
fn compare(world: &World, seed: u64) -> (Outcome, String, Outcome) {
    let (outcome, note) = run(world, seed);
    (outcome, note, world.run(&mut Careful::new(), seed))
}

fn late(outcome: &Outcome) -> f64 {
    100.0 * outcome.refused_late as f64 / (outcome.late as f64).max(1.0)
}

fn variable<T: std::str::FromStr>(name: &str, default: T) -> T {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Limiters that announce themselves: three andantes with a common store use as much of them as one does, each a third.
const SHARED_WELL: [&str; 7] = [
    "hdr fixed 100/10s",
    "hdr aligned 100/10s",
    "hdr aligned 500/min",
    "hdr log 100/10s",
    "hdr bucket 10/s b100",
    "slowapi 100/10s",
    "gcra 10/s b20",
];

/// A third of 100 are 33, and three of those are 0.99.
#[test]
fn three_that_share_use_what_an_api_reports_as_one_does() {
    if let Ok(pattern) = std::env::var("FLEET") {
        print_fleets(&pattern);
    }
    let mut called = Vec::new();
    for name in SHARED_WELL {
        let world = recorded_limiters::all().into_iter().find(|world| world.name == name).expect(name);
        let mut fleet = Fleet::new(&world, Instant::START, 3, true);
        let outcome = world.run(&mut fleet, 1 + seed());
        assert!(late(&outcome) <= 1.0, "{name}: {:.2}% refused", late(&outcome));
        assert!(outcome.share >= 0.97, "{name}: {:.3} of what is allowed", outcome.share);
        let served = fleet.served();
        let equal = served.iter().sum::<u64>() as f64 / 3.0;
        assert!(served.iter().all(|part| (*part as f64 / equal - 1.0).abs() <= 0.1), "{name}: parts are {served:?}");
        // Each reports its usage once a second.
        let calls = fleet.calls as f64 / world.lasts;
        assert!(calls <= 3.3, "{name}: {calls:.1} calls a second of three members");
        called.push(calls);
    }
    let mut board = Scoreboard::of("three_that_share_use_what_an_api_reports_as_one_does");
    board
        .add("calls of the store in a second by three members, mean", called.iter().sum::<f64>() / called.len() as f64);
    board.add("calls of the store in a second by three members, most", quantile(called, 1.0));
    board.judge();
}

/// A bucket with less than 1.5 requests for each member is not divided, and each member finds its own way. If the
/// others waited for the second that one member is asked to wait, all would send at once after it, and be refused
/// again: half of the bucket is used and more, with a tenth refused at most.
#[test]
fn who_is_refused_by_a_bucket_of_two_is_not_waited_for() {
    let world = recorded_limiters::all().into_iter().find(|world| world.name == "gcra 10/s b2").unwrap();
    let outcomes: Vec<_> = (1..=6)
        .map(|number| world.run(&mut Fleet::new(&world, Instant::START, 3, true), number + 6 * seed()))
        .collect();
    let mut board = Scoreboard::of("who_is_refused_by_a_bucket_of_two_is_not_waited_for");
    board.add_used("all", &outcomes.iter().map(|outcome| outcome.share).collect::<Vec<_>>());
    board.add_refused("all", &outcomes.iter().map(late).collect::<Vec<_>>());
    board.judge();
}

/// In a bucket as small as the fleet, a part is less than a request. Then each member uses what it finds, as without
/// parts. Parts of larger buckets are used no worse than that.
#[test]
fn buckets_of_a_few_are_used_no_worse_in_parts() {
    for name in ["gcra 10/s b1", "gcra 10/s b2", "gcra 10/s b5", "gcra 10/s b20"] {
        let world = recorded_limiters::all().into_iter().find(|world| world.name == name).expect(name);
        let used = |divides: bool| {
            let of = |seed| {
                let fleet = Fleet::new(&world, Instant::START, 3, true);
                let mut fleet = if divides { fleet } else { fleet.undivided(Instant::START) };
                let outcome = world.run(&mut fleet, seed);
                [outcome.share, late(&outcome)]
            };
            let runs = [1, 2, 3].map(of);
            [0, 1].map(|column| quantile(runs.iter().map(|run| run[column]), 0.5))
        };
        let ([parts, refused], [whole, refused_whole]) = (used(true), used(false));
        println!("{name}: {parts:.3} and {refused:.2}% in parts, {whole:.3} and {refused_whole:.2}% without");
        assert!(parts >= whole.min(1.0) - 0.02, "{name}: {parts:.3} of what is allowed in parts, {whole:.3} without");
        assert!(refused <= refused_whole + 1.0, "{name}: {refused:.2}% refused in parts, {refused_whole:.2}% without");
    }
}

/// Of seven for three members, each has three at most: when all of them are asked for, two of nine are refused.
#[test]
fn a_window_of_a_few_is_used_up_in_parts() {
    for (limit, window, lasts) in [(3.0, 10.0, 120.0), (7.0, 10.0, 120.0), (10.0, 10.0, 120.0), (5.0, 60.0, 600.0)] {
        let tells = tells::Tells::Truth;
        let world = World { tells, lasts, ..World::new("a few", [Limiter::fixed(limit, window)]) };
        let mut fleet = Fleet::new(&world, Instant::START, 3, true);
        let outcome = world.run(&mut fleet, 1);
        let asked = 3.0 * f64::ceil(limit / 3.0);
        let refused = 100.0 * (asked - limit) / asked;
        println!("{limit}/{window}s: {:.3}, {:.2}% of {refused:.2}% refused", outcome.share, late(&outcome));
        assert!(outcome.share >= 0.98, "{limit}/{window}s: {:.3} of what is allowed", outcome.share);
        assert!(late(&outcome) <= refused + 1.0, "{limit}/{window}s: {:.2}% refused", late(&outcome));
    }
}

/// The busy member always has something to send, the quiet one a request now and then. Such a request leaves within two
/// slots of the whole limit, plus the time to tell the others. Each member uses what the other leaves unused.
#[test]
fn a_quiet_member_beside_a_busy_one_is_served() {
    let fixed = |limit, window| Limiter::fixed(limit, window);
    let day = 86_400.0;
    for (name, limiter, lasts, slot, share) in [
        ("100/10s", fixed(100.0, 10.0), 300.0, 0.1, 0.7),
        ("100/10s of any", Limiter::log(100.0, 10.0), 300.0, 0.1, 0.7),
        ("1000/day", fixed(1000.0, day), 900.0, day / 1000.0, 0.0),
    ] {
        for every in [3, 60] {
            let world = World { tells: tells::Tells::Truth, lasts, ..World::new(name, [limiter.clone()]) };
            let every = std::time::Duration::from_secs(every);
            let mut fleet = Fleet::new(&world, Instant::START, 2, true).with_a_light_one(every);
            let outcome = world.run(&mut fleet, 1);
            let end = Instant::from_nanos(((40.7 + lasts) * 1e9) as u64);
            let waits = fleet.waits(end);
            let longest = waits.iter().max().unwrap().as_secs_f64();
            if variable("TRACE", 0) > 0 {
                fleet.trace();
                println!(
                    "{name} {every:?}: {longest:.3} of {}, {outcome:?} {:?} {}",
                    waits.len(),
                    fleet.served(),
                    fleet.note(end)
                );
            }
            assert!(longest <= 2.0 * slot + 0.01, "{name} each {every:?}: one waited {longest:.3} s");
            assert!(waits.len() as f64 >= (lasts / (every.as_secs_f64() + longest + 0.1)).floor(), "{name} {every:?}");
            // Each of its requests takes the place of at most one of the busy member's.
            assert!(
                outcome.refused_late <= waits.len() as u64,
                "{name} each {every:?}: {} refused",
                outcome.refused_late
            );
            assert!(outcome.share >= share, "{name} each {every:?}: {:.3} of what is allowed", outcome.share);
        }
    }
}

/// The run is from 40.7 s to 160.7 s, and the lease is 10 s.
#[test]
fn each_goes_on_with_its_part_while_the_store_is_away() {
    let world = recorded_limiters::all().into_iter().find(|world| world.name == "hdr log 100/10s").unwrap();
    let s = |of: u64| Instant::from_nanos(of * 1_000_000_000);
    for until in [110, 1000] {
        let mut fleet = Fleet::new(&world, Instant::START, 3, true).without_store(s(70), s(until));
        let outcome = world.run(&mut fleet, 1);
        assert!(outcome.share >= 0.95, "{:.3} of what is allowed", outcome.share);
        assert!(late(&outcome) <= 1.0, "{:.2}% refused", late(&outcome));
    }
}

/// The store is away for 5 s, which is less than the lease, or for 25 s, and returns with its memory. Then each member
/// starts over, half a second later at the latest. The member's former share is free again a window, half a second and
/// the way to the API later. The run is from 40.7 s to 100.7 s.
#[test]
fn a_configured_limit_is_used_at_full_pace_soon_after_the_store_is_back() {
    let world = World { configured: Some("100/s"), lasts: 60.0, ..World::new("100/s", [Limiter::log(100.0, 1.0)]) };
    let s = |of: u64| Instant::from_nanos(of * 1_000_000_000);
    for (away, soon) in [(5, 2), (25, 3)] {
        let back = 60 + away;
        let served = |from| {
            let fleet = Fleet::new(&world, Instant::START, 3, true).without_store(from, s(back));
            let mut fleet = fleet.counting_from(s(back + soon));
            assert_eq!(world.run(&mut fleet, 1).refused, 0);
            fleet.served().iter().sum::<u64>() as f64
        };
        let (undisturbed, back) = (served(s(back)), served(s(60)));
        assert!(back >= 0.98 * undisturbed, "away for {away} s: {back} of {undisturbed}");
    }
}

/// Prints three andantes' median outcome of SEEDS runs, for each recorded limiter whose name contains `pattern`.
fn print_fleets(pattern: &str) {
    let (seeds, from, members) = (variable("SEEDS", 3), variable("FROM", 1), variable("MEMBERS", 3));
    println!(
        "{:35} | one: refused late% share | apart: refused late% share | shared: refused late% share, least part, calls/s",
        ""
    );
    for world in
        recorded_limiters::all().iter().filter(|world| world.configured.is_none() && world.name.contains(pattern))
    {
        let mut rows = [Vec::new(), Vec::new(), Vec::new()];
        let mut notes = Vec::new();
        for seed in from..from + seeds {
            for (row, (members, shares)) in [(1, false), (members, false), (members, true)].into_iter().enumerate() {
                let mut fleet = Fleet::new(world, Instant::START, members, shares);
                let outcome = world.run(&mut fleet, seed);
                if variable("TRACE", 0) > 0 && shares {
                    fleet.trace();
                }
                let (served, calls) = (fleet.served(), fleet.calls as f64 / world.lasts);
                let least = *served.iter().min().unwrap() as f64 / served.iter().sum::<u64>() as f64;
                let end = Instant::from_nanos(((100.0 + world.lasts) * 1e9) as u64);
                notes.push(fleet.note(end));
                rows[row].push([outcome.refused as f64, late(&outcome), outcome.share, least, calls]);
            }
        }
        let of = |row: usize, column: usize| quantile(rows[row].iter().map(|values: &[f64; 5]| values[column]), 0.5);
        let three = |row| format!("{:5.0} {:6.2} {:.3}", of(row, 0), of(row, 1), of(row, 2));
        println!(
            "{:35} | {} | {} | {}  {:.2} {:.1} {}",
            world.name,
            three(0),
            three(1),
            three(2),
            of(2, 3),
            of(2, 4),
            if seeds == 1 { &*notes[2] } else { "" }
        );
    }
}
