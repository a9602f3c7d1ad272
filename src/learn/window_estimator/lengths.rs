//! Common window lengths, and their rounding in reports.

use std::time::Duration;

/// Common windows, in seconds.
const USUAL: [u64; 22] = [
    1, 2, 5, 10, 15, 20, 30, 60, 120, 180, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 604_800,
    2_592_000,
];
/// Error of whole seconds, with a margin.
pub(super) const SECOND: Duration = Duration::from_millis(1050);
/// Resets are rounded up, or a second late: a window may be shorter by this amount.
pub(super) const LATE: Duration = Duration::from_millis(1150);
/// Longest window that is taken exactly as reported in whole seconds.
const WHOLE: Duration = Duration::from_secs(6);

/// Largest difference between two reports of the same reset.
pub(super) fn tolerance(left: Duration, whole: bool) -> Duration {
    if whole { SECOND } else { left / 20 + Duration::from_millis(5) }
}

/// Longest reported time until the reset of a window of `known` length that has just begun.
pub(super) fn at_most(known: Duration) -> Duration {
    known.mul_f64(1.05) + LATE
}

/// Common window that was most likely configured for a measured `length`. A slightly shorter one is preferred, since
/// resets are late; otherwise it is the next longer one.
pub(super) fn round(length: Duration) -> Duration {
    let least = length.mul_f64(0.95).saturating_sub(LATE);
    usual_within(least, length.mul_f64(1.02) + Duration::from_millis(50))
        .or_else(|| usual().find(|usual| *usual >= length))
        .unwrap_or(length)
}

/// Longest common window that is longer than `least` and not longer than `most`.
pub(super) fn usual_within(least: Duration, most: Duration) -> Option<Duration> {
    usual().rfind(|usual| *usual > least && *usual <= most)
}

/// Longest whole second that is not shorter than `least` and not longer than `most`.
pub(super) fn whole_within(least: Duration, most: Duration) -> Option<Duration> {
    Some(Duration::from_secs(most.as_secs())).filter(|whole| *whole >= least)
}

/// Returns true if `left` is all of a window of this length, and a few whole seconds. Such lengths are taken as
/// reported, even if they are uncommon. For longer windows, a reset that is a second late would give a wrong length.
pub(super) fn is_all(left: Duration, length: Duration) -> bool {
    left <= WHOLE && length.saturating_sub(left) <= Duration::from_millis(50)
}

pub(super) fn usual() -> impl DoubleEndedIterator<Item = Duration> {
    USUAL.iter().map(|seconds| Duration::from_secs(*seconds))
}
