//! Log lines about retries: one line per cause, with a count.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tracing::info;

use crate::{
    clock::{Instant, log_seconds},
    metrics::RetryReason,
};

/// Minimum time between two lines about one cause.
const PAUSE: Duration = Duration::from_secs(60);
/// Maximum number of causes that are distinguished. Further causes are only in the metrics.
const MOST: usize = 1000;

/// Retries that are not logged yet, by cause.
#[derive(Debug, Default)]
pub(crate) struct RetryLog(Mutex<Vec<RetryCause>>);

#[derive(Clone, Debug)]
struct RetryCause {
    host: Arc<str>,
    rule: Arc<str>,
    reason: RetryReason,
    /// Number of retries since the last line.
    count: u64,
    /// Time of the first of these retries.
    since: Instant,
    told: Option<Instant>,
}

// === impl RetryLog ===

impl RetryLog {
    /// Counts a retry of a request for `host`.
    pub(crate) fn add(&self, host: &Arc<str>, rule: &Arc<str>, reason: RetryReason, now: Instant) {
        let mut causes = self.0.lock();
        let same = |cause: &&mut RetryCause| cause.reason == reason && cause.host == *host && cause.rule == *rule;
        if let Some(cause) = causes.iter_mut().find(same) {
            if cause.count == 0 {
                cause.since = now;
            }
            cause.count += 1;
        } else if causes.len() < MOST {
            let (host, rule) = (host.clone(), rule.clone());
            causes.push(RetryCause { host, rule, reason, count: 1, since: now, told: None });
        }
    }

    /// Logs the causes that are due; `all` of them before the process ends. To be called every few seconds.
    pub(crate) fn tell(&self, now: Instant, all: bool) {
        for RetryCause { host, rule, reason, count, since, .. } in self.due(now, all) {
            let within_s = log_seconds(now.since(since));
            info!(%host, %rule, reason = reason.as_str(), count, within_s, "sent requests again");
        }
    }

    fn due(&self, now: Instant, all: bool) -> Vec<RetryCause> {
        let mut causes = self.0.lock();
        let is_due = |cause: &RetryCause| all || cause.told.is_none_or(|told| now.since(told) >= PAUSE);
        let due = causes.iter().filter(|cause| cause.count > 0 && is_due(cause)).cloned().collect();
        // A cause that has been quiet since its last line is dropped.
        causes.retain(|cause| cause.count > 0 || !is_due(cause));
        for cause in causes.iter_mut().filter(|cause| is_due(cause)) {
            (cause.count, cause.told) = (0, Some(now));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Instant {
        Instant::START + Duration::from_secs(second)
    }

    fn add(log: &RetryLog, host: &str, reason: RetryReason, second: u64) {
        log.add(&host.into(), &"api".into(), reason, at(second));
    }

    fn due(log: &RetryLog, second: u64) -> Vec<(String, &'static str, u64, Instant)> {
        let due = log.due(at(second), false).into_iter();
        due.map(|cause| (cause.host.to_string(), cause.reason.as_str(), cause.count, cause.since)).collect()
    }

    #[test]
    fn many_of_one_cause_are_told_of_at_once_and_then_once_a_minute() {
        let log = RetryLog::default();
        for second in 0..100 {
            add(&log, "a.test", RetryReason::Refused, second);
            let told = due(&log, second);
            let expected = match second {
                0 => vec![("a.test".to_owned(), "refused", 1, at(0))],
                60 => vec![("a.test".to_owned(), "refused", 60, at(1))],
                _ => Vec::new(),
            };
            assert_eq!(told, expected, "{second}");
        }
        assert_eq!(log.due(at(100), true)[0].count, 39, "the end of the process");
    }

    #[test]
    fn each_cause_has_a_line_of_its_own() {
        let log = RetryLog::default();
        add(&log, "a.test", RetryReason::Refused, 0);
        add(&log, "a.test", RetryReason::Cut, 0);
        add(&log, "b.test", RetryReason::Cut, 0);
        add(&log, "b.test", RetryReason::Cut, 1);
        assert_eq!(due(&log, 5).into_iter().map(|cause| cause.2).collect::<Vec<_>>(), [1, 1, 2]);
        assert_eq!(due(&log, 70), [], "nothing more has happened");
        assert!(log.0.lock().is_empty());
        add(&log, "a.test", RetryReason::Cut, 71);
        assert_eq!(due(&log, 75).len(), 1, "told of soon, as it is new");
    }

    #[test]
    fn many_hosts_do_not_fill_the_memory() {
        let log = RetryLog::default();
        for host in 0..2 * MOST {
            add(&log, &host.to_string(), RetryReason::Cut, 0);
        }
        assert_eq!(due(&log, 0).len(), MOST);
    }
}
