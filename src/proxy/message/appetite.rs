//! Back-pressure on an upstream's connection: whether more of an answer is to be read.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;

/// Flag that says whether more is to be read.
#[derive(Default)]
pub(crate) struct Appetite {
    sated: AtomicBool,
    reader: Mutex<Option<Waker>>,
}

// === impl Appetite ===

impl Appetite {
    /// Stops reading after a piece has come, until it is passed on.
    pub(crate) fn sate(&self) {
        self.sated.store(true, Ordering::Relaxed);
    }

    /// Allows more to be read.
    pub(crate) fn whet(&self) {
        if self.sated.swap(false, Ordering::Relaxed)
            && let Some(waker) = self.reader.lock().take()
        {
            waker.wake();
        }
    }

    /// Ready when more is to be read.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        if !self.sated.load(Ordering::Relaxed) {
            return Poll::Ready(());
        }
        let mut reader = self.reader.lock();
        *reader = Some(cx.waker().clone());
        // The flag may have changed before the waker was stored.
        if self.sated.load(Ordering::Relaxed) { Poll::Pending } else { Poll::Ready(()) }
    }
}
