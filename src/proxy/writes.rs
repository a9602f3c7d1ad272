//! When what was sent to an upstream has left for its socket.
//!
//! An HTTP/1 connection carries one request at a time, so its last write is that request's. On an HTTP/2 connection many
//! write at once: each request notes the first write that is complete after it was handed over, or after its body's end.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use parking_lot::Mutex;

use crate::clock::{Clock, Instant};

/// The writes of one connection.
pub(super) struct Writes {
    clock: Clock,
    /// When something was last written, in nanoseconds of the clock.
    last: AtomicU64,
    /// Something was written, and perhaps not all of it.
    unfinished: AtomicBool,
    /// The requests whose next write is to be noted.
    waiting: Mutex<Vec<Arc<AtomicU64>>>,
}

/// When one request of a shared connection was last written.
#[derive(Clone)]
pub(super) struct Written {
    at: Arc<AtomicU64>,
    writes: Arc<Writes>,
}

// === impl Writes ===

impl Writes {
    pub(super) fn new(clock: Clock) -> Arc<Self> {
        let (last, unfinished) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Self { clock, last, unfinished, waiting: Mutex::default() })
    }

    /// Something was written.
    pub(super) fn wrote(&self) {
        self.last.store(self.clock.now().as_nanos(), Ordering::Relaxed);
        self.unfinished.store(true, Ordering::Relaxed);
    }

    /// All that there was to write has been written.
    pub(super) fn finished(&self) {
        if self.unfinished.swap(false, Ordering::Relaxed) {
            let last = self.last.load(Ordering::Relaxed);
            self.waiting.lock().drain(..).for_each(|at| at.store(last, Ordering::Relaxed));
        }
    }

    /// When something was last written; the clock's start if nothing was.
    pub(super) fn last(&self) -> Instant {
        Instant::from_nanos(self.last.load(Ordering::Relaxed))
    }
}

// === impl Written ===

impl Written {
    /// A request is handed over to the connection.
    pub(super) fn by(writes: &Arc<Writes>) -> Self {
        let written = Self { at: Arc::default(), writes: writes.clone() };
        written.again();
        written
    }

    /// More of the same request is handed over.
    pub(super) fn again(&self) {
        let mut waiting = self.writes.waiting.lock();
        if !waiting.iter().any(|at| Arc::ptr_eq(at, &self.at)) {
            waiting.push(self.at.clone());
        }
    }

    /// When it was last written; the clock's start if it was not yet.
    pub(super) fn at(&self) -> Instant {
        Instant::from_nanos(self.at.load(Ordering::Relaxed))
    }
}
