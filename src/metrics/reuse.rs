//! Origin of requests' connections: new or reused.

use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

use super::families::registered;

/// Requests by the connection that carried them.
#[derive(Clone, Debug)]
pub struct Reuse {
    new: IntCounter,
    reused: IntCounter,
}

/// Counters of both sides.
pub(super) struct BothSides {
    pub(super) client: Reuse,
    pub(super) upstream: Reuse,
}

// === impl BothSides ===

impl BothSides {
    pub(super) fn register(registry: &Registry) -> Self {
        let help = "Requests by their connection: the first that it carried, or a further one.";
        let opts = Opts::new("andante_connections_total", help);
        let family: IntCounterVec = registered(registry, IntCounterVec::new(opts, &["side", "reused"]));
        let of = |side| Reuse {
            new: family.with_label_values(&[side, "false"]),
            reused: family.with_label_values(&[side, "true"]),
        };
        Self { client: of("client"), upstream: of("upstream") }
    }
}

// === impl Reuse ===

impl Reuse {
    /// Counts a request on a new connection, or on a `reused` one.
    pub fn count(&self, reused: bool) {
        if reused { &self.reused } else { &self.new }.inc();
    }
}
