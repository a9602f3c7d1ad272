//! Sends a request's body into a stream of an HTTP/2 connection.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Body as _;
use tokio::{sync::oneshot, time::timeout};

use super::h2::{ConnectionState, SharedConnection};
use crate::{
    error::BoxError,
    proxy::message::{request_body::RequestBody, stream_reader::AnswerRead},
};

/// The body, and the stream. If the upload is dropped before its end, the stream is reset.
pub(super) struct Upload {
    body: RequestBody,
    stream: SendStream<Bytes>,
    /// A piece that waits for room, and whether it is the last.
    waiting: Option<(Bytes, bool)>,
    /// Pieces handed over to be sent.
    sent: u64,
    /// Maximum time for which the API may take nothing once it has answered.
    idle: Duration,
    connection: Arc<ConnectionState>,
}

/// Reason why a body was not sent to its end.
#[derive(Debug)]
pub(super) enum UploadError {
    /// The worker's body broke off or is malformed.
    Body(BoxError),
    /// The API takes no more of the body. The answer says why, if there is one.
    Stream,
}

// === impl Upload ===

impl Upload {
    pub(super) fn new(body: RequestBody, stream: SendStream<Bytes>, connection: Arc<ConnectionState>) -> Self {
        let idle = body.idle_timeout();
        Self { body, stream, waiting: None, sent: 0, idle, connection }
    }

    /// Sends the rest of the body behind the answer's head. Ends early, and resets the stream, if the answer is dropped
    /// before its end, or if the API takes nothing for too long after it.
    pub(super) async fn finish(
        mut self: Pin<Box<Self>>,
        connection: Arc<SharedConnection>,
        answer: oneshot::Receiver<AnswerRead>,
    ) {
        tokio::select! {
            biased;
            _ = &mut self => return,
            end = answer => if end.is_err() {
                return;
            },
        }
        // The stream stays open, though its request is over.
        let _stream = connection.occupy();
        loop {
            let sent = self.sent;
            let is_over = timeout(self.idle, &mut self).await.is_ok();
            if is_over || self.waiting.is_some() && self.sent == sent {
                return;
            }
        }
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), UploadError>> {
        while self.stream.capacity() == 0 {
            match ready!(self.stream.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Poll::Ready(Err(UploadError::Stream)),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn send(&mut self, piece: Bytes, last: bool) -> Result<(), UploadError> {
        self.connection.on_request();
        self.sent += 1;
        self.stream.send_data(piece, last).map_err(|_| UploadError::Stream)
    }
}

impl Future for Upload {
    type Output = Result<(), UploadError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            // Registers for resets also while nothing is to be sent.
            if this.stream.poll_reset(cx).is_ready() {
                return Poll::Ready(Err(UploadError::Stream));
            }
            if this.waiting.is_some() {
                ready!(this.poll_room(cx))?;
                let Some((piece, last)) = this.waiting.take() else { continue };
                this.send(piece, last)?;
                if last {
                    return Poll::Ready(Ok(()));
                }
            }
            let frame = match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                None => return Poll::Ready(this.send(Bytes::new(), true)),
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    this.stream.send_reset(Reason::CANCEL);
                    return Poll::Ready(Err(UploadError::Body(error)));
                }
            };
            match frame.into_data() {
                // The end of the body has a frame of its own.
                Ok(piece) if piece.is_empty() => {}
                Ok(piece) => {
                    // Capacity is reserved only for available data, because other streams share it.
                    this.stream.reserve_capacity(1);
                    this.waiting = Some((piece, this.body.is_end_stream()));
                }
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    return Poll::Ready(this.stream.send_trailers(trailers).map_err(|_| UploadError::Stream));
                }
            }
        }
    }
}
