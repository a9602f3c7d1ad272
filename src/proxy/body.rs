//! Bodies on their way through: streamed, never collected, with what has to happen when they end.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;

use super::{
    fields,
    lease::Lease,
    link::{Link, Phase},
};
use crate::pace::Permit;

/// The body of an answer.
pub(super) enum Body {
    /// Our own words.
    Own(Option<Bytes>),
    /// The upstream's.
    Upstream(UpstreamBody),
}

/// The body of an answer from upstream. Its end, or its being dropped, settles everything that the request holds.
pub(super) struct UpstreamBody {
    incoming: Incoming,
    link: Arc<Link>,
    lease: Option<Lease>,
    ended: bool,
    /// Nothing has come since we were asked for more, and the deadline for that is set.
    silent: bool,
    /// The first piece of it has come.
    moving: bool,
    /// In flight until here: an API that counts concurrent requests counts this one until its last byte.
    _permit: Permit,
}

/// The body of a request, from the moment on which its turn has come.
pub(super) struct RequestBody {
    /// `None`: there is none, whatever there was.
    incoming: Option<Incoming>,
    link: Arc<Link>,
}

// === impl Body ===

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Own(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Upstream(body) => body.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(bytes) => bytes.is_none(),
            Self::Upstream(body) => body.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Upstream(body) => body.incoming.size_hint(),
        }
    }
}

// === impl UpstreamBody ===

impl UpstreamBody {
    pub(super) fn new(incoming: Incoming, link: Arc<Link>, lease: Option<Lease>, permit: Permit) -> Self {
        link.enter(Phase::Body, link.proxy.timeouts.idle);
        Self { incoming, link, lease, ended: false, silent: false, moving: false, _permit: permit }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Poll::Ready(mut frame) = Pin::new(&mut self.incoming).poll_frame(cx) else {
            // Only what takes several turns needs a fresh deadline, and only what moves: to be asked again, as by the
            // connection's timer, is no movement.
            if !std::mem::replace(&mut self.silent, true) {
                self.link.enter(Phase::Body, self.link.proxy.timeouts.idle);
            }
            return Poll::Pending;
        };
        self.silent = false;
        if std::mem::replace(&mut self.moving, true) {
            // A worker that reads slowly finds every piece waiting for it, and yet it moves.
            self.link.enter(Phase::Body, self.link.proxy.timeouts.idle);
        }
        if let Some(Ok(frame)) = &mut frame {
            fields::clean_trailers(frame);
        }
        self.ended |= frame.is_none() || matches!(&frame, Some(Ok(frame)) if frame.is_trailers());
        Poll::Ready(frame)
    }
}

impl Drop for UpstreamBody {
    fn drop(&mut self) {
        // Read to its end, the connection is good for another request; cut short, it dies with its lease.
        if let Some(lease) = self.lease.take()
            && (self.ended || self.incoming.is_end_stream())
        {
            lease.give_back();
        }
        self.link.rest();
    }
}

// === impl RequestBody ===

impl RequestBody {
    pub(super) fn new(incoming: Incoming, link: Arc<Link>) -> Self {
        Self { incoming: Some(incoming), link }
    }

    /// No body at all.
    pub(super) fn empty(link: Arc<Link>) -> Self {
        Self { incoming: None, link }
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
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
            Poll::Ready(frame) => frame,
        };
        if let Some(Ok(frame)) = &mut frame {
            fields::clean_trailers(frame);
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
        self.incoming.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(|| SizeHint::with_exact(0), Incoming::size_hint)
    }
}
