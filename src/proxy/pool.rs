//! Unused and shared connections to upstreams: one pool per runtime thread, so that nothing is shared between threads and
//! nothing wakes another core.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use super::{
    lease::{Http1, Http2, Lease},
    writes::Writes,
};
use crate::{
    clock::{Clock, Instant},
    error::Error,
    policy::Origin,
    tls::Protocol,
};

/// More unused connections than this are not kept by one thread: descriptors are for those who work.
const MOST_UNUSED: usize = 1024;
/// How many milliseconds it takes until connections that are let go are closed, and on a busy machine.
const CLOSING: [u64; 3] = [10, 40, 150];

/// The connections of one runtime thread that may carry another request.
pub struct Pool {
    clock: Clock,
    keep_alive: Duration,
    shelves: Mutex<HashMap<Key, Arc<Shelf>>>,
    /// How many unused connections there are.
    unused: Arc<AtomicUsize>,
}

/// Two rules may reach the same origin by different ways.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) origin: Origin,
    pub(super) rule: Arc<str>,
    /// In the clear, and by HTTP/2 all the same.
    pub(super) h2c: bool,
}

/// The connections to one upstream.
pub(super) struct Shelf {
    clock: Clock,
    /// The most recently used last: it is the least likely to have been closed.
    idle: Mutex<Vec<Idle>>,
    shared: Mutex<Vec<Arc<Shared>>>,
    pub(super) warming: AtomicBool,
    /// What the upstream speaks, as far as that is known.
    protocol: AtomicU8,
    /// Held while a connection is made that others may be able to share.
    pub(super) dialling: tokio::sync::Mutex<()>,
    unused: Arc<AtomicUsize>,
}

struct Idle {
    sender: Http1,
    writes: Arc<Writes>,
    since: Instant,
    _counted: Counted,
}

/// An HTTP/2 connection.
pub(super) struct Shared {
    pub(super) sender: Http2,
    pub(super) writes: Arc<Writes>,
    /// How many requests are under way on it.
    active: AtomicUsize,
    /// How many the upstream allows (RFC 9113 §6.5.2).
    pub(super) allowed: AtomicUsize,
    /// When the last one ended, in nanoseconds of the clock.
    since: AtomicU64,
    clock: Clock,
}

/// A request's part of a shared connection.
pub(super) struct Stream(Arc<Shared>);

/// Counts an unused connection while there is one.
struct Counted(Arc<AtomicUsize>);

// === impl Pool ===

impl Pool {
    /// An empty pool that keeps unused connections for `keep_alive`.
    pub fn new(clock: Clock, keep_alive: Duration) -> Self {
        Self { clock, keep_alive, shelves: Mutex::default(), unused: Arc::default() }
    }

    pub(super) fn shelf(&self, key: Key) -> Arc<Shelf> {
        let new = || Shelf {
            clock: self.clock,
            idle: Mutex::default(),
            shared: Mutex::default(),
            warming: AtomicBool::new(false),
            protocol: AtomicU8::new(UNKNOWN),
            dialling: tokio::sync::Mutex::new(()),
            unused: self.unused.clone(),
        };
        self.shelves.lock().entry(key).or_insert_with(|| new().into()).clone()
    }

    /// Closes connections that were not used for long, and forgets upstreams that nobody calls.
    pub fn sweep(&self) {
        let oldest = self.clock.now() - self.keep_alive;
        self.shelves.lock().retain(|_, shelf| {
            let mut idle = shelf.idle.lock();
            idle.retain(|idle| idle.since > oldest && idle.sender.is_ready());
            let mut shared = shelf.shared.lock();
            shared.retain(|shared| !shared.sender.is_closed() && (shared.is_busy() || shared.since() > oldest));
            !idle.is_empty() || !shared.is_empty() || Arc::strong_count(shelf) > 1
        });
    }

    /// Makes a connection; if the process has no file descriptor left, unused ones are the first to go.
    pub(super) async fn with_room<T, F>(&self, make: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let exhausted = |outcome: &Result<T, Error>| matches!(outcome, Err(Error::NoDescriptor { .. }));
        let mut outcome = make().await;
        if exhausted(&outcome) && !self.is_empty() {
            self.clear();
            for wait in CLOSING {
                tokio::time::sleep(Duration::from_millis(wait)).await;
                outcome = make().await;
                if !exhausted(&outcome) {
                    break;
                }
            }
        }
        outcome
    }

    /// Closes all unused connections.
    pub fn clear(&self) {
        for shelf in self.shelves.lock().values() {
            shelf.idle.lock().clear();
            shelf.shared.lock().retain(|shared| shared.is_busy());
        }
    }

    /// How many unused connections there are, not counting those that can be shared.
    pub fn len(&self) -> usize {
        self.unused.load(Ordering::Relaxed)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

// === impl Shelf ===

const UNKNOWN: u8 = 0;
const HTTP1: u8 = 1;
const HTTP2: u8 = 2;

impl Shelf {
    /// A connection that is ready for a request; of HTTP/1 if only that will do.
    pub(super) fn take(self: &Arc<Self>, http1_only: bool) -> Option<Lease> {
        if !http1_only && self.protocol.load(Ordering::Relaxed) == HTTP2 {
            let mut shared = self.shared.lock();
            shared.retain(|shared| !shared.sender.is_closed());
            if let Some(stream) = shared.iter().find_map(Shared::open) {
                return Some(Lease::shared(stream, true));
            }
        }
        let mut idle = self.idle.lock();
        while let Some(unused) = idle.pop() {
            if unused.sender.is_ready() {
                return Some(Lease::own(unused.sender, self.clone(), unused.writes, true));
            }
        }
        None
    }

    /// Whether a request would find a connection.
    pub(super) fn is_warm(&self) -> bool {
        self.idle.lock().iter().any(|idle| idle.sender.is_ready())
            || self.shared.lock().iter().any(|shared| shared.has_room() && !shared.sender.is_closed())
    }

    pub(super) fn put(&self, sender: Http1, writes: Arc<Writes>) {
        if self.unused.load(Ordering::Relaxed) < MOST_UNUSED {
            let since = self.clock.now();
            self.idle.lock().push(Idle { sender, writes, since, _counted: Counted::new(&self.unused) });
        }
    }

    /// Offers a connection to everybody.
    pub(super) fn share(&self, shared: Arc<Shared>) {
        self.shared.lock().push(shared);
    }

    /// What the upstream speaks, if that is known.
    pub(super) fn protocol(&self) -> Option<Protocol> {
        match self.protocol.load(Ordering::Relaxed) {
            HTTP1 => Some(Protocol::Http1),
            HTTP2 => Some(Protocol::Http2),
            _ => None,
        }
    }

    pub(super) fn learn(&self, protocol: Protocol) {
        let protocol = match protocol {
            Protocol::Http1 => HTTP1,
            Protocol::Http2 => HTTP2,
        };
        self.protocol.store(protocol, Ordering::Relaxed);
    }
}

// === impl Shared ===

impl Shared {
    pub(super) fn new(sender: Http2, writes: Arc<Writes>, allowed: usize, clock: Clock) -> Self {
        let since = AtomicU64::new(clock.now().as_nanos());
        Self { sender, writes, active: AtomicUsize::new(0), allowed: AtomicUsize::new(allowed), since, clock }
    }

    /// Room for one more request, if the upstream allows it.
    pub(super) fn open(self: &Arc<Self>) -> Option<Stream> {
        // One thread's pool: nobody else comes in between.
        self.has_room().then(|| {
            self.active.fetch_add(1, Ordering::Relaxed);
            Stream(self.clone())
        })
    }

    fn has_room(&self) -> bool {
        self.active.load(Ordering::Relaxed) < self.allowed.load(Ordering::Relaxed)
    }

    fn is_busy(&self) -> bool {
        self.active.load(Ordering::Relaxed) > 0
    }

    fn since(&self) -> Instant {
        Instant::from_nanos(self.since.load(Ordering::Relaxed))
    }
}

// === impl Stream ===

impl Stream {
    pub(super) fn connection(&self) -> &Arc<Shared> {
        &self.0
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.since.store(self.0.clock.now().as_nanos(), Ordering::Relaxed);
        self.0.active.fetch_sub(1, Ordering::Relaxed);
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
