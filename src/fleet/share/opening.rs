//! When a store that is new, or has lost its state, begins to give out tokens.

use std::time::Duration;

use andante_clock::Instant;

use super::Share;

/// How often, and for how long, a store is asked that should give out by now. Afterwards other members have the tokens.
const OPENING: Duration = Duration::from_millis(250);
const LATE: Duration = Duration::from_secs(5);

impl Share {
    /// When the store begins to give out the limit's tokens, if the store is new and none are held.
    pub fn opens(&self) -> Option<Instant> {
        self.opens
    }

    /// Sets when the store begins to give out tokens. The store may open somewhat later, as its time may be slower.
    pub fn set_opens(&mut self, now: Instant, at: Instant) {
        let is_closed = at > now || self.opens.is_some() && now < at + LATE;
        self.opens = (self.held == 0 && is_closed).then_some(at.max(now));
    }

    /// The store announces tokens that other members return, but not its own opening: so the member asks.
    pub(super) fn ask_when_open(&mut self, now: Instant) {
        if let Some(at) = self.opens {
            self.refresh.hasten(at.max(now + OPENING));
        }
    }
}
