//! An API that pauses once, whatever its limits are, such as during a deployment.

use super::{limiter::Limiter, run, tells::Wait, world::World};

/// The used share of 20/s in the minute after a pause of `lasts` seconds that begins at `at`, and what was learned.
fn used_after(at: f64, lasts: f64, wait: Wait, configured: Option<&'static str>) -> (f64, String) {
    let world = World::new("20/s", [Limiter::bucket(20.0, 20.0)]);
    let near = World { latency: 0.01, jitter: 0.0003, work: 0.002, ..world };
    let paused = World { wait, configured, pauses: vec![(at, lasts)], lasts: at + lasts + 90.0, ..near };
    let (outcome, note) = run(&paused, 1);
    (outcome.after, note)
}

/// Of 20/s, everything but the latency of an answer may be used, 10 ms of a second, and 1% that the refusal costs:
/// 0.98.
#[test]
fn one_pause_says_nothing_of_a_configured_rate() {
    for wait in [Wait::Unsaid, Wait::Truth] {
        for (at, lasts) in [1.0, 3.0, 30.0].iter().flat_map(|at| [1.0, 6.4, 20.0].map(|lasts| (*at, lasts))) {
            let (used, note) = used_after(at, lasts, wait, Some("20/1s"));
            assert!(used >= 0.95, "{wait:?} {lasts} s at {at} s: {used:.3}; {note}");
        }
    }
}

/// With a burst and a slow API: after the pause ten a second are in flight at once, as configured. Of 600 a minute it
/// loses one for the refusal, two latencies, 1.2 s, and the margin of 1% that it had before: 0.968.
#[test]
fn after_a_pause_it_goes_on_at_the_configured_pace() {
    for wait in [Wait::Unsaid, Wait::Truth] {
        for configured in ["10/s", "10/s burst 20"] {
            let world = World::new("10/s, 20 deep", [Limiter::bucket(20.0, 10.0)]);
            let slow = World { latency: 0.6, jitter: 0.001, ..world };
            let paused = World { wait, configured: Some(configured), pauses: vec![(30.0, 5.0)], lasts: 125.0, ..slow };
            let (outcome, note) = run(&paused, 1);
            assert!(outcome.after >= 0.95, "{configured} {wait:?}: {:.3}; {note}", outcome.after);
        }
    }
}

/// An earlier pause may be the end of a window: 60 served in 3 s before a pause of 20 s look like 60 per 23 s.
#[test]
fn one_pause_says_nothing_of_a_rate_that_was_served_for_long() {
    for wait in [Wait::Unsaid, Wait::Truth] {
        for lasts in [1.0, 6.4, 20.0] {
            let (used, note) = used_after(30.0, lasts, wait, None);
            assert!(used >= 0.95, "{wait:?} {lasts} s: {used:.3}; {note}");
        }
    }
}

/// The served share of what an API of 20/s accepts that is down for the last `down` seconds of each `every`, ten times.
fn used_between(every: f64, down: f64, wait: Wait, configured: Option<&'static str>) -> (f64, String) {
    let world = World::new("20/s", [Limiter::bucket(20.0, 20.0)]);
    let near = World { latency: 0.01, jitter: 0.0003, work: 0.002, refuses: 503, ..world };
    let pauses: Vec<_> = (1..=10).map(|number| (20.0 + f64::from(number) * every - down, down)).collect();
    let lasts = 20.0 + 10.0 * every + 60.0;
    let paused = World { wait, configured, pauses, lasts, ..near };
    let (outcome, note) = run(&paused, 1);
    (outcome.served as f64 / (20.0 * (lasts - 10.0 * down)), note)
}

/// The outages come at equal intervals, like the ends of windows. If they were taken for windows, each would lower the
/// rate, so that fewer requests were served until the next one: .36 were served.
#[test]
fn outages_that_repeat_say_nothing_of_a_rate() {
    for (every, down) in [(60.0, 10.0), (300.0, 60.0)] {
        for (wait, configured) in [(Wait::Unsaid, None), (Wait::Truth, None), (Wait::Unsaid, Some("20/1s"))] {
            let (used, note) = used_between(every, down, wait, configured);
            assert!(used >= 0.95, "{wait:?} {configured:?} {down} s of {every} s: {used:.3}; {note}");
        }
    }
}
