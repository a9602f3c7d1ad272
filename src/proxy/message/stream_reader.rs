//! Bodies of answers on streams of an HTTP/2 connection, as h2 delivers them.

use std::{
    io,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use h2::{Reason, RecvStream};
use http::{HeaderMap, header::CONTENT_LENGTH};
use http_body::{Frame, SizeHint};
use tokio::sync::oneshot;

use crate::error::BoxError;

/// The body of an answer, in the pieces that h2 delivers.
pub(crate) struct StreamReader {
    stream: RecvStream,
    expected: SizeHint,
    /// Bytes of data that were read.
    received: u64,
    /// True if all data of the answer was read: a later failure of the stream or connection does not matter.
    is_whole: bool,
    /// True if only trailers are left.
    is_data_over: bool,
    /// Tells the task that sends the rest of the request's body how the answer ends.
    upload: Option<oneshot::Sender<AnswerRead>>,
}

/// The whole answer was read.
pub(crate) struct AnswerRead;

// === impl StreamReader ===

impl StreamReader {
    /// The body of the answer that these `fields` belong to. If the rest of the request's body is still being sent,
    /// `upload` learns of the answer's end, or that the answer was dropped before.
    pub(crate) fn new(stream: RecvStream, fields: &HeaderMap, upload: Option<oneshot::Sender<AnswerRead>>) -> Self {
        let length = fields.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let expected = match length {
            _ if stream.is_end_stream() => SizeHint::with_exact(0),
            Some(length) => SizeHint::with_exact(length),
            None => SizeHint::new(),
        };
        Self { stream, expected, received: 0, is_whole: false, is_data_over: false, upload }
    }

    /// The next piece, or trailers. A stream that is reset with `NO_ERROR` has ended (RFC 9113 §8.1). So has a stream
    /// whose whole data was read, even if it fails afterwards.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if !self.is_data_over {
            match ready!(self.stream.poll_data(cx)) {
                Some(Ok(piece)) => {
                    self.received += piece.len() as u64;
                    self.is_whole = self.expected.exact() == Some(self.received) || self.stream.is_end_stream();
                    return Poll::Ready(Some(Ok(Frame::data(piece))));
                }
                Some(Err(error)) => return Poll::Ready(self.failure(error)),
                None => self.is_data_over = true,
            }
        }
        match ready!(self.stream.poll_trailers(cx)) {
            Ok(trailers) => Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers)))),
            Err(error) => Poll::Ready(self.failure(error)),
        }
    }

    /// Lets the API send as many `bytes` more.
    pub(crate) fn release(&mut self, bytes: usize) {
        // The call fails only for more than was received.
        let _ = self.stream.flow_control().release_capacity(bytes);
    }

    fn failure(&self, error: h2::Error) -> Option<Result<Frame<Bytes>, BoxError>> {
        let is_end = self.is_whole || error.reason() == Some(Reason::NO_ERROR);
        (!is_end).then(|| Err(unwrapped(error)))
    }

    /// Returns whether nothing more is to come.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    /// Length of the whole body, if the answer's head states it.
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.expected
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        // The library resets a stream once both of its halves are dropped. The upload may wait for room, and would not
        // notice that its worker has left. After a whole answer the upload continues: the API may still read it.
        if let Some(upload) = self.upload.take().filter(|_| self.stream.is_end_stream()) {
            let _ = upload.send(AnswerRead);
        }
    }
}

/// The I/O error inside `error`, if there is one: h2 does not return it as its source.
pub(crate) fn unwrapped(error: h2::Error) -> BoxError {
    if !error.is_io() {
        return error.into();
    }
    error.into_io().unwrap_or_else(|| io::ErrorKind::Other.into()).into()
}
