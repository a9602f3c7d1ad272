//! Keeps a lane beyond the process: what it gives to the state's writer, and gets back.

use std::sync::{Arc, mpsc};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::Lane;
use crate::lane::state::{LaneRecord, OriginRecord, Past, State};

/// What lanes ask of the state's writer.
#[derive(Debug)]
pub enum KeepRequest {
    /// This lane needs the next block of a long quota.
    Block(Arc<Lane>),
    /// The next process gets the store, and this one hears when it is free.
    Release(oneshot::Sender<()>),
    /// Nothing leaves any more.
    End,
}

/// Where a lane is kept.
pub(in crate::lane) struct KeptLane {
    /// What the store knows it by, whatever its rule is called later.
    pub(in crate::lane) id: Arc<str>,
    /// Where the first of its requests went.
    pub(in crate::lane) origin: OriginRecord,
    /// Where it asks for blocks of its long quotas.
    pub(in crate::lane) requests: mpsc::Sender<KeepRequest>,
}

impl Lane {
    /// The same lane, which was just made, going on from its stored record.
    pub(in crate::lane) fn restored(mut self, kept: KeptLane, record: Option<&LaneRecord>, past: Past) -> Self {
        let state = State::restored(self.policy.clone(), self.clock.now(), self.clock.epoch(), record, past);
        let shared = Arc::get_mut(&mut self.shared).expect("nobody else has it yet");
        (shared.state, shared.kept) = (Mutex::new(state), Some(kept));
        self
    }

    /// What the store knows it by, if it is kept.
    pub(in crate::lane) fn kept_as(&self) -> Option<&Arc<str>> {
        self.shared.kept.as_ref().map(|kept| &kept.id)
    }

    /// Its record; `None` if nothing has changed, unless it is wanted `anyway`. With `last`, nothing will leave any
    /// more.
    pub(in crate::lane) fn record(&self, anyway: bool, last: bool) -> Option<LaneRecord> {
        let now = self.clock.now();
        let mut state = self.shared.state.lock();
        let origin = self.shared.kept.as_ref().map(|kept| kept.origin.clone());
        // What the process before has sent is not in it yet.
        let worth = !state.awaits_predecessor() && state.is_worth_keeping() && (anyway || state.is_unwritten());
        worth.then(|| LaneRecord { origin, ..state.record(now, last) })
    }

    /// The last record is written. If not `fully`, it cannot be, and requests leave nevertheless.
    pub(in crate::lane) fn written(self: &Arc<Self>, fully: bool) {
        self.tell(|state, _| state.written(fully));
    }

    /// Blocks cannot be written any more: requests leave without.
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
