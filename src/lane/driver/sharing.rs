//! The fleet's side of a lane: wakes the task that talks to the store, and receives the replies.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use andante_clock::Instant;
use andante_fleet::{Entry, Lease, Pause, PoolGrant, RunningPauses};
use andante_limit::ShareReport;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::Lane;
use crate::state::{SharedNames, State};

/// The connection of this process' lanes to the store, for limits shared with other processes.
#[derive(Clone, Debug)]
pub struct Sharing {
    /// Address of the store, without its password.
    pub store: Arc<str>,
    /// The lease: until when shares may be spent.
    pub lease: Lease,
    /// Wakes the task that talks to the store.
    pub wakes: mpsc::UnboundedSender<Arc<Lane>>,
    /// The pauses that other processes were asked for.
    pub pauses: RunningPauses,
    /// Number of lanes so far.
    numbers: Arc<AtomicU64>,
}

/// A shared lane's connection to the store.
#[derive(Debug)]
pub(super) struct SharedLane {
    number: u64,
    /// The lane's names in the store.
    names: Mutex<SharedNames>,
    store: Arc<str>,
    lease: Lease,
    wakes: mpsc::UnboundedSender<Arc<Lane>>,
}

// === impl Sharing ===

impl Sharing {
    /// Lanes ask by `wakes`, under `lease` of the store at `store`.
    pub fn new(store: Arc<str>, lease: Lease, wakes: mpsc::UnboundedSender<Arc<Lane>>) -> Self {
        Self { store, lease, wakes, pauses: RunningPauses::default(), numbers: Arc::default() }
    }

    pub(super) fn lane(&self, names: SharedNames) -> SharedLane {
        let (number, names) = (self.numbers.fetch_add(1, Ordering::Relaxed), Mutex::new(names));
        let Self { store, lease, wakes, .. } = self.clone();
        SharedLane { number, names, store, lease, wakes }
    }
}

/// Applies those of `pauses` that concern the lane called `name` from `now` on.
pub(super) fn tell_of_pauses<T>(state: &mut State<T>, now: Instant, name: &str, pauses: &[Pause]) {
    for pause in pauses {
        if let Some(budget) = pause.budget_of(name) {
            state.told_of_pause(now, budget, pause);
        }
    }
}

// === impl Lane ===

impl Lane {
    /// Number that identifies the lane within this process, whatever its policy; `None` if it is not shared.
    pub fn shared_as(&self) -> Option<u64> {
        self.shared.sharing.as_ref().map(|shared| shared.number)
    }

    /// The report of this lane for the next call of the store. With `reports`, it lists everything that the lane holds.
    pub fn speak(self: &Arc<Self>, reports: bool) -> ShareReport {
        let names = self.shared_names();
        self.tell(|state, now| state.speak(now, &names, reports))
    }

    /// Changes the lane's names in the store, if it is shared.
    pub(crate) fn share_as(&self, names: SharedNames) {
        self.shared.sharing.iter().for_each(|shared| *shared.names.lock() = names.clone());
    }

    fn shared_names(&self) -> SharedNames {
        self.shared.sharing.as_ref().map(|shared| shared.names.lock().clone()).unwrap_or_default()
    }

    /// Applies pauses that other processes were asked for, if they concern this lane.
    pub fn told_of_pauses(self: &Arc<Self>, pauses: &[Pause]) {
        let names = self.shared_names();
        let ours = |pause: &Pause| pause.budget_of(&names.pauses).is_some();
        if pauses.iter().any(ours) {
            self.tell(|state, now| tell_of_pauses(state, now, &names.pauses, pauses));
        }
    }

    /// Applies the store's grants.
    pub fn given<'a>(self: &Arc<Self>, given: impl Iterator<Item = (&'a Entry, &'a PoolGrant)>) {
        self.tell(|state, now| state.given(now, given));
    }

    /// Handles a call without a reply from the store.
    pub fn unheard(self: &Arc<Self>, entries: &[Entry]) {
        self.tell(|state, now| state.unheard(now, entries));
    }

    /// Returns everything that it held to the store.
    pub fn lose_shares(self: &Arc<Self>) {
        self.tell(|state, now| state.lose_shares(now));
    }

    /// Handles the store's request for a call because of `pool`: the process has its turn there, or others want its
    /// share. Returns whether `pool` belongs to this lane.
    pub fn hinted(self: &Arc<Self>, pool: &str, turn: bool) -> bool {
        self.tell(|state, now| state.hinted(now, pool, turn))
    }

    /// Records that the lease is valid again, or is over.
    pub fn leased(self: &Arc<Self>) {
        self.tell(|state, _| state.leased());
    }

    /// Everything that the lane holds, for the store that this process leaves.
    pub fn leave(self: &Arc<Self>) -> Vec<Entry> {
        self.tell(|state, now| state.leave(now))
    }

    /// Returns whether the lane's limits are shared, and the lease is over.
    pub(super) fn has_lapsed(&self) -> bool {
        self.shared.sharing.as_ref().is_some_and(|shared| !shared.lease.holds(self.clock.now()))
    }

    /// Address of the store, if this lane is shared.
    pub(super) fn store(&self) -> Option<&str> {
        self.shared.sharing.as_ref().map(|shared| &*shared.store)
    }

    pub(super) fn call(self: &Arc<Self>) {
        if let Some(sharing) = &self.shared.sharing {
            // The receiver is gone only at the very end.
            let _ = sharing.wakes.send(self.clone());
        }
    }
}
