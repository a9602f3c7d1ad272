//! Upstreams that have ever answered: such an upstream is worth waiting for, and any other may be a mistyped port.

use std::collections::HashSet;

use parking_lot::Mutex;

use crate::policy::Origin;

/// Maximum number of upstreams that are remembered. Further upstreams count as never seen.
const MOST: usize = 10_000;

/// The upstreams that have answered.
#[derive(Default)]
pub(crate) struct KnownOrigins(Mutex<HashSet<Origin>>);

// === impl KnownOrigins ===

impl KnownOrigins {
    /// Records that `origin` has answered.
    pub(crate) fn add(&self, origin: &Origin) {
        let mut seen = self.0.lock();
        if seen.len() < MOST {
            seen.insert(origin.clone());
        }
    }

    /// Returns whether `origin` has ever answered.
    pub(crate) fn has(&self, origin: &Origin) -> bool {
        self.0.lock().contains(origin)
    }
}
