//! The body of an answer that is recorded as it passes, and a body that was recorded.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::progress::Progress;
use crate::error::BoxError;

/// Maximum size of the pieces in which a recorded body is returned.
const PIECE: usize = 64 * 1024;

/// Records a body.
pub(crate) trait BodyRecorder: Send {
    /// Records the next piece. Returns `false` if no more is wanted.
    fn piece(&mut self, piece: &[u8]) -> bool;

    /// Ends the recording of a complete body. Not called for a body that breaks off.
    fn complete(self: Box<Self>);
}

/// A body that is recorded.
pub(crate) struct RecordedBody<B> {
    body: B,
    recorder: Option<Box<dyn BodyRecorder>>,
}

/// A recorded body, for one of several readers.
pub(crate) struct ReplayedBody {
    left: Bytes,
    progress: Arc<Progress>,
}

// === impl RecordedBody ===

impl<B: Body<Data = Bytes, Error = BoxError> + Unpin> RecordedBody<B> {
    /// Creates a `body` that `recorder` records.
    pub(crate) fn new(body: B, recorder: Box<dyn BodyRecorder>) -> Self {
        let mut recorded = Self { body, recorder: Some(recorder) };
        recorded.settle(false);
        recorded
    }

    /// The next frame.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Pending => {}
            Poll::Ready(None) => self.settle(true),
            Poll::Ready(Some(Err(_))) => self.recorder = None,
            Poll::Ready(Some(Ok(frame))) => {
                // A body with trailers is not recorded: without them it would be another body.
                let piece = frame.data_ref().map_or(&[][..], |piece| piece);
                if !self.recorder.as_mut().is_some_and(|recorder| !frame.is_trailers() && recorder.piece(piece)) {
                    self.recorder = None;
                }
                self.settle(false);
            }
        }
        polled
    }

    /// Returns whether nothing is left to be read.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    /// Bytes left to be read.
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    /// Completes the recording at the end of the body. A body of known length is not read beyond it, though its stream
    /// may not have ended yet.
    fn settle(&mut self, ended: bool) {
        if (ended || self.body.is_end_stream() || self.body.size_hint().exact() == Some(0))
            && let Some(recorder) = self.recorder.take()
        {
            recorder.complete();
        }
    }
}

// === impl ReplayedBody ===

impl ReplayedBody {
    /// All of `body`, on an exchange with this `progress`.
    pub(crate) fn new(body: Bytes, progress: Arc<Progress>) -> Self {
        progress.moves();
        Self { left: body, progress }
    }

    /// The next piece.
    pub(crate) fn next(&mut self) -> Option<Frame<Bytes>> {
        if self.left.is_empty() {
            return None;
        }
        self.progress.moves();
        Some(Frame::data(self.left.split_to(self.left.len().min(PIECE))))
    }

    /// Bytes left to be read.
    pub(crate) fn left(&self) -> u64 {
        self.left.len() as u64
    }
}

impl Drop for ReplayedBody {
    fn drop(&mut self) {
        self.progress.rest();
    }
}
