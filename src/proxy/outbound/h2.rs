//! HTTP/2 towards an upstream: how a connection begins, and how many requests share it.

use std::{
    future::{Future as _, poll_fn},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use hyper::client::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::oneshot,
};
use tracing::debug;

use crate::{
    clock::{Clock, Instant},
    error::Error,
    policy::Origin,
    proxy::{
        message::{
            request_body::RequestBody,
            stream_body::{CONNECTION_WINDOW, MOST_STREAMS, STREAM_WINDOW},
            writes::Writes,
        },
        outbound::{
            Outbound,
            h1::MAX_HEAD,
            h2_executor::H2Executor,
            lifespan::{Lifespan, ReuseLimits},
        },
    },
};

/// What hyper takes for the upstream's bound until that has said one. An odd number, which no upstream says.
const UNTOLD: usize = 7919;
/// A connection with requests under way is asked this often whether it is still there.
const PING: Duration = Duration::from_secs(20);

/// Sends requests on a connection, many at a time.
type H2Sender = http2::SendRequest<RequestBody>;

/// An HTTP/2 connection.
pub(crate) struct SharedConnection {
    sender: H2Sender,
    writes: Arc<Writes>,
    life: Lifespan,
    /// How many requests are under way on it.
    active: AtomicUsize,
    /// How many the upstream allows (RFC 9113 §6.5.2).
    allowed: AtomicUsize,
    /// When the last one ended, in nanoseconds of the clock.
    since: AtomicU64,
    clock: Clock,
}

/// A request's part of a shared connection.
pub(crate) struct Stream(Arc<SharedConnection>);

/// Makes an HTTP/2 connection to `origin` of `stream`, whose writes are noted in `writes`. Returns it with room for a first
/// request, once the upstream has said how many it takes at once: none is sent before.
pub(crate) async fn handshake<S>(
    outbound: &Outbound,
    origin: &Origin,
    stream: S,
    writes: Arc<Writes>,
    life: Lifespan,
) -> Result<(Arc<SharedConnection>, Stream), Error>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let Outbound { clock, metrics, .. } = outbound;
    let executor = H2Executor::default();
    let (sender, connection) = http2::Builder::new(executor.clone())
        .timer(TokioTimer::new())
        .initial_max_send_streams(UNTOLD)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(MAX_HEAD as u32)
        // Workers that leave in the middle of their answers end their own streams: what is still on its way to those
        // is no fault of the API's, for which h2 would end the connection.
        .max_concurrent_reset_streams(4 * MOST_STREAMS)
        .max_local_error_reset_streams(None)
        .keep_alive_interval(PING)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| Error::Connect { origin: origin.to_string(), source: error.into() })?;
    let shared = Arc::new(SharedConnection::new(sender, writes, life, *clock));
    let (told, settled) = oneshot::channel();
    let open = metrics.upstream_connections.clone();
    open.inc();
    // Weakly, because the connection ends with its last sender.
    let (weak, mut told) = (Arc::downgrade(&shared), Some(told));
    tokio::spawn(async move {
        let (mut connection, mut frames, mut ended) = (Some(Box::pin(connection)), executor.frames(), None);
        let ended = poll_fn(|cx| {
            if frames.as_mut().is_some_and(|frames| frames.as_mut().poll(cx).is_ready()) {
                frames = None;
            }
            if let Some(requests) = &mut connection {
                let done = requests.as_mut().poll(cx);
                let allowed = requests.current_max_send_streams();
                if allowed != UNTOLD
                    && let Some(shared) = weak.upgrade()
                {
                    shared.allowed.store(allowed.min(MOST_STREAMS), Ordering::Relaxed);
                    told.take().map(|told| told.send(()));
                }
                if let Poll::Ready(how) = done {
                    ended = Some(how);
                    // While it is there, more streams could be opened, and the frames never end.
                    connection = None;
                }
            }
            // Streams outlive the senders that could open more.
            if frames.is_none() { ended.take().map_or(Poll::Pending, Poll::Ready) } else { Poll::Pending }
        });
        if let Err(error) = ended.await {
            debug!(%error, "an upstream's connection ended early");
        }
        open.dec();
    });
    settled.await.map_err(|_| Error::Connect {
        origin: origin.to_string(),
        source: "it ended before it had said what it allows (SETTINGS)".into(),
    })?;
    let stream = shared.open().ok_or_else(|| Error::BadAnswer {
        origin: origin.to_string(),
        source: "it allows no request at all (SETTINGS_MAX_CONCURRENT_STREAMS is 0)".into(),
    })?;
    Ok((shared, stream))
}

// === impl SharedConnection ===

impl SharedConnection {
    /// One on which no request may be sent yet.
    fn new(sender: H2Sender, writes: Arc<Writes>, life: Lifespan, clock: Clock) -> Self {
        let since = AtomicU64::new(clock.now().as_nanos());
        Self { sender, writes, life, active: AtomicUsize::new(0), allowed: AtomicUsize::new(0), since, clock }
    }

    /// Room for one more request, if the upstream allows it.
    pub(crate) fn open(self: &Arc<Self>) -> Option<Stream> {
        // The pool is one thread's: nothing comes in between.
        self.has_room().then(|| {
            self.active.fetch_add(1, Ordering::Relaxed);
            Stream(self.clone())
        })
    }

    pub(crate) fn has_room(&self) -> bool {
        self.active.load(Ordering::Relaxed) < self.allowed.load(Ordering::Relaxed)
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.active.load(Ordering::Relaxed) > 0
    }

    /// Whether it may carry new requests `now`.
    pub(crate) fn is_usable(&self, now: Instant, limits: &ReuseLimits) -> bool {
        let since = Instant::from_nanos(self.since.load(Ordering::Relaxed));
        let idle_over = !self.is_busy() && limits.is_idle_over(since, now);
        !idle_over && !self.sender.is_closed() && !self.life.is_too_old(now, limits)
    }

    pub(crate) fn life(&self) -> &Lifespan {
        &self.life
    }

    pub(crate) fn sender(&self) -> H2Sender {
        self.sender.clone()
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
        // As long as others are under way nobody asks since when none is. It is noted before that can be asked.
        let note = || self.0.since.store(self.0.clock.now().as_nanos(), Ordering::Relaxed);
        let is_last = self.0.active.load(Ordering::Relaxed) == 1;
        if is_last {
            note();
        }
        if self.0.active.fetch_sub(1, Ordering::Relaxed) == 1 && !is_last {
            note();
        }
    }
}
