//! Unannounced limits, and limits that change.

use super::{Trial, ms, s};

#[test]
fn a_limit_that_nobody_tells_of_is_found() {
    for (latency, workers) in [(5, 64), (20, 64), (20, 16), (100, 64)] {
        let what = format!("{latency} ms, {workers} workers");
        let trial = Trial { limit: "50/s", workers, requests: 9000, latency: ms(latency), ..Trial::default() };
        let outcome = trial.run();
        assert_eq!(outcome.passed_on, 0, "{what}: workers were told");
        let refused = outcome.refused.len() as f64 / 9000.0;
        assert!(refused < 0.02, "{what}: {refused:.3} of the requests were refused");
        let pace = outcome.pace(s(60), outcome.took);
        assert!((45.0..=50.5).contains(&pace), "{what}: {pace} per second from a minute on");
    }
}

#[test]
fn a_limit_that_halves_and_doubles_is_followed_within_two_windows() {
    for dialect in ["ietf", "github", "openai", "anthropic", "discord", "bigcommerce"] {
        let changes = vec![(s(100), "50/10s"), (s(200), "100/10s")];
        let outcome = Trial { dialect, requests: 2500, changes, ..Trial::default() }.run();
        assert_eq!(outcome.passed_on, 0, "{dialect}: workers were told");
        for (from, to, limit) in [(30, 100, 10.0), (120, 200, 5.0), (220, 270, 10.0)] {
            let pace = outcome.pace(s(from), s(to));
            assert!(
                (limit * 0.9..limit * 1.05).contains(&pace),
                "{dialect}: {pace} per second from {from} s to {to} s, of {limit}"
            );
        }
        let late = outcome.refused.iter().filter(|at| !(s(100)..s(120)).contains(*at)).count();
        assert_eq!(late, 0, "{dialect}: refused later than two windows after the change");
        assert!(outcome.refused.len() <= 64, "{dialect}: {} refused", outcome.refused.len());
    }
}

#[test]
fn a_limit_that_only_refusals_tell_of_is_followed_when_it_halves() {
    for dialect in ["none", "retry-after"] {
        let changes = vec![(s(60), "25/s")];
        let outcome = Trial { dialect, limit: "50/s", requests: 5000, changes, ..Trial::default() }.run();
        assert_eq!(outcome.passed_on, 0, "{dialect}: workers were told");
        let pace = outcome.pace(s(80), outcome.took);
        assert!((21.0..=25.5).contains(&pace), "{dialect}: {pace} per second");
        let refused = outcome.refused.iter().filter(|at| **at > s(60)).count();
        assert!(refused < 25, "{dialect}: {refused} refused");
    }
}
