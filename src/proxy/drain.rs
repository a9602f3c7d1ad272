//! When connections have to end. With the process: they finish what they are at, and what takes too long is cut off. And before,
//! those that carry no request, while there are no file descriptors for others.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use tokio::sync::{Notify, futures::Notified};

use crate::clock::Instant;

/// What every connection asks whether it has to end, and where it is counted.
pub(crate) struct Drain {
    draining: AtomicBool,
    /// From when on what is unfinished is cut off, in nanoseconds of the clock.
    cut_off: AtomicU64,
    /// The same for blind tunnels.
    tunnels_cut_off: AtomicU64,
    /// Wakes every connection, to look at the two above.
    begins: Notify,
    open: AtomicUsize,
    /// Wakes the drain when the last connection ends.
    empty: Notify,
    /// Wakes connections that have said nothing: all when the drain begins, and the longest silent ones when there is no room.
    silent: Notify,
    /// Until when there is no room, in nanoseconds of the clock.
    full_until: AtomicU64,
}

/// So many silent connections end at a time, and for so long idle ones do as well.
const ROOM: usize = 256;
const FULL: Duration = Duration::from_secs(1);
/// How long a blind tunnel may last in a drain: it may be silent for hours, and nobody sees whether anything is to come.
const TUNNELS_END: Duration = Duration::from_secs(30);
/// Not before this is more room made.
const AGAIN: Duration = Duration::from_millis(90);
/// No room makes who has just connected, and is about to say something; nor who rests for a moment between two requests, or is
/// slow to send a head.
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
            empty: Notify::new(),
            silent: Notify::new(),
            full_until: AtomicU64::new(0),
        }
    }
}

impl Drain {
    /// Asks all connections to end `now`, and at `cut_off` to break off.
    pub(crate) fn begin(&self, now: Instant, cut_off: Instant) {
        self.tunnels_cut_off.store(cut_off.min(now + TUNNELS_END).as_nanos(), Ordering::Relaxed);
        self.cut_off.store(cut_off.as_nanos(), Ordering::Relaxed);
        self.draining.store(true, Ordering::Release);
        self.begins.notify_waiters();
        self.silent.notify_waiters();
    }

    /// There is no file descriptor left for a connection: some of those that have been silent for longest end, and idle ones
    /// that look at the clock. Does nothing if that was so a moment ago.
    pub(crate) fn make_room(&self, now: Instant) {
        let before = Instant::from_nanos(self.full_until.load(Ordering::Acquire));
        if now + FULL < before + AGAIN {
            return;
        }
        self.full_until.store((now + FULL).as_nanos(), Ordering::Release);
        // It wakes them in the order in which they came.
        (0..ROOM).for_each(|_| self.silent.notify_one());
    }

    /// Whether connections that carry no request are to end.
    pub(crate) fn is_full(&self, now: Instant) -> bool {
        now.as_nanos() < self.full_until.load(Ordering::Acquire)
    }

    /// Whether the process is about to end.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// From when on what is unfinished is cut off.
    pub(crate) fn cut_off(&self) -> Instant {
        Instant::from_nanos(self.cut_off.load(Ordering::Relaxed))
    }

    /// From when on blind tunnels are cut off.
    pub(crate) fn tunnels_cut_off(&self) -> Instant {
        Instant::from_nanos(self.tunnels_cut_off.load(Ordering::Relaxed))
    }

    /// Wakes the task when the drain begins. [`is_draining`](Self::is_draining) is to be asked after it is enabled.
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
