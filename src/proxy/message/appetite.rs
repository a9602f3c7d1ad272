//! Whether more of an answer is to be read from an upstream's connection.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;

/// Whether more is to be read.
#[derive(Default)]
pub(crate) struct Appetite {
    sated: AtomicBool,
    reader: Mutex<Option<Waker>>,
}

// === impl Appetite ===

impl Appetite {
    /// A piece has come: no more until that is on its way.
    pub(crate) fn sate(&self) {
        self.sated.store(true, Ordering::Relaxed);
    }

    /// More may come.
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
        // It may have been whetted before the waker was there.
        if self.sated.load(Ordering::Relaxed) { Poll::Pending } else { Poll::Ready(()) }
    }
}
