//! The body of an answer on an HTTP/2 connection that others share.
//!
//! Data that lies unread in h2 counts against the whole connection, and short pieces count by their overhead. Above a
//! bound, h2 ends the connection and every stream on it. So a task reads each such body as it comes, into a buffer that
//! joins short pieces. The buffer is charged to the client. The API may send more only when the worker has taken some of
//! it: the stream's window bounds the buffer.

use std::{
    collections::VecDeque,
    io,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::{Bytes, BytesMut};
use h2::Reason;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;

use super::{
    fields::fields_bytes,
    receive_window::{FIRST_WINDOW_BYTES, ReadSpeed, ReceiveWindow},
    stream_reader::StreamReader,
};
use crate::{error::BoxError, memory::Charge};

/// No connection gets more streams than this, even if the API allows more: one lost packet stops them all.
pub(crate) const MOST_STREAMS: usize = 256;
/// Window of a connection: the sum of its streams' windows, so that an unread answer leaves room for the others.
pub(crate) const CONNECTION_WINDOW: u32 = FIRST_WINDOW_BYTES * MOST_STREAMS as u32;
/// The buffer is charged in multiples of this, and not at all below.
const STEP_BYTES: usize = 16 * 1024;
/// Pieces shorter than this are joined, so that a piece costs little more than its bytes.
const JOINED_BELOW_BYTES: usize = 4 * 1024;

/// The body, as its worker's connection reads it.
pub(crate) struct StreamBody(Arc<Mutex<Buffer>>);

/// The client has no memory left for an answer that it does not read. Its worker's connection holds too much (RFC 9113
/// §7).
#[derive(Debug, thiserror::Error)]
#[error("no memory is left for an answer that its worker does not read: its stream was reset")]
struct Unread(#[source] h2::Error);

/// The API has reset its stream with NO_ERROR before the stated length was reached.
#[derive(Debug, thiserror::Error)]
#[error("the stream ended before all of its content had come")]
struct Short;

struct Buffer {
    /// The stream, until it has ended or failed.
    incoming: Option<StreamReader>,
    /// Speed at which the body is read, and the window of its stream.
    speed: ReadSpeed,
    window: Arc<ReceiveWindow>,
    charge: Charge,
    /// Received pieces, oldest first; behind them `joined`, and behind that `trailers` or `broken`.
    pieces: VecDeque<Bytes>,
    joined: BytesMut,
    trailers: Option<HeaderMap>,
    broken: Option<BoxError>,
    /// True if the reader has taken a piece that may not be written yet.
    passing: bool,
    /// Number of bytes in the buffer.
    ahead: usize,
    /// Bytes still to be taken, as far as known.
    expected: SizeHint,
    /// The task that takes data, and the task that fills the buffer.
    reader: Option<Waker>,
    filler: Option<Waker>,
}

// === impl StreamBody ===

impl StreamBody {
    /// Starts to read `incoming`, a stream with this `window`, and charges the unread part to the holder of `charge`.
    /// If there is no memory for it, the stream is reset. `on_cut` reports that; a reset before this returns fails the
    /// first read instead.
    pub(crate) fn new(
        incoming: StreamReader,
        window: Arc<ReceiveWindow>,
        charge: Charge,
        on_cut: impl FnOnce() + Send + 'static,
    ) -> Self {
        let expected = incoming.size_hint();
        let mut buffer = Buffer {
            incoming: Some(incoming),
            speed: ReadSpeed::new(window.now()),
            window,
            charge,
            pieces: VecDeque::new(),
            joined: BytesMut::new(),
            trailers: None,
            broken: None,
            passing: false,
            ahead: 0,
            expected,
            reader: None,
            filler: None,
        };
        // Usually the whole body has arrived already, and needs no task.
        let is_over = buffer.fill(&mut Context::from_waker(Waker::noop())).is_ready();
        let buffer = Arc::new(Mutex::new(buffer));
        if !is_over {
            let filled = buffer.clone();
            tokio::spawn(async move {
                if !std::future::poll_fn(|cx| filled.lock().fill(cx)).await {
                    on_cut();
                }
            });
        }
        Self(buffer)
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut buffer = self.0.lock();
        // Delayed by one turn, so that the pieces before the error are written: an error discards unwritten data.
        if buffer.is_broken() && std::mem::take(&mut buffer.passing) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        match buffer.take() {
            Some(frame) => Poll::Ready(Some(frame)),
            None if buffer.incoming.is_none() => Poll::Ready(None),
            None => {
                buffer.speed.starves();
                buffer.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        let buffer = self.0.lock();
        let over = buffer.incoming.as_ref().is_none_or(StreamReader::is_end_stream);
        over && buffer.ahead == 0 && buffer.trailers.is_none() && buffer.broken.is_none()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        self.0.lock().expected
    }
}

impl Drop for StreamBody {
    fn drop(&mut self) {
        let mut buffer = self.0.lock();
        // Resets the stream, if it has not ended, and ends the task.
        buffer.incoming = None;
        if let Some(waker) = buffer.filler.take() {
            waker.wake();
        }
    }
}

// === impl Buffer ===

impl Buffer {
    /// Reads the received data. Ready when no more is to come; with `false` if there is no memory for it.
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        while let Some(incoming) = self.incoming.as_mut() {
            match incoming.poll_frame(cx) {
                Poll::Pending => break,
                Poll::Ready(Some(Ok(frame))) => {
                    self.keep(frame);
                    if !self.reserve() {
                        self.cut();
                        return Poll::Ready(false);
                    }
                }
                Poll::Ready(Some(Err(error))) => (self.incoming, self.broken) = (None, Some(error)),
                Poll::Ready(None) => {
                    // A stream that is reset with NO_ERROR has ended, unless its stated length is not reached.
                    if !incoming.is_end_stream() && self.expected.lower() > self.ahead as u64 {
                        self.broken = Some(Short.into());
                    }
                    // The rest of an upload may keep the stream open.
                    incoming.release(self.ahead);
                    self.incoming = None;
                }
            }
            if let Some(waker) = self.reader.take() {
                waker.wake();
            }
        }
        if self.incoming.is_none() {
            return Poll::Ready(true);
        }
        self.filler = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Resets the stream. Its buffered beginning is not worth its memory.
    fn cut(&mut self) {
        let error = io::Error::new(io::ErrorKind::OutOfMemory, Unread(Reason::ENHANCE_YOUR_CALM.into()));
        (self.incoming, self.broken, self.ahead, self.trailers) = (None, Some(error.into()), 0, None);
        (self.pieces, self.joined) = (VecDeque::new(), BytesMut::new());
        self.reserve();
        if let Some(waker) = self.reader.take() {
            waker.wake();
        }
    }

    /// Charges the buffer in whole steps. Returns `false` if there is no memory for it.
    fn reserve(&mut self) -> bool {
        let held = self.ahead + self.trailers.as_ref().map_or(0, fields_bytes);
        self.charge.resize((held - held % STEP_BYTES) as u64)
    }

    /// Returns whether only the error is left.
    fn is_broken(&self) -> bool {
        self.broken.is_some() && self.ahead == 0 && self.trailers.is_none()
    }

    fn keep(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            Ok(piece) if piece.is_empty() => {}
            Ok(piece) => {
                self.ahead += piece.len();
                if self.ahead > piece.len() && piece.len() < JOINED_BELOW_BYTES {
                    self.joined.extend_from_slice(&piece);
                    return;
                }
                if !self.joined.is_empty() {
                    self.pieces.push_back(self.joined.split().freeze());
                }
                self.pieces.push_back(piece);
            }
            Err(frame) => self.trailers = frame.into_trailers().ok(),
        }
    }

    /// The next piece, if there is one.
    fn take(&mut self) -> Option<Result<Frame<Bytes>, BoxError>> {
        let joined = |joined: &mut BytesMut| (!joined.is_empty()).then(|| joined.split().freeze());
        if let Some(piece) = self.pieces.pop_front().or_else(|| joined(&mut self.joined)) {
            (self.ahead, self.passing) = (self.ahead - piece.len(), true);
            self.reserve();
            self.incoming.iter_mut().for_each(|incoming| incoming.release(piece.len()));
            self.speed.takes(piece.len(), &self.window);
            let left = |bytes: u64| bytes.saturating_sub(piece.len() as u64);
            let mut expected = SizeHint::new();
            expected.set_lower(left(self.expected.lower()));
            self.expected.upper().into_iter().for_each(|upper| expected.set_upper(left(upper)));
            self.expected = expected;
            return Some(Ok(Frame::data(piece)));
        }
        let trailers = self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers)));
        trailers.or_else(|| self.broken.take().map(Err))
    }
}
