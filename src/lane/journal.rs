//! Recent events in lanes, as sentences for people: a ring of bounded length. Reads no clock.

use std::{collections::VecDeque, fmt, sync::Arc, time::Duration};

use andante_clock::Instant;
use andante_learn::{LearnedChange, Reason};
use parking_lot::Mutex;

/// The journal of all lanes.
#[derive(Debug, Default)]
pub struct Journal(Mutex<Ring>);

/// One event.
#[derive(Clone, Debug)]
pub struct JournalEntry {
    /// Counts up from 1.
    pub number: u64,
    /// The instant of the event.
    pub at: Instant,
    /// The name of the lane's rule.
    pub rule: Arc<str>,
    /// The lane's host.
    pub host: Arc<str>,
    /// Description of the event.
    pub text: String,
}

#[derive(Debug, Default)]
struct Ring {
    entries: VecDeque<JournalEntry>,
    written: u64,
}

/// A length of time as people say it.
struct SpokenDuration(Duration);

/// Number of events remembered.
const REMEMBERED: usize = 500;

// === impl Journal ===

impl Journal {
    /// Adds an event of the lane of `rule` and `host`.
    pub(super) fn write(&self, at: Instant, rule: &Arc<str>, host: &Arc<str>, text: String) {
        let mut ring = self.0.lock();
        ring.written += 1;
        let entry = JournalEntry { number: ring.written, at, rule: rule.clone(), host: host.clone(), text };
        if ring.entries.len() == REMEMBERED {
            ring.entries.pop_front();
        }
        ring.entries.push_back(entry);
    }

    /// The events after that of number `after`, the oldest first, as far as they are remembered.
    pub fn after(&self, after: u64) -> Vec<JournalEntry> {
        let ring = self.0.lock();
        let forgotten = ring.written - ring.entries.len() as u64;
        ring.entries.iter().skip(after.saturating_sub(forgotten) as usize).cloned().collect()
    }
}

/// A sentence that describes the change.
pub(super) fn sentence(change: &LearnedChange) -> String {
    match change {
        LearnedChange::Limit(limit, evidence) => format!("learned a limit of {limit}: {evidence}"),
        LearnedChange::Closed(reason, wait) => format!("paused for {}: {}", SpokenDuration(*wait), why(*reason)),
        LearnedChange::PausedByFleet(reason, wait) => {
            format!("paused for {}, as another andante reported: {}", SpokenDuration(*wait), why(*reason))
        }
        LearnedChange::ForgottenByFleet => "forgot what was learned, as an operator told another andante to".into(),
        LearnedChange::Opened => "resumed after a pause".into(),
        LearnedChange::Route(wait) => {
            format!("paused requests of one kind for {}: refused although there is room", SpokenDuration(*wait))
        }
        LearnedChange::Apart(group) => format!("pacing {group} separately from all others: {}", group.evidence()),
        LearnedChange::OwnLimit(own) => {
            let pace = own.per_second.map(|pace| format!(" {pace:.3}/s"));
            let most = own.at_once.map(|most| format!(" {most} at once"));
            let limit = [pace, most].into_iter().flatten().collect::<Vec<_>>().join(",");
            format!("learned that {} have a limit of their own:{limit} ({})", own.group, own.evidence())
        }
        LearnedChange::ConcurrencyLimit(most, evidence) => {
            format!("learned that {most} requests may be in flight at once: {evidence}")
        }
        LearnedChange::Unexplained { .. } => {
            "the API refuses requests again and again although the limits are kept".into()
        }
    }
}

pub(super) fn why(reason: Reason) -> &'static str {
    match reason {
        Reason::RetryAfter => "the API asked for a wait",
        Reason::Exhausted => "the API reports that nothing is left until its reset",
        Reason::Refused => "the API refused a request and did not say for how long",
        Reason::Banned => "the API has banned this sender",
        Reason::Breaker => "too many requests to the upstream failed",
        Reason::Operator => "an operator has paused it",
    }
}

/// A sentence about an operator's pause for `length`, or until it is resumed.
pub(super) fn paused(length: Option<Duration>) -> String {
    match length {
        Some(length) => format!("paused by an operator for {}", SpokenDuration(length)),
        None => "paused by an operator, until one resumes it".into(),
    }
}

// === impl SpokenDuration ===

impl fmt::Display for SpokenDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        match seconds {
            _ if seconds < 1.0 => write!(f, "{:.0} ms", seconds * 1e3),
            _ if seconds < 120.0 => write!(f, "{} s", (seconds * 10.0).round() / 10.0),
            _ if seconds < 7200.0 => write!(f, "{:.0} min", seconds / 60.0),
            _ => write!(f, "{:.1} h", seconds / 3600.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_remembers_the_last_events_and_counts_them_all() {
        let journal = Journal::default();
        let (rule, host) = ("api".into(), "api.test".into());
        for number in 1..=REMEMBERED + 10 {
            journal.write(Instant::START, &rule, &host, format!("event {number}"));
        }
        let all = journal.after(0);
        assert_eq!((all.len(), all[0].number, &*all[0].text), (REMEMBERED, 11, "event 11"));
        let last = journal.after(REMEMBERED as u64 + 8);
        assert_eq!(last.iter().map(|entry| entry.number).collect::<Vec<_>>(), [509, 510]);
        assert!(journal.after(510).is_empty() && journal.after(9999).is_empty());
    }

    #[test]
    fn a_pause_says_for_how_long_and_why() {
        let said = |seconds| sentence(&LearnedChange::Closed(Reason::RetryAfter, Duration::from_secs_f64(seconds)));
        assert_eq!(said(5.0), "paused for 5 s: the API asked for a wait");
        assert!(said(0.25).contains("250 ms") && said(2.53).contains("2.5 s") && said(600.0).contains("10 min"));
    }
}
