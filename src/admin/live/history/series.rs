//! Samples of one lane and of all lanes together, and their columns for charts.

use std::time::Duration;

use serde::Serialize;

use crate::admin::detail::WaitBucket;

/// The shares of requests whose longest wait is shown: the median, the 95th and the 99th percentile.
const PERCENTILES: [f64; 3] = [0.5, 0.95, 0.99];

/// Requests in one sample: those that wait at its end, and the others since the sample before.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counts {
    pub(super) waiting: u32,
    pub(super) sent: u32,
    /// Requests refused by andante.
    pub(super) refused: u32,
    /// Requests refused by the API.
    pub(super) refused_by_api: u32,
}

/// Sample of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct LanePoint {
    pub(super) counts: Counts,
    /// True if the lane paused at some time.
    pub(super) paused: bool,
    /// Requests per second that may leave at most.
    pub(super) limit: Option<f32>,
    /// Percentiles of the waits of its rule's requests, in seconds.
    pub(super) waits: Option<[f32; 3]>,
}

/// Sample of all lanes together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct TotalPoint {
    pub(super) counts: Counts,
    pub(super) failed: u32,
    pub(super) left: u32,
    /// Lanes that paused.
    pub(super) paused: u32,
}

/// Counts over time: a value each sample, the oldest first.
#[derive(Debug, Default, PartialEq, Serialize)]
struct CountSeries {
    waiting: Vec<u32>,
    sent: Vec<u32>,
    refused: Vec<u32>,
    refused_by_api: Vec<u32>,
}

/// A lane over time.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(in crate::admin::live) struct LaneSeries {
    #[serde(flatten)]
    counts: CountSeries,
    /// 1 where it paused.
    paused: Vec<u8>,
    limit: Vec<Option<f32>>,
    p50: Vec<Option<f32>>,
    p95: Vec<Option<f32>>,
    p99: Vec<Option<f32>>,
}

/// All lanes together over time.
#[derive(Debug, Default, Serialize)]
pub(super) struct TotalSeries {
    #[serde(flatten)]
    counts: CountSeries,
    failed: Vec<u32>,
    left: Vec<u32>,
    paused: Vec<u32>,
}

/// A lane over time as its row shows it. Pauses and refusals are rare: they name their samples.
#[derive(Debug, Default, Serialize)]
pub(super) struct LaneTrace {
    sent: Vec<u32>,
    /// Requests per second that may leave at most, as of the last sample.
    limit: Option<f32>,
    /// The numbers of the samples in which it paused.
    paused: Vec<u64>,
    /// The numbers of the samples in which requests were refused, and how many were.
    refused: Vec<(u64, u32)>,
}

// === impl LanePoint ===

impl LanePoint {
    /// Returns true if there is nothing to show.
    pub(super) fn is_quiet(&self) -> bool {
        self.counts == Counts::default() && !self.paused
    }
}

// === impl Counts ===

impl Counts {
    /// Requests of all outcomes: how busy a lane was.
    pub(super) fn sum(&self) -> u64 {
        [self.waiting, self.sent, self.refused, self.refused_by_api].into_iter().map(u64::from).sum()
    }
}

// === impl CountSeries ===

impl CountSeries {
    fn push(&mut self, counts: Counts) {
        self.waiting.push(counts.waiting);
        self.sent.push(counts.sent);
        self.refused.push(counts.refused);
        self.refused_by_api.push(counts.refused_by_api);
    }
}

// === impl LaneSeries ===

impl<'a> FromIterator<&'a LanePoint> for LaneSeries {
    fn from_iter<T: IntoIterator<Item = &'a LanePoint>>(points: T) -> Self {
        let mut series = Self::default();
        for point in points {
            series.counts.push(point.counts);
            series.paused.push(point.paused.into());
            series.limit.push(point.limit);
            series.p50.push(point.waits.map(|waits| waits[0]));
            series.p95.push(point.waits.map(|waits| waits[1]));
            series.p99.push(point.waits.map(|waits| waits[2]));
        }
        series
    }
}

// === impl TotalSeries ===

impl<'a> FromIterator<&'a TotalPoint> for TotalSeries {
    fn from_iter<T: IntoIterator<Item = &'a TotalPoint>>(points: T) -> Self {
        let mut series = Self::default();
        for point in points {
            series.counts.push(point.counts);
            series.failed.push(point.failed);
            series.left.push(point.left);
            series.paused.push(point.paused);
        }
        series
    }
}

// === impl LaneTrace ===

impl<'a> FromIterator<(u64, &'a LanePoint)> for LaneTrace {
    /// The points with the numbers of their samples.
    fn from_iter<T: IntoIterator<Item = (u64, &'a LanePoint)>>(points: T) -> Self {
        let mut trace = Self::default();
        for (number, point) in points {
            trace.sent.push(point.counts.sent);
            trace.limit = point.limit;
            trace.paused.extend(point.paused.then_some(number));
            let refused = point.counts.refused.saturating_add(point.counts.refused_by_api);
            trace.refused.extend((refused > 0).then_some((number, refused)));
        }
        trace
    }
}

/// Percentiles of the waits that `now` counts and `before` does not, interpolated within a bucket as Prometheus does; `None`
/// if there are none. Beyond the last bound, that bound. No request waited for longer than `longest`, so that a wide bucket
/// promises no more.
pub(super) fn percentiles(now: &[WaitBucket], before: &[WaitBucket], longest: Duration) -> Option<[f32; 3]> {
    let counts: Vec<u64> = (0..now.len())
        .map(|at| now[at].count.saturating_sub(before.get(at).map_or(0, |bucket| bucket.count)))
        .collect();
    let all: u64 = counts.iter().sum();
    (all > 0).then(|| {
        PERCENTILES.map(|share| {
            let (rank, mut below, mut from) = (share * all as f64, 0.0, 0.0);
            for (bucket, count) in now.iter().zip(&counts) {
                let (count, to) = (*count as f64, bucket.at_most_s.unwrap_or(from));
                if count > 0.0 && below + count >= rank {
                    let to = to.min(longest.as_secs_f64()).max(from);
                    return (from + (to - from) * (rank - below) / count) as f32;
                }
                (below, from) = (below + count, to);
            }
            from as f32
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn buckets(counts: [u64; 4]) -> Vec<WaitBucket> {
        let bounds = [Some(0.1), Some(1.0), Some(10.0), None];
        bounds.into_iter().zip(counts).map(|(at_most_s, count)| WaitBucket { at_most_s, count }).collect()
    }

    #[test]
    fn percentiles_are_those_of_the_new_waits_alone() {
        let before = buckets([1000, 0, 0, 0]);
        assert_eq!(percentiles(&before, &before, HOUR), None);
        // 100 new waits, spread over 1 to 10 s: the median lies at 5.5 s.
        assert_eq!(percentiles(&buckets([1000, 0, 100, 0]), &before, HOUR), Some([5.5, 9.55, 9.91]));
        // Half lie below 0.1 s, half above the last bound, where only the bound is known.
        assert_eq!(percentiles(&buckets([1001, 0, 0, 1]), &before, HOUR), Some([0.1, 10.0, 10.0]));
    }

    #[test]
    fn no_percentile_is_beyond_the_longest_wait() {
        // All lie between 1 and 10 s, and none waited for more than 3 s.
        assert_eq!(percentiles(&buckets([0, 0, 100, 0]), &[], Duration::from_secs(3)), Some([2.0, 2.9, 2.98]));
        // A longest wait that is not known of lanes that are gone cannot lie below the bucket.
        assert_eq!(percentiles(&buckets([0, 0, 100, 0]), &[], Duration::ZERO), Some([1.0, 1.0, 1.0]));
    }

    #[test]
    fn percentiles_never_decrease() {
        for seed in 1..500_u64 {
            let counts = [7, 11, 13, 17].map(|prime| seed * prime % 23);
            if let Some([median, p95, p99]) = percentiles(&buckets(counts), &[], HOUR) {
                assert!(median <= p95 && p95 <= p99, "{counts:?}: {median} {p95} {p99}");
            }
        }
    }
}
