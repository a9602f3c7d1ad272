//! What an API saw: how many it accepted and refused, how close together they came. Pure: told the time.

use std::{collections::VecDeque, time::Duration};

use serde::Serialize;

use super::gaps::Gaps;
use crate::{clock::Instant, limit::Rate};

/// Arrivals remembered for the worst window, at eight bytes each; a window with more is reported as this many.
const REMEMBERED: usize = 1_000_000;

/// Everything that [`Stats`] is made from.
#[derive(Debug)]
pub(super) struct Tally {
    limit: Option<Rate>,
    /// The length of the windows that arrivals are counted in: the limit's, else one second.
    window: Duration,
    accepted: u64,
    refused: u64,
    failed: u64,
    /// First and last accepted.
    span: Option<(Instant, Instant)>,
    arrivals: VecDeque<Instant>,
    worst_window: usize,
    gaps: Gaps,
}

/// What an API saw so far; the answer of `/__mock/stats`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stats {
    /// Counted against the limit, and answered 200 or 500.
    pub accepted: u64,
    /// Answered with 429 (403 in GitHub's dialect).
    pub refused: u64,
    /// Those among the accepted that were answered with 500.
    pub failed: u64,
    /// The most requests, refused ones included, that arrived in any one window of the limit's length (of one second
    /// without a limit); never more than 1,000,000.
    pub worst_window: u64,
    /// Which share of the allowance between the first and the last accepted request was used: 1 is an even pace at the
    /// limit, more is a burst. Absent without a limit, or before two requests were accepted at different instants.
    pub used_share: Option<f64>,
    /// Seconds between the first and the last accepted request.
    pub span_seconds: f64,
    /// How far apart requests arrived, refused ones included, in milliseconds.
    pub gaps_ms: GapsMs,
}

/// How far apart requests arrived, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct GapsMs {
    /// The median, at most 3% too high.
    pub p50: f64,
    /// Only one in a hundred gaps is longer; at most 3% too high.
    pub p99: f64,
    /// The longest, exactly.
    pub max: f64,
}

// === impl Tally ===

impl Tally {
    pub(super) fn new(limit: Option<Rate>) -> Self {
        Self {
            limit,
            window: limit.map_or(Duration::from_secs(1), |rate| rate.per),
            accepted: 0,
            refused: 0,
            failed: 0,
            span: None,
            arrivals: VecDeque::new(),
            worst_window: 0,
            gaps: Gaps::default(),
        }
    }

    pub(super) fn accept(&mut self, now: Instant) {
        self.arrive(now);
        self.accepted += 1;
        self.span = Some((self.span.map_or(now, |(first, _)| first), now));
    }

    pub(super) fn refuse(&mut self, now: Instant) {
        self.arrive(now);
        self.refused += 1;
    }

    /// One of the accepted is answered with 500.
    pub(super) fn fail(&mut self) {
        self.failed += 1;
    }

    /// How many were accepted so far.
    pub(super) fn accepted(&self) -> u64 {
        self.accepted
    }

    pub(super) fn stats(&self) -> Stats {
        let span = self.span.map_or(Duration::ZERO, |(first, last)| last.since(first)).as_secs_f64();
        let millis = |gap: Duration| gap.as_secs_f64() * 1e3;
        Stats {
            accepted: self.accepted,
            refused: self.refused,
            failed: self.failed,
            worst_window: self.worst_window as u64,
            used_share: self
                .limit
                .filter(|_| span > 0.0)
                .map(|rate| (self.accepted.saturating_sub(1)) as f64 / (span * rate.per_second())),
            span_seconds: span,
            gaps_ms: GapsMs {
                p50: millis(self.gaps.quantile(0.5)),
                p99: millis(self.gaps.quantile(0.99)),
                max: millis(self.gaps.longest()),
            },
        }
    }

    fn arrive(&mut self, now: Instant) {
        if let Some(last) = self.arrivals.back() {
            self.gaps.record(now.since(*last));
        }
        while self.arrivals.len() >= REMEMBERED
            || self.arrivals.front().is_some_and(|oldest| *oldest + self.window <= now)
        {
            self.arrivals.pop_front();
        }
        self.arrivals.push_back(now);
        self.worst_window = self.worst_window.max(self.arrivals.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::START + Duration::from_millis(millis)
    }

    #[test]
    fn an_even_pace_at_the_limit_uses_all_of_it() {
        let mut tally = Tally::new(Some("10/s".parse().unwrap()));
        (0..101).for_each(|k| tally.accept(at(k * 100)));
        let stats = tally.stats();
        assert_eq!((stats.accepted, stats.refused, stats.worst_window), (101, 0, 10));
        assert!((stats.used_share.unwrap() - 1.0).abs() < 1e-9);
        assert_eq!((stats.span_seconds, stats.gaps_ms.max), (10.0, 100.0));
    }

    #[test]
    fn refused_arrivals_are_in_the_worst_window_but_use_nothing() {
        let mut tally = Tally::new(Some("2/s".parse().unwrap()));
        tally.accept(at(0));
        (0..5).for_each(|k| tally.refuse(at(k)));
        tally.accept(at(1000));
        let stats = tally.stats();
        assert_eq!((stats.accepted, stats.refused, stats.worst_window), (2, 5, 6));
        assert_eq!(stats.used_share, Some(0.5));
    }

    #[test]
    fn gaps_longer_than_the_window_are_measured() {
        let mut tally = Tally::new(Some("2/s".parse().unwrap()));
        tally.accept(at(0));
        tally.accept(at(5000));
        assert_eq!(tally.stats().gaps_ms.max, 5000.0);
    }

    #[test]
    fn without_two_instants_there_is_no_share() {
        let mut tally = Tally::new(Some("2/s".parse().unwrap()));
        assert_eq!(tally.stats(), Stats::default());
        tally.accept(at(7));
        tally.accept(at(7));
        assert_eq!(tally.stats().used_share, None);
        let mut limitless = Tally::new(None);
        limitless.accept(at(0));
        limitless.accept(at(9));
        assert_eq!((limitless.stats().used_share, limitless.stats().worst_window), (None, 2));
    }
}
