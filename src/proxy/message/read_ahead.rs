//! The beginning of a request's body, or all of it, read before the request's turn and sent from memory.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;

use super::{incoming_body::Fingerprint, replay_memory::MemoryShare};

/// Bytes of a body that were read ahead. Copies share the bytes and their memory.
#[derive(Clone)]
pub(super) struct ReadAhead {
    data: Bytes,
    /// The trailers behind the bytes.
    trailers: Option<HeaderMap>,
    /// Fingerprint of the received body, if the bytes are all of it, or replace all of it.
    whole: Option<Fingerprint>,
    /// Share of the memory for bodies.
    _memory: Arc<MemoryShare>,
}

// === impl ReadAhead ===

impl ReadAhead {
    /// The first bytes of a longer body, or all of a body that ends with `trailers`.
    pub(super) fn beginning(data: Bytes, trailers: Option<HeaderMap>, memory: MemoryShare) -> Self {
        Self { data, trailers, whole: None, _memory: Arc::new(memory) }
    }

    /// All bytes of a body without trailers.
    pub(super) fn whole(data: Bytes, memory: MemoryShare) -> Self {
        Self { whole: Some(Fingerprint::of(&data)), data, trailers: None, _memory: Arc::new(memory) }
    }

    /// Replaces the bytes of a whole body. The fingerprint stays that of the received bytes, because a body is not
    /// replaced while memory is short.
    pub(super) fn replaced(self, data: Bytes) -> Self {
        Self { data, ..self }
    }

    /// The bytes that are not sent yet.
    pub(super) fn data(&self) -> &Bytes {
        &self.data
    }

    /// Fingerprint of the body; `None` if the body is longer than the bytes.
    pub(super) fn fingerprint(&self) -> Option<Fingerprint> {
        self.whole
    }

    /// The next frame to send.
    pub(super) fn pop(&mut self) -> Option<Frame<Bytes>> {
        if self.data.is_empty() {
            return self.trailers.take().map(Frame::trailers);
        }
        Some(Frame::data(std::mem::take(&mut self.data)))
    }

    /// Returns whether nothing is left to send.
    pub(super) fn is_sent(&self) -> bool {
        self.data.is_empty() && self.trailers.is_none()
    }
}
