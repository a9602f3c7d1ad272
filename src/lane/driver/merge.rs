//! A lane that becomes part of another one, as rules do in a reload.

use std::{collections::BTreeSet, mem, sync::Arc};

use tokio::sync::oneshot;

use super::{GrantSender, Lane, Waiting, permit::Dismissal};
use crate::lane::state::Moving;

/// Requests that wait in no lane at the moment.
pub(in crate::lane) struct Departing(Vec<Moving<GrantSender>>);

impl Lane {
    /// From now on this lane goes on for `other`: what was sent there counts here, what paused it pauses this one, and
    /// whoever waits there waits here. Must be called on a tokio runtime, which drives the lane while somebody waits.
    pub(in crate::lane) fn inherit(self: &Arc<Self>, other: &Arc<Self>) {
        // One lock after the other: two lanes must not wait for each other.
        let mut legacy = other.tell(|state, now| state.bequeathed(now));
        self.tell(|state, now| state.inherited(now, &legacy));
        legacy.waiting.drain(..).for_each(|moving| self.adopt(moving));
    }

    /// What waits here for this port, which waits here no more. To be [taken in](Self::take_in) by another lane.
    pub(in crate::lane) fn departing(self: &Arc<Self>, port: u16) -> Departing {
        Departing(self.tell(|state, _| state.departing(|one| one == port)))
    }

    /// What has waited in another lane waits here.
    pub(in crate::lane) fn take_in(self: &Arc<Self>, Departing(waiting): Departing) {
        waiting.into_iter().for_each(|moving| self.adopt(moving));
    }

    /// To which ports what waits here goes.
    pub(in crate::lane) fn ports(&self) -> BTreeSet<u16> {
        self.shared.state.lock().ports()
    }

    /// Takes in a request that waited in another lane. It stays with the policy that it came to.
    fn adopt(self: &Arc<Self>, mut moving: Moving<GrantSender>) {
        let Self { host, policy, metrics, clock, journal, .. } = &*moving.grant.lane;
        let lane = Arc::new(Self {
            host: host.clone(),
            policy: policy.clone(),
            metrics: metrics.clone(),
            clock: *clock,
            journal: journal.clone(),
            shared: self.shared.clone(),
        });
        let (sender, grant) = oneshot::channel();
        let before = mem::replace(&mut moving.grant, GrantSender { lane: lane.clone(), sender });
        let place = self.tell(|state, now| state.adopted(now, moving));
        let waiting = Waiting { lane, place, grant, answered: false, expected: self.clock.now(), ahead: 0 };
        // Whoever has left in this moment drops it, and leaves here as well.
        let _ = before.sender.send(Box::new(Err(Dismissal::Moved(waiting))));
    }
}
