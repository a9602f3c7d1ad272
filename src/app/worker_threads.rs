//! The threads that serve connections.

use std::{
    io,
    net::IpAddr,
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use tokio::{runtime::Handle, sync::mpsc};
use tracing::warn;

use super::{SWEEP, StartError};
use crate::{
    config::Timeouts,
    proxy::{self, Pool, Proxy},
};

/// The threads that serve connections, each with a runtime and a pool of its own.
#[derive(Clone)]
pub(super) struct WorkerThreads(Arc<[WorkerThread]>);

struct WorkerThread {
    connections: mpsc::UnboundedSender<(std::net::TcpStream, IpAddr)>,
    open: Arc<AtomicUsize>,
    runtime: Handle,
}

/// More threads gain nothing: a proxy that paces needs little processor time, and shares its machine.
const MOST_THREADS: usize = 4;

/// Interval of checks whether a thread has begun to serve its connection.
const LOOK: Duration = Duration::from_millis(1);

// === impl WorkerThreads ===

impl WorkerThreads {
    pub(super) fn start(
        threads: Option<NonZeroUsize>,
        proxy: &Arc<Proxy>,
        timeouts: Timeouts,
    ) -> Result<Self, StartError> {
        let cores = || thread::available_parallelism().map_or(1, NonZeroUsize::get).min(MOST_THREADS);
        let count = threads.map_or_else(cores, NonZeroUsize::get);
        let start = |index| WorkerThread::start(index, proxy.clone(), timeouts);
        let workers =
            (0..count).map(start).collect::<io::Result<_>>().map_err(|source| StartError::Thread { source })?;
        Ok(Self(workers))
    }

    /// Runtimes of the threads.
    pub(super) fn runtimes(&self) -> impl Iterator<Item = Handle> {
        self.0.iter().map(|worker| worker.runtime.clone())
    }

    /// Returns whether any dispatched connection has not ended.
    pub(super) fn have_connections(&self) -> bool {
        self.0.iter().any(|worker| worker.open.load(Ordering::Relaxed) > 0)
    }

    /// Waits until no worker is connected, and no thread has a connection that it has not begun to
    /// serve.
    pub(super) async fn emptied(&self, proxy: &Proxy) {
        proxy.emptied().await;
        while self.have_connections() {
            tokio::time::sleep(LOOK).await;
            proxy.emptied().await;
        }
    }

    /// Gives a connection to the thread with the fewest: long-lived connections must not pile up on one
    /// core.
    pub(super) fn dispatch(&self, stream: std::net::TcpStream, peer: IpAddr) {
        let idlest = self.0.iter().min_by_key(|worker| worker.open.load(Ordering::Relaxed));
        let worker = idlest.expect("there is at least one");
        worker.open.fetch_add(1, Ordering::Relaxed);
        // A thread ends only after the accepting tasks, so this fails only at the very end.
        let _ = worker.connections.send((stream, peer));
    }
}

impl WorkerThread {
    fn start(index: usize, proxy: Arc<Proxy>, timeouts: Timeouts) -> io::Result<Self> {
        let (connections, receiver) = mpsc::unbounded_channel();
        let open = Arc::new(AtomicUsize::new(0));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (counted, handle) = (open.clone(), runtime.handle().clone());
        thread::Builder::new()
            .name(format!("worker-{index}"))
            .spawn(move || runtime.block_on(work(receiver, proxy, timeouts, counted)))?;
        Ok(Self { connections, open, runtime: handle })
    }
}

/// A connection that its thread counts as open until this value is dropped.
struct OpenConnection(Arc<AtomicUsize>);

/// Serves the dispatched connections, until no more can come.
async fn work(
    mut connections: mpsc::UnboundedReceiver<(std::net::TcpStream, IpAddr)>,
    proxy: Arc<Proxy>,
    timeouts: Timeouts,
    open: Arc<AtomicUsize>,
) {
    let pool = Arc::new(Pool::new(proxy.clock, &timeouts));
    let mut sweep = tokio::time::interval(SWEEP);
    loop {
        tokio::select! {
            connection = connections.recv() => {
                let Some((stream, peer)) = connection else { return };
                let counted = OpenConnection(open.clone());
                match tokio::net::TcpStream::from_std(stream) {
                    Ok(stream) => drop(tokio::spawn(proxy::serve(proxy.clone(), pool.clone(), stream, peer, counted))),
                    Err(error) => warn!(%error, "could not take a connection over"),
                }
            }
            // New clients need the descriptors more than idle connections do.
            _ = sweep.tick() => if proxy.is_full() { pool.clear() } else { pool.sweep() },
        }
    }
}

// === impl OpenConnection ===

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
