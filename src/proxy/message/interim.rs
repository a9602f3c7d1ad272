//! Interim answers (RFC 9110 §15.2) on their way from an upstream to a worker, if both speak HTTP/1.
//!
//! `interim_reader` reads them. hyper has no means to send them where it is the server: they are written between what it
//! writes, by `inbound::rewrite_errors`. Of HTTP/2 it does neither: see docs/decisions/http-deviations.md.

use std::{
    io::Write as _,
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Waker},
};

use bytes::Bytes;
use http::{HeaderMap, StatusCode, Version};
use parking_lot::Mutex;

/// What a exchange's worker is still to be told before its answer.
#[derive(Default)]
pub(crate) struct Interim {
    /// There is a request, whose worker knows of interim answers, and no answer to it yet.
    open: AtomicBool,
    /// Some are unwritten: asked for each write, and nearly never so.
    waits: AtomicBool,
    /// They get no `Via` field.
    unannounced: AtomicBool,
    state: Mutex<InterimState>,
}

#[derive(Default)]
struct InterimState {
    unwritten: Vec<u8>,
    /// Writes them.
    writer: Option<Waker>,
}

/// More than this is not kept for a worker that does not read: none of them changes what the answer means.
const MOST: usize = 16 * 1024;

// === impl Interim ===

impl Interim {
    /// A request has come, of this version.
    pub(crate) fn open(&self, version: Version) {
        // HTTP/1.0 knows none.
        self.open.store(version == Version::HTTP_11, Ordering::Relaxed);
        if self.waits.swap(false, Ordering::Relaxed) {
            self.state.lock().unwritten.clear();
        }
    }

    /// The request's answer is here.
    pub(crate) fn close(&self) {
        self.open.store(false, Ordering::Relaxed);
    }

    /// Sets whether interim answers to the request get no `Via` field, as its rule has it.
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

    /// What is to be written now.
    pub(crate) fn take(&self) -> Bytes {
        match self.waits.swap(false, Ordering::Relaxed) {
            true => std::mem::take(&mut self.state.lock().unwritten).into(),
            false => Bytes::new(),
        }
    }

    /// An interim answer has come.
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
