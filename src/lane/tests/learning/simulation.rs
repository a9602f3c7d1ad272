//! Unconfigured lanes against limiters that announce nothing: the engine beside careful workers that act alone, and
//! beside several andantes that share a store. Three of the tests print a table of more limiters if a variable asks for
//! it, which takes minutes:
//!
//! ```sh
//! ZOO=nginx SEEDS=3 FROM=1 cargo test --lib what_is_learned_well -- --nocapture
//! RANDOM=200 FROM=1 cargo test --lib the_worst_of_a_thousand -- --nocapture
//! FLEET=hdr SEEDS=2 MEMBERS=3 cargo test --lib three_that_share -- --nocapture
//! ```

mod at_once;
mod clients;
mod dice;
mod fleet;
mod joining;
mod limiter;
mod pauses;
mod random;
mod recorded_limiters;
mod tells;
mod world;

use andante_clock::Instant;

use self::{
    clients::{Andante, Careful, Client},
    fleet::Fleet,
    limiter::Limiter,
    world::{Outcome, World},
};
use super::MORNING;

/// Runs both clients in the same world: andante's outcome, what it has learned, and the careful workers' outcome.
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

/// Regression test: limiters on this list are used well, with few refused requests. With ZOO it prints the limiters
/// whose names contain it.
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

/// With RANDOM it prints this many random limiters as well.
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

/// The limiter serves five in each second of the clock, and andante begins somewhere in a second. The refusals are not
/// random.
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

/// The first window of a clock is cut off, as andante begins in the middle of it: from the second window on it is
/// known.
#[test]
fn windows_of_a_clock_are_known_from_the_second_on() {
    for phase in 0..20_u64 {
        let limiter = Limiter::aligned_at(100.0, 10.0, phase as f64 / 2.0);
        let (outcome, note, _) = compare(&World { lasts: 120.0, ..World::new("clock", [limiter]) }, phase);
        assert!(outcome.share >= 0.95 && late(&outcome) <= 2.5, "{phase}: {outcome:?}; {note}");
        // Careful workers have some 1,300 refused. With one of these phases, andante had 284.
        assert!(outcome.refused <= 120, "{phase}: {outcome:?}; {note}");
    }
}

/// A hundred in ten seconds and twenty in one second, aligned to the clock, by limiters that only refuse, in both
/// orders. The first limiter counts requests that the second refuses. For any phase and any distance, the lane does not
/// come to a standstill.
#[test]
fn two_limits_of_a_clock_that_only_refuse_are_used_in_either_order() {
    let (long, short) = ((100.0, 10.0), (20.0, 1.0));
    for (name, limits) in [("long first", [long, short]), ("short first", [short, long])] {
        for phase in [0.0, 0.3, 0.5, 0.7] {
            for way in [0.001, 0.002, 0.004, 0.008, 0.02, 0.05] {
                let limiters = limits.map(|(limit, window)| Limiter::aligned_at(limit, window, phase));
                let world = World { latency: way, jitter: way / 5.0, work: 0.0005, ..World::new(name, limiters) };
                let (outcome, note, _) = compare(&World { lasts: 60.0, ..world }, 1);
                assert!(outcome.share >= 0.65, "{name}, {phase}, {way} s: {outcome:?}; {note}");
                assert!(late(&outcome) <= 16.0, "{name}, {phase}, {way} s: {outcome:?}; {note}");
            }
        }
    }
}

/// Go's x/time/rate with a burst of three refuses early at any rate above its own. Such refusals are not random either.
#[test]
fn a_shallow_bucket_is_not_taken_for_chance() {
    let world = recorded_limiters::all().into_iter().find(|world| world.name == "go bucket 10/s b3").unwrap();
    for seed in 1..=24 {
        let (outcome, note, _) = compare(&world, seed);
        assert!(late(&outcome) <= 2.0 && outcome.stall <= 1.1, "{seed}: {outcome:?}; {note}");
    }
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
    for name in SHARED_WELL {
        let world = recorded_limiters::all().into_iter().find(|world| world.name == name).expect(name);
        let mut fleet = Fleet::new(&world, Instant::START, 3, true);
        let outcome = world.run(&mut fleet, 1);
        assert!(late(&outcome) <= 1.0, "{name}: {:.2}% refused", late(&outcome));
        assert!(outcome.share >= 0.97, "{name}: {:.3} of what is allowed", outcome.share);
        let served = fleet.served();
        let equal = served.iter().sum::<u64>() as f64 / 3.0;
        assert!(served.iter().all(|part| (*part as f64 / equal - 1.0).abs() <= 0.1), "{name}: parts are {served:?}");
        // Each reports its usage once a second.
        let calls = fleet.calls as f64 / world.lasts;
        assert!(calls <= 3.3, "{name}: {calls:.1} calls a second of three members");
    }
}

/// A bucket with less than 1.5 requests for each member is not divided, and each member finds its own way. If the
/// others waited for the second that one member is asked to wait, all would send at once after it, and be refused
/// again.
#[test]
fn who_is_refused_by_a_bucket_of_two_is_not_waited_for() {
    let world = recorded_limiters::all().into_iter().find(|world| world.name == "gcra 10/s b2").unwrap();
    let of = |seed| {
        let outcome = world.run(&mut Fleet::new(&world, Instant::START, 3, true), seed);
        [outcome.share, late(&outcome)]
    };
    let runs = [1, 2, 3, 4, 5, 6].map(of);
    let [share, refused] = [0, 1].map(|column| quantile(runs.iter().map(|run| run[column]), 0.5));
    assert!(share >= 0.5 && refused <= 10.0, "{share:.3} of what is allowed, {refused:.2}% refused");
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
