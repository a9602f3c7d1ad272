//! A ticket of a shared call that waits for its slot.

use std::sync::{Arc, Weak, atomic::Ordering};

use tokio::task::AbortHandle;

use super::{CallGroup, CallStage, PlaceId, SharedAnswer, SharedCall};
use crate::{clock::Instant, error::Error};

/// A place, owned by the task that waits for its slot.
pub(crate) struct Candidate {
    pub(super) group: Weak<CallGroup>,
    pub(super) place: PlaceId,
}

// === impl Candidate ===

impl Candidate {
    /// Sets the `task` that waits in this place.
    pub(crate) fn runs_in(&self, task: AbortHandle) {
        let Some(group) = self.group.upgrade() else { return task.abort() };
        let mut state = group.state.lock();
        match state.remaining(self.place) {
            Some(place) => place.task = Some(task),
            None => task.abort(),
        }
    }

    /// Records that the call has failed, with its slot or for lack of one.
    pub(crate) fn failed(&self, error: Error) {
        let Some(group) = self.group.upgrade() else { return };
        let mut state = group.state.lock();
        let elected = state.elected.is_some();
        let Some(place) = state.remaining(self.place) else { return };
        (place.failed, place.error) = (true, Some(error));
        // Members with other tickets continue to wait.
        place.stage.send_modify(|_| {});
        state.close(self.place);
        state.over |= elected || state.open.is_empty();
        if elected {
            state.set_stage(&CallStage::Failed);
        }
    }

    /// Records that the answer's head has arrived.
    pub(crate) fn answered(&self, answer: SharedAnswer) {
        let Some(group) = self.group.upgrade() else { return };
        let mut state = group.state.lock();
        state.over |= !answer.for_all;
        // A request that joins later may find the beginning of the body gone.
        answer.body.expect(if answer.for_all { state.members } else { 1 });
        state.set_stage(&CallStage::Answered(Arc::new(answer)));
    }

    /// Records that all of the answer has arrived: later requests want a newer one.
    pub(crate) fn ended(&self) {
        self.group.upgrade().iter().for_each(|group| group.close());
    }
}

impl SharedCall for Candidate {
    fn expects(&self, expected: Instant) {
        let Some(group) = self.group.upgrade() else { return };
        let mut state = group.state.lock();
        let again = state.elected.is_some();
        let Some(place) = state.remaining(self.place) else { return };
        place.expected = Some(expected).filter(|expected| *expected != Instant::FAR);
        // Under the lock: no other place is elected meanwhile.
        if again {
            state.set_stage(&CallStage::Waiting);
        } else if place.members > 1 {
            // Until the ticket is elected, only its members wait for it, and its owner knows the time.
            place.stage.send_modify(|_| {});
        }
    }

    fn elect(&self) -> bool {
        let Some(group) = self.group.upgrade() else { return false };
        let mut state = group.state.lock();
        let Some(place) = state.remaining(self.place) else { return false };
        // Under the lock, so that a request that joins now does not wait. A retry without a wait changes no stage.
        if matches!(*place.stage.borrow(), CallStage::Sent) {
            return true;
        }
        if state.elected.is_none() {
            state.elected = Some((self.place, group.sharing.epoch(group.key.origin).load(Ordering::SeqCst)));
            let others = state.places.iter_mut().filter(|(id, _)| **id != self.place);
            others.for_each(|(_, place)| place.abort());
        }
        state.set_stage(&CallStage::Sent);
        true
    }
}
