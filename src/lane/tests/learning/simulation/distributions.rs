//! Distributions of the outcomes with limiters that announce little or nothing, compared with the scoreboard. Single
//! limiters have bounds only where `docs/learning.md` promises something of them.

use std::collections::BTreeMap;

use andante_scoreboard::{Scoreboard, measures_all, quantile, seed};

use super::{
    compare, late,
    limiter::Limiter,
    random, recorded_limiters, run,
    tells::{Tells, Wait},
    variable,
    world::{Outcome, World},
};

/// Random limiters of each test run. `tests/scoreboard/run --all` compares all [`THOUSAND`], which takes a minute.
const FEW: u64 = 200;
const THOUSAND: u64 = 1000;

/// Limiters of which `docs/learning.md` makes a promise: the least used share of what is allowed, the most refusals
/// after the first window in percent, and the promise.
const PROMISED: &[(&str, f64, f64, &str)] = &[
    ("nginx 20/s no burst 429 50ms j3", 0.0, 2.0, "with 3 ms of jitter, andante keeps below 2% refused"),
    ("vsthrottle 10/s b10 RA5", 0.8, 2.0, "behind a text as Retry-After, about .84 is used after the first minute"),
    ("keys 20 and 100/10s bare", 0.92, 2.5, "two keys with limits of their own are used well"),
];

/// The used shares and late refusals of a family of limiters.
#[derive(Default)]
struct Family {
    used: Vec<f64>,
    refused: Vec<f64>,
}

/// Families by name. A limiter counts in its own family and in the one of all.
#[derive(Default)]
struct Families(BTreeMap<&'static str, Family>);

// === impl Families ===

impl Families {
    fn add(&mut self, family: &'static str, used: f64, outcome: &Outcome) {
        let others = (family != "all").then_some("all");
        for name in others.into_iter().chain([family]) {
            let family = self.0.entry(name).or_default();
            family.used.push(used);
            family.refused.push(late(outcome));
        }
    }

    fn board(&self, test: &'static str) -> Scoreboard {
        let mut board = Scoreboard::of(test);
        for (name, family) in &self.0 {
            board.add_used(name, &family.used);
            board.add_refused(name, &family.refused);
        }
        board
    }
}

/// The family of a recorded limiter.
fn family(world: &World) -> &'static str {
    let is_any = |is: fn(&Limiter) -> bool| world.limiters.iter().any(|(limiter, _)| is(limiter));
    if world.configured.is_some() {
        "configured"
    } else if world.kinds.len() > 1 {
        "kinds and keys"
    } else if world.outage.is_some() || !world.changes.is_empty() || world.strangers > 0.0 {
        "changes and other senders"
    } else if is_any(|limiter| matches!(limiter, Limiter::Blocking { .. })) {
        "penalties"
    } else if is_any(Limiter::is_parallel) {
        "concurrency"
    } else {
        match (world.tells, world.wait) {
            (Tells::Nothing, Wait::Unsaid) => "only refuses",
            (Tells::Nothing, _) => "asks to wait",
            (Tells::Truth | Tells::Exact | Tells::Date, _) => "reports",
            _ => "misreports",
        }
    }
}

/// With ZOO it prints the limiters whose names contain it.
#[test]
fn recorded_limiters_are_used_as_well_as_committed() {
    if let Ok(pattern) = std::env::var("ZOO") {
        print_recorded_limiters(&pattern);
    }
    let (mut families, mut broken) = (Families::default(), Vec::new());
    for world in recorded_limiters::all() {
        let (outcome, note) = run(&world, 1 + seed());
        families.add(family(&world), outcome.share, &outcome);
        if let Some((name, least, most, why)) = PROMISED.iter().find(|(name, ..)| *name == world.name) {
            let refused = late(&outcome);
            if outcome.share < *least || refused > *most {
                broken.push(format!("{name}: {:.3} used, {refused:.2}% refused; {why}; {note}", outcome.share));
            }
        }
    }
    families.board("recorded_limiters_are_used_as_well_as_committed").judge();
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_promised_limiter_is_recorded() {
    let all = recorded_limiters::all();
    let missing = PROMISED.iter().filter(|(name, ..)| all.iter().all(|world| world.name != *name));
    assert_eq!(missing.count(), 0);
}

/// The distribution of the first `count` random limiters, from the second minute on.
fn of_random_limiters(test: &'static str, count: u64) -> Scoreboard {
    let mut families = Families::default();
    for number in 1..=count {
        let world = random::world(number);
        let (outcome, _) = run(&world, number + THOUSAND * seed());
        families.add(random::family(&world), outcome.middle, &outcome);
    }
    let low = families.0["all"].used.iter().filter(|used| **used < 0.6).count();
    let mut board = families.board(test);
    board.add("all: used less than 0.6, in percent", 100.0 * low as f64 / count as f64);
    board
}

/// With RANDOM it prints this many random limiters.
#[test]
fn random_limiters_are_used_as_well_as_committed() {
    if let Ok(count) = std::env::var("RANDOM") {
        print_random_limiters(count.parse().expect("RANDOM is a number"));
    }
    of_random_limiters("random_limiters_are_used_as_well_as_committed", FEW).judge();
}

#[test]
fn a_thousand_random_limiters_are_used_as_well_as_committed() {
    if measures_all() {
        of_random_limiters("a_thousand_random_limiters_are_used_as_well_as_committed", THOUSAND).judge();
    }
}

/// The limiter serves five in each second of the clock, and andante begins somewhere in a second. The refusals are not
/// random: .9 is used and more, with 5% refused at most.
#[test]
fn seconds_of_a_clock_are_not_taken_for_chance() {
    let mut families = Families::default();
    for phase in 1..=9_u64 {
        let limiter = Limiter::aligned_at(5.0, 1.0, phase as f64 / 10.0);
        let world = World { latency: 0.002, jitter: 0.0003, work: 0.0005, ..World::new("clock", [limiter]) };
        let (outcome, _) = run(&World { lasts: 60.0, ..world }, phase + 9 * seed());
        println!("{phase}: share {:.3} late {:.3} stall {:.1}", outcome.share, late(&outcome), outcome.stall);
        families.add("all", outcome.share, &outcome);
    }
    families.board("seconds_of_a_clock_are_not_taken_for_chance").judge();
}

/// The first window of a clock is cut off, as andante begins in the middle of it: from the second window on it is
/// known. Careful workers have some 1,300 refused.
#[test]
fn windows_of_a_clock_are_known_from_the_second_on() {
    let (mut families, mut counts) = (Families::default(), Vec::new());
    for phase in 0..20_u64 {
        let limiter = Limiter::aligned_at(100.0, 10.0, phase as f64 / 2.0);
        let world = World { lasts: 120.0, ..World::new("clock", [limiter]) };
        let (outcome, _) = run(&world, phase + 20 * seed());
        families.add("all", outcome.share, &outcome);
        counts.push(outcome.refused as f64);
    }
    let mut board = families.board("windows_of_a_clock_are_known_from_the_second_on");
    board.add_refused("all, number with the first window", &counts);
    board.judge();
}

/// A hundred in ten seconds and twenty in one second, aligned to the clock, by limiters that only refuse, in both
/// orders. The first limiter counts requests that the second refuses. For any phase and any distance, the lane does not
/// come to a standstill.
#[test]
fn two_limits_of_a_clock_that_only_refuse_are_used_in_either_order() {
    let (long, short) = ((100.0, 10.0), (20.0, 1.0));
    let (mut families, mut number) = (Families::default(), 48 * seed());
    for (name, limits) in [("long first", [long, short]), ("short first", [short, long])] {
        for phase in [0.0, 0.3, 0.5, 0.7] {
            for way in [0.001, 0.002, 0.004, 0.008, 0.02, 0.05] {
                let limiters = limits.map(|(limit, window)| Limiter::aligned_at(limit, window, phase));
                let world = World { latency: way, jitter: way / 5.0, work: 0.0005, ..World::new(name, limiters) };
                number += 1;
                let (outcome, note) = run(&World { lasts: 60.0, ..world }, number);
                assert!(outcome.share > 0.0, "{name}, {phase}, {way} s: a standstill; {note}");
                families.add(name, outcome.share, &outcome);
            }
        }
    }
    families.board("two_limits_of_a_clock_that_only_refuse_are_used_in_either_order").judge();
}

/// Go's x/time/rate with a burst of three refuses early at any rate above its own. Such refusals are not random either.
#[test]
fn a_shallow_bucket_is_not_taken_for_chance() {
    let world = recorded_limiters::all().into_iter().find(|world| world.name == "go bucket 10/s b3").unwrap();
    let (mut families, mut stalls) = (Families::default(), Vec::new());
    for number in 1..=24 {
        let (outcome, _) = run(&world, number + 24 * seed());
        families.add("all", outcome.share, &outcome);
        stalls.push(outcome.stall);
    }
    let mut board = families.board("a_shallow_bucket_is_not_taken_for_chance");
    board.add("all: longest time without a served request, in seconds", quantile(stalls, 1.0));
    board.judge();
}

/// Prints the median outcome of SEEDS runs, for each recorded limiter whose name contains `pattern`.
fn print_recorded_limiters(pattern: &str) {
    let (seeds, from) = (variable("SEEDS", 3), variable("FROM", 1));
    println!(
        "limiter                             | served  refused  late% share  worst stall | careful: served refused share"
    );
    for world in recorded_limiters::all().iter().filter(|world| world.name.contains(pattern)) {
        let runs: Vec<_> = (from..from + seeds).map(|seed| compare(world, seed)).collect();
        let ours = |of: fn(&Outcome) -> f64| quantile(runs.iter().map(|(outcome, ..)| of(outcome)), 0.5);
        let theirs = |of: fn(&Outcome) -> f64| quantile(runs.iter().map(|(.., careful)| of(careful)), 0.5);
        let worst = quantile(runs.iter().map(|(outcome, ..)| outcome.share), 0.0);
        println!(
            "{:35} | {:6.0} {:8.0} {:6.2} {:5.3} {worst:6.3} {:5.1} | {:7.0} {:7.0} {:5.3} {}",
            world.name,
            ours(|outcome| outcome.served as f64),
            ours(|outcome| outcome.refused as f64),
            ours(late),
            ours(|outcome| outcome.share),
            ours(|outcome| outcome.stall),
            theirs(|outcome| outcome.served as f64),
            theirs(|outcome| outcome.refused as f64),
            theirs(|outcome| outcome.share),
            if seeds == 1 { &*runs[0].1 } else { "" },
        );
    }
}

/// Prints the outcomes of `count` random limiters: the spread, and the worst ones.
fn print_random_limiters(count: u64) {
    let from = variable("FROM", 1);
    let mut rows: Vec<_> = (from..from + count)
        .map(|seed| {
            let world = random::world(seed);
            let (outcome, note, careful) = compare(&world, seed);
            (world.name, outcome, note, careful)
        })
        .collect();
    rows.sort_by(|one, other| one.1.middle.total_cmp(&other.1.middle));
    for share in [0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75] {
        let of = quantile(rows.iter().map(|row| row.1.middle), share);
        let careful = quantile(rows.iter().map(|row| row.3.middle), share);
        let late = quantile(rows.iter().map(|row| late(&row.1)), 1.0 - share);
        println!("{share:4}: {of:.3} used (careful {careful:.3}); {late:5.2}% refused late at {:.2}", 1.0 - share);
    }
    let behind = rows.iter().filter(|row| row.1.middle < 0.97 * row.3.middle).count();
    println!("below 0.6: {}; behind careful: {behind}", rows.iter().filter(|row| row.1.middle < 0.6).count());
    for (name, outcome, note, careful) in rows.iter().take(variable("ROWS", 40)) {
        println!("{:.3} ({:.3}) late {:5.1}% {name} {note}", outcome.middle, careful.middle, late(outcome));
    }
}
