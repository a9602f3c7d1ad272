//! The beginning of a request's body, read before its turn and kept until it is sent.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http_body::Frame;

use super::replay_memory::ReplayMemory;

/// The part of a body that was read before its turn.
pub(crate) struct BodyBeginning {
    /// Copied, so that a few bytes do not hold on to the whole buffer that they were read into.
    data: BytesMut,
    /// The trailers behind the data.
    trailers: Option<Frame<Bytes>>,
    /// True if the body has ended.
    ended: bool,
    /// Number of bytes to read.
    most: usize,
    memory: Arc<ReplayMemory>,
    taken: usize,
}

// === impl BodyBeginning ===

impl BodyBeginning {
    /// A beginning of up to `most` bytes; `None` if there is no memory for them.
    pub(super) fn new(most: usize, memory: &Arc<ReplayMemory>) -> Option<Box<Self>> {
        let memory = memory.take(most).then(|| memory.clone())?;
        let data = BytesMut::new();
        Some(Box::new(Self { data, trailers: None, ended: false, most, memory, taken: most }))
    }

    /// Keeps a frame that was read. A piece is kept as a whole, even if it exceeds the limit.
    pub(super) fn keep(&mut self, frame: Option<Frame<Bytes>>) {
        match frame.map(Frame::into_data) {
            Some(Ok(data)) => self.data.extend_from_slice(&data),
            Some(Err(trailers)) => self.trailers = Some(trailers),
            None => self.ended = true,
        }
        let more = self.data.len().saturating_sub(self.taken);
        if more > 0 && self.memory.take(more) {
            self.taken += more;
        }
        if self.suffices() && self.taken > self.data.len() {
            self.memory.return_unused(self.taken - self.data.len());
            self.taken = self.data.len();
        }
    }

    /// Returns whether enough was read.
    pub(super) fn suffices(&self) -> bool {
        self.ended || self.trailers.is_some() || self.data.len() >= self.most
    }

    /// Returns whether there are trailers that have not been sent.
    pub(super) fn has_trailers(&self) -> bool {
        self.trailers.is_some()
    }

    /// Bytes that have not been sent.
    pub(super) fn data(&self) -> &[u8] {
        &self.data
    }

    /// The next frame that was read; `Some(None)` is the end of the body.
    pub(super) fn pop(&mut self) -> Option<Option<Frame<Bytes>>> {
        if !self.data.is_empty() {
            return Some(Some(Frame::data(self.data.split().freeze())));
        }
        self.trailers.take().map(Some).or(self.ended.then_some(None))
    }

    /// Returns whether nothing is left to be sent.
    pub(super) fn is_sent(&self) -> bool {
        self.data.is_empty() && self.trailers.is_none()
    }
}

impl Drop for BodyBeginning {
    fn drop(&mut self) {
        self.memory.return_unused(self.taken);
    }
}
