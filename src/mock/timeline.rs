//! Requests in each of the last seconds of an API. Pure: told the time.

use std::collections::VecDeque;

use serde::Serialize;

use crate::clock::Instant;

/// Seconds that the timeline covers: ten minutes.
const REMEMBERED: u64 = 600;

/// Record of a second in which a request arrived.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Second {
    /// Index of the second, counted from the API's start: 0 is the first.
    pub second: u64,
    /// Requests accepted.
    pub accepted: u64,
    /// Requests refused.
    pub refused: u64,
    /// Requests that were answered, cut or left hanging as a control page had asked.
    pub scripted: u64,
    /// Shortest gap in milliseconds between an accepted request of this second and the one accepted before it.
    pub shortest_gap_ms: Option<f64>,
    /// Longest gap in milliseconds between an accepted request of this second and the one accepted before it.
    pub longest_gap_ms: Option<f64>,
}

/// Records of the last ten minutes by second. Seconds without a request take no memory.
#[derive(Debug)]
pub(super) struct Timeline {
    start: Instant,
    seconds: VecDeque<Second>,
    last_accepted: Option<Instant>,
}

// === impl Timeline ===

impl Timeline {
    pub(super) fn new(start: Instant) -> Self {
        Self { start, seconds: VecDeque::new(), last_accepted: None }
    }

    pub(super) fn accept(&mut self, now: Instant) {
        let gap = self.last_accepted.replace(now).map(|last| now.since(last).as_secs_f64() * 1e3);
        let second = self.second(now);
        second.accepted += 1;
        if let Some(gap) = gap {
            second.shortest_gap_ms = Some(second.shortest_gap_ms.map_or(gap, |shortest| shortest.min(gap)));
            second.longest_gap_ms = Some(second.longest_gap_ms.map_or(gap, |longest| longest.max(gap)));
        }
    }

    pub(super) fn refuse(&mut self, now: Instant) {
        self.second(now).refused += 1;
    }

    pub(super) fn script(&mut self, now: Instant) {
        self.second(now).scripted += 1;
    }

    /// Recorded seconds among the last [`REMEMBERED`] up to `now`, oldest first.
    pub(super) fn seconds(&self, now: Instant) -> Vec<Second> {
        let oldest = self.index(now).saturating_sub(REMEMBERED - 1);
        self.seconds.iter().filter(|second| second.second >= oldest).cloned().collect()
    }

    /// Record of the second that contains `now`, created if missing.
    fn second(&mut self, now: Instant) -> &mut Second {
        let index = self.index(now);
        while self.seconds.front().is_some_and(|oldest| oldest.second + REMEMBERED <= index) {
            self.seconds.pop_front();
        }
        if self.seconds.back().is_none_or(|last| last.second != index) {
            self.seconds.push_back(Second { second: index, ..Second::default() });
        }
        self.seconds.back_mut().expect("there is one, made above if need be")
    }

    fn index(&self, now: Instant) -> u64 {
        now.since(self.start).as_secs()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::START + Duration::from_millis(millis)
    }

    #[test]
    fn each_second_holds_what_came_in_it() {
        let mut timeline = Timeline::new(at(500));
        [500, 700, 1000].into_iter().for_each(|ms| timeline.accept(at(ms)));
        timeline.refuse(at(1499));
        timeline.accept(at(3600));
        timeline.script(at(3700));
        let gaps = (Some(200.0), Some(300.0));
        let first = Second {
            second: 0,
            accepted: 3,
            refused: 1,
            shortest_gap_ms: gaps.0,
            longest_gap_ms: gaps.1,
            ..Second::default()
        };
        let gap = Some(2600.0);
        let last = Second {
            second: 3,
            accepted: 1,
            scripted: 1,
            shortest_gap_ms: gap,
            longest_gap_ms: gap,
            ..Second::default()
        };
        assert_eq!(timeline.seconds(at(3700)), [first, last]);
    }

    #[test]
    fn ten_minutes_are_remembered() {
        let mut timeline = Timeline::new(at(0));
        (0..1000).for_each(|second| timeline.refuse(at(second * 1000)));
        assert_eq!(timeline.seconds.len(), 600);
        let seconds = timeline.seconds(at(999_000));
        assert_eq!((seconds.len(), seconds[0].second, seconds[599].second), (600, 400, 999));
        // Records age even while no request arrives.
        assert_eq!(timeline.seconds(at(1_100_000)).len(), 499);
    }
}
