//! Persistence of a lane: the records it passes to the state's writer, and gets back.

use std::sync::{Arc, mpsc};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::Lane;
use crate::state::{LaneRecord, OriginRecord, Past, State};

/// Requests of lanes to the state's writer.
#[derive(Debug)]
pub enum KeepRequest {
    /// This lane needs the next block of a long quota.
    Block(Arc<Lane>),
    /// The next process gets the store; this one is told when it is free.
    Release(oneshot::Sender<()>),
    /// The lane sends nothing any more.
    End,
}

/// A lane's place in the store.
pub(crate) struct KeptLane {
    /// Name of the lane in the store, even if its rule is renamed later.
    pub(crate) id: Arc<str>,
    /// Where the lane's first request went.
    pub(crate) origin: OriginRecord,
    /// The channel through which it asks for blocks of its long quotas.
    pub(crate) requests: mpsc::Sender<KeepRequest>,
}

impl Lane {
    /// Restores this new lane from its stored record.
    pub(crate) fn restored(mut self, kept: KeptLane, record: Option<&LaneRecord>, past: Past) -> Self {
        let state = State::restored(self.policy.clone(), self.clock.now(), self.clock.epoch(), record, past);
        let shared = Arc::get_mut(&mut self.shared).expect("nobody else has it yet");
        (shared.state, shared.kept) = (Mutex::new(state), Some(kept));
        self
    }

    /// The lane's name in the store, if it is persisted.
    pub(crate) fn kept_as(&self) -> Option<&Arc<str>> {
        self.shared.kept.as_ref().map(|kept| &kept.id)
    }

    /// The lane's record; `None` if nothing has changed, unless it is wanted `anyway`. With `last`, nothing will leave
    /// any more.
    pub(crate) fn record(&self, anyway: bool, last: bool) -> Option<LaneRecord> {
        let now = self.clock.now();
        let mut state = self.shared.state.lock();
        let origin = self.shared.kept.as_ref().map(|kept| kept.origin.clone());
        // The lane does not include yet what the previous process has sent.
        let worth = !state.awaits_predecessor() && state.is_worth_keeping() && (anyway || state.is_unwritten());
        worth.then(|| LaneRecord { origin, ..state.record(now, last) })
    }

    /// Records that the last record is written. If not `fully`, it cannot be, and requests leave nevertheless.
    pub(crate) fn written(self: &Arc<Self>, fully: bool) {
        self.tell(|state, _| state.written(fully));
    }

    /// Gives up storing blocks, which cannot be written any more: requests leave without.
    pub fn unkept(self: &Arc<Self>) {
        self.tell(|state, _| state.unkept());
    }

    pub(super) fn ask_for_block(self: &Arc<Self>) {
        if let Some(kept) = &self.shared.kept {
            // The writer is gone only at the very end.
            let _ = kept.requests.send(KeepRequest::Block(self.clone()));
        }
    }
}
