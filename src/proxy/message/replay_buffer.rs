//! The sent part of a request's body, kept while it is small, in case the request has to be sent again.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Frame;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{incoming_body::IncomingBody, replay_memory::ReplayMemory};

/// The part of a body that was sent so far.
pub(crate) struct ReplayBuffer {
    contents: Mutex<Contents>,
    /// Wakes when the rest of the body was returned.
    back: Notify,
}

struct Contents {
    /// Copied, so that a few bytes do not hold on to the whole buffer that they were read into.
    pieces: Vec<BytesMut>,
    trailers: Option<HeaderMap>,
    /// True if the whole body is here.
    ended: bool,
    /// True if the body cannot be sent again: it is too large, or no further attempt will be made.
    gone: bool,
    /// True if the kept part is being sent again.
    in_use: bool,
    /// Maximum number of bytes kept of this body, and the memory for all bodies.
    most: u64,
    memory: Arc<ReplayMemory>,
    /// Number of bytes that are kept.
    taken: usize,
    /// True if the length was stated beforehand. Otherwise retries state no length either: trailers would not fit
    /// behind one.
    sized: bool,
    size: u64,
    /// The unread rest of the body, once its reader has stopped.
    rest: Option<IncomingBody>,
}

/// A body is kept, and sent again, in pieces of up to this many bytes.
const PIECE: usize = 64 * 1024;
/// Maximum time that the reader of a body may take to return it.
const LETTING_GO: Duration = Duration::from_secs(1);

// === impl ReplayBuffer ===

impl ReplayBuffer {
    /// Creates a buffer for up to `most` bytes; `sized` says that the body's length is known beforehand.
    pub(crate) fn new(most: u64, sized: bool, memory: Arc<ReplayMemory>) -> Self {
        let contents = Contents {
            pieces: Vec::new(),
            trailers: None,
            ended: false,
            gone: false,
            in_use: false,
            most,
            memory,
            taken: 0,
            sized,
            size: 0,
            rest: None,
        };
        Self { contents: Mutex::new(contents), back: Notify::new() }
    }

    /// Begins to send the body once more from its beginning, and returns its unread rest; `None` if too much of the
    /// body is gone.
    pub(crate) async fn reopen(&self) -> Option<Option<IncomingBody>> {
        let back = async {
            loop {
                let back = self.back.notified();
                {
                    let mut contents = self.contents.lock();
                    if contents.gone {
                        return None;
                    }
                    if contents.ended || contents.rest.is_some() {
                        contents.in_use = true;
                        return Some(contents.rest.take().filter(|rest| !rest.is_end_stream()));
                    }
                }
                back.await;
            }
        };
        tokio::time::timeout(LETTING_GO, back).await.ok()?
    }

    /// The piece number `next`, or the trailers behind the last one if `read` says that nothing is left to be read.
    pub(crate) fn frame(&self, next: usize, read: bool) -> Option<Option<Frame<Bytes>>> {
        let contents = self.contents.lock();
        if let Some(piece) = contents.pieces.get(next) {
            return Some(Some(Frame::data(Bytes::copy_from_slice(piece))));
        }
        let ended = next == contents.pieces.len() && contents.ended && read;
        ended.then(|| contents.trailers.clone().map(Frame::trailers))
    }

    /// Keeps a frame that is sent, or the body's end; gives up if the body is too large. Returns the number of pieces,
    /// if it has changed.
    pub(crate) fn keep(&self, frame: Option<&Frame<Bytes>>) -> Option<usize> {
        let mut contents = self.contents.lock();
        if contents.gone {
            return None;
        }
        let Some(frame) = frame else {
            contents.ended = true;
            return None;
        };
        if let Some(trailers) = frame.trailers_ref() {
            contents.trailers = Some(trailers.clone());
            contents.ended = true;
        }
        let piece = frame.data_ref()?;
        contents.size += piece.len() as u64;
        if contents.size > contents.most || !contents.memory.take(piece.len()) {
            contents.let_go();
            return None;
        }
        contents.taken += piece.len();
        match contents.pieces.last_mut().filter(|last| last.len() + piece.len() <= PIECE) {
            Some(last) => last.extend_from_slice(piece),
            None => contents.pieces.push(piece.as_ref().into()),
        }
        Some(contents.pieces.len())
    }

    /// Takes the unread `rest` of the body when its reader stops.
    pub(crate) fn stop(&self, rest: &mut Option<IncomingBody>) {
        let mut contents = self.contents.lock();
        if contents.gone {
            return;
        }
        // A body of stated length may end without a final frame.
        contents.ended |= rest.as_ref().is_none_or(IncomingBody::is_end_stream);
        // A body that was read to its end yields nothing more: its trailers are kept.
        contents.rest = rest.take().filter(|_| !contents.ended);
        drop(contents);
        self.back.notify_one();
    }

    /// Returns whether nothing follows the first `sent` pieces.
    pub(crate) fn is_all(&self, sent: usize) -> bool {
        self.contents.lock().is_all(sent)
    }

    /// Number of bytes after the first `sent` pieces; `None` if the length was not known in the first attempt.
    pub(crate) fn left(&self, sent: usize) -> Option<u64> {
        let contents = self.contents.lock();
        contents.sized.then(|| contents.pieces.iter().skip(sent).map(|piece| piece.len() as u64).sum())
    }

    /// Drops the body: no further attempt will be made.
    pub(crate) fn let_go(&self) {
        self.contents.lock().let_go();
    }
}

// === impl Contents ===

impl Contents {
    fn let_go(&mut self) {
        self.gone = true;
        self.rest = None;
        // An answer may begin before the upstream has the whole body: the rest is sent from here.
        if !self.in_use {
            self.pieces = Vec::new();
            self.memory.return_unused(std::mem::take(&mut self.taken));
        }
    }

    fn is_all(&self, sent: usize) -> bool {
        // An empty chunked body is sent in chunks again.
        let plain = self.trailers.is_none() && (self.sized || sent > 0);
        sent > self.pieces.len() || sent == self.pieces.len() && plain
    }
}

impl Drop for Contents {
    fn drop(&mut self) {
        self.memory.return_unused(self.taken);
    }
}
