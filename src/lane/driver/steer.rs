//! Operators' actions on a lane.

use std::{sync::Arc, time::Duration};

use andante_clock::Instant;
use andante_order::Claim;

use super::Lane;
use crate::{journal, state::State};

impl Lane {
    /// Pauses the lane for `length`, or until [`Self::resume`]. Waiting requests keep their places.
    pub fn pause(self: &Arc<Self>, length: Option<Duration>) {
        self.pause_until(length.map_or(Instant::FAR, |length| self.clock.now() + length), length);
    }

    /// Pauses the lane until a time that is `length` from now.
    pub(crate) fn pause_until(self: &Arc<Self>, until: Instant, length: Option<Duration>) {
        self.tell(|state, _| state.hold(until));
        self.note(journal::paused(length));
    }

    /// Ends an operator's pause. Returns whether there was one.
    pub fn resume(self: &Arc<Self>) -> bool {
        let resumed = self.tell(State::release);
        if resumed {
            self.note("resumed by an operator".into());
        }
        resumed
    }

    /// Forgets what was learned from answers. Sent requests still count.
    pub fn forget_learned(self: &Arc<Self>) {
        self.tell(|state, now| state.forget_learned(now));
        self.note("what was learned was forgotten by an operator".into());
    }

    /// Refuses the waiting requests that are `wanted`. Returns their number.
    pub fn drop_waiting(self: &Arc<Self>, wanted: impl Fn(&Claim) -> bool) -> usize {
        let dropped = self.tell(|state, _| state.drop_waiting(wanted));
        if dropped > 0 {
            self.note(format!("{dropped} waiting requests were dropped by an operator"));
        }
        dropped
    }

    /// Ends the process at this instant: requests that certainly leave later are refused now.
    pub fn ends_at(self: &Arc<Self>, at: Instant) {
        self.tell(|state, now| state.ends_at(now, at));
    }

    /// Moves the oldest of the `wanted` requests before all others. Returns whether one waits.
    pub fn let_first(self: &Arc<Self>, wanted: impl Fn(&Claim) -> bool) -> bool {
        let found = self.tell(|state, _| state.let_first(wanted));
        if found {
            self.note("an operator let one request go first".into());
        }
        found
    }

    /// Gives waiting requests the weights that `weigh` returns.
    pub fn reweigh(self: &Arc<Self>, weigh: impl Fn(&Claim) -> Claim) {
        self.tell(|state, _| state.reweigh(weigh));
    }

    /// Writes an event of this lane into the journal.
    pub fn note(&self, text: String) {
        if let Some(journal) = &self.journal {
            journal.write(self.now(), &self.policy.name, &self.host, text);
        }
    }
}
