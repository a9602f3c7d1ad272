//! Log lines about requests that failed: at most one in a while for each lane, with the number of further ones.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tracing::warn;

use crate::clock::Instant;

/// A lane whose upstream fails has at most one line in this time.
const FAILURE_PERIOD: Duration = Duration::from_secs(1);
/// A lane whose requests andante refuses has at most one line in this time: a queue that is full refuses for hours.
const REFUSAL_PERIOD: Duration = Duration::from_secs(10);
/// How many lanes are told apart. Failures of further ones are in the metrics and the access log alone.
const MOST: usize = 1000;

/// Failures that no line was written for, by host and rule.
#[derive(Debug)]
pub(crate) struct FailureLog {
    whose: FailedBy,
    lanes: Mutex<HashMap<HostAndRule, LaneFailures>>,
}

/// Who has failed requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailedBy {
    /// The API, or the way to it.
    Upstream,
    /// andante, which had no slot in time or no room.
    Us,
}

type HostAndRule = (Arc<str>, Arc<str>);

#[derive(Clone, Debug)]
struct LaneFailures {
    /// When there was a line.
    told: Instant,
    /// How many there were since, and the last one of them.
    untold: u64,
    last: String,
}

/// Failures of a lane that are due.
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

    /// A request for `host` has failed with `error`. Whether that is worth a line of its own now; and how many have failed since
    /// the last one without one.
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

    /// Writes what is due to the log; `all` of it before the process ends. To be called every few seconds.
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
            // One that has been quiet since is as good as new.
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

    /// A thousand in ten seconds are a line each second, and each is in one of them.
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

    /// A client that is refused a thousand times in ten seconds is one line, and then one each ten seconds.
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
