//! Number of requests served since a given time, less exact for earlier times.

use std::collections::VecDeque;

/// Counts of served requests. Times are in seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct RateHistory {
    /// Instants, oldest first, each with the number of requests served by then.
    marks: VecDeque<(f64, f64)>,
    total: f64,
}

/// Distance between marks, and maximum number of marks.
const STEP: f64 = 0.05;
const MOST: usize = 128;

// === impl RateHistory ===

impl RateHistory {
    /// Records that a request that left at `at` was served.
    pub(super) fn served(&mut self, at: f64) {
        if self.marks.back().is_none_or(|(last, _)| at - last >= STEP) {
            if self.marks.len() >= MOST {
                self.thin_out(at);
            }
            self.marks.push_back((at, self.total));
        }
        self.total += 1.0;
    }

    /// Returns true if no request was served.
    pub(super) fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// Number of served requests that left after `since`.
    pub(super) fn since(&self, since: f64) -> f64 {
        let next = self.marks.partition_point(|(at, _)| *at < since);
        let end = (f64::INFINITY, self.total);
        let (later, then) = self.marks.get(next).copied().unwrap_or(end);
        let Some((earlier, before)) = next.checked_sub(1).map(|last| self.marks[last]) else { return self.total };
        let share = ((since - earlier) / (later - earlier).min(since - earlier + STEP)).clamp(0.0, 1.0);
        self.total - (before + (then - before) * share)
    }

    /// Removes the mark that is closest to its neighbours, relative to its distance from `now`.
    fn thin_out(&mut self, now: f64) {
        let gain = |at: &usize| (self.marks[at + 1].0 - self.marks[at - 1].0) / (now - self.marks[*at].0).max(STEP);
        let least = (1..self.marks.len() - 1).min_by(|one, other| gain(one).total_cmp(&gain(other)));
        least.map(|at| self.marks.remove(at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_knows_how_many_were_served_lately_and_about_how_many_long_ago() {
        let mut history = RateHistory::default();
        // A burst of 100 every ten seconds, for an hour.
        for window in 0..360 {
            (0..100).for_each(|n| history.served(f64::from(window) * 10.0 + f64::from(n) * 0.01));
        }
        let now = 3600.0;
        for (ago, served) in [(10.5, 100.0), (30.5, 300.0), (60.5, 600.0), (600.5, 6000.0), (1800.5, 18_000.0)] {
            let counted = history.since(now - ago);
            assert!((counted / served - 1.0).abs() < 0.05, "{counted} and not {served}");
        }
        assert_eq!(history.since(-1.0), 36_000.0);
        assert!(history.marks.len() <= MOST);
    }
}
