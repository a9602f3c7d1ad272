//! Requests' bodies on their way through: streamed, and kept if they are small, in case they have to be sent again.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::Request;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;

use super::{
    fields,
    incoming_body::{BodyDigest, Fingerprint, IncomingBody},
    progress::{Phase, Progress},
    read_ahead::ReadAhead,
    replay_buffer::ReplayBuffer,
    replay_memory::ReplayMemory,
    writes::Written,
};
use crate::error::BoxError;

/// A body of up to this many bytes that has come is read to its end by hyper after an early answer.
const PASSED_OVER_BYTES: u64 = 16 * 1024;

/// A request. Boxed, because every step's future would otherwise carry its 300 bytes once more while it waits.
pub(crate) type BoxedRequest = Box<Request<RequestBody>>;

/// The body of a request, which is left unread until its turn has come; its beginning is not where its rule asks for that.
pub(crate) struct RequestBody {
    progress: Arc<Progress>,
    /// `None`: there is nothing of it, whatever there was. Boxed: most requests have none, and the request is moved from
    /// step to step, and through the channel to its connection.
    content: Option<Box<Content>>,
    /// Notes when the last of it is written, if that is not its connection's last write.
    written: Option<Written>,
}

/// What is sent as a body.
struct Content {
    /// What was read ahead and is not sent yet.
    ahead: Option<ReadAhead>,
    /// `None`: there is no more.
    incoming: Option<IncomingBody>,
    /// Where it is kept, and how much of what is kept was sent this time.
    kept: Option<(Arc<ReplayBuffer>, usize)>,
}

// === impl RequestBody ===

impl RequestBody {
    pub(crate) fn new(incoming: Incoming, progress: Arc<Progress>) -> Self {
        if incoming.is_end_stream() {
            progress.set_unread(false);
            return Self::empty(progress);
        }
        progress.set_unread(incoming.size_hint().exact().is_none_or(|length| length > PASSED_OVER_BYTES));
        Self::of(Content { ahead: None, incoming: Some(IncomingBody::new(incoming)), kept: None }, progress)
    }

    /// The body that `kept` has the beginning of, once more; `None` if too much of it is gone.
    pub(crate) async fn again(kept: Arc<ReplayBuffer>, progress: Arc<Progress>) -> Option<Self> {
        let incoming = kept.reopen().await?;
        Some(Self::of(Content { ahead: None, incoming, kept: Some((kept, 0)) }, progress))
    }

    /// No body at all.
    pub(crate) fn empty(progress: Arc<Progress>) -> Self {
        Self { progress, content: None, written: None }
    }

    fn of(content: Content, progress: Arc<Progress>) -> Self {
        Self { progress, content: Some(Box::new(content)), written: None }
    }

    fn incoming_mut(&mut self) -> Option<&mut IncomingBody> {
        self.content.as_mut()?.incoming.as_mut()
    }

    /// Hashes what is read of it into `digest`, on an exchange with this `progress`.
    pub(crate) fn hash_into(&mut self, digest: Arc<BodyDigest>, progress: Arc<Progress>) {
        let connection = std::mem::replace(&mut self.progress, progress);
        match self.ahead().and_then(ReadAhead::fingerprint) {
            Some(known) => digest.set(known),
            None => self.beginning().into_iter().for_each(|read| digest.add(read)),
        }
        match self.incoming_mut() {
            Some(incoming) => incoming.hash_into(digest, connection),
            None => digest.end(),
        }
    }

    /// Reads its first `most` bytes, and keeps them until they are sent. `false`: nothing was read, as there is no body or
    /// no memory for it.
    pub(crate) async fn read_beginning(&mut self, most: usize, memory: &Arc<ReplayMemory>) -> Result<bool, BoxError> {
        if self.ahead().is_some() {
            return Ok(true);
        }
        let Some(incoming) = self.incoming_mut() else { return Ok(false) };
        let known = incoming.read_beginning(most, memory).await?;
        if incoming.has_trailers_ahead() {
            self.progress.set_last();
        }
        Ok(known)
    }

    /// What was read of it, as far as it has not been sent.
    pub(crate) fn beginning(&self) -> Option<&[u8]> {
        match self.ahead() {
            Some(ahead) => Some(ahead.data()),
            None => self.content.as_ref()?.incoming.as_ref()?.beginning(),
        }
    }

    /// Reads all of it, unless that is more than `most` bytes or there is no memory for as many. What was read is sent
    /// from memory.
    pub(crate) async fn read_ahead(&mut self, most: usize, memory: &Arc<ReplayMemory>) -> Result<(), BoxError> {
        let length = self.size_hint().exact().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        let fits = length.is_none_or(|length| length <= most);
        if self.is_end_stream() || self.ahead().is_some() || !fits {
            return Ok(());
        }
        let Some(mut share) = memory.share(length.unwrap_or(most)) else { return Ok(()) };
        let (mut data, mut trailers, mut ended) = (BytesMut::new(), None, false);
        while !ended && data.len() <= most {
            match poll_fn(|cx| Pin::new(&mut *self).poll_frame(cx)).await.transpose()?.map(Frame::into_data) {
                Some(Ok(piece)) => data.extend_from_slice(&piece),
                Some(Err(frame)) => trailers = frame.into_trailers().ok(),
                None => ended = true,
            }
            ended |= self.is_end_stream();
        }
        share.shrink_to(data.len());
        let data = data.freeze();
        let ahead = match ended && trailers.is_none() {
            true => ReadAhead::whole(data, share),
            // Nobody compares trailers: a body with some is like no other.
            false => ReadAhead::beginning(data, trailers, share),
        };
        if let Some(content) = &mut self.content {
            content.ahead = Some(ahead);
        }
        Ok(())
    }

    /// What it is known by: nothing of it is left to be read from its connection. `None` if that is not so.
    pub(crate) fn fingerprint(&self) -> Option<Fingerprint> {
        match self.ahead() {
            Some(ahead) => ahead.fingerprint(),
            None => self.is_end_stream().then(|| Fingerprint::of(&[])),
        }
    }

    /// All of its bytes, if they were [read ahead](Self::read_ahead).
    pub(crate) fn whole(&self) -> Option<&Bytes> {
        self.ahead().filter(|ahead| ahead.fingerprint().is_some()).map(ReadAhead::data)
    }

    /// Sends `data` in the place of its bytes, all of which were read ahead.
    pub(crate) fn replace(&mut self, data: Bytes) {
        if let Some(content) = &mut self.content {
            content.ahead = content.ahead.take().map(|ahead| ahead.replaced(data));
        }
    }

    /// The same body once more, on an exchange with this `progress`, if all of it was read ahead; none at all if not.
    pub(crate) fn copy(&self, progress: Arc<Progress>) -> Self {
        match self.ahead().filter(|ahead| ahead.fingerprint().is_some()) {
            Some(ahead) => Self::of(Content { ahead: Some(ahead.clone()), incoming: None, kept: None }, progress),
            None => Self::empty(progress),
        }
    }

    fn ahead(&self) -> Option<&ReadAhead> {
        self.content.as_ref()?.ahead.as_ref()
    }

    /// Keeps up to `most` bytes of what is sent of it, beside what is kept already; `None` if there is nothing of it.
    pub(crate) fn keep(&mut self, most: u64, memory: &Arc<ReplayMemory>) -> Option<Arc<ReplayBuffer>> {
        let sized = self.size_hint().exact().is_some();
        let content = self.content.as_mut()?;
        if content.kept.is_none() {
            let buffer = ReplayBuffer::new(most, sized, memory.clone());
            content.keep_ahead(&buffer);
            content.kept = Some((Arc::new(buffer), 0));
        }
        content.kept.as_ref().map(|(kept, _)| kept.clone())
    }

    /// How long it may be silent in its middle.
    pub(crate) fn idle_timeout(&self) -> Duration {
        self.progress.timeouts().idle
    }

    /// Notes in `written` when the last of it is written.
    pub(crate) fn note_writes(&mut self, written: Written) {
        self.written = Some(written);
    }
}

// === impl Content ===

impl Content {
    /// Has `buffer` send what was read ahead, if it has room: otherwise it would be gone if no connection took it.
    fn keep_ahead(&mut self, buffer: &ReplayBuffer) {
        let Some(mut ahead) = self.ahead.clone() else { return };
        let Some(data) = ahead.pop().filter(Frame::is_data) else { return };
        if buffer.keep(Some(&data)).is_some() {
            if let Some(trailers) = ahead.pop() {
                buffer.keep(Some(&trailers));
            }
            if self.incoming.as_ref().is_none_or(IncomingBody::is_end_stream) {
                buffer.keep(None);
            }
            self.ahead = None;
        }
    }

    /// What was kept and has to be sent before anything is read.
    fn replay(&mut self) -> Option<Frame<Bytes>> {
        let (kept, sent) = self.kept.as_mut()?;
        let frame = kept.frame(*sent, self.incoming.is_none())?;
        *sent += 1;
        frame
    }

    /// Keeps what is sent, or its end.
    fn note(&mut self, frame: Option<&Frame<Bytes>>) {
        if let Some((kept, sent)) = &mut self.kept
            && let Some(pieces) = kept.keep(frame)
        {
            *sent = pieces;
        }
    }
}

/// A copy of `request` that has no body.
pub(crate) fn copy_without_body(request: &Request<RequestBody>, progress: Arc<Progress>) -> Request<RequestBody> {
    let mut copy = Request::new(RequestBody::empty(progress));
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    *copy.version_mut() = request.version();
    copy.headers_mut().clone_from(request.headers());
    // How the names of fields are spelled.
    copy.extensions_mut().clone_from(request.extensions());
    copy
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Self { progress, content: Some(content), written } = &mut *self else { return Poll::Ready(None) };
        // The next write has something of it.
        let note_write = || written.iter().for_each(Written::again);
        if let Some(frame) = content.replay() {
            note_write();
            return Poll::Ready(Some(Ok(frame)));
        }
        if let Some(frame) = content.ahead.as_mut().and_then(ReadAhead::pop) {
            note_write();
            return Poll::Ready(Some(Ok(frame)));
        }
        content.ahead = None;
        let Some(incoming) = &mut content.incoming else { return Poll::Ready(None) };
        let mut frame = match incoming.poll_frame(cx) {
            Poll::Pending => {
                // Once: asking again does not make a silence shorter.
                if progress.phase() == Phase::Answer {
                    progress.enter(Phase::Upload, progress.idle());
                }
                return Poll::Pending;
            }
            Poll::Ready(frame) => frame.map(|frame| frame.map_err(BoxError::from)),
        };
        if frame.is_none() || incoming.is_end_stream() {
            progress.set_unread(false);
        }
        note_write();
        if let Some(Ok(trailers)) = &mut frame
            && trailers.is_trailers()
        {
            // What hyper has skipped behind an LF alone may have been another request, whose sender has to know that it was
            // not read: see docs/decisions/http-deviations.md.
            progress.set_last();
            if let Some(wrong) = trailers.trailers_ref().and_then(fields::malformed) {
                return Poll::Ready(Some(Err(format!("its trailers have {wrong}").into())));
            }
            fields::clean_trailers(trailers);
        }
        match &frame {
            Some(Ok(frame)) => content.note(Some(frame)),
            Some(Err(_)) => {}
            None => content.note(None),
        }
        match progress.phase() {
            // What comes next is the upstream's turn: to take this piece, or to answer.
            Phase::Answer | Phase::Upload => {
                progress.awaits_answer();
            }
            // It answers already: something moves all the same.
            Phase::Body => {
                progress.moves();
            }
            _ => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        let Some(Content { ahead, incoming, kept }) = self.content.as_deref() else { return true };
        let read =
            ahead.as_ref().is_none_or(ReadAhead::is_sent) && incoming.as_ref().is_none_or(IncomingBody::is_end_stream);
        read && kept.as_ref().is_none_or(|(kept, sent)| kept.is_all(*sent))
    }

    fn size_hint(&self) -> SizeHint {
        let Some(Content { ahead, incoming, kept }) = self.content.as_deref() else { return SizeHint::with_exact(0) };
        let mut hint = incoming.as_ref().map_or_else(|| SizeHint::with_exact(0), IncomingBody::size_hint);
        if let Some(ahead) = ahead {
            let read = ahead.data().len() as u64;
            let (lower, upper) = (hint.lower() + read, hint.upper().map(|upper| upper + read));
            upper.into_iter().for_each(|upper| hint.set_upper(upper));
            hint.set_lower(lower);
        }
        if let Some((kept, sent)) = kept {
            let Some(again) = kept.left(*sent) else { return SizeHint::new() };
            let (lower, upper) = (hint.lower() + again, hint.upper().map(|upper| upper + again));
            upper.into_iter().for_each(|upper| hint.set_upper(upper));
            hint.set_lower(lower);
        }
        hint
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        if let Some((kept, _)) = &self.kept {
            kept.stop(&mut self.incoming);
        }
    }
}
