//! Statistics of an API: requests accepted and refused, and the gaps between them. Pure: told the time.

use std::{collections::VecDeque, time::Duration};

use serde::Serialize;

use super::{
    intervals::Intervals,
    timeline::{Second, Timeline},
};
use crate::{clock::Instant, limit::Rate};

/// Arrivals stored for the worst window: bounds the memory to 8 MB. Larger windows are reported as this many arrivals.
const REMEMBERED: usize = 1_000_000;

/// Recorder of the events from which [`Stats`] are computed.
#[derive(Debug)]
pub(super) struct StatsRecorder {
    limit: Option<Rate>,
    accepted: u64,
    refused: u64,
    failed: u64,
    scripted: u64,
    /// Instants of the first and the last arrival, accepted or refused.
    seen: Option<(Instant, Instant)>,
    refused_after_first_window: u64,
    /// Instants of the first and the last accepted request.
    span: Option<(Instant, Instant)>,
    share: UsedShare,
    timeline: Timeline,
    arrivals: WindowArrivals,
    intervals: Intervals,
}

/// Arrivals in the last window, and the most in any window.
#[derive(Debug, Default)]
struct WindowArrivals {
    recent: VecDeque<Instant>,
    most: usize,
}

/// Basis of [`Stats::used_share`]. Restarts when a limit is added or removed, and continues when the limit changes.
#[derive(Debug, Default)]
struct UsedShare {
    /// Instants of the first and the last accepted request since the restart.
    span: Option<(Instant, Instant)>,
    accepted: u64,
    /// Requests that earlier limits allowed, up to `since`.
    allowed: f64,
    /// Instant of the last change of the limit; the clock's start if it never changed.
    since: Instant,
}

/// Statistics of an API since its start; the answer of `/__mock/stats`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stats {
    /// Requests that were accepted and counted against the limit, including those answered with 500.
    pub accepted: u64,
    /// Requests that were refused in the dialect's way.
    pub refused: u64,
    /// Refused requests that arrived at least one window after the first request.
    pub refused_after_first_window: u64,
    /// Accepted requests that were answered with 500.
    pub failed: u64,
    /// Requests that were answered, cut or left hanging as a control page had asked. No other figure but the timeline
    /// includes them.
    pub scripted: u64,
    /// Largest number of requests, accepted or refused, that arrived in any window since the limit was last set. The
    /// window has the limit's length, or one second without a limit. The number is at most 1,000,000.
    pub worst_window: u64,
    /// Used share of the requests that the limit allowed between the first and the last accepted request. An even pace
    /// at the limit has a share of 1, and a burst has more. Absent without a limit, or before two requests were
    /// accepted at different instants. Each limit counts only for the time in which it held.
    pub used_share: Option<f64>,
    /// Seconds between the first and the last accepted request.
    pub span_seconds: f64,
    /// Gaps in milliseconds between requests, accepted or refused.
    pub gaps_ms: GapsMs,
    /// Seconds in which a request arrived, among the last 600.
    pub timeline: Vec<Second>,
}

/// Gaps in milliseconds between arrivals of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct GapsMs {
    /// Median gap, at most 1/32 (about 3%) too high.
    pub p50: f64,
    /// Gap that only one in a hundred exceeds, at most 1/32 (about 3%) too high.
    pub p99: f64,
    /// Longest gap, exactly.
    pub max: f64,
}

// === impl StatsRecorder ===

impl StatsRecorder {
    pub(super) fn new(limit: Option<Rate>, now: Instant) -> Self {
        Self {
            limit,
            accepted: 0,
            refused: 0,
            failed: 0,
            scripted: 0,
            seen: None,
            refused_after_first_window: 0,
            span: None,
            share: UsedShare::default(),
            timeline: Timeline::new(now),
            arrivals: WindowArrivals::default(),
            intervals: Intervals::default(),
        }
    }

    pub(super) fn accept(&mut self, now: Instant) {
        self.arrive(now);
        self.accepted += 1;
        self.span = Some((self.span.map_or(now, |(first, _)| first), now));
        self.share.accept(now);
        self.timeline.accept(now);
    }

    pub(super) fn refuse(&mut self, now: Instant) {
        self.arrive(now);
        self.refused += 1;
        if self.seen.is_some_and(|(first, _)| now >= first + window(self.limit)) {
            self.refused_after_first_window += 1;
        }
        self.timeline.refuse(now);
    }

    /// Records a request that was treated as a control page had asked.
    pub(super) fn script(&mut self, now: Instant) {
        self.scripted += 1;
        self.timeline.script(now);
    }

    /// Records that `limit` holds from `now` on.
    pub(super) fn retune(&mut self, limit: Option<Rate>, now: Instant) {
        match (self.limit, limit) {
            (Some(before), Some(_)) => self.share.retune(before, now),
            _ => self.share = UsedShare::default(),
        }
        self.limit = limit;
        // Earlier arrivals belong to the previous limit.
        self.arrivals = WindowArrivals::default();
    }

    /// Records that an accepted request is answered with 500.
    pub(super) fn fail(&mut self) {
        self.failed += 1;
    }

    /// Number of requests accepted so far.
    pub(super) fn accepted(&self) -> u64 {
        self.accepted
    }

    pub(super) fn stats(&self, now: Instant) -> Stats {
        let span = self.span.map_or(Duration::ZERO, |(first, last)| last.since(first)).as_secs_f64();
        let millis = |gap: Duration| gap.as_secs_f64() * 1e3;
        Stats {
            accepted: self.accepted,
            refused: self.refused,
            refused_after_first_window: self.refused_after_first_window,
            failed: self.failed,
            scripted: self.scripted,
            worst_window: self.arrivals.most as u64,
            used_share: self.limit.and_then(|limit| self.share.used(limit)),
            span_seconds: span,
            gaps_ms: GapsMs {
                p50: millis(self.intervals.quantile(0.5)),
                p99: millis(self.intervals.quantile(0.99)),
                max: millis(self.intervals.longest()),
            },
            timeline: self.timeline.seconds(now),
        }
    }

    fn arrive(&mut self, now: Instant) {
        if let Some((_, last)) = self.seen {
            self.intervals.record(now.since(last));
        }
        self.seen = Some((self.seen.map_or(now, |(first, _)| first), now));
        self.arrivals.record(now, window(self.limit));
    }
}

// === impl UsedShare ===

impl UsedShare {
    fn accept(&mut self, now: Instant) {
        self.accepted += 1;
        self.span = Some((self.span.map_or(now, |(first, _)| first), now));
    }

    fn retune(&mut self, before: Rate, now: Instant) {
        if let Some((first, _)) = self.span {
            self.allowed += now.since(first.max(self.since)).as_secs_f64() * before.per_second();
        }
        self.since = now;
    }

    fn used(&self, limit: Rate) -> Option<f64> {
        let (first, last) = self.span?;
        let allowed = self.allowed + last.since(first.max(self.since)).as_secs_f64() * limit.per_second();
        (allowed > 0.0).then(|| (self.accepted - 1) as f64 / allowed)
    }
}

// === impl WindowArrivals ===

impl WindowArrivals {
    fn record(&mut self, now: Instant, window: Duration) {
        while self.recent.len() >= REMEMBERED || self.recent.front().is_some_and(|oldest| *oldest + window <= now) {
            self.recent.pop_front();
        }
        self.recent.push_back(now);
        self.most = self.most.max(self.recent.len());
    }
}

/// Length of the windows in which arrivals are counted: the limit's, or one second without a limit.
fn window(limit: Option<Rate>) -> Duration {
    limit.map_or(Duration::from_secs(1), |rate| rate.per)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::START + Duration::from_millis(millis)
    }

    #[test]
    fn an_even_pace_at_the_limit_uses_all_of_it() {
        let mut recorder = StatsRecorder::new(Some("10/s".parse().unwrap()), at(0));
        (0..101).for_each(|k| recorder.accept(at(k * 100)));
        let stats = recorder.stats(at(60_000));
        assert_eq!((stats.accepted, stats.refused, stats.worst_window), (101, 0, 10));
        assert!((stats.used_share.unwrap() - 1.0).abs() < 1e-9);
        assert_eq!((stats.span_seconds, stats.gaps_ms.max), (10.0, 100.0));
    }

    #[test]
    fn refused_arrivals_are_in_the_worst_window_but_use_nothing() {
        let mut recorder = StatsRecorder::new(Some("2/s".parse().unwrap()), at(0));
        recorder.accept(at(0));
        (0..5).for_each(|k| recorder.refuse(at(k)));
        recorder.accept(at(1000));
        let stats = recorder.stats(at(60_000));
        assert_eq!((stats.accepted, stats.refused, stats.worst_window), (2, 5, 6));
        assert_eq!(stats.used_share, Some(0.5));
    }

    #[test]
    fn gaps_longer_than_the_window_are_measured() {
        let mut recorder = StatsRecorder::new(Some("2/s".parse().unwrap()), at(0));
        recorder.accept(at(0));
        recorder.accept(at(5000));
        assert_eq!(recorder.stats(at(60_000)).gaps_ms.max, 5000.0);
    }

    #[test]
    fn without_two_instants_there_is_no_share() {
        let mut recorder = StatsRecorder::new(Some("2/s".parse().unwrap()), at(0));
        assert_eq!(recorder.stats(at(60_000)), Stats::default());
        recorder.accept(at(7));
        recorder.accept(at(7));
        assert_eq!(recorder.stats(at(60_000)).used_share, None);
        let mut limitless = StatsRecorder::new(None, at(0));
        limitless.accept(at(0));
        limitless.accept(at(9));
        assert_eq!((limitless.stats(at(9)).used_share, limitless.stats(at(9)).worst_window), (None, 2));
    }

    #[test]
    fn refusals_are_told_apart_by_the_first_window() {
        let mut recorder = StatsRecorder::new(Some("2/s".parse().unwrap()), at(0));
        recorder.accept(at(5000));
        [5999, 6000, 7000].into_iter().for_each(|ms| recorder.refuse(at(ms)));
        let stats = recorder.stats(at(7000));
        assert_eq!((stats.refused, stats.refused_after_first_window), (3, 2));
    }

    #[test]
    fn a_changed_limit_counts_for_as_long_as_it_held() {
        let mut recorder = StatsRecorder::new(Some("10/s".parse().unwrap()), at(0));
        (0..=100).for_each(|k| recorder.accept(at(k * 100)));
        recorder.retune(Some("20/s".parse().unwrap()), at(10_000));
        (1..=200).for_each(|k| recorder.accept(at(10_000 + k * 50)));
        let stats = recorder.stats(at(20_000));
        assert!((stats.used_share.unwrap() - 1.0).abs() < 1e-9, "{:?}", stats.used_share);
        assert_eq!((stats.accepted, stats.worst_window), (301, 20));
        recorder.retune(None, at(20_000));
        assert_eq!((recorder.stats(at(20_000)).used_share, recorder.stats(at(20_000)).worst_window), (None, 0));
    }

    #[test]
    fn what_the_control_pages_asked_for_is_counted_apart() {
        let mut recorder = StatsRecorder::new(Some("10/s".parse().unwrap()), at(0));
        recorder.script(at(1500));
        let stats = recorder.stats(at(1500));
        assert_eq!((stats.accepted, stats.refused, stats.scripted, stats.worst_window), (0, 0, 1, 0));
        assert_eq!((stats.timeline[0].second, stats.timeline[0].scripted), (1, 1));
    }
}
