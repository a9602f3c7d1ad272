//! Lanes from which the turns of a tunnel take slots.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;

use crate::lane::{AdmitRequest, Lane};

/// Lanes that a tunnel draws on, each once: more than one if its TLS handshake names another host than its CONNECT.
pub(crate) type Lanes = SmallVec<[TurnLane; 2]>;

/// A lane that gives a slot for each turn.
pub(crate) struct TurnLane {
    pub(crate) lane: Arc<Lane>,
    /// Demand of each turn.
    pub(crate) ask: AdmitRequest,
    /// Maximum time that a turn may wait by the rule of this lane.
    pub(crate) patience: Duration,
}

/// The lanes of a tunnel.
pub(crate) struct TurnLanes {
    pub(crate) lanes: Lanes,
}

// === impl TurnLanes ===

impl TurnLanes {
    /// Sorts `lanes` by their hosts: two tunnels that draw on the same lanes must not each hold a slot that the other
    /// one waits for.
    pub(crate) fn new(mut lanes: Lanes) -> Self {
        lanes.sort_by(|one, other| one.lane.host().cmp(other.lane.host()));
        lanes.dedup_by(|one, other| Arc::ptr_eq(&one.lane, &other.lane));
        Self { lanes }
    }

    /// Maximum time that a turn may wait for them all.
    pub(crate) fn patience(&self) -> Duration {
        self.lanes.iter().map(|lane| lane.patience).min().unwrap_or_default()
    }
}
