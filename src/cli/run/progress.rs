//! Progress of a run, on one line. Pure.

use std::{collections::VecDeque, time::Duration};

use super::diagnosis;
use crate::cli::wording;
use crate::{
    admin::{Status, status::LaneStatus},
    clock::Instant,
};

/// Pace of departures, smoothed over [`Pace::OVER`].
#[derive(Debug, Default)]
pub(in crate::cli) struct Pace {
    seen: VecDeque<(Instant, u64)>,
}

// === impl Pace ===

impl Pace {
    const OVER: Duration = Duration::from_secs(10);

    /// Requests per second, given that `sent` were sent in total; `None` before there are two samples.
    pub(in crate::cli) fn at(&mut self, now: Instant, sent: u64) -> Option<f64> {
        self.seen.push_back((now, sent));
        // The oldest sample stays just outside of the span, so that the samples cover the span.
        while self.seen.get(1).is_some_and(|(at, _)| now.since(*at) >= Self::OVER) {
            self.seen.pop_front();
        }
        let (since, before) = *self.seen.front()?;
        let passed = now.since(since);
        (!passed.is_zero()).then(|| sent.saturating_sub(before) as f64 / passed.as_secs_f64())
    }
}

/// Requests sent so far.
pub(in crate::cli) fn sent(status: &Status) -> u64 {
    status.lanes.iter().map(|lane| lane.sent_total).sum()
}

/// `andante: 1,234 sent, 5,432 waiting, 8.3/s, paused 12 s: retry-after, 10m 52s to go`.
pub(super) fn line(status: &Status, pace: Option<f64>) -> String {
    let waiting: u64 = status.lanes.iter().map(|lane| lane.waiting).sum();
    let refused: u64 = status.lanes.iter().map(|lane| lane.answered_429_total).sum();
    let mut parts = vec![format!("{} sent", wording::count(sent(status)))];
    parts.push(format!("{} waiting", wording::count(waiting)));
    parts.extend(pace.filter(|pace| *pace > 0.0).map(wording::measured_pace));
    parts.extend(paused(status));
    if refused > 0 {
        parts.push(format!("{} answered with 429", wording::count(refused)));
    }
    if status.retries_total > 0 {
        parts.push(format!("{} sent again", wording::count(status.retries_total)));
    }
    let (failed, left) = (diagnosis::failed(status), status.requests.left);
    if failed > 0 {
        parts.push(format!("{} failed", wording::count(failed)));
    }
    if left > 0 {
        parts.push(format!("{} left", wording::count(left)));
    }
    if waiting > 0 {
        let last = status.lanes.iter().filter_map(|lane| lane.drain_eta_s).reduce(f64::max);
        parts.extend(last.map(|last| format!("{} to go", wording::seconds(last))));
    }
    format!("andante: {}", parts.join(", "))
}

/// Pause of the lane in which most requests wait.
pub(in crate::cli) fn paused(status: &Status) -> Option<String> {
    let waits = |lane: &&LaneStatus| lane.waiting > 0 && lane.gate.is_some();
    let gate = status.lanes.iter().filter(waits).max_by_key(|lane| lane.waiting)?.gate.as_ref()?;
    // At the end of the pause a probe finds out whether it is over, so no negative time is shown.
    let time = gate.opens_in_s.filter(|time| *time > 0.0).map(|time| format!(" {}", wording::seconds(time)));
    Some(format!("paused{}: {}", time.unwrap_or_default(), gate.reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::status::{GateStatus, Requests};

    fn at(millis: u64) -> Instant {
        Instant::START + Duration::from_millis(millis)
    }

    #[test]
    fn the_pace_is_that_of_the_last_seconds() {
        let mut pace = Pace::default();
        assert_eq!(pace.at(at(0), 0), None);
        assert_eq!(pace.at(at(500), 5), Some(10.0));
        for second in 1..=30 {
            pace.at(at(second * 1000), 5);
        }
        assert_eq!(pace.at(at(31_000), 25), Some(2.0));
        assert_eq!(pace.at(at(31_000), 0), Some(0.0), "a lane was forgotten");
        assert!(pace.seen.len() < 14);
    }

    #[test]
    fn the_line_says_what_is_left_to_wait_for() {
        let lane = LaneStatus { sent_total: 1234, waiting: 5432, drain_eta_s: Some(652.0), ..LaneStatus::default() };
        let other = LaneStatus { drain_eta_s: Some(1.0), waiting: 1, ..LaneStatus::default() };
        let mut status = Status { lanes: vec![lane, other], ..Status::default() };
        assert_eq!(line(&status, Some(8.333)), "andante: 1,234 sent, 5,433 waiting, 8.3/s, 10m 52s to go");
        status.lanes.truncate(1);
        status.lanes[0] = LaneStatus { answered_429_total: 2, drain_eta_s: Some(0.0), ..LaneStatus::default() };
        status.requests = Requests { failed: 3, ..Requests::default() };
        assert_eq!(line(&status, None), "andante: 0 sent, 0 waiting, 2 answered with 429, 3 failed");
    }

    #[test]
    fn the_line_says_why_nothing_moves_and_for_how_long() {
        let lane = |waiting, reason: &str, opens_in_s| LaneStatus {
            waiting,
            gate: Some(GateStatus { reason: reason.into(), opens_in_s }),
            ..LaneStatus::default()
        };
        let lanes = vec![lane(0, "breaker", Some(30.0)), lane(9, "retry-after", Some(12.3)), lane(1, "refused", None)];
        let mut status = Status { lanes, retries_total: 2, ..Status::default() };
        let expected = "andante: 0 sent, 10 waiting, paused 12 s: retry-after, 2 sent again";
        assert_eq!(line(&status, None), expected);
        status.lanes = vec![lane(1, "breaker", Some(0.0))];
        assert_eq!(line(&status, None), "andante: 0 sent, 1 waiting, paused: breaker, 2 sent again");
        status.lanes[0].waiting = 0;
        assert_eq!(line(&status, None), "andante: 0 sent, 0 waiting, 2 sent again", "nobody minds");
    }
}
