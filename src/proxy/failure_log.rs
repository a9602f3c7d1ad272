//! What the log says of requests whose upstream has failed them: a line a second for each lane, with how many more there were.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tracing::warn;

use crate::clock::Instant;

/// A lane has no more than one line in this time.
const PAUSE: Duration = Duration::from_secs(1);
/// How many lanes are told apart. Failures of further ones are in the metrics and the access log alone.
const MOST: usize = 1000;

/// Failures that no line was written for, by host and rule.
#[derive(Debug, Default)]
pub(crate) struct FailureLog(Mutex<HashMap<HostAndRule, LaneFailures>>);

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
    /// A request for `host` has failed with `error`. Whether that is worth a line of its own now; and how many have failed since
    /// the last one without one.
    pub(crate) fn add(&self, host: &Arc<str>, rule: &Arc<str>, error: &str, now: Instant) -> Option<u64> {
        let mut lanes = self.0.lock();
        if lanes.len() >= MOST {
            lanes.retain(|_, lane| lane.untold > 0 || !lane.is_due(now));
        }
        let room = lanes.len() < MOST;
        match lanes.get_mut(&(host.clone(), rule.clone())) {
            Some(lane) if lane.is_due(now) => {
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
            warn!(%host, %rule, count, error = last, "the upstream failed more requests");
        }
    }

    fn due(&self, now: Instant, all: bool) -> Vec<DueFailures> {
        let mut due = Vec::new();
        self.0.lock().retain(|(host, rule), lane| {
            let is_due = all || lane.is_due(now);
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
    fn is_due(&self, now: Instant) -> bool {
        now.since(self.told) >= PAUSE
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
        let log = FailureLog::default();
        let lines: Vec<u64> = (0..1000).filter_map(|n| add(&log, "a.test", n * 10)).collect();
        assert_eq!(lines, [0, 99, 99, 99, 99, 99, 99, 99, 99, 99]);
        assert_eq!(due(&log, 9_995, false), [], "its second is not over");
        assert_eq!(due(&log, 12_000, false), [(99, "failed at 9990".to_owned())]);
        assert_eq!(due(&log, 20_000, false), []);
        assert!(log.0.lock().is_empty(), "what is quiet is forgotten");
    }

    #[test]
    fn each_lane_has_its_own_lines_and_the_end_tells_all() {
        let log = FailureLog::default();
        assert_eq!([add(&log, "a.test", 0), add(&log, "b.test", 1), add(&log, "a.test", 2)], [Some(0), Some(0), None]);
        assert_eq!(due(&log, 3, true), [(1, "failed at 2".to_owned())]);
    }

    #[test]
    fn many_hosts_do_not_fill_the_memory() {
        let log = FailureLog::default();
        let lines = (0..2 * MOST).filter_map(|host| add(&log, &host.to_string(), 0)).count();
        assert_eq!((lines, log.0.lock().len()), (MOST, MOST));
        assert_eq!(add(&log, "later", 1000), Some(0), "the others have been quiet");
    }
}
