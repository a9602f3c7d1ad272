//! The body of an answer on an HTTP/2 connection that others share.
//!
//! What lies unread in h2 counts against the whole connection, and of short pieces it counts what it costs to keep them:
//! past a bound it ends the connection, and every stream on it. So a task reads each such body as it comes, into a buffer
//! in which short pieces become one. Long pieces are read no further than the buffer reaches; the stream's window then
//! stops the API. Short ones are read on, and when nobody takes them for too long their own stream is reset.

use std::{
    collections::VecDeque,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;

use super::{
    receive_window::{FIRST_WINDOW_BYTES, ReadSpeed, ReceiveWindow},
    stream_reader::StreamReader,
};
use crate::error::BoxError;

/// More requests than this are not put on one connection, whatever the API allows: one lost packet stops all.
pub(crate) const MOST_STREAMS: usize = 256;
/// The window of a whole connection: those of all its streams, so that answers that nobody reads leave the others room.
/// Half of it is what h2 lets unread short pieces cost, which bounds its memory if an API sends nothing else.
pub(crate) const CONNECTION_WINDOW: u32 = FIRST_WINDOW_BYTES * MOST_STREAMS as u32;
/// What unread short pieces of one stream may cost.
const SHARE: usize = CONNECTION_WINDOW as usize / 2 / MOST_STREAMS;
/// How many bytes are read ahead of a worker.
const AHEAD: usize = 64 * 1024;
/// The same of pieces so short that they must not lie in h2.
const MOST_AHEAD: usize = 512 * 1024;
/// Pieces shorter than this are put together.
const JOINED: usize = 4 * 1024;
/// What h2 counts for a piece that nobody has read is what it lacks of this (`DEFAULT_DATA_FRAME_OVERHEAD_THRESHOLD`).
const SHORT: usize = 256;

/// The body, as its worker's connection reads it.
pub(crate) struct StreamBody(Arc<Mutex<Buffer>>);

/// The worker takes nothing, and what the API sends it must not lie unread.
#[derive(Debug, thiserror::Error)]
#[error("the worker did not read its answer, which came in too many short pieces to be kept: its stream was reset")]
pub(crate) struct Unread;

/// The API has reset its stream, and says that all is well.
#[derive(Debug, thiserror::Error)]
#[error("the stream ended before all of its content had come")]
struct Short;

struct Buffer {
    /// Until it has ended, one way or the other.
    incoming: Option<StreamReader>,
    /// How fast it is read, and the window of its stream.
    speed: ReadSpeed,
    window: Arc<ReceiveWindow>,
    /// What has come, oldest first; behind it `joined`, behind that `trailers` or `broken`.
    pieces: VecDeque<Bytes>,
    joined: BytesMut,
    trailers: Option<HeaderMap>,
    broken: Option<BoxError>,
    /// The reader has taken a piece, which may not be written yet.
    passing: bool,
    /// How many bytes there are, and what h2 would have counted for them.
    ahead: usize,
    overhead: usize,
    /// How much is still to be taken, as far as that is known.
    expected: SizeHint,
    /// The task that waits for more of it, and the one that waits for room.
    reader: Option<Waker>,
    filler: Option<Waker>,
}

// === impl StreamBody ===

impl StreamBody {
    /// Reads `incoming` from now on, a stream with this `window`; `unread` is told if its stream was reset for want of a
    /// reader.
    pub(crate) fn new(
        incoming: StreamReader,
        window: Arc<ReceiveWindow>,
        unread: impl FnOnce() + Send + 'static,
    ) -> Self {
        let expected = incoming.size_hint();
        let mut buffer = Buffer {
            incoming: Some(incoming),
            speed: ReadSpeed::new(window.now()),
            window,
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
        // Mostly all of it is here already, and needs no task.
        let ended = buffer.fill(&mut Context::from_waker(Waker::noop())).is_ready();
        let buffer = Arc::new(Mutex::new(buffer));
        if !ended {
            let filled = buffer.clone();
            tokio::spawn(async move {
                if std::future::poll_fn(|cx| filled.lock().fill(cx)).await.is_err() {
                    unread();
                }
            });
        }
        Self(buffer)
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut buffer = self.0.lock();
        // One turn later, so that what came before it has been written: an error takes with it what has not.
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
        // Resets the stream, if it has not ended, and with it the task.
        buffer.incoming = None;
        if let Some(waker) = buffer.filler.take() {
            waker.wake();
        }
    }
}

// === impl Buffer ===

impl Buffer {
    /// Reads what has come, as far as there is room. Ready when no more is to come; with an error if the worker does
    /// not read.
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Unread>> {
        loop {
            let full = self.ahead >= AHEAD && !self.must_be_read();
            let Some(incoming) = self.incoming.as_mut().filter(|_| !full) else { break };
            if self.ahead >= MOST_AHEAD {
                // What would be cut short is not worth its memory either.
                (self.incoming, self.broken, self.ahead) = (None, Some(Unread.into()), 0);
                (self.pieces, self.joined) = (VecDeque::new(), BytesMut::new());
                if let Some(waker) = self.reader.take() {
                    waker.wake();
                }
                return Poll::Ready(Err(Unread));
            }
            match incoming.poll_frame(cx) {
                Poll::Pending => break,
                Poll::Ready(Some(Ok(frame))) => self.keep(frame),
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

    /// Whether nothing is left but why it broke off.
    fn is_broken(&self) -> bool {
        self.broken.is_some() && self.ahead == 0 && self.trailers.is_none()
    }

    /// Whether a window full of such pieces would cost more than a stream's share.
    fn must_be_read(&self) -> bool {
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
            self.speed.takes(piece.len(), &self.window);
            let left = |bytes: u64| bytes.saturating_sub(piece.len() as u64);
            let mut expected = SizeHint::new();
            expected.set_lower(left(self.expected.lower()));
            self.expected.upper().into_iter().for_each(|upper| expected.set_upper(left(upper)));
            self.expected = expected;
            if let Some(waker) = self.filler.take() {
                waker.wake();
            }
            return Some(Ok(Frame::data(piece)));
        }
        let trailers = self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers)));
        trailers.or_else(|| self.broken.take().map(Err))
    }
}
