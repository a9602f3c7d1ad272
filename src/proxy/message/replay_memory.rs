//! The memory that is left for parts of requests' bodies, over all requests.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Memory that is left for bodies that may have to be sent again, or were read before their turn.
pub(crate) struct ReplayMemory(AtomicUsize);

/// A share of the memory, which is returned when dropped.
pub(super) struct MemoryShare {
    memory: Arc<ReplayMemory>,
    bytes: usize,
}

impl ReplayMemory {
    /// Creates an account of `bytes`.
    pub(crate) fn new(bytes: usize) -> Self {
        Self(AtomicUsize::new(bytes))
    }

    /// Takes `bytes`, if enough are left.
    pub(super) fn take(&self, bytes: usize) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }

    /// Takes `bytes` for as long as the share lives, if enough are left.
    pub(super) fn share(self: &Arc<Self>, bytes: usize) -> Option<MemoryShare> {
        self.take(bytes).then(|| MemoryShare { memory: self.clone(), bytes })
    }

    pub(super) fn return_unused(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

// === impl MemoryShare ===

impl MemoryShare {
    /// Returns all but `bytes`.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        let unused = self.bytes.saturating_sub(bytes);
        self.memory.return_unused(unused);
        self.bytes -= unused;
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.memory.return_unused(self.bytes);
    }
}
