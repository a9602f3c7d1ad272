//! Interim answers (RFC 9110 §15.2) on their way from an upstream to a worker, if both speak HTTP/1.
//!
//! hyper tells of them where it is the client, and has no means to send them where it is the server: they are written
//! between what it writes, by `voice`. Of HTTP/2 it does neither: see docs/decisions/http-deviations.md.

use std::{
    io::Write as _,
    sync::Arc,
    task::{Context, Waker},
};

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, Version};
use parking_lot::Mutex;

use super::{fields, link::Link, upload::RequestBody};

/// What a link's worker is still to be told before its answer.
#[derive(Default)]
pub(super) struct Interim(Mutex<State>);

#[derive(Default)]
struct State {
    /// There is a request, whose worker knows of interim answers, and no answer to it yet.
    open: bool,
    unwritten: Vec<u8>,
    /// Writes them.
    writer: Option<Waker>,
}

/// More than this is not kept for a worker that does not read: none of them changes what the answer means.
const MOST: usize = 16 * 1024;

// === impl Interim ===

impl Interim {
    /// A request has come, of this version.
    pub(super) fn open(&self, version: Version) {
        let mut state = self.0.lock();
        // HTTP/1.0 knows none.
        state.open = version == Version::HTTP_11;
        state.unwritten.clear();
    }

    /// The request's answer is here.
    pub(super) fn close(&self) {
        self.0.lock().open = false;
    }

    pub(super) fn is_open(&self) -> bool {
        self.0.lock().open
    }

    /// Wakes whoever asks when there is something to write.
    pub(super) fn wake(&self, cx: &Context<'_>) {
        let mut state = self.0.lock();
        if state.open && !state.writer.as_ref().is_some_and(|writer| writer.will_wake(cx.waker())) {
            state.writer = Some(cx.waker().clone());
        }
    }

    /// What is to be written now.
    pub(super) fn take(&self) -> Bytes {
        let mut state = self.0.lock();
        if state.unwritten.is_empty() { Bytes::new() } else { std::mem::take(&mut state.unwritten).into() }
    }

    fn push(&self, status: StatusCode, fields: &HeaderMap) {
        let mut state = self.0.lock();
        let length: usize = fields.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        if !state.open || state.unwritten.len() + length > MOST {
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
        if let Some(writer) = state.writer.take() {
            writer.wake();
        }
    }
}

/// Has what an upstream of HTTP/1 answers to `request` for the time being passed on, if its worker is to have it.
pub(super) fn pass_on(link: &Arc<Link>, request: &mut Request<RequestBody>) {
    if !link.interim.is_open() {
        return;
    }
    let link = link.clone();
    hyper::ext::on_informational(request, move |answer| {
        // That we go on is nothing that it was asked for: 100 is what we say ourselves, once the request has its slot.
        if answer.status() != StatusCode::CONTINUE {
            let mut fields = answer.headers().clone();
            fields::remove_hop_by_hop(&mut fields);
            fields::remove_our_timing(&mut fields);
            fields::add_via(&mut fields, &link.proxy.via, answer.version());
            link.interim.push(answer.status(), &fields);
        }
    });
}
