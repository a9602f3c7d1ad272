//! Log lines about failed requests: at most one per period for each lane, with the number of further failures.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tracing::warn;

use crate::clock::Instant;

/// Minimum time between lines of a lane whose upstream fails.
const FAILURE_PERIOD: Duration = Duration::from_secs(1);
/// Minimum time between lines of a lane whose requests andante refuses: a full queue refuses for hours.
const REFUSAL_PERIOD: Duration = Duration::from_secs(10);
/// Maximum number of lanes that are distinguished. Failures of further lanes are only in the metrics and the access
/// log.
const MOST: usize = 1000;

/// Failures without a line, by host and rule.
#[derive(Debug)]
pub(crate) struct FailureLog {
    whose: FailedBy,
    lanes: Mutex<HashMap<HostAndRule, LaneFailures>>,
}

/// Party that failed the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailedBy {
    /// The API, or the connection to it.
    Upstream,
    /// andante: it had no slot in time, or no room.
    Us,
}

type HostAndRule = (Arc<str>, Arc<str>);

#[derive(Clone, Debug)]
struct LaneFailures {
    /// Time of the last line.
    told: Instant,
    /// Number of failures since the last line, and the last error.
    untold: u64,
    last: String,
}

/// Failures of a lane that are due for a line.
#[derive(Debug, PartialEq, Eq)]
struct DueFailures {
    host: Arc<str>,
    rule: Arc<str>,
    count: u64,
    last: String,
}

// === impl FailureLog ===

impl FailureLog {
    pub(crate) fn new(whose: FailedBy) -> Self {
        Self { whose, lanes: Mutex::default() }
    }

    fn period(&self) -> Duration {
        match self.whose {
            FailedBy::Upstream => FAILURE_PERIOD,
            FailedBy::Us => REFUSAL_PERIOD,
        }
    }

    /// Adds a failure of a request for `host`. Returns the number of failures since the last line if this one deserves
    /// a line now.
    pub(crate) fn add(&self, host: &Arc<str>, rule: &Arc<str>, error: &str, now: Instant) -> Option<u64> {
        let period = self.period();
        let mut lanes = self.lanes.lock();
        if lanes.len() >= MOST {
            lanes.retain(|_, lane| lane.untold > 0 || !lane.is_due(now, period));
        }
        let room = lanes.len() < MOST;
        match lanes.get_mut(&(host.clone(), rule.clone())) {
            Some(lane) if lane.is_due(now, period) => {
                lane.told = now;
                Some(std::mem::take(&mut lane.untold))
            }
            Some(lane) => {
                lane.untold += 1;
                error.clone_into(&mut lane.last);
                None
            }
            None if room => {
                let lane = LaneFailures { told: now, untold: 0, last: String::new() };
                lanes.insert((host.clone(), rule.clone()), lane);
                Some(0)
            }
            None => None,
        }
    }

    /// Logs the failures that are due; `all` of them before the process ends. To be called every few seconds.
    pub(crate) fn tell(&self, now: Instant, all: bool) {
        for DueFailures { host, rule, count, last } in self.due(now, all) {
            match self.whose {
                FailedBy::Upstream => warn!(%host, %rule, count, error = last, "the upstream failed more requests"),
                FailedBy::Us => warn!(%host, %rule, count, error = last, "andante refused more requests"),
            }
        }
    }

    fn due(&self, now: Instant, all: bool) -> Vec<DueFailures> {
        let (period, mut due) = (self.period(), Vec::new());
        self.lanes.lock().retain(|(host, rule), lane| {
            let is_due = all || lane.is_due(now, period);
            if is_due && lane.untold > 0 {
                let last = std::mem::take(&mut lane.last);
                due.push(DueFailures { host: host.clone(), rule: rule.clone(), count: lane.untold, last });
                (lane.untold, lane.told) = (0, now);
                return true;
            }
            // A lane that has been quiet since is dropped.
            !is_due
        });
        due
    }
}

// === impl LaneFailures ===

impl LaneFailures {
    fn is_due(&self, now: Instant, period: Duration) -> bool {
        now.since(self.told) >= period
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::START + Duration::from_millis(millis)
    }

    fn add(log: &FailureLog, host: &str, millis: u64) -> Option<u64> {
        log.add(&host.into(), &"api".into(), &format!("failed at {millis}"), at(millis))
    }

    fn due(log: &FailureLog, millis: u64, all: bool) -> Vec<(u64, String)> {
        log.due(at(millis), all).into_iter().map(|due| (due.count, due.last)).collect()
    }

    /// A thousand failures in ten seconds make a line each second, and each failure is in one of them.
    #[test]
    fn a_lane_has_a_line_a_second_and_none_is_lost() {
        let log = FailureLog::new(FailedBy::Upstream);
        let lines: Vec<u64> = (0..1000).filter_map(|n| add(&log, "a.test", n * 10)).collect();
        assert_eq!(lines, [0, 99, 99, 99, 99, 99, 99, 99, 99, 99]);
        assert_eq!(due(&log, 9_995, false), [], "its second is not over");
        assert_eq!(due(&log, 12_000, false), [(99, "failed at 9990".to_owned())]);
        assert_eq!(due(&log, 20_000, false), []);
        assert!(log.lanes.lock().is_empty(), "what is quiet is forgotten");
    }

    /// A client that is refused a thousand times in ten seconds makes one line, and then one each ten seconds.
    #[test]
    fn refusals_of_our_own_have_a_line_each_ten_seconds() {
        let log = FailureLog::new(FailedBy::Us);
        let lines: Vec<u64> = (0..3000).filter_map(|n| add(&log, "a.test", n * 10)).collect();
        assert_eq!(lines, [0, 999, 999]);
    }

    #[test]
    fn each_lane_has_its_own_lines_and_the_end_tells_all() {
        let log = FailureLog::new(FailedBy::Upstream);
        assert_eq!([add(&log, "a.test", 0), add(&log, "b.test", 1), add(&log, "a.test", 2)], [Some(0), Some(0), None]);
        assert_eq!(due(&log, 3, true), [(1, "failed at 2".to_owned())]);
    }

    #[test]
    fn many_hosts_do_not_fill_the_memory() {
        let log = FailureLog::new(FailedBy::Upstream);
        let lines = (0..2 * MOST).filter_map(|host| add(&log, &host.to_string(), 0)).count();
        assert_eq!((lines, log.lanes.lock().len()), (MOST, MOST));
        assert_eq!(add(&log, "later", 1000), Some(0), "the others have been quiet");
    }
}
