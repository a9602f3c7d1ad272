//! The persisted form of a window.

use std::time::Duration;

use andante_clock::Instant;
use serde::{Deserialize, Serialize};

use super::{UnitBucket, Window};
use crate::{Amount, Seq};

/// Units that leave the window together: their number, when the last was sent, and when it was answered. `None` for
/// events that had not happened yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WindowEntry(u32, Option<Instant>, Option<Instant>);

impl Window {
    /// Units that count at `now`, by bucket.
    pub(crate) fn record(&mut self, now: Instant, margin: Duration) -> Vec<WindowEntry> {
        self.forget(now, margin);
        self.buckets.iter().filter(|bucket| bucket.used > 0).map(UnitBucket::record).collect()
    }

    /// Counts the units of `record`, numbered from `next` on. Responses to requests that were in flight will not
    /// arrive: the API counted such a request at most `late` after it was sent.
    pub(crate) fn restore(&mut self, record: &[WindowEntry], now: Instant, late: Duration, next: &mut Seq) {
        for &WindowEntry(units, sent, answered) in record {
            let Some(cost) = Amount::new(units) else { continue };
            let sent = sent.map_or(now, |sent| sent.min(now));
            let answered = answered.unwrap_or(if self.strict { now } else { sent } + late);
            self.take(*next, cost);
            self.sent(*next, cost, sent);
            self.answered(*next, cost, sent, answered);
            *next += u64::from(units);
        }
    }
}

impl UnitBucket {
    fn record(&self) -> WindowEntry {
        let sent = (self.held == 0).then_some(self.last_sent);
        let answered = (self.held == 0 && self.unanswered == 0).then_some(self.last_answered);
        WindowEntry(self.used, sent, answered)
    }
}
