//! Answers' bodies on their way through: streamed, never collected, with what has to happen when they end.

use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use tracing::warn;

use super::{
    Proxy, fields,
    lease::Lease,
    link::{Link, Phase},
    notices::Notice,
    shared_body::{SharedBody, Unread},
};
use crate::{
    error::Cause,
    pace::{Lane, Permit},
    tls::Protocol,
};

/// The body of an answer.
#[expect(clippy::large_enum_variant, reason = "nearly all are the upstream's, and a box for each costs more")]
pub(super) enum Body {
    /// Our own words.
    Own(Option<Bytes>),
    /// The upstream's.
    Upstream(UpstreamBody),
    /// The upstream's, read to its end already.
    Held(VecDeque<Frame<Bytes>>),
}

/// The body of an answer from upstream. Its end, or its being dropped, settles everything that the request holds.
pub(super) struct UpstreamBody {
    /// What was read ahead.
    ahead: VecDeque<Frame<Bytes>>,
    /// How it broke off while it was read ahead.
    broken: Option<Cause>,
    source: Source,
    link: Arc<Link>,
    lease: Option<Lease>,
    ended: bool,
    /// Nothing has come since we were asked for more, and the deadline for that is set.
    silent: bool,
    /// The first piece of it has come.
    moving: bool,
    /// In flight until here: an API that counts concurrent requests counts this one until its last byte.
    permit: Permit,
}

/// Where the body comes from.
enum Source {
    /// A connection that carries nothing else meanwhile.
    Own(Incoming),
    /// A stream of an HTTP/2 connection.
    Shared(SharedBody),
}

// === impl Body ===

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Cause;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
        match self.get_mut() {
            Self::Own(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Upstream(body) => body.poll_frame(cx),
            Self::Held(frames) => Poll::Ready(frames.pop_front().map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(bytes) => bytes.is_none(),
            Self::Upstream(body) => body.ahead.is_empty() && body.source.is_end_stream(),
            Self::Held(frames) => frames.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Upstream(body) => body.size_hint(),
            // Trailers do not fit behind a length.
            Self::Held(frames) if frames.iter().any(Frame::is_trailers) => SizeHint::new(),
            Self::Held(frames) => SizeHint::with_exact(length(frames)),
        }
    }
}

// === impl UpstreamBody ===

impl UpstreamBody {
    pub(super) fn new(incoming: Incoming, link: Arc<Link>, lease: Lease, permit: Permit) -> Self {
        link.enter(Phase::Body, link.proxy.timeouts.idle);
        let source = match lease.protocol() {
            Protocol::Http1 => Source::Own(incoming),
            Protocol::Http2 => {
                let (proxy, lane) = (link.proxy.clone(), permit.lane().clone());
                Source::Shared(SharedBody::new(incoming, move || log_unread(&proxy, &lane)))
            }
        };
        let (ahead, lease) = (VecDeque::new(), Some(lease));
        Self { ahead, broken: None, source, link, lease, ended: false, silent: false, moving: false, permit }
    }

    /// Reads `most` bytes of it ahead, or what comes within `at_most`. Says whether that is all of it.
    pub(super) async fn read_ahead(&mut self, most: u64, at_most: Duration) -> bool {
        let read = async {
            while !self.ended && self.broken.is_none() && length(&self.ahead) < most {
                match poll_fn(|cx| self.poll_incoming(cx)).await {
                    Some(Ok(frame)) => self.ahead.push_back(frame),
                    // For whoever reads on: asked again, hyper would say that it has ended.
                    Some(Err(error)) => self.broken = Some(error),
                    None => {}
                }
            }
        };
        let _ = tokio::time::timeout(at_most, read).await;
        self.ended
    }

    /// Looks at what has come with the head. If that is broken, nothing of it has to be passed on.
    pub(super) async fn begin(&mut self) -> Result<(), Cause> {
        let fresh = self.ahead.is_empty() && self.broken.is_none() && !self.ended;
        if fresh && !self.source.is_end_stream() {
            match poll_fn(|cx| Poll::Ready(self.poll_incoming(cx))).await {
                Poll::Ready(Some(Ok(frame))) => self.ahead.push_back(frame),
                Poll::Ready(Some(Err(error))) => return Err(error),
                Poll::Ready(None) | Poll::Pending => {}
            }
        }
        match self.broken.take_if(|_| self.ahead.is_empty()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// What was read ahead, in one piece.
    pub(super) fn beginning(&self) -> Bytes {
        let mut pieces = self.ahead.iter().filter_map(Frame::data_ref);
        match (pieces.next(), pieces.next()) {
            (Some(only), None) => only.clone(),
            _ => self.ahead.iter().filter_map(Frame::data_ref).flat_map(|piece| piece.iter().copied()).collect(),
        }
    }

    /// All of it, if it was read to its end; what the request held is settled then.
    pub(super) fn into_held(mut self) -> VecDeque<Frame<Bytes>> {
        std::mem::take(&mut self.ahead)
    }

    /// The request's permit, which it holds for as long as its answer is under way.
    pub(super) fn permit(&mut self) -> &mut Permit {
        &mut self.permit
    }

    /// Its connection may be read on, to see how it ends.
    fn let_go(&mut self) -> Option<Lease> {
        let lease = self.lease.take()?;
        lease.appetite().whet();
        Some(lease)
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, ahead) = (self.source.size_hint(), length(&self.ahead));
        if ahead > 0 {
            let (lower, upper) = (hint.lower() + ahead, hint.upper().map(|upper| upper + ahead));
            upper.into_iter().for_each(|upper| hint.set_upper(upper));
            hint.set_lower(lower);
        }
        hint
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
        match self.ahead.pop_front() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            // One turn later, so that what was read before it has been written: an error takes with it what has not.
            None if self.broken.is_some() && !std::mem::replace(&mut self.silent, true) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            None if self.broken.is_some() => Poll::Ready(self.broken.take().map(Err)),
            None if self.ended => Poll::Ready(None),
            None => self.poll_incoming(cx),
        }
    }

    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
        let Poll::Ready(mut frame) = self.source.poll_frame(cx) else {
            self.lease.iter().for_each(|lease| lease.appetite().whet());
            // Only what takes several turns needs a fresh deadline, and only what moves: to be asked again, as by the
            // connection's timer, is no movement.
            if !std::mem::replace(&mut self.silent, true) {
                self.link.enter(Phase::Body, self.link.proxy.timeouts.idle);
            }
            return Poll::Pending;
        };
        self.lease.iter().for_each(|lease| lease.appetite().sate());
        self.silent = false;
        if std::mem::replace(&mut self.moving, true) {
            // A worker that reads slowly finds every piece waiting for it, and yet it moves.
            self.link.enter(Phase::Body, self.link.proxy.timeouts.idle);
        }
        if let Some(Ok(frame)) = &mut frame {
            fields::clean_trailers(frame);
        }
        let trailers = matches!(&frame, Some(Ok(frame)) if frame.is_trailers());
        if trailers && self.lease.as_ref().is_some_and(|lease| lease.protocol() == Protocol::Http1) {
            // What hyper has skipped behind an LF alone may have been another answer: see docs/decisions/http-deviations.md.
            self.let_go();
        }
        self.ended |= frame.is_none() || trailers;
        Poll::Ready(frame)
    }
}

// === impl Source ===

impl Source {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
        match self {
            Self::Own(incoming) => Pin::new(incoming).poll_frame(cx).map_err(Cause::from),
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

/// Says that a stream was reset because its worker did not read.
fn log_unread(proxy: &Proxy, lane: &Lane) {
    let (host, rule, now) = (lane.host(), &lane.policy().name, proxy.clock.now());
    proxy.incidents.unread(format!("{host}: {Unread}"), now);
    if proxy.notices.is_due(Notice::Unread, host, now) {
        warn!(%host, %rule, "{Unread}; others on the connection to the API are not held up by it");
    }
}

impl Drop for UpstreamBody {
    fn drop(&mut self) {
        // Read to its end, the connection is good for another request; cut short, it dies with its lease.
        if let Some(lease) = self.let_go()
            && (self.ended || self.source.is_end_stream())
        {
            lease.give_back();
        }
        self.link.rest();
    }
}

fn length(frames: &VecDeque<Frame<Bytes>>) -> u64 {
    frames.iter().filter_map(Frame::data_ref).map(|piece| piece.len() as u64).sum()
}
