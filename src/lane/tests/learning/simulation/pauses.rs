//! An API that pauses once, whatever its limits are: it is deployed, or somebody has pressed a button.

use super::{compare, limiter::Limiter, tells::Wait, world::World};

/// What is used of 20/s in the minute after a pause of `lasts` seconds that begins at `at`, and what was learned.
fn used_after(at: f64, lasts: f64, wait: Wait, configured: Option<&'static str>) -> (f64, String) {
    let world = World::new("20/s", [Limiter::bucket(20.0, 20.0)]);
    let near = World { latency: 0.01, jitter: 0.0003, work: 0.002, ..world };
    let paused = World { wait, configured, pauses: vec![(at, lasts)], lasts: at + lasts + 90.0, ..near };
    let (outcome, note, _) = compare(&paused, 1);
    (outcome.after, note)
}

/// Of 20/s all but the time that an answer takes may be used, 10 ms of a second, and 1% that the refusal costs: 0.98.
#[test]
fn one_pause_says_nothing_of_a_configured_rate() {
    for wait in [Wait::Unsaid, Wait::Truth] {
        for (at, lasts) in [1.0, 3.0, 30.0].iter().flat_map(|at| [1.0, 6.4, 20.0].map(|lasts| (*at, lasts))) {
            let (used, note) = used_after(at, lasts, wait, Some("20/1s"));
            assert!(used >= 0.95, "{wait:?} {lasts} s at {at} s: {used:.3}; {note}");
        }
    }
}

/// Before that it may be the end of a window: 60 served in 3 s and a pause of 20 s are what a limit of 60 in 23 s looks like.
#[test]
fn one_pause_says_nothing_of_a_rate_that_was_served_for_long() {
    for wait in [Wait::Unsaid, Wait::Truth] {
        for lasts in [1.0, 6.4, 20.0] {
            let (used, note) = used_after(30.0, lasts, wait, None);
            assert!(used >= 0.95, "{wait:?} {lasts} s: {used:.3}; {note}");
        }
    }
}
