//! Quantiles of waits.

use std::time::Duration;

/// Durations in `of`, the shortest first.
pub fn sorted(of: impl Iterator<Item = Duration>) -> Vec<Duration> {
    let mut sorted: Vec<_> = of.collect();
    sorted.sort_unstable();
    sorted
}

/// Returns the duration that a share (0 to 1) of `sorted` does not exceed. Panics if `sorted` is empty.
pub fn at(share: f64, sorted: &[Duration]) -> Duration {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// Waiting requests over time as pairs of second and count, computed from their `waits` in ascending order. The first
/// pair is that of the first departure; at most `steps` steps of about equal size follow.
pub(super) fn queue_of(waits: &[Duration], steps: u32) -> Vec<(f64, u32)> {
    let all = u32::try_from(waits.len()).unwrap_or(u32::MAX);
    milestones(all, steps).map(|left| (waits[(left - 1) as usize].as_secs_f64(), all - left)).collect()
}

/// Numbers of departed requests at up to `steps` + 1 points: 1 at the first, `all` at the last.
pub(super) fn milestones(all: u32, steps: u32) -> impl Iterator<Item = u32> {
    let steps = if all <= 1 { 0 } else { steps.clamp(1, all - 1) };
    (0..=steps)
        .map(move |step| 1 + (u64::from(all.saturating_sub(1)) * u64::from(step) / u64::from(steps.max(1))) as u32)
}
