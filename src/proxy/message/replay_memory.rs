//! The memory that is left for parts of requests' bodies, over all requests.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The memory that is left for bodies that may have to be sent again, or were looked at before their turn.
pub(crate) struct ReplayMemory(AtomicUsize);

impl ReplayMemory {
    /// Room for `bytes` in all.
    pub(crate) fn new(bytes: usize) -> Self {
        Self(AtomicUsize::new(bytes))
    }

    /// Takes `bytes`, if there are as many.
    pub(super) fn take(&self, bytes: usize) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }

    pub(super) fn return_unused(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}
