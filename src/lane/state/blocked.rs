//! Waiting requests that another limit blocks, and how many of them it admits before another request leaves.

use andante_clock::Instant;
use andante_order::Passing;

/// Assumptions about blocked requests and arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Assume {
    /// Limits admit blocked requests at their rates, and more urgent requests keep arriving as they did.
    Likely,
    /// Neither happens before the request leaves.
    Best,
}

/// The most rounds in which the wait and the fractions admitted meanwhile are computed from each other. Each round leaves
/// the part of the error that blocked requests take of all slots: of nine tenths, 32 rounds leave 3%.
const MAX_ROUNDS: usize = 32;

/// Returns when a request leaves, which is not before `from`. `passing` returns the fractions of blocked requests that are
/// admitted within a number of seconds after `from`, and `leaves` the instant at which the request leaves then.
pub(super) fn until_settled(
    from: Instant,
    assume: Assume,
    passing: impl Fn(f64) -> Passing,
    mut leaves: impl FnMut(Passing) -> Instant,
) -> Instant {
    if assume == Assume::Best {
        return leaves(Passing::NONE);
    }
    let mut admitted = passing(0.0);
    let mut at = leaves(admitted);
    for _ in 0..MAX_ROUNDS {
        let more = passing(at.since(from).as_secs_f64());
        if more == admitted {
            break;
        }
        admitted = more;
        at = leaves(admitted);
    }
    at
}
