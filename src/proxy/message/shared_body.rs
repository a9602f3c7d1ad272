//! A body for many readers, each at its own pace. While the body is small its beginning is kept, so that readers may
//! still join. Of a larger body, only the part that the slowest reader has not read is kept.

#[cfg(test)]
mod tests;

use std::{
    any::Any,
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;

use super::progress::Progress;
use crate::{error::BoxError, memory::Charge};

/// Maximum number of bytes kept of one body.
pub(crate) const MOST: usize = 1024 * 1024;
/// Maximum number of bytes kept of one body when the memory for all bodies is used up.
const LEAST: usize = 64 * 1024;
/// Overhead charged for each piece, in addition to its bytes.
const PIECE: usize = 64;
/// Kept bytes are charged in multiples of this.
const STEP_BYTES: usize = 8 * 1024;

/// A body with several readers.
pub(crate) struct SharedBody {
    state: Mutex<SharedBodyState>,
    memory: Arc<SharedMemory>,
    /// Length of the body, as far as it was known at the beginning.
    size: SizeHint,
}

/// Memory for all shared bodies of the process.
pub(crate) struct SharedMemory {
    used: AtomicUsize,
    most: usize,
}

/// How a body ended.
#[derive(Clone, Debug)]
pub(crate) enum BodyEnd {
    /// All of the body has come.
    Complete,
    /// The body broke off.
    Broken(Arc<str>),
}

/// A reader of the body.
pub(crate) struct SharedReader {
    body: Arc<SharedBody>,
    number: usize,
    progress: Arc<Progress>,
    /// Value that the reader keeps alive while it reads.
    _held: Box<dyn Any + Send>,
}

struct SharedBodyState {
    pieces: VecDeque<Piece>,
    /// The number of the first piece that is kept.
    first: u64,
    /// Total cost of the kept pieces.
    kept: usize,
    charge: Charge,
    end: Option<BodyEnd>,
    readers: Vec<Option<Position>>,
    /// Number of readers still to come. Until they have come, no piece is dropped.
    expected: usize,
    writer: Option<Waker>,
}

#[derive(Clone)]
enum Piece {
    Data(Bytes),
    Trailers(HeaderMap),
}

/// Position of a reader in the body.
struct Position {
    next: u64,
    waker: Option<Waker>,
    /// True if the reader was too slow and was cut off.
    cut: bool,
}

/// The reader was cut off because it delayed the others.
#[derive(Debug, thiserror::Error)]
#[error("the worker read its shared answer too slowly for the others that read it")]
struct TooSlow;

/// The API, or the connection to it, cut the body short.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct BrokenOff(Arc<str>);

// === impl SharedBody ===

impl SharedBody {
    /// Creates a body of `size` that has not begun. `charge` accounts for the bytes that it keeps.
    pub(crate) fn new(size: SizeHint, memory: Arc<SharedMemory>, charge: Charge) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(SharedBodyState::new(charge)), memory, size })
    }

    /// Keeps all pieces until this many readers have begun: waiting requests wake one by one.
    pub(crate) fn expect(&self, readers: usize) {
        self.state.lock().expected = readers;
    }

    /// Adds a reader that begins at the beginning; `None` if the beginning was dropped. The reader keeps `held` alive.
    pub(crate) fn reader(self: &Arc<Self>, progress: Arc<Progress>, held: impl Any + Send) -> Option<SharedReader> {
        let mut state = self.state.lock();
        if state.first > 0 {
            return None;
        }
        state.expected = state.expected.saturating_sub(1);
        let position = Some(Position { next: 0, waker: None, cut: false });
        let number = match state.readers.iter().position(Option::is_none) {
            Some(free) => {
                state.readers[free] = position;
                free
            }
            None => {
                state.readers.push(position);
                state.readers.len() - 1
            }
        };
        wake(&mut state.writer);
        Some(SharedReader { body: self.clone(), number, progress, _held: Box::new(held) })
    }

    /// Ready when there is room for another piece.
    pub(crate) fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if !state.is_full(&self.memory) {
            return Poll::Ready(());
        }
        let passed = state.trim();
        self.memory.release(passed);
        state.reserve();
        if !state.is_full(&self.memory) {
            return Poll::Ready(());
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Passes `frame` to the readers. Returns `false`, and drops the frame, if no memory is left for it.
    #[must_use = "a body that lacks a frame is broken"]
    pub(crate) fn push(&self, frame: Frame<Bytes>) -> bool {
        let piece = match frame.into_data() {
            Ok(data) => Piece::Data(data),
            Err(frame) => match frame.into_trailers() {
                Ok(trailers) => Piece::Trailers(trailers),
                Err(_) => return true,
            },
        };
        let mut state = self.state.lock();
        state.kept += piece.cost();
        if !state.reserve() {
            state.kept -= piece.cost();
            return false;
        }
        self.memory.take(piece.cost());
        state.pieces.push_back(piece);
        state.wake_readers();
        true
    }

    /// Marks the body as ended.
    pub(crate) fn finish(&self, end: BodyEnd) {
        let mut state = self.state.lock();
        state.end = Some(end);
        state.wake_readers();
    }

    /// Cuts off the slow readers if another reader has read everything and waits. If readers are still expected, stops
    /// waiting for them instead.
    pub(crate) fn cut_the_slowest(&self) {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.expected) > 0 {
            wake(&mut state.writer);
            return;
        }
        let (first, end) = (state.first, state.first + state.pieces.len() as u64);
        if !state.readers.iter().flatten().any(|reader| !reader.cut && reader.next == end) {
            return;
        }
        for reader in state.readers.iter_mut().flatten().filter(|reader| reader.next == first) {
            reader.cut = true;
            wake(&mut reader.waker);
        }
    }
}

impl SharedBody {
    /// Returns whether no reader is left.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.state.lock().readers.iter().flatten().all(|reader| reader.cut)
    }

    /// Prepares the body to be kept for long: copies its pieces out of the larger buffers that they were read into.
    /// Returns `false` if the body was too large and its beginning is gone.
    pub(crate) fn settle(&self) -> bool {
        let mut state = self.state.lock();
        if state.first > 0 {
            return false;
        }
        for piece in &mut state.pieces {
            if let Piece::Data(data) = piece {
                *data = Bytes::copy_from_slice(data);
            }
        }
        true
    }
}

impl Drop for SharedBody {
    fn drop(&mut self) {
        self.memory.release(self.state.get_mut().kept);
    }
}

// === impl SharedBodyState ===

impl SharedBodyState {
    fn new(charge: Charge) -> Self {
        let (pieces, readers) = (VecDeque::new(), Vec::new());
        Self { pieces, first: 0, kept: 0, charge, end: None, readers, expected: 0, writer: None }
    }

    /// Charges the kept bytes, in whole steps. Returns `false`, and changes nothing, if there is no memory for them.
    fn reserve(&mut self) -> bool {
        self.charge.resize(self.kept.next_multiple_of(STEP_BYTES) as u64)
    }

    fn is_full(&self, memory: &SharedMemory) -> bool {
        self.kept >= if memory.is_full() { LEAST } else { MOST }
    }

    /// Drops the pieces that every reader has read, and returns their cost. After that no reader can join.
    fn trim(&mut self) -> usize {
        if self.expected > 0 {
            return 0;
        }
        let Some(slowest) = self.readers.iter().flatten().filter(|reader| !reader.cut).map(|reader| reader.next).min()
        else {
            return 0;
        };
        let before = self.kept;
        while self.first < slowest {
            let Some(piece) = self.pieces.pop_front() else { break };
            self.kept -= piece.cost();
            self.first += 1;
        }
        before - self.kept
    }

    fn wake_readers(&mut self) {
        self.readers.iter_mut().flatten().for_each(|reader| wake(&mut reader.waker));
    }
}

// === impl Piece ===

impl Piece {
    fn cost(&self) -> usize {
        match self {
            Self::Data(data) => data.len() + PIECE,
            Self::Trailers(trailers) => {
                trailers.iter().map(|(name, value)| name.as_str().len() + value.len() + PIECE).sum::<usize>() + PIECE
            }
        }
    }

    fn len(&self) -> u64 {
        match self {
            Self::Data(data) => data.len() as u64,
            Self::Trailers(_) => 0,
        }
    }
}

// === impl SharedReader ===

impl SharedReader {
    /// The next frame.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut guard = self.body.state.lock();
        let state = &mut *guard;
        let Some(position) = state.readers[self.number].as_mut() else { return Poll::Ready(None) };
        if position.cut {
            return Poll::Ready(Some(Err(TooSlow.into())));
        }
        let at = usize::try_from(position.next - state.first).unwrap_or(usize::MAX);
        let Some(piece) = state.pieces.get(at).cloned() else {
            return match &state.end {
                Some(BodyEnd::Complete) => Poll::Ready(None),
                Some(BodyEnd::Broken(why)) => Poll::Ready(Some(Err(BrokenOff(why.clone()).into()))),
                None => {
                    position.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            };
        };
        position.next += 1;
        wake(&mut state.writer);
        drop(guard);
        self.progress.moves();
        Poll::Ready(Some(Ok(match piece {
            Piece::Data(data) => Frame::data(data),
            Piece::Trailers(trailers) => Frame::trailers(trailers),
        })))
    }

    /// Returns whether the reader has read everything.
    pub(crate) fn is_end_stream(&self) -> bool {
        let state = self.body.state.lock();
        let Some(position) = &state.readers[self.number] else { return true };
        let read = position.next == state.first + state.pieces.len() as u64;
        read && (matches!(state.end, Some(BodyEnd::Complete)) || self.body.size.exact() == Some(0))
    }

    /// Bytes left to be read, as far as the length was known at the beginning.
    pub(crate) fn size_hint(&self) -> SizeHint {
        let state = self.body.state.lock();
        // If the beginning was dropped, a reader that was cut off may be behind the first kept piece.
        let Some(size) = self.body.size.exact().filter(|_| state.first == 0) else { return SizeHint::new() };
        let count = state.readers[self.number].as_ref().map_or(0, |position| position.next);
        let read: u64 = state.pieces.iter().take(usize::try_from(count).unwrap_or(usize::MAX)).map(Piece::len).sum();
        SizeHint::with_exact(size.saturating_sub(read))
    }
}

impl Drop for SharedReader {
    fn drop(&mut self) {
        let mut state = self.body.state.lock();
        state.readers[self.number] = None;
        wake(&mut state.writer);
        drop(state);
        self.progress.rest();
    }
}

// === impl SharedMemory ===

impl SharedMemory {
    /// Creates an account of up to `most` bytes.
    pub(crate) fn new(most: usize) -> Self {
        Self { used: AtomicUsize::new(0), most }
    }

    pub(crate) fn take(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn release(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn is_full(&self) -> bool {
        self.left() == 0
    }

    /// Bytes that are left.
    pub(crate) fn left(&self) -> usize {
        self.most.saturating_sub(self.used.load(Ordering::Relaxed))
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}
