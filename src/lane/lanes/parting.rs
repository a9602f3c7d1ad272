//! Lanes that part in a reload: a port of their host has got another rule.

use std::sync::Arc;

use crate::{
    lane::{Lane, driver::Departing},
    policy::{Origin, Rules},
};

/// What has waited in a lane and goes to an origin that has another rule now.
pub(super) struct Parting {
    pub(super) origin: Origin,
    pub(super) from: Arc<Lane>,
    pub(super) waiting: Departing,
}

/// What waits in `lane`, whose rule is now that of `origin`, for other ports of its host that have another one under `rules`. It
/// waits there no more. O(waiting), if `rules` tell the ports apart.
pub(super) fn of(rules: &Rules, lane: &Arc<Lane>, origin: &Origin) -> Vec<(Origin, Departing)> {
    if rules.is_alone(&origin.host) {
        return Vec::new();
    }
    let others = lane.ports().into_iter().map(|port| Origin { port, ..origin.clone() });
    let parts = |other: Origin| {
        let waiting = (rules.position(&other) != rules.position(origin)).then(|| lane.departing(other.port));
        waiting.map(|waiting| (other, waiting))
    };
    others.filter_map(parts).collect()
}
