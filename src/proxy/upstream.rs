//! Connections to upstreams: one pool per runtime thread, so that nothing is shared and nothing wakes another core.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::HeaderValue;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tracing::debug;

use super::{
    Proxy,
    body::RequestBody,
    noted::{Moved, Noted},
};
use crate::{
    clock::{Clock, Instant},
    error::Error,
    pace::Lane,
    policy::Origin,
};

/// How long a connection may take to become usable again after its answer has been read, for instance because the
/// upstream answered before it had read the whole request.
const SETTLE: Duration = Duration::from_secs(5);
/// More unused connections than this are not kept by one thread: descriptors are for those who work.
const MOST_UNUSED: usize = 1024;
/// How long it takes until connections that are let go are closed.
const CLOSING: Duration = Duration::from_millis(10);
/// The head of an answer.
const MAX_HEAD: usize = 512 * 1024;

/// Where a request goes, found once and remembered by the connection it came on.
pub(super) struct Route {
    /// As the request had it, to recognise the next one by.
    pub(super) authority: Box<str>,
    pub(super) origin: Origin,
    /// The same, as the upstream is to see it.
    pub(super) host: HeaderValue,
    pub(super) lane: Arc<Lane>,
    shelf: Arc<Shelf>,
}

/// The unused connections of one runtime thread.
pub struct Pool {
    clock: Clock,
    keep_alive: Duration,
    shelves: Mutex<HashMap<Origin, Arc<Shelf>>>,
    /// How many unused connections there are.
    unused: Arc<AtomicUsize>,
}

/// The unused connections to one upstream.
pub(super) struct Shelf {
    clock: Clock,
    /// The most recently used last: it is the least likely to have been closed.
    idle: Mutex<Vec<Idle>>,
    warming: AtomicBool,
    unused: Arc<AtomicUsize>,
}

struct Idle {
    sender: SendRequest<RequestBody>,
    written: Arc<AtomicU64>,
    since: Instant,
    _counted: Counted,
}

/// Counts an unused connection while there is one.
struct Counted(Arc<AtomicUsize>);

/// A connection in use. Dropped it is closed, unless it was given back.
pub(super) struct Lease {
    pub(super) sender: SendRequest<RequestBody>,
    shelf: Arc<Shelf>,
    /// When something was last written to it, in nanoseconds of the clock.
    written: Arc<AtomicU64>,
    /// Whether it has carried a request before, so that the upstream may have closed it meanwhile.
    pub(super) reused: bool,
}

// === impl Pool ===

impl Pool {
    /// An empty pool that keeps unused connections for `keep_alive`.
    pub fn new(clock: Clock, keep_alive: Duration) -> Self {
        Self { clock, keep_alive, shelves: Mutex::default(), unused: Arc::default() }
    }

    pub(super) fn shelf(&self, origin: &Origin) -> Arc<Shelf> {
        let new = || Shelf {
            clock: self.clock,
            idle: Mutex::default(),
            warming: AtomicBool::new(false),
            unused: self.unused.clone(),
        };
        self.shelves.lock().entry(origin.clone()).or_insert_with(|| new().into()).clone()
    }

    /// Closes connections that were not used for long, and forgets upstreams that nobody calls.
    pub fn sweep(&self) {
        let oldest = self.clock.now() - self.keep_alive;
        self.shelves.lock().retain(|_, shelf| {
            let mut idle = shelf.idle.lock();
            idle.retain(|idle| idle.since > oldest && idle.sender.is_ready());
            let empty = idle.is_empty();
            drop(idle);
            !empty || Arc::strong_count(shelf) > 1
        });
    }

    /// Closes all unused connections.
    pub fn clear(&self) {
        self.shelves.lock().values().for_each(|shelf| shelf.idle.lock().clear());
    }

    /// How many unused connections there are.
    pub fn len(&self) -> usize {
        self.unused.load(Ordering::Relaxed)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

// === impl Route ===

impl Route {
    pub(super) fn new(authority: &str, origin: Origin, host: HeaderValue, lane: Arc<Lane>, pool: &Pool) -> Self {
        let shelf = pool.shelf(&origin);
        Self { authority: authority.into(), origin, host, lane, shelf }
    }

    /// A connection that is ready for a request.
    pub(super) async fn connection(&self, proxy: &Proxy, pool: &Pool) -> Result<Lease, Error> {
        match self.shelf.take() {
            Some(Idle { sender, written, .. }) => {
                Ok(Lease { sender, shelf: self.shelf.clone(), written, reused: true })
            }
            // Boxed, because it is large and rare: every request that waits would carry its size.
            None => Box::pin(self.dial_with_room(proxy, pool)).await,
        }
    }

    /// Makes a connection shortly after `at`, unless there is one then or somebody is at it already: never one per
    /// ticket.
    pub(super) fn warm(self: &Arc<Self>, proxy: &Arc<Proxy>, at: Instant) {
        if !self.shelf.idle.lock().is_empty() || self.shelf.warming.swap(true, Ordering::Relaxed) {
            return;
        }
        let (route, proxy) = (self.clone(), proxy.clone());
        tokio::spawn(async move {
            proxy.clock.sleep_until(at).await;
            if route.shelf.idle.lock().is_empty() && !proxy.is_draining() {
                match route.dial(&proxy).await {
                    Ok(lease) => lease.give_back(),
                    Err(error) => debug!(%error, "could not make a connection ready ahead of its slot"),
                }
            }
            route.shelf.warming.store(false, Ordering::Relaxed);
        });
    }

    /// Dials; if the process has no file descriptor left, unused connections are the first to go.
    async fn dial_with_room(&self, proxy: &Proxy, pool: &Pool) -> Result<Lease, Error> {
        match self.dial(proxy).await {
            Err(error) if error.is_exhaustion() && !pool.is_empty() => {
                pool.clear();
                tokio::time::sleep(CLOSING).await;
                self.dial(proxy).await
            }
            outcome => outcome,
        }
    }

    async fn dial(&self, proxy: &Proxy) -> Result<Lease, Error> {
        let policy = self.lane.policy();
        let stream = proxy.dialer.connect(&self.origin, &policy.egress, policy.allow_private).await?;
        let written = Arc::new(AtomicU64::new(0));
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(MAX_HEAD)
            .writev(false)
            .handshake(TokioIo::new(Noted::new(stream, stamp(proxy.clock, written.clone()))))
            .await
            .map_err(|error| Error::Connect { origin: self.origin.to_string(), source: error.into() })?;
        let open = proxy.metrics.upstream_connections.clone();
        open.inc();
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                debug!(%error, "an upstream's connection ended early");
            }
            open.dec();
        });
        Ok(Lease { sender, shelf: self.shelf.clone(), written, reused: false })
    }
}

// === impl Shelf ===

impl Shelf {
    fn take(&self) -> Option<Idle> {
        let mut idle = self.idle.lock();
        while let Some(unused) = idle.pop() {
            if unused.sender.is_ready() {
                return Some(unused);
            }
        }
        None
    }

    fn put(&self, sender: SendRequest<RequestBody>, written: Arc<AtomicU64>) {
        if self.unused.load(Ordering::Relaxed) < MOST_UNUSED {
            let since = self.clock.now();
            self.idle.lock().push(Idle { sender, written, since, _counted: Counted::new(&self.unused) });
        }
    }
}

// === impl Counted ===

impl Counted {
    fn new(unused: &Arc<AtomicUsize>) -> Self {
        unused.fetch_add(1, Ordering::Relaxed);
        Self(unused.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl Lease ===

impl Lease {
    /// When something was last written.
    pub(super) fn written(&self) -> Instant {
        Instant::from_nanos(self.written.load(Ordering::Relaxed))
    }

    /// The answer was read to its end: the connection may carry another request.
    pub(super) fn give_back(self) {
        let Self { mut sender, shelf, written, .. } = self;
        if sender.is_ready() {
            shelf.put(sender, written);
        } else if !sender.is_closed() {
            tokio::spawn(async move {
                if let Ok(Ok(())) = tokio::time::timeout(SETTLE, sender.ready()).await {
                    shelf.put(sender, written);
                }
            });
        }
    }
}

/// Notes in `written` when something is written.
fn stamp(clock: Clock, written: Arc<AtomicU64>) -> impl Fn(Moved) {
    move |moved| {
        if moved == Moved::Out {
            written.store(clock.now().as_nanos(), Ordering::Relaxed);
        }
    }
}
