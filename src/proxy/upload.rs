//! Requests' bodies on their way through: streamed, and kept if they are small, in case they have to be sent again.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{
    fields,
    link::{Link, Phase},
    writes::Written,
};
use crate::error::Cause;

/// The body of a request, from the moment on which its turn has come.
pub(super) struct RequestBody {
    /// `None`: there is none, whatever there was.
    incoming: Option<Incoming>,
    link: Arc<Link>,
    /// Where it is kept, and how much of what is kept was sent this time.
    kept: Option<(Arc<Kept>, usize)>,
    /// Notes when the last of it is written, if that is not its connection's last write.
    written: Option<Written>,
}

/// What has been sent of a body so far.
pub(super) struct Kept {
    inside: Mutex<Inside>,
    /// The rest of the body has come back.
    back: Notify,
}

struct Inside {
    /// Copied, so that a few bytes do not hold on to the whole buffer that they were read into.
    pieces: Vec<BytesMut>,
    trailers: Option<HeaderMap>,
    /// All of it is here.
    ended: bool,
    /// Not to be sent again: it is too large, or nobody will want it.
    gone: bool,
    /// What is here is being sent again.
    in_use: bool,
    /// How many bytes may be kept, of this body and of all.
    most: u64,
    memory: Arc<ReplayMemory>,
    /// How many are.
    taken: usize,
    /// Its length was told beforehand. Otherwise it is not told later either: trailers would not fit behind a length.
    sized: bool,
    size: u64,
    /// What has not been read yet, when the one who read has stopped.
    rest: Option<Incoming>,
}

/// The memory that is left for bodies that may have to be sent again, over all requests.
pub(super) struct ReplayMemory(AtomicUsize);

/// A body is kept, and sent again, in pieces of up to this many bytes.
const PIECE: usize = 64 * 1024;
/// How long the one who read a body may take to let go of it.
const LETTING_GO: Duration = Duration::from_secs(1);

// === impl RequestBody ===

impl RequestBody {
    pub(super) fn new(incoming: Incoming, link: Arc<Link>) -> Self {
        Self { incoming: Some(incoming), link, kept: None, written: None }
    }

    /// No body at all.
    pub(super) fn empty(link: Arc<Link>) -> Self {
        Self { incoming: None, link, kept: None, written: None }
    }

    /// Keeps up to `most` bytes of what is sent of it, beside what is kept already.
    pub(super) fn keep(&mut self, most: u64) -> Arc<Kept> {
        if let Some((kept, _)) = &self.kept {
            return kept.clone();
        }
        let sized = self.size_hint().exact().is_some();
        let kept = Arc::new(Kept::new(most, sized, self.link.proxy.replay_memory.clone()));
        self.kept = Some((kept.clone(), 0));
        kept
    }

    /// Notes in `written` when the last of it is written.
    pub(super) fn note_writes(&mut self, written: Written) {
        self.written = Some(written);
    }

    /// What was kept and has to be sent before anything is read.
    fn again(&mut self) -> Option<Frame<Bytes>> {
        let (kept, sent) = self.kept.as_mut()?;
        let inside = kept.inside.lock();
        if let Some(piece) = inside.pieces.get(*sent) {
            *sent += 1;
            return Some(Frame::data(Bytes::copy_from_slice(piece)));
        }
        if *sent == inside.pieces.len() && inside.ended && self.incoming.is_none() {
            *sent += 1;
            return inside.trailers.clone().map(Frame::trailers);
        }
        None
    }

    /// The next write has something of it.
    fn note_write(&self) {
        if let Some(written) = &self.written {
            written.again();
        }
    }

    /// Takes note of what is sent.
    fn note(&mut self, frame: Option<&Frame<Bytes>>) {
        let Some((kept, sent)) = &mut self.kept else { return };
        let mut inside = kept.inside.lock();
        if inside.gone {
            return;
        }
        match frame {
            Some(frame) => {
                if let Some(piece) = frame.data_ref() {
                    inside.size += piece.len() as u64;
                    if inside.size > inside.most || !inside.memory.take(piece.len()) {
                        return inside.let_go();
                    }
                    inside.taken += piece.len();
                    match inside.pieces.last_mut().filter(|last| last.len() + piece.len() <= PIECE) {
                        Some(last) => last.extend_from_slice(piece),
                        None => inside.pieces.push(piece.as_ref().into()),
                    }
                    *sent = inside.pieces.len();
                } else if let Some(trailers) = frame.trailers_ref() {
                    inside.trailers = Some(trailers.clone());
                    inside.ended = true;
                }
            }
            None => inside.ended = true,
        }
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = Cause;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
        if let Some(frame) = self.again() {
            self.note_write();
            return Poll::Ready(Some(Ok(frame)));
        }
        let timeouts = &self.link.proxy.timeouts.clone();
        let Some(incoming) = &mut self.incoming else { return Poll::Ready(None) };
        let mut frame = match Pin::new(incoming).poll_frame(cx) {
            Poll::Pending => {
                // Once: asking again does not make a silence shorter.
                if self.link.phase() == Phase::Answer {
                    self.link.enter(Phase::Upload, timeouts.idle);
                }
                return Poll::Pending;
            }
            Poll::Ready(frame) => frame.map(|frame| frame.map_err(Cause::from)),
        };
        self.note_write();
        if let Some(Ok(trailers)) = &mut frame
            && trailers.is_trailers()
        {
            // What hyper has skipped behind an LF alone may have been another request, whose sender has to know that it was
            // not read: see docs/decisions/http-deviations.md.
            self.link.set_last();
            if let Some(wrong) = trailers.trailers_ref().and_then(fields::malformed) {
                return Poll::Ready(Some(Err(format!("its trailers have {wrong}").into())));
            }
            fields::clean_trailers(trailers);
        }
        match &frame {
            Some(Ok(frame)) => self.note(Some(frame)),
            Some(Err(_)) => {}
            None => self.note(None),
        }
        match self.link.phase() {
            // What comes next is the upstream's turn: to take this piece, or to answer.
            Phase::Answer | Phase::Upload => self.link.enter(Phase::Answer, timeouts.answer),
            // It answers already: something moves all the same.
            Phase::Body => self.link.enter(Phase::Body, timeouts.idle),
            _ => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        let read = self.incoming.as_ref().is_none_or(Incoming::is_end_stream);
        read && self.kept.as_ref().is_none_or(|(kept, sent)| kept.inside.lock().is_all(*sent))
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.incoming.as_ref().map_or_else(|| SizeHint::with_exact(0), Incoming::size_hint);
        if let Some((kept, sent)) = &self.kept {
            let inside = kept.inside.lock();
            if !inside.sized {
                return SizeHint::new();
            }
            let again: u64 = inside.pieces.iter().skip(*sent).map(|piece| piece.len() as u64).sum();
            let (lower, upper) = (hint.lower() + again, hint.upper().map(|upper| upper + again));
            upper.into_iter().for_each(|upper| hint.set_upper(upper));
            hint.set_lower(lower);
        }
        hint
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let Some((kept, _)) = &self.kept {
            let mut inside = kept.inside.lock();
            if !inside.gone {
                // A length that was sent to its end leaves no last word.
                inside.ended |= self.incoming.as_ref().is_none_or(Incoming::is_end_stream);
                // What was read to its end has nothing more to say: its trailers are kept.
                inside.rest = self.incoming.take().filter(|_| !inside.ended);
                drop(inside);
                kept.back.notify_one();
            }
        }
    }
}

// === impl Kept ===

impl Kept {
    fn new(most: u64, sized: bool, memory: Arc<ReplayMemory>) -> Self {
        let inside = Inside {
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
        Self { inside: Mutex::new(inside), back: Notify::new() }
    }

    /// The body once more, to be sent from its beginning; `None` if too much of it is gone.
    pub(super) async fn again(self: &Arc<Self>, link: &Arc<Link>) -> Option<RequestBody> {
        let back = async {
            loop {
                let back = self.back.notified();
                {
                    let mut inside = self.inside.lock();
                    if inside.gone {
                        return None;
                    }
                    if inside.ended || inside.rest.is_some() {
                        inside.in_use = true;
                        return Some(inside.rest.take().filter(|rest| !rest.is_end_stream()));
                    }
                }
                back.await;
            }
        };
        let incoming = tokio::time::timeout(LETTING_GO, back).await.ok()??;
        Some(RequestBody { incoming, link: link.clone(), kept: Some((self.clone(), 0)), written: None })
    }

    /// Nobody will want it any more.
    pub(super) fn let_go(&self) {
        self.inside.lock().let_go();
    }
}

// === impl Inside ===

impl Inside {
    fn let_go(&mut self) {
        self.gone = true;
        self.rest = None;
        // An answer may begin before the upstream has all of a body: that is sent on from here.
        if !self.in_use {
            self.pieces = Vec::new();
            self.memory.give_back(std::mem::take(&mut self.taken));
        }
    }

    fn is_all(&self, sent: usize) -> bool {
        // Nothing at all, in chunks, is sent as what it was.
        let plain = self.trailers.is_none() && (self.sized || sent > 0);
        sent > self.pieces.len() || sent == self.pieces.len() && plain
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.memory.give_back(self.taken);
    }
}

// === impl ReplayMemory ===

impl ReplayMemory {
    /// Room for `bytes` in all.
    pub(super) fn new(bytes: usize) -> Self {
        Self(AtomicUsize::new(bytes))
    }

    /// Takes `bytes`, if there are as many.
    fn take(&self, bytes: usize) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}
