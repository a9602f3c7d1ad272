//! Counts of a drain, for the last line of the log.

use std::sync::Arc;

use tracing::info;

use crate::{
    admin::status::{Requests, Turns},
    clock::{Instant, log_seconds},
    proxy::Proxy,
};

/// Counts since the beginning of a drain.
pub struct DrainTally {
    proxy: Arc<Proxy>,
    begun: Instant,
    /// Counts of the process at the beginning.
    before: (u64, u64),
}

// === impl DrainTally ===

impl DrainTally {
    /// Counts from now on.
    pub(super) fn begin(proxy: Arc<Proxy>) -> Self {
        let (begun, before) = (proxy.clock.now(), answered_and_refused(&proxy));
        Self { proxy, begun, before }
    }

    /// Number of requests, turns and tunnels that the drain has cut off, and of connections that are still open.
    pub fn cut_off(&self) -> usize {
        self.proxy.cut_off()
    }

    /// Logs the counts: the drain is over.
    pub fn log(&self) {
        let took_s = log_seconds(self.proxy.clock.now().since(self.begun));
        let (answered, refused) = answered_and_refused(&self.proxy);
        let (answered, refused) = (answered.saturating_sub(self.before.0), refused.saturating_sub(self.before.1));
        info!(took_s, answered, refused, cut_off = self.cut_off(), "drained");
        self.proxy.log_counted(true);
    }
}

/// Requests that were answered, and requests and turns that were refused.
fn answered_and_refused(proxy: &Proxy) -> (u64, u64) {
    let (requests, turns) = (Requests::counted(&proxy.metrics), Turns::counted(&proxy.metrics));
    (requests.answered, requests.refused + turns.refused)
}
