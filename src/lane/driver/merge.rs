//! Lanes that part or become one in a reload.

use std::{mem, sync::Arc};

use andante_clock::Instant;
use tokio::sync::oneshot;

use super::{GrantSender, Lane, Shared, Waiting, permit::Dismissal};
use crate::state::{Moving, Parting};

impl Lane {
    /// Takes over from `other`: requests sent there count here, its pauses hold here, and its waiting requests wait
    /// here. Must be called on a tokio runtime, which drives the lane while requests wait.
    pub(crate) fn join(self: &Arc<Self>, other: &Arc<Self>) {
        // Before the states are joined: two queues would send at twice the pace.
        let mut departing = other.depart(|_| true);
        self.tell(|state, now| {
            let mut absorbed = other.shared.state.lock();
            state.join(now, &mut absorbed);
            // Under the lock: a request asks either before, and counts, or here.
            let _ = other.shared.successor.set(self.shared.clone());
        });
        departing.extend(other.depart(|_| true));
        departing.into_iter().for_each(|moving| self.adopt(moving));
    }

    /// Begins with what `other` has sent until `at`, and with its pauses: from now on this lane serves some of its
    /// ports.
    pub(crate) fn part_from(self: &Arc<Self>, other: &Arc<Self>, at: Instant) {
        let parting = Parting { at, lane: Arc::as_ptr(&other.shared).addr() };
        self.tell(|state, _| state.part_from(&mut other.shared.state.lock(), parting));
    }

    /// Removes the waiting requests for `wanted` ports, for other lanes to [adopt](Self::adopt).
    pub(crate) fn depart(self: &Arc<Self>, wanted: impl Fn(u16) -> bool) -> Vec<Moving<GrantSender>> {
        self.tell(|state, _| state.depart(wanted))
    }

    /// Takes in a request that waited in another lane. The request stays with the policy that it came to.
    pub(crate) fn adopt(self: &Arc<Self>, mut moving: Moving<GrantSender>) {
        let lane = moving.grant.lane.on_state(&self.shared);
        let (sender, grant) = oneshot::channel();
        let before = mem::replace(&mut moving.grant, GrantSender { lane: lane.clone(), sender });
        let place = self.tell(|state, now| state.adopt(now, moving));
        let waiting = Waiting { lane, place, grant, answered: false, expected: self.clock.now(), ahead: 0 };
        // A request that has just left drops it, and leaves here as well.
        let _ = before.sender.send(Box::new(Err(Dismissal::Moved(waiting))));
    }

    /// A lane with this one's policy, on the state `shared`.
    pub(super) fn on_state(&self, shared: &Arc<Shared>) -> Arc<Self> {
        let Self { host, policy, metrics, clock, journal, .. } = self;
        Arc::new(Self {
            host: host.clone(),
            policy: policy.clone(),
            metrics: metrics.clone(),
            clock: *clock,
            journal: journal.clone(),
            shared: shared.clone(),
        })
    }
}
