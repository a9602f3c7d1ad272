//! An andante that joins a fleet while the others use all that an API reports.

use andante_clock::Instant;

use super::{
    fleet::Fleet,
    late,
    limiter::Limiter,
    tells::Tells::{Date, Exact, Truth, WrongWindow},
    variable,
    world::World,
};

/// The joining member sees no window begin: the others report the window's length. Requests that they sent from their
/// larger parts before it joined still count for a window. So it has at least half of its part in the first one.
#[test]
fn one_that_joins_busy_ones_has_its_part() {
    let (minute, tenth) = ((200.0, 60.0), (100.0, 10.0));
    let log = |(limit, window)| Limiter::log(limit, window);
    let fixed = |(limit, window)| Limiter::fixed(limit, window);
    let bucket = |(limit, window)| Limiter::bucket(limit, limit / window);
    let rows = [
        ("any 200/min", log(minute), minute, Exact, 1.0),
        ("any 200/min", log(minute), minute, Date, 1.0),
        ("any 200/min", log(minute), minute, Truth, 1.0),
        ("any 200/min", log(minute), minute, WrongWindow, 1.0),
        ("fixed 200/min", fixed(minute), minute, Exact, 1.0),
        ("fixed 200/min", fixed(minute), minute, Date, 1.0),
        ("fixed 200/min", fixed(minute), minute, WrongWindow, 1.0),
        ("any 100/10s", log(tenth), tenth, Exact, 3.0),
        ("any 100/10s", log(tenth), tenth, Date, 3.0),
        ("fixed 100/10s", fixed(tenth), tenth, Exact, 1.0),
        ("fixed 100/10s", fixed(tenth), tenth, Date, 1.0),
        ("bucket 200/min", bucket(minute), minute, Exact, 1.0),
        ("bucket 200/min", bucket(minute), minute, Date, 1.0),
        ("bucket 100/10s", bucket(tenth), tenth, Exact, 1.0),
        ("bucket 100/10s", bucket(tenth), tenth, Truth, 1.0),
    ];
    let mut failed = Vec::new();
    for (name, limiter, (limit, window), tells, most) in rows {
        for members in [2, 3] {
            let lasts = 60.0 + 5.0 * window;
            let world = World { tells, lasts, ..World::new(name, [limiter.clone()]) };
            let s = |of: f64| Instant::from_nanos(((40.7 + of) * 1e9) as u64);
            let run = |counts: f64| {
                let fleet = Fleet::new(&world, Instant::START, members, true).with_a_late_one(s(60.0));
                let mut fleet = fleet.counting_from(s(counts));
                let outcome = world.run(&mut fleet, 1);
                if variable("TRACE", 0) > 0 {
                    fleet.trace();
                }
                (fleet.served(), outcome)
            };
            let (all, later, (last, outcome)) = (run(60.0).0, run(60.0 + window).0, run(lasts - 2.0 * window));
            let equal = limit / members as f64;
            let first = (all[members - 1] - later[members - 1]) as f64;
            let (refused, used) = (late(&outcome), outcome.share);
            let word = format!(
                "{name} {tells:?} {members}: {first} of {equal:.0} in its first window, {last:?} of {:.0} in the last two, \
                 {refused:.2}% refused, {used:.3} used",
                2.0 * equal
            );
            println!("{word}");
            let alike = last.iter().all(|part| (*part as f64 / equal / 2.0 - 1.0).abs() <= 0.1);
            if !(alike && first >= equal / 2.0 && refused <= most && used >= 0.97) {
                failed.push(word);
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
