//! Lanes that become part of another one, as rules do in a reload.

use std::{mem, sync::Arc};

use andante_clock::Instant;
use tokio::sync::oneshot;

use super::{GrantSender, Lane, Waiting, permit::Dismissal};
use crate::state::{Inheritance, Moving, Parting};

/// Waiting requests to a port that have no lane at the moment, and what their lane has sent so far.
pub(crate) struct Departing {
    inheritance: Inheritance,
    waiting: Vec<Moving<GrantSender>>,
    port: u16,
}

impl Lane {
    /// Takes over from `other`: requests sent there count here, its pauses hold here, and its waiting requests wait
    /// here. Must be called on a tokio runtime, which drives the lane while requests wait.
    pub(crate) fn inherit(self: &Arc<Self>, other: &Arc<Self>) {
        // Takes one lock after the other: two lanes must not wait for each other.
        let mut legacy = other.tell(|state, now| state.bequeathed(now));
        self.tell(|state, now| state.inherited(now, &legacy));
        legacy.waiting.drain(..).for_each(|moving| self.adopt(moving));
    }

    /// Removes the requests to this port, which get a lane of their own at `now`. The new lane has to call
    /// [`take_in`](Self::take_in).
    pub(crate) fn departing(self: &Arc<Self>, port: u16, now: Instant) -> Departing {
        let parting = self.parting(now);
        self.tell(|state, _| {
            let (inheritance, waiting) = (state.parts(parting), state.departing(|one| one == port));
            Departing { inheritance, waiting, port }
        })
    }

    /// Takes in what departs from another lane: requests sent there count here as well, its pauses hold here, and its
    /// waiting requests wait here.
    pub(crate) fn take_in(self: &Arc<Self>, departing: Departing) {
        let Departing { inheritance, waiting, port } = departing;
        self.begin_with(&inheritance, port);
        waiting.into_iter().for_each(|moving| self.adopt(moving));
    }

    /// The state for lanes opened later for ports of its host that have another rule from `now` on.
    pub(crate) fn bequest(self: &Arc<Self>, now: Instant) -> Inheritance {
        let parting = self.parting(now);
        self.tell(|state, _| state.bequest(parting))
    }

    fn parting(&self, at: Instant) -> Parting {
        Parting { at, lane: Arc::as_ptr(&self.shared).addr() }
    }

    /// Starts this lane for requests to this port from the state that their former lane has `left`.
    pub(crate) fn begin_with(self: &Arc<Self>, left: &Inheritance, port: u16) {
        self.tell(|state, now| state.departed(now, left, port));
    }

    /// Ports that requests have gone to.
    pub(crate) fn ports(&self) -> Vec<u16> {
        self.shared.state.lock().ports().to_vec()
    }

    /// Takes in a request that waited in another lane. The request stays with the policy that it came to.
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
        // A request that has just left drops it, and leaves here as well.
        let _ = before.sender.send(Box::new(Err(Dismissal::Moved(waiting))));
    }
}
