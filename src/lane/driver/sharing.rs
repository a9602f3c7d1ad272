//! The fleet's side of a lane: it wakes the task that talks to the store, and gets the replies.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::Lane;
use crate::{
    clock::Instant,
    fleet::{Entry, Lease, Pause, PoolGrant, RunningPauses},
    lane::state::{SharedNames, State},
    limit::ShareReport,
    policy::Policy,
};

/// How lanes of this process share their limits with other processes.
#[derive(Clone, Debug)]
pub struct Sharing {
    /// Where the store is, without its password.
    pub store: Arc<str>,
    /// Until when shares may be spent.
    pub lease: Lease,
    /// Wakes the task that talks to the store.
    pub wakes: mpsc::UnboundedSender<Arc<Lane>>,
    /// The pauses that other processes were asked for.
    pub pauses: RunningPauses,
    /// How many lanes there have been.
    numbers: Arc<AtomicU64>,
}

/// A lane that is shared.
#[derive(Debug)]
pub(super) struct SharedLane {
    number: u64,
    /// What the store knows it by.
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

/// Those of `pauses` that are about the lane called `name` hold from `now` on.
pub(super) fn tell_of_pauses<T>(state: &mut State<T>, now: Instant, name: &str, pauses: &[Pause]) {
    for pause in pauses {
        if let Some(budget) = pause.budget_of(name) {
            state.told_of_pause(now, budget, pause);
        }
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
        let names = self.shared_names();
        self.tell(|state, now| state.speak(now, &names, reports))
    }

    /// From now on the store knows it by these names, if it is shared.
    pub(in crate::lane) fn share_as(&self, names: SharedNames) {
        self.shared.sharing.iter().for_each(|shared| *shared.names.lock() = names.clone());
    }

    fn shared_names(&self) -> SharedNames {
        self.shared.sharing.as_ref().map(|shared| shared.names.lock().clone()).unwrap_or_default()
    }

    /// Other processes were asked for these pauses: those of this lane hold here, too.
    pub fn told_of_pauses(self: &Arc<Self>, pauses: &[Pause]) {
        let names = self.shared_names();
        let ours = |pause: &Pause| pause.budget_of(&names.pauses).is_some();
        if pauses.iter().any(ours) {
            self.tell(|state, now| tell_of_pauses(state, now, &names.pauses, pauses));
        }
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

    /// Where the store is, if nothing of this lane's limits may leave because it does not answer.
    pub(super) fn lost_store(&self) -> Option<&str> {
        let shared = self.shared.sharing.as_ref()?;
        let leaves = shared.lease.holds(self.clock.now()) || shared.lease.goes_on();
        let Policy { limits, calendar, .. } = &*self.policy;
        let shares = !(limits.is_empty() && calendar.is_empty()) || self.policy.shared_in_flight().is_some();
        (shares && !leaves).then_some(&*shared.store)
    }

    pub(super) fn call(self: &Arc<Self>) {
        if let Some(sharing) = &self.shared.sharing {
            // The receiver is gone only at the very end.
            let _ = sharing.wakes.send(self.clone());
        }
    }
}
