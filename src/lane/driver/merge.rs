//! A lane that becomes part of another one, as rules do in a reload.

use std::{mem, sync::Arc};

use tokio::sync::oneshot;

use super::{GrantSender, Lane, Waiting, permit::Dismissal};
use crate::{
    clock::Instant,
    lane::state::{Inheritance, Moving, Parting},
};

/// Requests to a port that have no lane at the moment, and what theirs has sent so far.
pub(in crate::lane) struct Departing {
    inheritance: Inheritance,
    waiting: Vec<Moving<GrantSender>>,
    port: u16,
}

impl Lane {
    /// From now on this lane goes on for `other`: what was sent there counts here, what paused it pauses this one, and
    /// whoever waits there waits here. Must be called on a tokio runtime, which drives the lane while somebody waits.
    pub(in crate::lane) fn inherit(self: &Arc<Self>, other: &Arc<Self>) {
        // One lock after the other: two lanes must not wait for each other.
        let mut legacy = other.tell(|state, now| state.bequeathed(now));
        self.tell(|state, now| state.inherited(now, &legacy));
        legacy.waiting.drain(..).for_each(|moving| self.adopt(moving));
    }

    /// Requests to this port get a lane of their own at `now`: what waits for it waits here no more. To be
    /// [taken in](Self::take_in) by that lane.
    pub(in crate::lane) fn departing(self: &Arc<Self>, port: u16, now: Instant) -> Departing {
        let parting = self.parting(now);
        self.tell(|state, _| {
            let (inheritance, waiting) = (state.parts(parting), state.departing(|one| one == port));
            Departing { inheritance, waiting, port }
        })
    }

    /// This lane is that of what departs from another one: what was sent there counts here as well, what paused it pauses this
    /// one, and what has waited there waits here.
    pub(in crate::lane) fn take_in(self: &Arc<Self>, departing: Departing) {
        let Departing { inheritance, waiting, port } = departing;
        self.begin_with(&inheritance, port);
        waiting.into_iter().for_each(|moving| self.adopt(moving));
    }

    /// What it leaves to lanes that are opened later for ports of its host which have another rule from `now` on.
    pub(in crate::lane) fn bequest(self: &Arc<Self>, now: Instant) -> Inheritance {
        let parting = self.parting(now);
        self.tell(|state, _| state.bequest(parting))
    }

    fn parting(&self, at: Instant) -> Parting {
        Parting { at, lane: Arc::as_ptr(&self.shared).addr() }
    }

    /// This lane is that of requests to this port, which have gone by one that has `left` this.
    pub(in crate::lane) fn begin_with(self: &Arc<Self>, left: &Inheritance, port: u16) {
        self.tell(|state, now| state.departed(now, left, port));
    }

    /// To which ports requests have gone.
    pub(in crate::lane) fn ports(&self) -> Vec<u16> {
        self.shared.state.lock().ports().to_vec()
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
