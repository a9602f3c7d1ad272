//! Request bodies as they come from their connections, and a hash of a body that is made as the body passes. The hash
//! keeps none of the bytes.

use std::{
    future::poll_fn,
    hash::{BuildHasher, DefaultHasher, Hasher, RandomState},
    sync::{Arc, LazyLock},
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;

use super::{
    body_beginning::BodyBeginning,
    progress::Progress,
    replay_memory::ReplayMemory,
    upload::{OnUnread, Upload},
};

/// A body that has not been read yet, or not completely.
pub(crate) struct IncomingBody {
    upload: Upload,
    /// Hasher of the body. Boxed: few bodies are hashed.
    tap: Option<Box<Tap>>,
    /// The part that was read before the request's turn. Boxed: few bodies are read ahead.
    beginning: Option<Box<BodyBeginning>>,
}

/// Passes the body's bytes to its digest.
struct Tap {
    digest: Arc<BodyDigest>,
    /// Progress of the body's connection; another request may follow on it.
    connection: Arc<Progress>,
}

/// Hash of a body, made as the body passes.
pub(crate) struct BodyDigest(Mutex<DigestState>);

struct DigestState {
    hashers: [DefaultHasher; 2],
    length: u64,
    complete: bool,
    /// Fingerprint of a body that is known already.
    known: Option<Fingerprint>,
}

/// Identifies a body. Two hashes, because 64 bits are few where a collision hands out another request's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint {
    hashes: [u64; 2],
    length: u64,
}

// === impl IncomingBody ===

impl IncomingBody {
    /// The body `incoming`; `on_unread` takes what is left of it if it is dropped before its end.
    pub(crate) fn new(incoming: Incoming, on_unread: Option<OnUnread>) -> Self {
        Self { upload: Upload::new(incoming, on_unread), tap: None, beginning: None }
    }

    /// Adds what is read of the body to `digest`. `connection` is the progress of the body's connection.
    pub(crate) fn hash_into(&mut self, digest: Arc<BodyDigest>, connection: Arc<Progress>) {
        if self.upload.is_end_stream() {
            digest.end();
        }
        self.tap = Some(Box::new(Tap { digest, connection }));
    }

    /// Reads the first `most` bytes, which [`poll_frame`](Self::poll_frame) returns later; `false` if there is no
    /// memory for them. Cancellation loses nothing.
    pub(crate) async fn read_beginning(
        &mut self,
        most: usize,
        memory: &Arc<ReplayMemory>,
    ) -> Result<bool, hyper::Error> {
        if self.beginning.is_none() {
            let length = self.upload.size_hint().exact().and_then(|length| usize::try_from(length).ok());
            self.beginning = BodyBeginning::new(length.map_or(most, |length| length.min(most)), memory);
        }
        while self.beginning.as_ref().is_some_and(|beginning| !beginning.suffices()) && !self.upload.is_end_stream() {
            let frame = poll_fn(|cx| self.poll_incoming(cx)).await.transpose()?;
            if let Some(beginning) = &mut self.beginning {
                beginning.keep(frame);
            }
        }
        Ok(self.beginning.is_some())
    }

    /// Returns whether trailers were read that have not been sent.
    pub(super) fn has_trailers_ahead(&self) -> bool {
        self.beginning.as_ref().is_some_and(|beginning| beginning.has_trailers())
    }

    /// The part that was read before the request's turn, and not sent yet.
    pub(crate) fn beginning(&self) -> Option<&[u8]> {
        self.beginning.as_ref().map(|beginning| beginning.data())
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.beginning.as_mut().and_then(|beginning| beginning.pop()) {
            Some(frame) => Poll::Ready(frame.map(Ok)),
            None => {
                self.beginning = None;
                self.poll_incoming(cx)
            }
        }
    }

    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = self.upload.poll_frame(cx);
        if let (Some(tap), Poll::Ready(frame)) = (&self.tap, &polled) {
            tap.note(frame.as_ref(), self.upload.is_end_stream());
        }
        polled
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.beginning.as_ref().is_none_or(|beginning| beginning.is_sent()) && self.upload.is_end_stream()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        let mut hint = self.upload.size_hint();
        let read = self.beginning().map_or(0, <[u8]>::len) as u64;
        let (lower, upper) = (hint.lower() + read, hint.upper().map(|upper| upper + read));
        upper.into_iter().for_each(|upper| hint.set_upper(upper));
        hint.set_lower(lower);
        hint
    }
}

// === impl Tap ===

impl Tap {
    fn note(&self, frame: Option<&Result<Frame<Bytes>, hyper::Error>>, last: bool) {
        match frame {
            Some(Ok(frame)) => {
                frame.data_ref().into_iter().for_each(|data| self.digest.add(data));
                if frame.is_trailers() {
                    self.connection.set_last();
                }
                if last || frame.is_trailers() {
                    self.end();
                }
            }
            Some(Err(_)) => {}
            None => self.end(),
        }
    }

    /// Records that the whole body has been read.
    fn end(&self) {
        self.connection.set_unread(false);
        self.digest.end();
    }
}

// === impl Fingerprint ===

impl Fingerprint {
    /// Fingerprint of a body of these bytes.
    pub(crate) fn of(data: &[u8]) -> Self {
        let digest = BodyDigest::new();
        digest.add(data);
        digest.so_far().1
    }
}

// === impl BodyDigest ===

impl BodyDigest {
    /// The digest of a body that has not been read yet.
    pub(crate) fn new() -> Arc<Self> {
        // The keys are random in each process: clients cannot make two bodies collide.
        static KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(|| [RandomState::new(), RandomState::new()]);
        let hashers = [KEYS[0].build_hasher(), KEYS[1].build_hasher()];
        Arc::new(Self(Mutex::new(DigestState { hashers, length: 0, complete: false, known: None })))
    }

    pub(super) fn add(&self, data: &[u8]) {
        let mut state = self.0.lock();
        state.hashers.iter_mut().for_each(|hasher| hasher.write(data));
        state.length += data.len() as u64;
    }

    /// Sets the fingerprint of the whole body, even if other bytes are sent instead.
    pub(super) fn set(&self, known: Fingerprint) {
        let mut state = self.0.lock();
        (state.known, state.complete) = (Some(known), true);
    }

    /// Records that all of the body has passed.
    pub(crate) fn end(&self) {
        self.0.lock().complete = true;
    }

    /// Fingerprint of the body; `None` before all of it has passed.
    pub(crate) fn fingerprint(&self) -> Option<Fingerprint> {
        let (complete, fingerprint) = self.so_far();
        complete.then_some(fingerprint)
    }

    /// Returns whether all of the body has passed, and the fingerprint of the part that has.
    fn so_far(&self) -> (bool, Fingerprint) {
        let state = self.0.lock();
        let hashes = [state.hashers[0].finish(), state.hashers[1].finish()];
        (state.complete, state.known.unwrap_or(Fingerprint { hashes, length: state.length }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pieces: &[&str]) -> Option<Fingerprint> {
        let digest = BodyDigest::new();
        pieces.iter().for_each(|piece| digest.add(piece.as_bytes()));
        digest.end();
        digest.fingerprint()
    }

    #[test]
    fn the_pieces_in_which_a_body_comes_do_not_matter_and_each_byte_does() {
        assert_eq!(of(&["one body"]), of(&["o", "", "ne bo", "dy"]));
        assert_eq!(of(&["0123456789abcdef", "g"]), of(&["0123456", "789abcdefg"]));
        assert_eq!(of(&[]), of(&[""]));
        assert_ne!(of(&["one body"]), of(&["one bodY"]));
        assert_ne!(of(&[""]), of(&["\0"]));
    }

    #[test]
    fn what_has_not_passed_wholly_is_known_by_nothing() {
        let digest = BodyDigest::new();
        digest.add(b"half");
        assert_eq!(digest.fingerprint(), None);
    }
}
