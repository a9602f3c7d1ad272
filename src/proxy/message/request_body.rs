//! Request bodies in transit: streamed, and kept if they are small, in case they have to be sent again.

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
    upload::OnUnread,
    writes::Written,
};
use crate::error::BoxError;

/// hyper reads a body of up to this many received bytes to its end after an early answer.
const PASSED_OVER_BYTES: u64 = 16 * 1024;

/// A boxed request: otherwise every step's future would carry its 300 bytes once more while it waits.
pub(crate) type BoxedRequest = Box<Request<RequestBody>>;

/// The body of a request, which is left unread until the request's turn has come. Rules may ask to read its beginning
/// earlier.
pub(crate) struct RequestBody {
    progress: Arc<Progress>,
    /// Content of the body; `None` if there is none, or no more. Boxed, because most requests have no body, and the
    /// request moves from step to step and through the channel to its connection.
    content: Option<Box<Content>>,
    /// Notes when the last of the body is written, if that is not its connection's last write.
    written: Option<Written>,
}

/// Sources of a body's frames.
struct Content {
    /// Bytes that were read ahead and are not sent yet.
    ahead: Option<ReadAhead>,
    /// Rest of the body on its connection; `None` if there is no more.
    incoming: Option<IncomingBody>,
    /// Buffer that keeps the body, and the number of its pieces that were sent in this attempt.
    kept: Option<(Arc<ReplayBuffer>, usize)>,
}

// === impl RequestBody ===

impl RequestBody {
    /// The body `incoming`; `on_unread` takes what is left of it if it is dropped before its end.
    pub(crate) fn new(incoming: Incoming, progress: Arc<Progress>, on_unread: Option<&OnUnread>) -> Self {
        if incoming.is_end_stream() {
            progress.set_unread(false);
            return Self::empty(progress);
        }
        progress.set_unread(incoming.size_hint().exact().is_none_or(|length| length > PASSED_OVER_BYTES));
        let incoming = IncomingBody::new(incoming, on_unread.cloned());
        Self::of(Content { ahead: None, incoming: Some(incoming), kept: None }, progress)
    }

    /// The body whose beginning is in `kept`, once more; `None` if too much of it is gone.
    pub(crate) async fn again(kept: Arc<ReplayBuffer>, progress: Arc<Progress>) -> Option<Self> {
        let incoming = kept.reopen().await?;
        Some(Self::of(Content { ahead: None, incoming, kept: Some((kept, 0)) }, progress))
    }

    /// An empty body.
    pub(crate) fn empty(progress: Arc<Progress>) -> Self {
        Self { progress, content: None, written: None }
    }

    fn of(content: Content, progress: Arc<Progress>) -> Self {
        Self { progress, content: Some(Box::new(content)), written: None }
    }

    fn incoming_mut(&mut self) -> Option<&mut IncomingBody> {
        self.content.as_mut()?.incoming.as_mut()
    }

    /// Adds what is read of the body to `digest`, on an exchange with this `progress`.
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

    /// Reads the first `most` bytes, and keeps them until they are sent. Returns `false` if nothing was read, because
    /// there is no body or no memory for it.
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

    /// Bytes of the body that were read and not sent yet.
    pub(crate) fn beginning(&self) -> Option<&[u8]> {
        match self.ahead() {
            Some(ahead) => Some(ahead.data()),
            None => self.content.as_ref()?.incoming.as_ref()?.beginning(),
        }
    }

    /// Reads all of the body, unless it has more than `most` bytes or there is no memory for it. The bytes that were
    /// read are sent from memory.
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
            // Trailers are never compared: a body with trailers matches no other.
            false => ReadAhead::beginning(data, trailers, share),
        };
        if let Some(content) = &mut self.content {
            content.ahead = Some(ahead);
        }
        Ok(())
    }

    /// Fingerprint of the whole body; `None` if some of the body is still to be read from its connection.
    pub(crate) fn fingerprint(&self) -> Option<Fingerprint> {
        match self.ahead() {
            Some(ahead) => ahead.fingerprint(),
            None => self.is_end_stream().then(|| Fingerprint::of(&[])),
        }
    }

    /// All bytes of the body, if they were [read ahead](Self::read_ahead).
    pub(crate) fn whole(&self) -> Option<&Bytes> {
        self.ahead().filter(|ahead| ahead.fingerprint().is_some()).map(ReadAhead::data)
    }

    /// Sends `data` instead of the body's bytes. Requires that the whole body was read ahead.
    pub(crate) fn replace(&mut self, data: Bytes) {
        if let Some(content) = &mut self.content {
            content.ahead = content.ahead.take().map(|ahead| ahead.replaced(data));
        }
    }

    /// A copy of the body on an exchange with this `progress`, if all of the body was read ahead; otherwise an empty
    /// body.
    pub(crate) fn copy(&self, progress: Arc<Progress>) -> Self {
        match self.ahead().filter(|ahead| ahead.fingerprint().is_some()) {
            Some(ahead) => Self::of(Content { ahead: Some(ahead.clone()), incoming: None, kept: None }, progress),
            None => Self::empty(progress),
        }
    }

    fn ahead(&self) -> Option<&ReadAhead> {
        self.content.as_ref()?.ahead.as_ref()
    }

    /// Keeps up to `most` bytes of the body as it is sent, unless it is kept already; `None` if the body is empty.
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

    /// Maximum silence in the middle of the body.
    pub(crate) fn idle_timeout(&self) -> Duration {
        self.progress.timeouts().idle
    }

    /// Notes in `written` when the last of the body is written.
    pub(crate) fn note_writes(&mut self, written: Written) {
        self.written = Some(written);
    }
}

// === impl Content ===

impl Content {
    /// Moves the bytes that were read ahead to `buffer`, if it has room: otherwise they would be lost if no connection
    /// took them.
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

    /// The next kept frame, which has to be sent before anything is read.
    fn replay(&mut self) -> Option<Frame<Bytes>> {
        let (kept, sent) = self.kept.as_mut()?;
        let frame = kept.frame(*sent, self.incoming.is_none())?;
        *sent += 1;
        frame
    }

    /// Keeps a frame that is sent, or the end of the body.
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
    // Extensions carry the spelling of the fields' names.
    copy.extensions_mut().clone_from(request.extensions());
    copy
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Self { progress, content: Some(content), written } = &mut *self else { return Poll::Ready(None) };
        // The next write has something of this body.
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
                // The deadline is set once: further polls do not make a silence shorter.
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
            // hyper may have skipped another request behind a bare LF. Its sender has to learn that the request was not
            // read: see docs/decisions/http-deviations.md.
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
            // The upstream has to act next: it takes this piece, or it answers.
            Phase::Answer | Phase::Upload => {
                progress.awaits_answer();
            }
            // The upstream answers already, but the exchange still makes progress.
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
