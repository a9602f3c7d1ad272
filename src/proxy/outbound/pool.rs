//! Reusable connections to upstreams: one pool per runtime thread, so that threads share nothing and wake no other
//! core.

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
    config::Timeouts,
    error::Error,
    policy::Origin,
    proxy::{
        drain::Drain,
        outbound::{host_pool::HostPool, lifespan::ReuseLimits},
    },
};

/// Pauses between attempts in milliseconds: released connections take a moment to close, and more on a busy machine.
const CLOSING: [u64; 3] = [10, 40, 150];
/// Maximum number of attempts to connect while workers' connections end: about four seconds.
const MAX_TRIES: usize = 60;

/// The reusable connections of one runtime thread.
pub struct Pool {
    clock: Clock,
    limits: ReuseLimits,
    hosts: Mutex<HashMap<PoolKey, Arc<HostPool>>>,
    /// Number of unused connections.
    unused: Arc<AtomicUsize>,
}

/// Identifies the connections to one upstream. Two rules may reach the same origin by different ways.
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
    /// Creates an empty pool that uses connections for as long as `timeouts` say.
    pub fn new(clock: Clock, timeouts: &Timeouts) -> Self {
        Self { clock, limits: ReuseLimits::of(timeouts), hosts: Mutex::default(), unused: Arc::default() }
    }

    /// The connections to one upstream.
    pub(crate) fn host(&self, key: PoolKey) -> Arc<HostPool> {
        let new = || HostPool::new(self.clock, self.limits, self.unused.clone());
        self.hosts.lock().entry(key).or_insert_with(|| new().into()).clone()
    }

    /// Closes connections that may carry no more requests, and drops upstreams without any.
    pub fn sweep(&self) {
        let now = self.clock.now();
        self.hosts.lock().retain(|_, host| host.sweep(now) || Arc::strong_count(host) > 1);
    }

    /// Makes a connection. If the process has no file descriptor left, first closes unused connections, and then
    /// workers' connections without a request. Keeps trying while those end: another client may have got the first
    /// descriptor.
    pub(crate) async fn with_room<T, F>(&self, drain: &Drain, make: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let exhausted = |outcome: &Result<T, Error>| matches!(outcome, Err(Error::NoDescriptor { .. }));
        let mut outcome = make().await;
        if exhausted(&outcome) {
            self.clear();
            let (mut waits, mut open) = (CLOSING.into_iter(), drain.open());
            for _ in 0..MAX_TRIES {
                let Some(wait) = waits.next() else { break };
                tokio::time::sleep(Duration::from_millis(wait)).await;
                outcome = make().await;
                if !exhausted(&outcome) {
                    break;
                }
                drain.make_room(self.clock.now());
                if drain.open() < open {
                    waits = CLOSING.into_iter();
                }
                open = drain.open();
            }
        }
        outcome
    }

    /// Closes all unused connections.
    pub fn clear(&self) {
        self.hosts.lock().values().for_each(|host| host.clear());
    }

    /// Number of unused connections, not counting those that can be shared.
    pub fn len(&self) -> usize {
        self.unused.load(Ordering::Relaxed)
    }

    /// Returns whether there are no unused connections.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of attempts to connect, while one of 20 worker connections ends before each attempt if `ends` is true.
    async fn tries(ends: bool) -> (usize, Result<(), Error>) {
        let (pool, drain) = (Pool::new(Clock::start(), &Timeouts::default()), Drain::default());
        let tries = AtomicUsize::new(0);
        (0..20).for_each(|_| drain.opened());
        let make = || async {
            tries.fetch_add(1, Ordering::Relaxed);
            if ends {
                drain.closed();
            }
            match drain.open() {
                0 => Ok(()),
                _ => Err(Error::NoDescriptor { origin: "api.test".into() }),
            }
        };
        let outcome = pool.with_room(&drain, make).await;
        (tries.load(Ordering::Relaxed), outcome)
    }

    #[tokio::test(start_paused = true)]
    async fn a_descriptor_is_waited_for_while_connections_of_workers_end() {
        let (count, outcome) = tries(true).await;
        assert!(outcome.is_ok(), "after {count} tries");
    }

    #[tokio::test(start_paused = true)]
    async fn a_descriptor_is_not_waited_for_if_no_connection_ends() {
        let (count, outcome) = tries(false).await;
        assert!(matches!(outcome, Err(Error::NoDescriptor { .. })));
        assert_eq!(count, 1 + CLOSING.len());
    }
}
