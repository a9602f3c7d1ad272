//! When a store that is new, or has forgotten, begins to give out what it has.

use std::time::Duration;

use super::Share;
use crate::clock::Instant;

/// How often a store is asked that should have begun to give out by now, and for how long: then others have what it had.
const OPENING: Duration = Duration::from_millis(250);
const LATE: Duration = Duration::from_secs(5);

impl Share {
    /// When the store begins to give out of it, if it is new and nothing is held.
    pub fn opens(&self) -> Option<Instant> {
        self.opens
    }

    /// The store begins to give out of it then, or soon after: its time may have gone on more slowly.
    pub fn set_opens(&mut self, now: Instant, at: Instant) {
        let is_closed = at > now || self.opens.is_some() && now < at + LATE;
        self.opens = (self.held == 0 && is_closed).then_some(at.max(now));
    }

    /// The store tells when others give any of what is not there, and not when it opens.
    pub(super) fn ask_when_open(&mut self, now: Instant) {
        if let Some(at) = self.opens {
            self.refresh.hasten(at.max(now + OPENING));
        }
    }
}
