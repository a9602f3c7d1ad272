//! The end of connections. When the process drains, connections finish their requests, and slow ones are cut off. While
//! no file descriptors are left, connections without a request end.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use tokio::sync::{Notify, futures::Notified};

use crate::clock::Instant;

/// State that tells every connection whether it has to end, and counts the connections.
pub(crate) struct Drain {
    draining: AtomicBool,
    /// When unfinished requests are cut off, in nanoseconds of the clock.
    cut_off: AtomicU64,
    /// When blind tunnels are cut off, in nanoseconds of the clock.
    tunnels_cut_off: AtomicU64,
    /// Wakes every connection to check the two above.
    begins: Notify,
    open: AtomicUsize,
    /// Requests, turns and tunnels that the drain has ended unfinished.
    cut: AtomicUsize,
    /// Wakes the drain when the last connection ends.
    empty: Notify,
    /// Wakes silent connections: all when the drain begins, and the longest silent ones when there is no room.
    silent: Notify,
    /// End of the period without room, in nanoseconds of the clock.
    full_until: AtomicU64,
}

/// Number of silent connections that end at a time, and the period in which idle ones end as well.
const ROOM: usize = 256;
const FULL: Duration = Duration::from_secs(1);
/// Maximum time of a blind tunnel in a drain: a tunnel may be silent for hours, and andante cannot see whether data is
/// to come.
const TUNNELS_END: Duration = Duration::from_secs(30);
/// Minimum pause before more room is made.
const AGAIN: Duration = Duration::from_millis(90);
/// Minimum time before a connection makes room: silent since it was opened, idle between two requests, and with an
/// incomplete head.
pub(crate) const NEW: Duration = Duration::from_secs(1);
pub(crate) const RESTED: Duration = Duration::from_secs(2);
pub(crate) const SLOW: Duration = Duration::from_secs(5);

// === impl Drain ===

impl Default for Drain {
    fn default() -> Self {
        Self {
            draining: AtomicBool::new(false),
            cut_off: AtomicU64::new(u64::MAX),
            tunnels_cut_off: AtomicU64::new(u64::MAX),
            begins: Notify::new(),
            open: AtomicUsize::new(0),
            cut: AtomicUsize::new(0),
            empty: Notify::new(),
            silent: Notify::new(),
            full_until: AtomicU64::new(0),
        }
    }
}

impl Drain {
    /// Asks all connections to end `now`, and to break off at `cut_off`.
    pub(crate) fn begin(&self, now: Instant, cut_off: Instant) {
        self.tunnels_cut_off.store(cut_off.min(now + TUNNELS_END).as_nanos(), Ordering::Relaxed);
        self.cut_off.store(cut_off.as_nanos(), Ordering::Relaxed);
        self.draining.store(true, Ordering::Release);
        self.begins.notify_waiters();
        self.silent.notify_waiters();
    }

    /// Makes room when no file descriptor is left. Ends some of the longest silent connections, and idle ones at their
    /// next check of the clock. Does nothing if room was made a moment ago.
    pub(crate) fn make_room(&self, now: Instant) {
        let before = Instant::from_nanos(self.full_until.load(Ordering::Acquire));
        if now + FULL < before + AGAIN {
            return;
        }
        self.full_until.store((now + FULL).as_nanos(), Ordering::Release);
        // `Notify` wakes them in the order in which they came.
        (0..ROOM).for_each(|_| self.silent.notify_one());
    }

    /// Returns whether connections that carry no request are to end.
    pub(crate) fn is_full(&self, now: Instant) -> bool {
        now.as_nanos() < self.full_until.load(Ordering::Acquire)
    }

    /// Returns whether the process is about to end.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// When unfinished requests are cut off.
    pub(crate) fn cut_off(&self) -> Instant {
        Instant::from_nanos(self.cut_off.load(Ordering::Relaxed))
    }

    /// When blind tunnels are cut off.
    pub(crate) fn tunnels_cut_off(&self) -> Instant {
        Instant::from_nanos(self.tunnels_cut_off.load(Ordering::Relaxed))
    }

    /// Wakes the task when the drain begins. Check [`is_draining`](Self::is_draining) after the future is enabled.
    pub(crate) fn notified(&self) -> Notified<'_> {
        self.begins.notified()
    }

    /// Wakes the task of a silent connection when the drain begins, or when it is its turn to make room.
    pub(crate) fn silent(&self) -> Notified<'_> {
        self.silent.notified()
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

    /// Counts a worker's connection.
    pub(crate) fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a worker's connection from the count.
    pub(crate) fn closed(&self) {
        if self.open.fetch_sub(1, Ordering::Release) == 1 {
            self.empty.notify_waiters();
        }
    }

    /// Number of workers' open connections, tunnels included.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Counts a request, a turn or a tunnel that is ended unfinished because the drain's time is over.
    pub(crate) fn on_cut(&self) {
        self.cut.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of requests, turns and tunnels that the drain has ended unfinished.
    pub(crate) fn cut(&self) -> usize {
        self.cut.load(Ordering::Relaxed)
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
