//! HTTP/2 towards an upstream: a connection, and the requests that share it.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use h2::client::SendRequest;

use crate::{
    clock::{Clock, Instant},
    error::BoxError,
    proxy::{
        message::{receive_window::ReceiveWindow, stream_body::MOST_STREAMS, stream_reader::unwrapped, writes::Writes},
        outbound::{
            lifespan::{Lifespan, ReuseLimits},
            liveness::Liveness,
        },
    },
};

/// An HTTP/2 connection.
pub(crate) struct SharedConnection {
    sender: SendRequest<Bytes>,
    writes: Arc<Writes>,
    life: Lifespan,
    /// Requests in flight on the connection.
    active: AtomicUsize,
    /// Maximum number of requests in flight that the upstream allows (RFC 9113 §6.5.2).
    allowed: AtomicUsize,
    /// When the last request ended, in nanoseconds of the clock.
    since: AtomicU64,
    state: Arc<ConnectionState>,
}

/// State that a connection's task and its requests share.
pub(super) struct ConnectionState {
    pub(super) clock: Clock,
    pub(super) liveness: Liveness,
    pub(super) window: Arc<ReceiveWindow>,
    /// True if the upstream answers nothing more, not even a PING.
    pub(super) is_dead: AtomicBool,
    /// True if the upstream has complained of PINGs, on this connection or another.
    pub(super) no_pings: Arc<AtomicBool>,
}

/// A request's part of a shared connection.
pub(crate) struct Stream(Arc<SharedConnection>);

// === impl ConnectionState ===

impl ConnectionState {
    /// Records that a part of a request is handed over to be sent.
    pub(super) fn on_request(&self) {
        self.liveness.on_request(self.clock.now());
    }
}

// === impl SharedConnection ===

impl SharedConnection {
    /// Creates a connection on which no request may be sent yet.
    pub(super) fn new(
        sender: SendRequest<Bytes>,
        writes: Arc<Writes>,
        life: Lifespan,
        state: Arc<ConnectionState>,
    ) -> Self {
        let since = AtomicU64::new(state.clock.now().as_nanos());
        Self { sender, writes, life, active: AtomicUsize::new(0), allowed: AtomicUsize::new(0), since, state }
    }

    /// Sets the number of requests that the upstream allows.
    pub(super) fn allow(&self, streams: usize) {
        self.allowed.store(streams.min(MOST_STREAMS), Ordering::Relaxed);
    }

    /// Number of requests in flight on the connection.
    pub(super) fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// Room for one more request, if the upstream allows it.
    pub(crate) fn open(self: &Arc<Self>) -> Option<Stream> {
        // The pool belongs to one thread: nothing can come in between.
        self.has_room().then(|| self.occupy())
    }

    /// The part of a request that is on the connection already, or for which there is room.
    pub(super) fn occupy(self: &Arc<Self>) -> Stream {
        self.active.fetch_add(1, Ordering::Relaxed);
        Stream(self.clone())
    }

    /// Returns whether a request may be sent, and would be answered as far as known.
    pub(crate) fn has_room(&self) -> bool {
        let is_suspect = || self.state.liveness.is_suspect(|| self.state.clock.now());
        self.active() < self.allowed.load(Ordering::Relaxed) && !is_suspect()
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.active() > 0
    }

    /// Returns whether the connection may carry new requests `now`.
    pub(crate) fn is_usable(&self, now: Instant, limits: &ReuseLimits) -> bool {
        let since = Instant::from_nanos(self.since.load(Ordering::Relaxed));
        let idle_over = !self.is_busy() && limits.is_idle_over(since, now);
        !idle_over && !self.is_closed() && !self.life.is_too_old(now, limits)
    }

    /// Returns whether the connection takes no more requests: it has ended, or the upstream has sent GOAWAY.
    fn is_closed(&self) -> bool {
        let ready = self.sender.clone().poll_ready(&mut Context::from_waker(Waker::noop()));
        matches!(ready, Poll::Ready(Err(_)))
    }

    pub(crate) fn life(&self) -> &Lifespan {
        &self.life
    }

    /// Sender of requests on the connection.
    pub(super) fn sender(&self) -> SendRequest<Bytes> {
        self.sender.clone()
    }

    pub(super) fn state(&self) -> &Arc<ConnectionState> {
        &self.state
    }

    /// Window of each stream of the connection.
    pub(super) fn window(&self) -> &Arc<ReceiveWindow> {
        &self.state.window
    }

    /// Returns the error of a stream, or the dead connection's error that caused it.
    pub(super) fn explain(&self, error: h2::Error) -> BoxError {
        if !self.state.is_dead.load(Ordering::Relaxed) {
            return unwrapped(error);
        }
        io::Error::new(io::ErrorKind::TimedOut, "the connection is dead: not even a PING was answered").into()
    }

    pub(crate) fn writes(&self) -> &Arc<Writes> {
        &self.writes
    }
}

// === impl Stream ===

impl Stream {
    pub(crate) fn connection(&self) -> &Arc<SharedConnection> {
        &self.0
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // The time is read only while nothing is in flight. So it is stored before the count becomes 0.
        let note = || self.0.since.store(self.0.state.clock.now().as_nanos(), Ordering::Relaxed);
        let is_last = self.0.active.load(Ordering::Relaxed) == 1;
        if is_last {
            note();
        }
        if self.0.active.fetch_sub(1, Ordering::Relaxed) == 1 && !is_last {
            note();
        }
    }
}
