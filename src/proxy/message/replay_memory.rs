//! The memory that is left for parts of requests' bodies, over all requests.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The memory that is left for bodies that may have to be sent again, or were looked at before their turn.
pub(crate) struct ReplayMemory(AtomicUsize);

/// Bytes that were taken of it; given back when dropped.
pub(super) struct MemoryShare {
    memory: Arc<ReplayMemory>,
    bytes: usize,
}

impl ReplayMemory {
    /// Room for `bytes` in all.
    pub(crate) fn new(bytes: usize) -> Self {
        Self(AtomicUsize::new(bytes))
    }

    /// Takes `bytes`, if there are as many.
    pub(super) fn take(&self, bytes: usize) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }

    /// Takes `bytes` for as long as the share lives, if there are as many.
    pub(super) fn share(self: &Arc<Self>, bytes: usize) -> Option<MemoryShare> {
        self.take(bytes).then(|| MemoryShare { memory: self.clone(), bytes })
    }

    pub(super) fn return_unused(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

// === impl MemoryShare ===

impl MemoryShare {
    /// Gives back what is beyond `bytes`.
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
