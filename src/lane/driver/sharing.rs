//! The fleet's side of a lane: it wakes the task that talks to the store, and gets the replies.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::Lane;
use crate::{
    fleet::{Entry, Lease, PoolGrant},
    limit::ShareReport,
};

/// How lanes of this process share their limits with other processes.
#[derive(Clone, Debug)]
pub struct Sharing {
    /// Until when shares may be spent.
    pub lease: Lease,
    /// Wakes the task that talks to the store.
    pub wakes: mpsc::UnboundedSender<Arc<Lane>>,
    /// How many lanes there have been.
    numbers: Arc<AtomicU64>,
}

/// A lane that is shared.
#[derive(Debug)]
pub(super) struct SharedLane {
    number: u64,
    /// What the store knows it by.
    name: Mutex<Arc<str>>,
    lease: Lease,
    wakes: mpsc::UnboundedSender<Arc<Lane>>,
}

// === impl Sharing ===

impl Sharing {
    /// Lanes ask by `wakes`, under `lease`.
    pub fn new(lease: Lease, wakes: mpsc::UnboundedSender<Arc<Lane>>) -> Self {
        Self { lease, wakes, numbers: Arc::default() }
    }

    pub(super) fn lane(&self, name: Arc<str>) -> SharedLane {
        let (number, name) = (self.numbers.fetch_add(1, Ordering::Relaxed), Mutex::new(name));
        SharedLane { number, name, lease: self.lease.clone(), wakes: self.wakes.clone() }
    }
}

// === impl Lane ===

impl Lane {
    /// Tells it from all lanes of this process, whatever its policy; `None` if it is not shared.
    pub fn shared_as(&self) -> Option<u64> {
        self.shared.sharing.as_ref().map(|shared| shared.number)
    }

    /// What the next call reports of it to the store; with `reports`, all that it holds.
    pub fn speak(self: &Arc<Self>, reports: bool) -> ShareReport {
        let name = self.shared.sharing.as_ref().map(|shared| shared.name.lock().clone()).unwrap_or_default();
        self.tell(|state, now| state.speak(now, &name, reports))
    }

    /// From now on the store knows it by this name, if it is shared.
    pub(in crate::lane) fn share_as(&self, name: Arc<str>) {
        self.shared.sharing.iter().for_each(|shared| *shared.name.lock() = name.clone());
    }

    /// What the store gave of it.
    pub fn given<'a>(self: &Arc<Self>, given: impl Iterator<Item = (&'a Entry, &'a PoolGrant)>) {
        self.tell(|state, now| state.given(now, given));
    }

    /// The store did not reply to what was said of it.
    pub fn unheard(self: &Arc<Self>, entries: &[Entry]) {
        self.tell(|state, now| state.unheard(now, entries));
    }

    /// Everything that it held is the store's again.
    pub fn lose_shares(self: &Arc<Self>) {
        self.tell(|state, now| state.lose_shares(now));
    }

    /// The store told this process to call for the sake of `pool`: it has its turn there, or others want what it has. Says
    /// whether that is a pool of this lane.
    pub fn hinted(self: &Arc<Self>, pool: &str, turn: bool) -> bool {
        self.tell(|state, now| state.hinted(now, pool, turn))
    }

    /// The lease holds again, or is over.
    pub fn leased(self: &Arc<Self>) {
        self.tell(|state, _| state.leased());
    }

    /// What it holds, for the store that this process leaves.
    pub fn leave(self: &Arc<Self>) -> Vec<Entry> {
        self.tell(|state, now| state.leave(now))
    }

    /// Whether its limits are shared, and the lease is over.
    pub(super) fn has_lapsed(&self) -> bool {
        self.shared.sharing.as_ref().is_some_and(|shared| !shared.lease.holds(self.clock.now()))
    }

    pub(super) fn call(self: &Arc<Self>) {
        if let Some(sharing) = &self.shared.sharing {
            // The receiver is gone only at the very end.
            let _ = sharing.wakes.send(self.clone());
        }
    }
}
