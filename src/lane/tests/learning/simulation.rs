//! Lanes of which nothing is configured, against limiters that nobody tells of: the engine beside workers that are careful,
//! each for itself. Two of the tests print a table of more limiters where a variable asks for it, which takes minutes:
//!
//! ```sh
//! ZOO=nginx SEEDS=3 FROM=1 cargo test --lib what_is_learned_well -- --nocapture
//! RANDOM=200 FROM=1 cargo test --lib the_worst_of_a_thousand -- --nocapture
//! ```

mod clients;
mod dice;
mod limiter;
mod pauses;
mod random;
mod recorded_limiters;
mod tells;
mod world;

use self::{
    clients::{Andante, Careful, Client},
    limiter::Limiter,
    world::{Outcome, World},
};
use super::MORNING;
use crate::clock::Instant;

/// The same world for both: what andante makes of it, what it has learned, and what careful workers make of it.
fn compare(world: &World, seed: u64) -> (Outcome, String, Outcome) {
    let mut andante = Andante::new(world, Instant::START);
    let outcome = world.run(&mut andante, seed);
    if variable("TRACE", 0) > 0 {
        andante.log.iter().for_each(|(at, change)| println!("{:10.3} {change:?}", at.as_nanos() as f64 / 1e9));
    }
    let end = Instant::from_nanos(((100.0 + world.lasts) * 1e9) as u64);
    (outcome, andante.note(end), world.run(&mut Careful::new(), seed))
}

fn late(outcome: &Outcome) -> f64 {
    100.0 * outcome.refused_late as f64 / (outcome.late as f64).max(1.0)
}

fn quantile(of: impl IntoIterator<Item = f64>, share: f64) -> f64 {
    let mut all: Vec<f64> = of.into_iter().collect();
    all.sort_by(f64::total_cmp);
    all[((all.len() - 1) as f64 * share) as usize]
}

fn variable<T: std::str::FromStr>(name: &str, default: T) -> T {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// What holds today. A limiter that is on this list is used well, and is not asked in vain. With ZOO it prints those whose
/// names contain it.
#[test]
fn what_is_learned_well_stays_so() {
    if let Ok(pattern) = std::env::var("ZOO") {
        print_recorded_limiters(&pattern);
    }
    for (name, share, most_late) in recorded_limiters::WELL {
        let world = recorded_limiters::all()
            .into_iter()
            .find(|world| world.name == *name)
            .unwrap_or_else(|| panic!("no {name}"));
        let (outcome, note, _) = compare(&world, 1);
        assert!(outcome.share >= *share, "{name}: {:.3} of what is allowed; {note}", outcome.share);
        assert!(late(&outcome) <= *most_late, "{name}: {:.2}% refused; {note}", late(&outcome));
    }
}

/// With RANDOM it prints so many more.
#[test]
fn the_worst_of_a_thousand_are_used_so_well_at_least() {
    if let Ok(count) = std::env::var("RANDOM") {
        print_random_limiters(count.parse().expect("RANDOM is a number"));
    }
    for (seed, share) in random::WORST {
        let world = random::world(seed);
        let (outcome, note, _) = compare(&world, seed);
        assert!(outcome.middle >= share, "{}: {:.3} of what is allowed; {note}", world.name, outcome.middle);
    }
}

/// It serves five in each second of the clock, whatever the rate is, and andante begins somewhere in one. That is no chance.
#[test]
fn seconds_of_a_clock_are_not_taken_for_chance() {
    for phase in 1..=9_u64 {
        let limiter = Limiter::aligned_at(5.0, 1.0, phase as f64 / 10.0);
        let world = World { latency: 0.002, jitter: 0.0003, work: 0.0005, ..World::new("clock", [limiter]) };
        let (outcome, note, _) = compare(&World { lasts: 60.0, ..world }, phase);
        println!("{phase}: share {:.3} late {:.3} stall {:.1}", outcome.share, late(&outcome), outcome.stall);
        assert!(outcome.share >= 0.9 && late(&outcome) <= 5.0, "{phase}: {outcome:?}; {note}");
    }
}

/// What becomes of each recorded limiter whose name contains `pattern`, in the middle of SEEDS runs.
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

/// What becomes of `count` random limiters: the spread, and those that are used worst.
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
