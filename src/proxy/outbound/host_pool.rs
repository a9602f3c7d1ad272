//! The connections to one upstream: idle ones, shared ones, and connections that a request uses.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::Response;
use hyper::body::Incoming;
use parking_lot::Mutex;

use crate::{
    clock::{Clock, Instant},
    memory::Charge,
    proxy::{
        message::{
            appetite::Appetite,
            interim_reader::InterimSink,
            keep_alive::KeepAlive,
            receive_window::ReceiveWindow,
            request_body::BoxedRequest,
            stream_reader::StreamReader,
            writes::{Writes, Written},
        },
        outbound::{
            h1::Sender,
            h2::{SharedConnection, Stream},
            h2_request::{self, SendError},
            lifespan::{Lifespan, ReportedAddresses, ReuseLimits},
        },
    },
    tls::Protocol,
};

/// Maximum number of unused connections that one thread keeps: descriptors are for connections in use.
const MOST_UNUSED: usize = 1024;
/// Maximum time in which a connection has to become usable again after its answer was read. The upstream may have
/// answered before it had read the whole request, for instance.
const SETTLE: Duration = Duration::from_secs(5);

/// Pause after a name could not be resolved.
const ADDRESS_CHECK_RETRY: Duration = Duration::from_secs(10);

/// Shortest interval at which the name of a used connection is resolved, however short its TTL is.
pub(crate) const LEAST_RECHECK: Duration = Duration::from_secs(2);

/// Values of `protocol`: the upstream's protocol, as far as known.
const UNKNOWN: u8 = 0;
const HTTP1: u8 = 1;
const HTTP2: u8 = 2;

/// The connections to one upstream.
pub(crate) struct HostPool {
    clock: Clock,
    limits: ReuseLimits,
    /// Idle connections, the most recently used last: it is the least likely to have been closed.
    idle: Mutex<Vec<Idle>>,
    shared: Mutex<Vec<Arc<SharedConnection>>>,
    /// True while a connection is being made ahead of its slot.
    pub(crate) warming: AtomicBool,
    protocol: AtomicU8,
    /// True if the upstream speaks HTTP/2, and has asked for HTTP/1.1 (RFC 9113 §7, HTTP_1_1_REQUIRED).
    requires_http1: AtomicBool,
    /// True if the upstream has complained of PINGs.
    pub(crate) no_pings: Arc<AtomicBool>,
    /// Lock held while a connection is made that others may be able to share.
    pub(crate) dialling: tokio::sync::Mutex<()>,
    /// Number of connections that were made to learn the protocol, and failed.
    pub(crate) failed_probes: AtomicU64,
    unused: Arc<AtomicUsize>,
    /// True if the connections are logged in as one worker: see [`RoutePools`](super::route_pools::RoutePools).
    is_exclusive: bool,
    /// Addresses last reported for the upstream, and the time of the next look-up, in nanoseconds of the clock.
    reported: Mutex<Option<ReportedAddresses>>,
    next_address_check: AtomicU64,
}

struct Idle {
    sender: Sender,
    writes: Arc<Writes>,
    life: Lifespan,
    _counted: IdleCount,
}

/// Counts an unused connection until it is dropped.
struct IdleCount(Arc<AtomicUsize>);

/// A connection in use. Dropping it closes the connection, unless it was released or others use it, too.
pub(crate) struct PooledConnection {
    connection: Connection,
    /// Writes on the connection.
    writes: Arc<Writes>,
    /// When the request was written, if others share the connection.
    written: Option<Written>,
    /// True if the connection has carried a request before, so that the upstream may have closed it meanwhile.
    pub(crate) reused: bool,
}

/// The body of an answer, as it comes from its connection.
pub(crate) enum AnswerBody {
    /// A body on a connection that carries nothing else meanwhile.
    Own(Incoming),
    /// A body on a stream of an HTTP/2 connection, and the stream's window.
    Shared(StreamReader, Arc<ReceiveWindow>),
}

enum Connection {
    /// An HTTP/1 connection, for one request at a time, and the pool to which it returns.
    Own(Sender, Lifespan, Arc<HostPool>),
    /// A stream of an HTTP/2 connection.
    Shared(Stream),
}

// === impl HostPool ===

impl HostPool {
    /// Creates an empty pool, which counts its unused connections in `unused`.
    pub(crate) fn new(clock: Clock, limits: ReuseLimits, unused: Arc<AtomicUsize>) -> Self {
        Self {
            clock,
            limits,
            idle: Mutex::default(),
            shared: Mutex::default(),
            warming: AtomicBool::new(false),
            protocol: AtomicU8::new(UNKNOWN),
            requires_http1: AtomicBool::new(false),
            no_pings: Arc::default(),
            dialling: tokio::sync::Mutex::new(()),
            failed_probes: AtomicU64::new(0),
            unused,
            is_exclusive: false,
            reported: Mutex::default(),
            // The first connection has just resolved the name.
            next_address_check: AtomicU64::new((clock.now() + LEAST_RECHECK).as_nanos()),
        }
    }

    /// An empty pool to the same upstream, for one session.
    pub(crate) fn exclusive(&self) -> Self {
        let empty = Self::new(self.clock, self.limits.of_any_age(), self.unused.clone());
        Self { is_exclusive: true, no_pings: self.no_pings.clone(), ..empty }
    }

    /// A connection that is ready for a request `now`; only of HTTP/1 if `http1_only`.
    pub(crate) fn take(self: &Arc<Self>, http1_only: bool, now: Instant) -> Option<PooledConnection> {
        if !http1_only && self.protocol.load(Ordering::Relaxed) == HTTP2 {
            let mut shared = self.shared.lock();
            shared.retain(|shared| shared.is_usable(now, &self.limits));
            if let Some(stream) = shared.iter().find_map(SharedConnection::open) {
                return Some(PooledConnection::shared(stream, true));
            }
        }
        let mut idle = self.idle.lock();
        while let Some(unused) = idle.pop() {
            // A login continues on its connection, even if the last request on it is still being written.
            let ready = unused.sender.is_ready() || self.is_exclusive && !unused.sender.is_closed();
            if ready && unused.life.is_reusable(now, &self.limits) {
                let Idle { sender, writes, life, .. } = unused;
                return Some(PooledConnection::own(sender, life, self.clone(), writes, true));
            }
        }
        None
    }

    /// Returns whether a request would find a connection.
    pub(crate) fn is_warm(&self) -> bool {
        let now = self.clock.now();
        let ready = |idle: &Idle| idle.sender.is_ready() && idle.life.is_reusable(now, &self.limits);
        let has_room = |shared: &Arc<SharedConnection>| shared.has_room() && shared.is_usable(now, &self.limits);
        self.idle.lock().iter().any(ready) || self.shared.lock().iter().any(has_room)
    }

    /// Offers an HTTP/2 connection to all requests.
    pub(crate) fn share(&self, shared: Arc<SharedConnection>) {
        self.shared.lock().push(shared);
    }

    /// The upstream's protocol, if known.
    pub(crate) fn protocol(&self) -> Option<Protocol> {
        match self.protocol.load(Ordering::Relaxed) {
            HTTP1 => Some(Protocol::Http1),
            HTTP2 => Some(Protocol::Http2),
            _ => None,
        }
    }

    /// Remembers that the upstream has asked for HTTP/1.1.
    pub(crate) fn require_http1(&self) {
        self.requires_http1.store(true, Ordering::Relaxed);
        self.learn(Protocol::Http1);
        self.shared.lock().clear();
    }

    /// Returns whether the upstream has asked for HTTP/1.1, although it speaks HTTP/2.
    pub(crate) fn requires_http1(&self) -> bool {
        self.requires_http1.load(Ordering::Relaxed)
    }

    /// Remembers the upstream's protocol.
    pub(crate) fn learn(&self, protocol: Protocol) {
        let protocol = match protocol {
            Protocol::Http1 => HTTP1,
            Protocol::Http2 => HTTP2,
        };
        self.protocol.store(protocol, Ordering::Relaxed);
    }

    /// Closes connections that may carry no more requests. Returns whether any is left.
    pub(crate) fn sweep(&self, now: Instant) -> bool {
        let mut idle = self.idle.lock();
        idle.retain(|idle| idle.sender.is_ready() && idle.life.is_reusable(now, &self.limits));
        let mut shared = self.shared.lock();
        shared.retain(|shared| shared.is_usable(now, &self.limits));
        !idle.is_empty() || !shared.is_empty()
    }

    /// Closes all unused connections.
    pub(crate) fn clear(&self) {
        self.idle.lock().clear();
        self.shared.lock().retain(|shared| shared.is_busy());
    }

    /// Returns whether the upstream's addresses are to be looked up `now`. The caller then looks them up; other callers
    /// get `false` meanwhile.
    pub(crate) fn takes_address_check(&self, now: Instant) -> bool {
        let due = self.next_address_check.load(Ordering::Relaxed);
        let takes = !self.is_exclusive && now.as_nanos() >= due;
        if takes {
            self.check_addresses_at(now + ADDRESS_CHECK_RETRY);
        }
        takes
    }

    /// Schedules the next look-up of the upstream's addresses for `at`, if its connections are still used then.
    pub(crate) fn check_addresses_at(&self, at: Instant) {
        self.next_address_check.store(at.as_nanos(), Ordering::Relaxed);
    }

    /// Drops connections to addresses that are not among those `reported`: unused connections at once, others after
    /// their requests.
    pub(crate) fn on_addresses(&self, reported: ReportedAddresses) {
        self.idle.lock().retain(|idle| !idle.life.has_moved(&reported));
        self.shared.lock().retain(|shared| !shared.life().has_moved(&reported));
        *self.reported.lock() = Some(reported);
    }

    fn put(&self, sender: Sender, writes: Arc<Writes>, mut life: Lifespan, now: Instant) {
        life.on_release(now);
        let moved = self.reported.lock().as_ref().is_some_and(|reported| life.has_moved(reported));
        if !moved && self.unused.load(Ordering::Relaxed) < MOST_UNUSED && life.is_reusable(now, &self.limits) {
            self.idle.lock().push(Idle { sender, writes, life, _counted: IdleCount::new(&self.unused) });
        }
    }
}

// === impl PooledConnection ===

impl PooledConnection {
    /// An HTTP/1 connection, which returns to `host_pool` when it is released.
    pub(crate) fn own(
        sender: Sender,
        life: Lifespan,
        host_pool: Arc<HostPool>,
        writes: Arc<Writes>,
        reused: bool,
    ) -> Self {
        Self { connection: Connection::Own(sender, life, host_pool), writes, written: None, reused }
    }

    /// A stream of an HTTP/2 connection.
    pub(crate) fn shared(stream: Stream, reused: bool) -> Self {
        let writes = stream.connection().writes().clone();
        Self { connection: Connection::Shared(stream), writes, written: None, reused }
    }

    /// Protocol of the connection.
    pub(crate) fn protocol(&self) -> Protocol {
        match self.connection {
            Connection::Own(..) => Protocol::Http1,
            Connection::Shared(_) => Protocol::Http2,
        }
    }

    /// Sends `request`. By HTTP/1, the head of its answer is charged to the holder of this `charge`. An error returns the
    /// request if not a byte of it was written.
    pub(crate) async fn send(
        &mut self,
        mut request: BoxedRequest,
        charge: impl FnOnce() -> Charge,
    ) -> Result<Response<AnswerBody>, SendError> {
        match &mut self.connection {
            Connection::Own(sender, ..) => {
                self.writes.head.begin(charge());
                self.writes.task.works();
                let answer = sender.try_send_request(*request).await.map_err(|mut error| SendError {
                    unsent: error.take_message().map(Box::new),
                    error: error.into_error().into(),
                })?;
                self.writes.head.on_whole();
                Ok(answer.map(AnswerBody::Own))
            }
            Connection::Shared(stream) => {
                let written = Written::by(&self.writes);
                request.body_mut().note_writes(written.clone());
                self.written = Some(written);
                let answer = h2_request::send(stream, request).await?;
                let window = stream.connection().window().clone();
                Ok(answer.map(|reader| AnswerBody::Shared(reader, window)))
            }
        }
    }

    /// Passes interim answers before the next answer to `sink`, if the upstream speaks HTTP/1.
    pub(crate) fn listen(&self, sink: Arc<dyn InterimSink>) {
        if let Connection::Own(..) = self.connection {
            self.writes.interim.listen(sink);
        }
    }

    /// Waits until the connection can carry a request; a new connection cannot until it was polled once. Returns
    /// whether it can.
    pub(crate) async fn settle(&mut self) -> bool {
        match &mut self.connection {
            Connection::Own(sender, ..) if sender.is_ready() => true,
            Connection::Own(sender, ..) => matches!(tokio::time::timeout(SETTLE, sender.ready()).await, Ok(Ok(()))),
            Connection::Shared(_) => true,
        }
    }

    /// Keeps the connection for the session of `host_pool`. A shared connection stays with all its users: no login is
    /// bound to one.
    pub(crate) fn keep_for(&mut self, host_pool: &Arc<HostPool>) {
        if let Connection::Own(.., home) = &mut self.connection {
            home.clone_from(host_pool);
        }
    }

    /// Records the limits `announced` by an answer's head.
    pub(crate) fn on_answer(&mut self, announced: KeepAlive) {
        if let Connection::Own(_, life, _) = &mut self.connection {
            life.on_answer(announced);
        }
    }

    /// When the last of the request was written, as far as it has been.
    pub(crate) fn written(&self) -> Instant {
        self.written.as_ref().map_or_else(|| self.writes.last(), Written::at)
    }

    /// Error of a write of the request, if the upstream stopped reading.
    pub(crate) fn write_failure(&self) -> Option<io::ErrorKind> {
        self.writes.failure()
    }

    /// Records that more of the answer is taken. If all of it was read and the connection is ready for another request,
    /// its task need not know.
    pub(crate) fn note_taking(&self) {
        if let Connection::Own(sender, ..) = &self.connection
            && sender.is_ready()
        {
            self.writes.task.rests();
        }
    }

    /// Flag that tells the connection whether more of the answer is to be read.
    pub(crate) fn appetite(&self) -> &Appetite {
        &self.writes.appetite
    }

    /// Returns the connection to its pool after the answer was read to its end, at `now`.
    pub(crate) fn release(self, now: Instant) {
        let Self { connection: Connection::Own(mut sender, life, host_pool), writes, .. } = self else { return };
        if writes.failure().is_some() || life.is_counted_out() {
            return;
        }
        writes.head.end();
        if sender.is_ready() || host_pool.is_exclusive && !sender.is_closed() {
            host_pool.put(sender, writes, life, now);
        } else if !sender.is_closed() {
            tokio::spawn(async move {
                if let Ok(Ok(())) = tokio::time::timeout(SETTLE, sender.ready()).await {
                    host_pool.put(sender, writes, life, host_pool.clock.now());
                }
            });
        }
    }
}

// === impl IdleCount ===

impl IdleCount {
    fn new(unused: &Arc<AtomicUsize>) -> Self {
        unused.fetch_add(1, Ordering::Relaxed);
        Self(unused.clone())
    }
}

impl Drop for IdleCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
