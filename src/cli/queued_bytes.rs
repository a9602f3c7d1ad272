//! The bytes that wait for the access log's writer.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::metrics::access_log;

/// About a second of lines at 20,000 requests a second. The reserve of `max-memory` has room for them.
pub(super) const MAX_QUEUED_BYTES: usize = 8 * 1024 * 1024;
/// The reason why lines are lost when the queue is full.
pub(super) const OVERFLOW: &str = "it is written more slowly than requests come";

/// Bytes in the queue, and whether it overflowed.
#[derive(Debug, Default)]
pub(super) struct QueuedBytes {
    bytes: AtomicUsize,
    overflowed: AtomicBool,
}

// === impl QueuedBytes ===

impl QueuedBytes {
    /// Counts a line of `bytes`. Returns `false`, and counts the line as lost, if there is no room.
    pub(super) fn add(&self, bytes: usize) -> bool {
        let fits = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= MAX_QUEUED_BYTES;
        if !fits {
            self.remove(bytes);
            // Counted here, because the writing thread may hang.
            access_log::lost(1);
            // The problem is set first: the writer clears it once it has seen that lines were lost.
            if !self.overflowed.load(Ordering::Acquire) {
                access_log::set_problem(Some(OVERFLOW.to_owned()));
                self.overflowed.store(true, Ordering::Release);
            }
        }
        fits
    }

    /// Takes `bytes` out of the queue.
    pub(super) fn remove(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns whether lines were lost since the last call.
    pub(super) fn take_overflowed(&self) -> bool {
        self.overflowed.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_bound_are_lost_until_others_are_written() {
        let queued = QueuedBytes::default();
        assert!(queued.add(MAX_QUEUED_BYTES - 100));
        assert!(!queued.add(101) && queued.add(100) && !queued.add(1));
        assert!(queued.take_overflowed() && !queued.take_overflowed());
        queued.remove(100);
        assert!(queued.add(100));
    }
}
