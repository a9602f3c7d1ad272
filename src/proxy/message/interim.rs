//! Interim answers (RFC 9110 §15.2) on their way from an upstream to a worker, if both speak HTTP/1.
//!
//! `interim_reader` reads them. hyper cannot send them as a server: `inbound::rewrite_errors` writes them between
//! hyper's writes. For HTTP/2, andante does neither: see docs/decisions/http-deviations.md.

use std::{
    io::Write as _,
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Waker},
};

use bytes::Bytes;
use http::{HeaderMap, StatusCode, Version};
use parking_lot::Mutex;

/// Interim answers that an exchange's worker has not received yet.
#[derive(Default)]
pub(crate) struct Interim {
    /// True if there is a request without an answer yet, whose version knows interim answers.
    open: AtomicBool,
    /// True if some are unwritten: checked for each write, and rarely true.
    waits: AtomicBool,
    /// True if interim answers get no `Via` field.
    unannounced: AtomicBool,
    state: Mutex<InterimState>,
}

#[derive(Default)]
struct InterimState {
    unwritten: Vec<u8>,
    /// Task that writes them.
    writer: Option<Waker>,
}

/// Maximum number of bytes kept for a worker that does not read: interim answers never change the meaning of the
/// answer.
const MOST: usize = 16 * 1024;

// === impl Interim ===

impl Interim {
    /// Begins a request of this version.
    pub(crate) fn open(&self, version: Version) {
        // HTTP/1.0 has no interim answers.
        self.open.store(version == Version::HTTP_11, Ordering::Relaxed);
        if self.waits.swap(false, Ordering::Relaxed) {
            self.state.lock().unwritten.clear();
        }
    }

    /// Ends interim answers: the request's answer has come.
    pub(crate) fn close(&self) {
        self.open.store(false, Ordering::Relaxed);
    }

    /// Sets whether interim answers to the request get no `Via` field, as its rule says.
    pub(crate) fn set_unannounced(&self, unannounced: bool) {
        self.unannounced.store(unannounced, Ordering::Relaxed);
    }

    pub(crate) fn is_unannounced(&self) -> bool {
        self.unannounced.load(Ordering::Relaxed)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// Wakes the calling task when there is something to write.
    pub(crate) fn wake(&self, cx: &Context<'_>) {
        if !self.is_open() {
            return;
        }
        let mut state = self.state.lock();
        if !state.writer.as_ref().is_some_and(|writer| writer.will_wake(cx.waker())) {
            state.writer = Some(cx.waker().clone());
        }
    }

    /// Takes the bytes to be written now.
    pub(crate) fn take(&self) -> Bytes {
        match self.waits.swap(false, Ordering::Relaxed) {
            true => std::mem::take(&mut self.state.lock().unwritten).into(),
            false => Bytes::new(),
        }
    }

    /// Adds an interim answer.
    pub(crate) fn push(&self, status: StatusCode, fields: &HeaderMap) {
        let mut state = self.state.lock();
        let length: usize = fields.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        if !self.is_open() || state.unwritten.len() + length > MOST {
            return;
        }
        // Writing to memory does not fail.
        let _ = write!(state.unwritten, "HTTP/1.1 {} {}\r\n", status.as_u16(), status.canonical_reason().unwrap_or(""));
        for (name, value) in fields {
            for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                state.unwritten.extend_from_slice(part);
            }
        }
        state.unwritten.extend_from_slice(b"\r\n");
        self.waits.store(true, Ordering::Relaxed);
        if let Some(writer) = state.writer.take() {
            writer.wake();
        }
    }
}
