//! Pauses that an operator makes.

use andante_clock::Instant;

use super::State;
use crate::snapshot::OperatorPause;

impl<T> State<T> {
    /// Pauses the lane until `until` or until it is [released](Self::release). Waiting requests keep their places.
    pub(crate) fn hold(&mut self, until: Instant) {
        self.held = Some(until);
        self.stats.pauses += 1;
        self.rechecks = true;
        self.delayed();
    }

    /// Ends an operator's pause. Returns whether there was one.
    pub(crate) fn release(&mut self, now: Instant) -> bool {
        self.rechecks = true;
        let held = self.paused_until(now).is_some();
        self.held = None;
        held
    }

    /// The instant until which nothing leaves, because of an operator, because another process still sends, or because
    /// this process ends.
    pub(super) fn held_until(&self, now: Instant) -> Option<Instant> {
        if self.awaits_predecessor() || self.has_ended(now) { Some(Instant::FAR) } else { self.paused_until(now) }
    }

    /// End of an operator's pause.
    fn paused_until(&self, now: Instant) -> Option<Instant> {
        self.held.filter(|until| *until > now)
    }

    /// The operator's pause, for display.
    pub(crate) fn held(&self, now: Instant) -> Option<OperatorPause> {
        let until = self.paused_until(now)?;
        Some(OperatorPause { remaining: (until != Instant::FAR).then(|| until.since(now)) })
    }
}
