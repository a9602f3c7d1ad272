//! Answers' bodies in transit: streamed, never collected, with the actions that are due when they end.

use std::{
    borrow::Cow,
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;

use crate::{
    error::BoxError,
    lane::Permit,
    memory::Charge,
    proxy::{
        message::{
            fields,
            frames_ahead::FramesAhead,
            keep_alive::KeepAlive,
            progress::Progress,
            recorded_body::{RecordedBody, ReplayedBody},
            shared_body::SharedReader,
            stream_body::StreamBody,
            usage::UsageReader,
        },
        outbound::host_pool::{AnswerBody, HostPool, PooledConnection},
        request_trace::TrySpan,
    },
    tls::Protocol,
};

/// The body of an answer.
pub(crate) enum ResponseBody {
    /// Text from andante itself.
    Own(Option<Bytes>),
    /// A body from the upstream. Boxed: an answer is moved from step to step, some twenty times.
    Upstream(Box<UpstreamBody>),
    /// A body from the upstream that was read to its end already.
    Held(Box<HeldBody>),
    /// A body from the upstream that others read too.
    Shared(Box<SharedReader>),
    /// Any of the other kinds, recorded as it passes.
    Recorded(Box<RecordedBody<Self>>),
    /// A recorded body of the upstream's answer to an earlier request.
    Replayed(Box<ReplayedBody>),
}

/// A body that was read to its end, and its memory.
pub(crate) struct HeldBody {
    frames: FramesAhead,
    _charge: Charge,
}

/// The body of an answer from upstream. When it ends or is dropped, everything that the request holds is settled.
pub(crate) struct UpstreamBody {
    /// Frames that were read ahead.
    ahead: FramesAhead,
    /// Error with which the body broke off while it was read ahead.
    broken: Option<BoxError>,
    source: BodySource,
    progress: Arc<Progress>,
    connection: Option<PooledConnection>,
    ended: bool,
    /// True if the last poll found nothing, and the deadline for that is set.
    silent: bool,
    /// True once the first piece has come.
    moving: bool,
    /// True if reading ahead had to wait for the body.
    pub(crate) waited: bool,
    /// Permit of the request, held in flight until here: an API that counts concurrent requests counts this one until
    /// its last byte.
    permit: Permit,
    /// Reader of the usage, if the rule says where answers report it.
    usage: Option<Box<UsageReader>>,
    /// Span of the try, if the try is recorded: it ends here.
    span: Option<Box<TrySpan>>,
}

/// Source of a body.
enum BodySource {
    /// A connection that carries nothing else meanwhile.
    Own(Incoming),
    /// A stream of an HTTP/2 connection.
    Shared(StreamBody),
}

// === impl ResponseBody ===

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Own(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Upstream(body) => body.poll_frame(cx),
            Self::Held(held) => Poll::Ready(held.frames.pop().map(Ok)),
            Self::Shared(reader) => reader.poll_frame(cx),
            Self::Recorded(body) => body.poll_frame(cx),
            Self::Replayed(body) => Poll::Ready(body.next().map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(bytes) => bytes.is_none(),
            Self::Upstream(body) => body.ahead.is_empty() && body.source.is_end_stream(),
            Self::Held(held) => held.frames.is_empty(),
            Self::Shared(reader) => reader.is_end_stream(),
            Self::Recorded(body) => body.is_end_stream(),
            Self::Replayed(body) => body.left() == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Upstream(body) => body.size_hint(),
            // Trailers do not fit behind a length.
            Self::Held(held) if held.frames.iter().any(Frame::is_trailers) => SizeHint::new(),
            Self::Held(held) => SizeHint::with_exact(held.frames.length()),
            Self::Shared(reader) => reader.size_hint(),
            Self::Recorded(body) => body.size_hint(),
            Self::Replayed(body) => SizeHint::with_exact(body.left()),
        }
    }
}

// === impl UpstreamBody ===

impl UpstreamBody {
    /// The body `incoming` of an answer that came on `connection`. For a shared stream, `buffer` creates the charge of the
    /// unread part, and the callback for a stream that was reset because no memory is left for that part.
    pub(crate) fn new<F>(
        incoming: AnswerBody,
        progress: Arc<Progress>,
        connection: PooledConnection,
        permit: Permit,
        buffer: impl FnOnce() -> (Charge, F),
    ) -> Self
    where
        F: FnOnce() + Send + 'static,
    {
        let source = match incoming {
            AnswerBody::Own(incoming) => BodySource::Own(incoming),
            AnswerBody::Shared(stream, window) => {
                let (charge, on_cut) = buffer();
                BodySource::Shared(StreamBody::new(stream, window, charge, on_cut))
            }
        };
        Self {
            ahead: FramesAhead::default(),
            broken: None,
            source,
            progress,
            connection: Some(connection),
            ended: false,
            silent: false,
            moving: false,
            waited: false,
            permit,
            usage: None,
            span: None,
        }
    }

    /// Reads `most` bytes of the body ahead, or the part that comes within `at_most`. Returns whether that is all of
    /// the body.
    pub(crate) async fn read_ahead(&mut self, most: u64, at_most: Duration) -> bool {
        self.read_until(most, at_most, |_| false).await
    }

    /// Like `read_ahead`, but stops at the first piece that is `enough`.
    pub(crate) async fn read_until(
        &mut self,
        most: u64,
        at_most: Duration,
        mut enough: impl FnMut(&[u8]) -> bool,
    ) -> bool {
        let whole = {
            let mut read = pin!(async {
                let mut suffices = false;
                while !self.ended && self.broken.is_none() && self.ahead.length() < most && !suffices {
                    match poll_fn(|cx| self.poll_incoming(cx)).await {
                        Some(Ok(frame)) => {
                            suffices = frame.data_ref().is_some_and(|piece| enough(piece));
                            self.ahead.push(frame);
                        }
                        // Kept for the next read: if polled again, hyper would report the end.
                        Some(Err(error)) => self.broken = Some(error),
                        None => {}
                    }
                }
            });
            // The beginning usually comes with the head: no timer for that.
            let whole = poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx).is_ready())).await;
            if !whole {
                // Boxed, because the timer is large and rarely needed.
                let _ = Box::pin(tokio::time::timeout(at_most, read)).await;
            }
            whole
        };
        self.waited |= !whole;
        self.ended && self.ahead.length() <= most
    }

    /// Reads the part of the body that came with the head. On an error, no part of the answer needs to be passed on.
    pub(crate) async fn begin(&mut self) -> Result<(), BoxError> {
        let fresh = self.ahead.is_empty() && self.broken.is_none() && !self.ended;
        if fresh && !self.source.is_end_stream() {
            match poll_fn(|cx| Poll::Ready(self.poll_incoming(cx))).await {
                Poll::Ready(Some(Ok(frame))) => self.ahead.push(frame),
                Poll::Ready(Some(Err(error))) => return Err(error),
                Poll::Ready(None) | Poll::Pending => {}
            }
        }
        match self.broken.take_if(|_| self.ahead.is_empty()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// The part that was read ahead, in one piece.
    pub(crate) fn beginning(&self) -> Cow<'_, [u8]> {
        match self.ahead.only_piece() {
            Some(only) => Cow::Borrowed(only),
            None => self.ahead.pieces().flat_map(|piece| piece.iter().copied()).collect(),
        }
    }

    /// Number of bytes that were read ahead.
    pub(crate) fn length_ahead(&self) -> u64 {
        self.ahead.length()
    }

    /// The whole body, if it was read to its end, with its memory's `charge`. The request is settled then.
    pub(crate) fn into_held(mut self, charge: Charge) -> Box<HeldBody> {
        Box::new(HeldBody { frames: std::mem::take(&mut self.ahead), _charge: charge })
    }

    /// Permit of the request, held until its answer has ended.
    pub(crate) fn permit(&mut self) -> &mut Permit {
        &mut self.permit
    }

    /// Ends the `span` of the try when the body ends.
    pub(crate) fn trace(&mut self, span: Option<Box<TrySpan>>) {
        self.span = span;
    }

    /// The span of its try, if that is recorded.
    pub(crate) fn span(&mut self) -> Option<&mut TrySpan> {
        self.span.as_deref_mut()
    }

    /// Reads the usage from the body from now on, and the model's name if the try is recorded.
    pub(crate) fn read_usage(&mut self, mut usage: Box<UsageReader>) {
        if self.span.is_some() {
            usage.read_model();
        }
        self.ahead.pieces().for_each(|piece| usage.read(piece));
        self.usage = Some(usage);
    }

    /// Records the connection's limits that the answer's head `announced`.
    pub(crate) fn announce(&mut self, announced: KeepAlive) {
        self.connection.iter_mut().for_each(|connection| connection.on_answer(announced));
    }

    /// Keeps the connection for the session of `host_pool`.
    pub(crate) fn keep_connection_for(&mut self, host_pool: &Arc<HostPool>) {
        self.connection.iter_mut().for_each(|connection| connection.keep_for(host_pool));
    }

    /// Releases the connection, which may be read on to see how it ends.
    fn let_go(&mut self) -> Option<PooledConnection> {
        let connection = self.connection.take()?;
        connection.appetite().whet();
        Some(connection)
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        let (mut hint, ahead) = (self.source.size_hint(), self.ahead.length());
        if ahead > 0 {
            let (lower, upper) = (hint.lower() + ahead, hint.upper().map(|upper| upper + ahead));
            upper.into_iter().for_each(|upper| hint.set_upper(upper));
            hint.set_lower(lower);
        }
        hint
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = self.poll_next(cx);
        if let Poll::Ready(Some(Err(error))) = &polled {
            self.span.iter_mut().for_each(|span| span.on_break(error));
        }
        polled
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.ahead.pop() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            // Delayed by one turn, so that the frames before the error are written: an error discards unwritten data.
            None if self.broken.is_some() && !std::mem::replace(&mut self.silent, true) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            None if self.broken.is_some() => Poll::Ready(self.broken.take().map(Err)),
            None if self.ended => Poll::Ready(None),
            None => self.poll_incoming(cx),
        }
    }

    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.connection.iter().for_each(PooledConnection::note_taking);
        let Poll::Ready(mut frame) = self.source.poll_frame(cx) else {
            self.connection.iter().for_each(|connection| connection.appetite().whet());
            // The deadline restarts only when data moves and takes several turns. A repeated poll, such as by the
            // connection's timer, does not count.
            if !std::mem::replace(&mut self.silent, true) {
                self.progress.moves();
            }
            return Poll::Pending;
        };
        self.connection.iter().for_each(|connection| connection.appetite().sate());
        self.silent = false;
        if std::mem::replace(&mut self.moving, true) {
            // A worker that reads slowly finds every piece ready, and still makes progress.
            self.progress.moves();
        }
        if let Some(Ok(frame)) = &mut frame {
            fields::clean_trailers(frame);
            if let Some((usage, piece)) = self.usage.as_mut().zip(frame.data_ref()) {
                usage.read(piece);
            }
        }
        let trailers = matches!(&frame, Some(Ok(frame)) if frame.is_trailers());
        if trailers && self.connection.as_ref().is_some_and(|connection| connection.protocol() == Protocol::Http1) {
            // hyper may have skipped another answer behind a bare LF: see docs/decisions/http-deviations.md.
            self.let_go();
        }
        // A complete body needs no further poll for its end.
        self.ended |= frame.is_none() || trailers || self.source.is_end_stream();
        Poll::Ready(frame)
    }
}

// === impl BodySource ===

impl BodySource {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self {
            Self::Own(incoming) => Pin::new(incoming).poll_frame(cx).map_err(BoxError::from),
            Self::Shared(body) => body.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(incoming) => incoming.is_end_stream(),
            Self::Shared(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(incoming) => incoming.size_hint(),
            Self::Shared(body) => body.size_hint(),
        }
    }
}

impl Drop for UpstreamBody {
    fn drop(&mut self) {
        let whole = self.ended || self.source.is_end_stream();
        if let Some(usage) = self.usage.take() {
            let used = usage.found(whole);
            self.span.iter_mut().for_each(|span| span.on_usage(&used, usage.model()));
            self.permit.used(&used);
        }
        let now = self.progress.rest();
        self.permit.settle(now);
        // A connection whose answer was read to its end is good for another request. If the answer was cut short, its
        // connection is closed.
        if let Some(connection) = self.let_go()
            && whole
        {
            connection.release(now);
        }
    }
}
