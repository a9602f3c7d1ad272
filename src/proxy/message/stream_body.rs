//! The body of an answer on an HTTP/2 connection that others share.
//!
//! Data that lies unread in h2 counts against the whole connection, and short pieces count by their overhead. Above a
//! bound, h2 ends the connection and every stream on it. So a task reads each such body as it comes, into a buffer that
//! joins short pieces. The buffer is charged to the client. The API may send more only when the worker has taken some of
//! it: the stream's window bounds the buffer. A stream of short pieces that its worker does not take is reset.

use std::{
    collections::VecDeque,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::{Bytes, BytesMut};
use h2::Reason;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;

use super::{
    receive_window::{FIRST_WINDOW_BYTES, ReadSpeed, ReceiveWindow},
    stream_reader::StreamReader,
};
use crate::{error::BoxError, memory::Charge};

/// No connection gets more streams than this, even if the API allows more: one lost packet stops them all.
pub(crate) const MOST_STREAMS: usize = 256;
/// Window of a connection: the sum of its streams' windows, so that an unread answer leaves room for the others. Half
/// of it is the cost that h2 allows for unread short pieces, which bounds its memory if an API sends nothing else.
pub(crate) const CONNECTION_WINDOW: u32 = FIRST_WINDOW_BYTES * MOST_STREAMS as u32;
/// Maximum cost of one stream's unread short pieces.
const SHARE: usize = CONNECTION_WINDOW as usize / 2 / MOST_STREAMS;
/// Maximum number of bytes of short pieces that are kept for a worker: a little less than the first window.
const MOST_AHEAD: usize = FIRST_WINDOW_BYTES as usize - 64 * 1024;
/// The buffer is charged in multiples of this, and not at all below.
const STEP_BYTES: usize = 16 * 1024;
/// Pieces shorter than this are joined.
const JOINED: usize = 4 * 1024;
/// h2 counts the difference to this size for each shorter unread piece (`DEFAULT_DATA_FRAME_OVERHEAD_THRESHOLD`).
const SHORT: usize = 256;

/// The body, as its worker's connection reads it.
pub(crate) struct StreamBody(Arc<Mutex<Buffer>>);

/// Reason why a stream was reset before its API had ended it.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum CutShort {
    /// The worker reads nothing, and the API sends many short pieces.
    #[error("the worker did not read its answer, which came in too many short pieces to be kept: its stream was reset")]
    Unread,
    /// The client has no memory left for an answer that it does not read.
    #[error("no memory is left for an answer that its worker does not read: its stream was reset")]
    NoMemory,
}

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
    /// Number of bytes in the buffer, and the overhead that h2 would have counted for them.
    ahead: usize,
    overhead: usize,
    /// Bytes still to be taken, as far as known.
    expected: SizeHint,
    /// The task that waits for data, and the task that waits for room.
    reader: Option<Waker>,
    filler: Option<Waker>,
}

// === impl StreamBody ===

impl StreamBody {
    /// Starts to read `incoming`, a stream with this `window`, and charges the unread part to the holder of `charge`. `cut`
    /// is called if the stream was reset before its end.
    pub(crate) fn new(
        incoming: StreamReader,
        window: Arc<ReceiveWindow>,
        charge: Charge,
        cut: impl FnOnce(CutShort) + Send + 'static,
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
            overhead: 0,
            expected,
            reader: None,
            filler: None,
        };
        // Usually the whole body has arrived already, and needs no task.
        let filled = buffer.fill(&mut Context::from_waker(Waker::noop()));
        let buffer = Arc::new(Mutex::new(buffer));
        match filled {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(why)) => cut(why),
            Poll::Pending => {
                let buffer = buffer.clone();
                tokio::spawn(async move {
                    if let Err(why) = std::future::poll_fn(|cx| buffer.lock().fill(cx)).await {
                        cut(why);
                    }
                });
            }
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
    /// Reads the received data. Ready when no more is to come; with an error if the stream is cut short.
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CutShort>> {
        loop {
            if self.ahead >= MOST_AHEAD && self.has_short_pieces() {
                return Poll::Ready(Err(self.cut(CutShort::Unread)));
            }
            let Some(incoming) = self.incoming.as_mut() else { break };
            match incoming.poll_frame(cx) {
                Poll::Pending => break,
                Poll::Ready(Some(Ok(frame))) => {
                    self.keep(frame);
                    if !self.reserve() {
                        return Poll::Ready(Err(self.cut(CutShort::NoMemory)));
                    }
                }
                Poll::Ready(Some(Err(error))) => (self.incoming, self.broken) = (None, Some(error)),
                Poll::Ready(None) => {
                    // A stream that is reset with NO_ERROR has ended, unless its stated length is not reached.
                    if !incoming.is_end_stream() && self.expected.lower() > self.ahead as u64 {
                        self.broken = Some(Short.into());
                    }
                    self.incoming = None;
                }
            }
            if let Some(waker) = self.reader.take() {
                waker.wake();
            }
        }
        if self.incoming.is_none() {
            return Poll::Ready(Ok(()));
        }
        self.filler = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Resets the stream. Its buffered beginning is not worth its memory.
    fn cut(&mut self, why: CutShort) -> CutShort {
        let error = match why {
            CutShort::Unread => why.into(),
            // The worker's connection holds too much (RFC 9113 §7).
            CutShort::NoMemory => h2::Error::from(Reason::ENHANCE_YOUR_CALM).into(),
        };
        (self.incoming, self.broken, self.ahead, self.trailers) = (None, Some(error), 0, None);
        (self.pieces, self.joined) = (VecDeque::new(), BytesMut::new());
        self.reserve();
        if let Some(waker) = self.reader.take() {
            waker.wake();
        }
        why
    }

    /// Charges the buffer in whole steps. Returns `false` if there is no memory for it.
    fn reserve(&mut self) -> bool {
        let trailers: usize =
            self.trailers.iter().flatten().map(|(name, value)| name.as_str().len() + value.len()).sum();
        let held = self.ahead + trailers;
        self.charge.resize((held - held % STEP_BYTES) as u64)
    }

    /// Returns whether only the error is left.
    fn is_broken(&self) -> bool {
        self.broken.is_some() && self.ahead == 0 && self.trailers.is_none()
    }

    /// Returns whether a window full of pieces like these would cost more than a stream's share.
    fn has_short_pieces(&self) -> bool {
        self.overhead.saturating_mul(self.window.bytes() as usize) > SHARE.saturating_mul(self.ahead)
    }

    fn keep(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            Ok(piece) if piece.is_empty() => {}
            Ok(piece) => {
                self.ahead += piece.len();
                self.overhead += SHORT.saturating_sub(piece.len());
                if self.ahead > piece.len() && piece.len() < JOINED {
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
            let left = self.ahead - piece.len();
            self.overhead = self.overhead * left / self.ahead;
            (self.ahead, self.passing) = (left, true);
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
