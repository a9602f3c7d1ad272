//! Gaps between arrivals of requests: a histogram of fixed size.

use std::time::Duration;

use crate::clock::nanos;

/// Buckets per power of two: with 32, a quantile is at most 1/32 (about 3%) too high.
const SPLIT: u32 = 32;
/// Enough buckets for every `u64`, which spans 64 powers of two.
const BUCKETS: usize = 64 * SPLIT as usize;

/// Histogram of gaps, which takes 16 KiB for any number of them.
#[derive(Clone, Debug)]
pub struct Intervals {
    counts: Box<[u64]>,
    total: u64,
    longest: Duration,
}

impl Default for Intervals {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS].into(), total: 0, longest: Duration::ZERO }
    }
}

impl Intervals {
    /// Counts one gap.
    pub fn record(&mut self, gap: Duration) {
        self.counts[bucket(nanos(gap))] += 1;
        self.total += 1;
        self.longest = self.longest.max(gap);
    }

    /// Smallest bucket edge that a share `fraction` (0 to 1) of all gaps does not exceed, but at most the longest gap.
    /// Zero if no gap was recorded.
    pub fn quantile(&self, fraction: f64) -> Duration {
        let wanted = (self.total as f64 * fraction).ceil() as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return Duration::from_nanos(upper_edge(index)).min(self.longest);
            }
        }
        Duration::ZERO
    }

    /// Longest gap, exactly.
    pub fn longest(&self) -> Duration {
        self.longest
    }
}

/// Index of the bucket for `value`. Values below `SPLIT` have a bucket each; above, the highest bit selects the row and
/// the next five bits the column.
fn bucket(value: u64) -> usize {
    let split = u64::from(SPLIT);
    if value < split {
        return value as usize;
    }
    let row = value.ilog2() - SPLIT.ilog2();
    ((u64::from(row) + 1) * split + (value >> row) - split) as usize
}

/// Largest value that falls into the bucket `index`.
fn upper_edge(index: usize) -> u64 {
    let (index, split) = (index as u64, u64::from(SPLIT));
    if index < split {
        return index;
    }
    let (row, column) = (index / split - 1, index % split);
    let edge = (u128::from(split + column) + 1) << row;
    u64::try_from(edge - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantiles_are_those_of_what_was_recorded() {
        let mut intervals = Intervals::default();
        assert_eq!((intervals.quantile(0.5), intervals.longest()), (Duration::ZERO, Duration::ZERO));
        for millis in 1..=100 {
            intervals.record(Duration::from_millis(millis));
        }
        let (half, most) = (intervals.quantile(0.5).as_secs_f64(), intervals.quantile(0.99).as_secs_f64());
        assert!((0.050..0.052).contains(&half), "{half}");
        assert!((0.099..=0.100).contains(&most), "{most}");
        assert_eq!(intervals.longest(), Duration::from_millis(100));
    }

    proptest! {
        #[test]
        fn a_bucket_reaches_at_most_a_32nd_above_its_values(value in any::<u64>(), shift in 0u32..64) {
            let value = value >> shift;
            let index = bucket(value);
            prop_assert!(index < BUCKETS);
            let edge = upper_edge(index);
            prop_assert!(edge >= value && edge - value <= value / u64::from(SPLIT), "{} -> {}", value, edge);
        }
    }
}
