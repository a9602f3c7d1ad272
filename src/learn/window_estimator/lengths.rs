//! Lengths of windows, as people choose them, and as answers tell of them.

use std::time::Duration;

/// Windows that people choose, in seconds.
const USUAL: [u64; 22] = [
    1, 2, 5, 10, 15, 20, 30, 60, 120, 180, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 604_800,
    2_592_000,
];
/// Whole seconds hide up to this much.
pub(super) const SECOND: Duration = Duration::from_millis(1050);
/// Resets are rounded up, or a second late: a window may be shorter by this much.
pub(super) const LATE: Duration = Duration::from_millis(1150);
/// Windows up to this are believed to be as long as is said, in whole seconds.
const WHOLE: Duration = Duration::from_secs(6);

/// How far apart two words about the same reset may be.
pub(super) fn tolerance(left: Duration, whole: bool) -> Duration {
    if whole { SECOND } else { left / 20 + Duration::from_millis(5) }
}

/// What may be left of a window of `known` length that has just begun, as answers tell.
pub(super) fn at_most(known: Duration) -> Duration {
    known.mul_f64(1.05) + LATE
}

/// The usual window that was most likely configured where answers show one of `length`: a little shorter, since resets
/// are late, and otherwise a longer one.
pub(super) fn round(length: Duration) -> Duration {
    let least = length.mul_f64(0.95).saturating_sub(LATE);
    usual_within(least, length.mul_f64(1.02) + Duration::from_millis(50))
        .or_else(|| usual().find(|usual| *usual >= length))
        .unwrap_or(length)
}

/// The longest usual window that is longer than `least` and not longer than `most`.
pub(super) fn usual_within(least: Duration, most: Duration) -> Option<Duration> {
    usual().rfind(|usual| *usual > least && *usual <= most)
}

/// The longest whole second that is not shorter than `least` and not longer than `most`.
pub(super) fn whole_within(least: Duration, most: Duration) -> Option<Duration> {
    Some(Duration::from_secs(most.as_secs())).filter(|whole| *whole >= least)
}

/// Whether what is left is all of a window of this length, and a few whole seconds. Those are told as they are, even if
/// nobody else chooses them; of more, a second that a reset is late by would make another window than was meant.
pub(super) fn is_all(left: Duration, length: Duration) -> bool {
    left <= WHOLE && length.saturating_sub(left) <= Duration::from_millis(50)
}

pub(super) fn usual() -> impl DoubleEndedIterator<Item = Duration> {
    USUAL.iter().map(|seconds| Duration::from_secs(*seconds))
}
