//! A lane that passes from one process to the next.

use std::{sync::Arc, time::Duration};

use super::Lane;
use crate::{lane::state::LaneRecord, policy::Origin};

impl Lane {
    /// Lets nothing leave before the process before has [ended](Self::predecessor_ended).
    pub(in crate::lane) fn await_predecessor(&self) {
        self.shared.state.lock().await_predecessor();
    }

    /// Whether the process before still sends for it.
    pub(in crate::lane) fn awaits_predecessor(&self) -> bool {
        self.shared.state.lock().awaits_predecessor()
    }

    /// Counts what the process before has sent, as `before` has it.
    pub(in crate::lane) fn inherits(self: &Arc<Self>, before: &Self) {
        self.tell(|state, now| state.inherits(now, &mut before.shared.state.lock()));
    }

    /// Lets requests leave: the process before sends nothing more.
    pub(in crate::lane) fn predecessor_ended(self: &Arc<Self>) {
        self.tell(|state, _| state.predecessor_ended());
        self.note("the andante before this one has sent what waited there".into());
    }

    /// Gives the lane to the next process if no request waits or is under way; where no limit counts those
    /// that are under way, it waits no longer than `patience` for them. `None` if it keeps the
    /// lane, or has given it before. The record is `None` if there is nothing to remember.
    pub(in crate::lane) fn hand_over(&self, patience: Duration) -> Option<Option<LaneRecord>> {
        let mut state = self.shared.state.lock();
        if state.is_given() {
            return None;
        }
        let worth = state.is_worth_keeping();
        let record = state.hand_over(self.clock.now(), patience)?;
        let origin = self.shared.kept.as_ref().map(|kept| kept.origin.clone());
        Some(worth.then_some(LaneRecord { origin, ..record }))
    }

    /// Belongs to the next process from its beginning.
    pub(in crate::lane) fn hand_over_new(&self) {
        self.shared.state.lock().hand_over(self.clock.now(), Duration::ZERO);
    }

    /// Whether the next process has it.
    pub(in crate::lane) fn is_given(&self) -> bool {
        self.shared.state.lock().is_given()
    }

    /// Where the first of its requests went, if it is kept.
    pub(in crate::lane) fn kept_origin(&self) -> Option<Origin> {
        self.shared.kept.as_ref()?.origin.to_origin()
    }
}
