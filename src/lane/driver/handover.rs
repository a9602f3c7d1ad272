//! Handover of a lane from one process to the next.

use std::{sync::Arc, time::Duration};

use andante_policy::Origin;

use super::Lane;
use crate::state::LaneRecord;

impl Lane {
    /// Lets nothing leave before the previous process has [ended](Self::predecessor_ended).
    pub(crate) fn await_predecessor(&self) {
        self.shared.state.lock().await_predecessor();
    }

    /// Returns whether the previous process still sends for this lane.
    pub(crate) fn awaits_predecessor(&self) -> bool {
        self.shared.state.lock().awaits_predecessor()
    }

    /// Counts what the previous process has sent, as recorded in `before`.
    pub(crate) fn inherits(self: &Arc<Self>, before: &Self) {
        self.tell(|state, now| state.inherits(now, &mut before.shared.state.lock()));
    }

    /// Lets requests leave: the previous process sends nothing more.
    pub(crate) fn predecessor_ended(self: &Arc<Self>) {
        self.tell(|state, _| state.predecessor_ended());
        self.note("the andante before this one has sent what waited there".into());
    }

    /// Hands the lane to the next process if no request waits or is in flight. Without a limit on in-flight requests,
    /// it waits for them at most `patience`. `None` if this process keeps the lane, or has handed it over before. The
    /// inner record is `None` if there is nothing to remember.
    pub(crate) fn hand_over(&self, patience: Duration) -> Option<Option<LaneRecord>> {
        let mut state = self.shared.state.lock();
        if state.is_given() {
            return None;
        }
        let worth = state.is_worth_keeping();
        let record = state.hand_over(self.clock.now(), patience)?;
        let origin = self.shared.kept.as_ref().map(|kept| kept.origin.clone());
        Some(worth.then_some(LaneRecord { origin, ..record }))
    }

    /// Hands a new lane to the next process from its beginning.
    pub(crate) fn hand_over_new(&self) {
        self.shared.state.lock().hand_over(self.clock.now(), Duration::ZERO);
    }

    /// Returns whether the next process has this lane.
    pub(crate) fn is_given(&self) -> bool {
        self.shared.state.lock().is_given()
    }

    /// Where the lane's first request went, if the lane is persisted.
    pub(crate) fn kept_origin(&self) -> Option<Origin> {
        self.shared.kept.as_ref()?.origin.to_origin()
    }
}
