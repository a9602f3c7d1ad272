//! A ticket of a shared call that waits for its slot.

use std::sync::{Arc, Weak, atomic::Ordering};

use tokio::task::AbortHandle;

use super::{CallGroup, CallStage, SharedAnswer, SharedCall};
use crate::{clock::Instant, error::Error};

/// A place in the hands of the task that waits for its slot.
pub(crate) struct Candidate {
    pub(super) group: Weak<CallGroup>,
    pub(super) place: u32,
}

// === impl Candidate ===

impl Candidate {
    /// The task that waits in this place is `task`.
    pub(crate) fn runs_in(&self, task: AbortHandle) {
        let Some(group) = self.group.upgrade() else { return task.abort() };
        let mut state = group.state.lock();
        let lost = state.has_lost(self.place);
        match state.place(self.place) {
            Some(place) if place.members > 0 && !lost => place.task = Some(task),
            _ => task.abort(),
        }
    }

    /// The call has failed, with its slot or for want of one.
    pub(crate) fn failed(&self, error: Error) {
        let Some(group) = self.group.upgrade() else { return };
        let mut state = group.state.lock();
        if state.has_lost(self.place) {
            return;
        }
        let elected = state.elected.is_some();
        state.over |= elected || state.places.iter().all(|place| place.failed || place.number == self.place);
        if let Some(place) = state.place(self.place) {
            (place.failed, place.error) = (true, Some(error));
        }
        drop(state);
        // Wakes all of them; those of other places wait on.
        group.stage.send_modify(|stage| {
            if elected {
                *stage = CallStage::Failed;
            }
        });
    }

    /// The answer's head is here.
    pub(crate) fn answered(&self, answer: SharedAnswer) {
        let Some(group) = self.group.upgrade() else { return };
        let mut state = group.state.lock();
        state.over |= !answer.for_all;
        // A request that joins later may find its beginning gone.
        answer.body.expect(if answer.for_all { state.members } else { 1 });
        drop(state);
        group.stage.send_replace(CallStage::Answered(Arc::new(answer)));
    }

    /// All of the answer is here: those that come from now on want a newer one.
    pub(crate) fn ended(&self) {
        self.group.upgrade().iter().for_each(|group| group.close());
    }
}

impl SharedCall for Candidate {
    fn expects(&self, expected: Instant) {
        let Some(group) = self.group.upgrade() else { return };
        let mut state = group.state.lock();
        if state.has_lost(self.place) {
            return;
        }
        let again = state.elected.is_some();
        let Some(place) = state.place(self.place) else { return };
        place.expected = Some(expected).filter(|expected| *expected != Instant::FAR);
        // Before it is sent only those wait for this ticket that hold it, and its owner knows.
        let wakes = again || place.members > 1;
        // Under the lock: no other place is elected meanwhile.
        group.stage.send_if_modified(|stage| {
            if again {
                *stage = CallStage::Waiting;
            }
            wakes
        });
    }

    fn elect(&self) -> bool {
        let Some(group) = self.group.upgrade() else { return false };
        let mut state = group.state.lock();
        if state.has_lost(self.place) {
            return false;
        }
        if state.elected.is_none() {
            state.elected = Some((self.place, group.sharing.epoch(group.key.origin).load(Ordering::SeqCst)));
            for place in state.places.iter_mut().filter(|place| place.number != self.place) {
                place.abort();
            }
        }
        // Under the lock: who joins now does not wait. What is sent again at once was never seen to wait.
        group.stage.send_if_modified(|stage| {
            let waited = !matches!(stage, CallStage::Sent);
            *stage = CallStage::Sent;
            waited
        });
        true
    }
}
