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
        let place = state.place(self.place);
        if place.members > 0 && !lost { place.task = Some(task) } else { task.abort() }
    }

    /// The call has failed, with its slot or for want of one.
    pub(crate) fn failed(&self, error: Error) {
        let Some(group) = self.group.upgrade() else { return };
        let mut state = group.state.lock();
        if state.has_lost(self.place) {
            return;
        }
        state.fail(self.place);
        state.place(self.place).error = Some(error);
        let elected = state.elected.is_some();
        state.over |= elected || state.open.is_empty();
        match elected {
            true => state.set_stage(&CallStage::Failed),
            // Those with other tickets wait on.
            false => state.place(self.place).stage.send_modify(|_| {}),
        }
    }

    /// The answer's head is here.
    pub(crate) fn answered(&self, answer: SharedAnswer) {
        let Some(group) = self.group.upgrade() else { return };
        let mut state = group.state.lock();
        state.over |= !answer.for_all;
        // A request that joins later may find its beginning gone.
        answer.body.expect(if answer.for_all { state.members } else { 1 });
        state.set_stage(&CallStage::Answered(Arc::new(answer)));
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
        let place = state.place(self.place);
        place.expected = Some(expected).filter(|expected| *expected != Instant::FAR);
        // Under the lock: no other place is elected meanwhile.
        if again {
            state.set_stage(&CallStage::Waiting);
        } else if place.members > 1 {
            // Before it is sent only those wait for this ticket that hold it, and its owner knows.
            place.stage.send_modify(|_| {});
        }
    }

    fn elect(&self) -> bool {
        let Some(group) = self.group.upgrade() else { return false };
        let mut state = group.state.lock();
        if state.has_lost(self.place) {
            return false;
        }
        if state.elected.is_none() {
            state.elected = Some((self.place, group.sharing.epoch(group.key.origin).load(Ordering::SeqCst)));
            let others = state.places.iter_mut().zip(0..).filter(|(_, number)| *number != self.place);
            others.for_each(|(place, _)| place.abort());
        }
        // Under the lock: a request that joins now does not wait. What is sent again at once was never seen to wait.
        if !matches!(*state.place(self.place).stage.borrow(), CallStage::Sent) {
            state.set_stage(&CallStage::Sent);
        }
        true
    }
}
