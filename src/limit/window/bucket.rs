//! Units that leave a window together.

use std::time::Duration;

use andante_clock::Instant;
use serde::{Deserialize, Serialize};

use super::Seq;

/// Units that leave the window together, as they are stored: their number, when the last was sent, and when it was
/// answered. `None` for events that had not happened yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WindowEntry(pub(super) u32, pub(super) Option<Instant>, pub(super) Option<Instant>);

/// Units that were taken one after the other and leave the window together.
#[derive(Clone, Debug)]
pub(super) struct UnitBucket {
    pub(super) first: Seq,
    /// Count of numbers covered from `first` on. Units that were given back, or never taken from this limit, are
    /// included.
    pub(super) span: u32,
    /// Units that count.
    pub(super) used: u32,
    /// Units taken but not yet sent. When the API will count them is unknown.
    pub(super) held: u32,
    /// Units sent but not answered yet.
    pub(super) unanswered: u32,
    pub(super) last_sent: Instant,
    pub(super) last_answered: Instant,
}

// === impl UnitBucket ===

impl UnitBucket {
    pub(super) fn starting(first: Seq) -> Self {
        Self {
            first,
            span: 0,
            used: 0,
            held: 0,
            unanswered: 0,
            last_sent: Instant::START,
            last_answered: Instant::START,
        }
    }

    /// The first number behind the covered ones.
    pub(super) fn end(&self) -> Seq {
        self.first + u64::from(self.span)
    }

    /// Returns true if the bucket can be widened to cover all numbers below `end`.
    pub(super) fn covers_up_to(&self, end: Seq) -> bool {
        u32::try_from(end - self.first).is_ok()
    }

    /// Merges the bucket that follows. Both count until the last of their units is out.
    pub(super) fn join(&mut self, later: Self) {
        self.span = (later.end() - self.first) as u32;
        self.used += later.used;
        self.held += later.held;
        self.unanswered += later.unanswered;
        self.last_sent = self.last_sent.max(later.last_sent);
        self.last_answered = self.last_answered.max(later.last_answered);
    }

    /// The last instant at which the API may have counted any unit of the bucket; `None` if an event must come first.
    pub(super) fn counted_by(&self, strict: bool, margin: Duration) -> Option<Instant> {
        let by_margin = self.last_sent + margin;
        match (self.held, self.unanswered, strict) {
            (1.., _, _) | (_, 1.., true) => None,
            (0, 1.., false) => Some(by_margin),
            (0, 0, false) => Some(by_margin.min(self.last_answered)),
            (0, 0, true) => Some(self.last_answered),
        }
    }

    /// The form to store.
    pub(super) fn record(&self) -> WindowEntry {
        let sent = (self.held == 0).then_some(self.last_sent);
        let answered = (self.held == 0 && self.unanswered == 0).then_some(self.last_answered);
        WindowEntry(self.used, sent, answered)
    }
}
