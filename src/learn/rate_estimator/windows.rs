//! Windows that people choose for their limits, in seconds.

pub(super) const USUAL: [f64; 18] = [
    0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 43_200.0,
    86_400.0,
];

/// What an API says in whole seconds is so much later at most.
pub(super) const ROUNDED: f64 = 1.15;

/// The shortest one that is not shorter than `pause`.
pub(super) fn not_below(pause: f64) -> f64 {
    USUAL.into_iter().find(|usual| *usual >= pause).unwrap_or(pause)
}

/// The longest one that is longer than `last` and not longer than `length`, if that is not much shorter: one that ended
/// between two probes.
pub(super) fn between(last: f64, length: f64) -> Option<f64> {
    let longest = USUAL.into_iter().rev().find(|usual| *usual > last + 1e-9 && *usual <= length);
    longest.filter(|usual| length - usual < 0.3 * length)
}

/// The shortest one, longer than `shorter`, that a wait asked for comes to, `length` after its beginning.
pub(super) fn asked_for(length: f64, shorter: f64) -> Option<f64> {
    USUAL.into_iter().find(|usual| *usual > shorter && (0.98 * usual..usual + ROUNDED).contains(&length))
}
