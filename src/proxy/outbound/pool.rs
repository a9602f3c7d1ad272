//! Connections to upstreams that may carry another request: one pool per runtime thread, so that nothing is shared between
//! threads and nothing wakes another core.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use crate::{
    clock::Clock,
    error::Error,
    policy::Origin,
    proxy::{drain::Drain, outbound::host_pool::HostPool},
};

/// How many milliseconds it takes until connections that are let go are closed, and on a busy machine.
const CLOSING: [u64; 3] = [10, 40, 150];

/// The connections of one runtime thread that may carry another request.
pub struct Pool {
    clock: Clock,
    keep_alive: Duration,
    hosts: Mutex<HashMap<PoolKey, Arc<HostPool>>>,
    /// How many unused connections there are.
    unused: Arc<AtomicUsize>,
}

/// Two rules may reach the same origin by different ways.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PoolKey {
    pub(crate) origin: Origin,
    pub(crate) rule: Arc<str>,
    /// HTTP/2 in the clear (h2c).
    pub(crate) h2c: bool,
    /// The address that a tunnel's client has chosen.
    pub(crate) pin: Option<Arc<str>>,
    /// See [`Outbound::way`](super::Outbound).
    pub(crate) way: u64,
}

// === impl Pool ===

impl Pool {
    /// An empty pool that keeps unused connections for `keep_alive`.
    pub fn new(clock: Clock, keep_alive: Duration) -> Self {
        Self { clock, keep_alive, hosts: Mutex::default(), unused: Arc::default() }
    }

    /// The connections to one upstream.
    pub(crate) fn host(&self, key: PoolKey) -> Arc<HostPool> {
        let new = || HostPool::new(self.clock, self.unused.clone());
        self.hosts.lock().entry(key).or_insert_with(|| new().into()).clone()
    }

    /// Closes connections that were not used for long, and forgets upstreams without any.
    pub fn sweep(&self) {
        let oldest = self.clock.now() - self.keep_alive;
        self.hosts.lock().retain(|_, host| host.sweep(oldest) || Arc::strong_count(host) > 1);
    }

    /// Makes a connection; if the process has no file descriptor left, unused ones are the first to go, and then those of workers
    /// that carry no request.
    pub(crate) async fn with_room<T, F>(&self, drain: &Drain, make: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let exhausted = |outcome: &Result<T, Error>| matches!(outcome, Err(Error::NoDescriptor { .. }));
        let mut outcome = make().await;
        if exhausted(&outcome) {
            self.clear();
            for wait in CLOSING {
                tokio::time::sleep(Duration::from_millis(wait)).await;
                outcome = make().await;
                if !exhausted(&outcome) {
                    break;
                }
                drain.make_room(self.clock.now());
            }
        }
        outcome
    }

    /// Closes all unused connections.
    pub fn clear(&self) {
        self.hosts.lock().values().for_each(|host| host.clear());
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
