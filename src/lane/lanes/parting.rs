//! Lanes that split in a reload: a port of their host has got another rule.

use std::sync::Arc;

use andante_clock::Instant;
use andante_policy::{Origin, Rules};

use crate::{Lane, driver::Departing};

/// The requests that move `now` from `lane` to lanes of other ports of its host. Under `rules`, those ports have a rule
/// other than that of `origin`, which `lane` keeps. O(waiting), if `rules` distinguish the ports.
pub(super) fn of(rules: &Rules, lane: &Arc<Lane>, origin: &Origin, now: Instant) -> Vec<(Origin, Departing)> {
    if rules.is_alone(&origin.host) {
        return Vec::new();
    }
    let others = lane.ports().into_iter().map(|port| Origin { port, ..origin.clone() });
    let parts = |other: Origin| {
        let departing = (rules.position(&other) != rules.position(origin)).then(|| lane.departing(other.port, now))?;
        Some((other, departing))
    };
    others.filter_map(parts).collect()
}
