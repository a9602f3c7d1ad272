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
    config::Timeouts,
    error::Error,
    policy::Origin,
    proxy::{
        drain::Drain,
        outbound::{host_pool::HostPool, lifespan::ReuseLimits},
    },
};

/// How many milliseconds it takes until connections that are let go are closed, and on a busy machine.
const CLOSING: [u64; 3] = [10, 40, 150];
/// Attempts at most to connect while workers' connections end: about four seconds.
const MAX_TRIES: usize = 60;

/// The connections of one runtime thread that may carry another request.
pub struct Pool {
    clock: Clock,
    limits: ReuseLimits,
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
    /// An empty pool that uses connections for as long as `timeouts` say.
    pub fn new(clock: Clock, timeouts: &Timeouts) -> Self {
        Self { clock, limits: ReuseLimits::of(timeouts), hosts: Mutex::default(), unused: Arc::default() }
    }

    /// The connections to one upstream.
    pub(crate) fn host(&self, key: PoolKey) -> Arc<HostPool> {
        let new = || HostPool::new(self.clock, self.limits, self.unused.clone());
        self.hosts.lock().entry(key).or_insert_with(|| new().into()).clone()
    }

    /// Closes connections that may carry no more requests, and forgets upstreams without any.
    pub fn sweep(&self) {
        let now = self.clock.now();
        self.hosts.lock().retain(|_, host| host.sweep(now) || Arc::strong_count(host) > 1);
    }

    /// Makes a connection; if the process has no file descriptor left, unused ones are the first to go, and then those of workers
    /// that carry no request. While those end it goes on trying: another client may have got the first descriptor.
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

    /// How many unused connections there are, not counting those that can be shared.
    pub fn len(&self) -> usize {
        self.unused.load(Ordering::Relaxed)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tries to connect while one of 20 worker connections ends before each try, as long as `ends` is true; how often.
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
