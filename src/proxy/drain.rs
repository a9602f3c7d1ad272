//! The end of the process: connections finish what they are at, and what takes too long is cut off.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use tokio::sync::{Notify, futures::Notified};

use crate::clock::Instant;

/// What every connection asks whether it has to end, and where it is counted.
pub(crate) struct Drain {
    draining: AtomicBool,
    /// From when on what is unfinished is cut off, in nanoseconds of the clock.
    cut_off: AtomicU64,
    /// Wakes every connection, to look at the two above.
    begins: Notify,
    open: AtomicUsize,
    /// Wakes the drain when the last connection ends.
    empty: Notify,
}

// === impl Drain ===

impl Default for Drain {
    fn default() -> Self {
        Self {
            draining: AtomicBool::new(false),
            cut_off: AtomicU64::new(u64::MAX),
            begins: Notify::new(),
            open: AtomicUsize::new(0),
            empty: Notify::new(),
        }
    }
}

impl Drain {
    /// Asks all connections to end, and at `cut_off` to break off.
    pub(crate) fn begin(&self, cut_off: Instant) {
        self.cut_off.store(cut_off.as_nanos(), Ordering::Relaxed);
        self.draining.store(true, Ordering::Release);
        self.begins.notify_waiters();
    }

    /// Whether the process is about to end.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// From when on what is unfinished is cut off.
    pub(crate) fn cut_off(&self) -> Instant {
        Instant::from_nanos(self.cut_off.load(Ordering::Relaxed))
    }

    /// Wakes the task when the drain begins. [`is_draining`](Self::is_draining) is to be asked after it is enabled.
    pub(crate) fn notified(&self) -> Notified<'_> {
        self.begins.notified()
    }

    /// Returns once the process drains.
    pub(crate) async fn begun(&self) {
        loop {
            let begins = self.begins.notified();
            if self.is_draining() {
                return;
            }
            begins.await;
        }
    }

    /// A worker's connection is there.
    pub(crate) fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// It has ended.
    pub(crate) fn closed(&self) {
        if self.open.fetch_sub(1, Ordering::Release) == 1 {
            self.empty.notify_waiters();
        }
    }

    /// How many workers' connections are open, tunnels included.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Returns once no connection is left.
    pub(crate) async fn emptied(&self) {
        loop {
            let empty = self.empty.notified();
            if self.open.load(Ordering::Acquire) == 0 {
                return;
            }
            empty.await;
        }
    }
}
