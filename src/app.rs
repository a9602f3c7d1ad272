//! Assembly: puts the parts together, starts them, and ends them in order.

mod reload;
mod tasks;
mod unmatched;
mod view;

use std::{
    future::pending,
    io,
    net::{IpAddr, SocketAddr},
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, SystemTime},
};

use tokio::{
    net::TcpListener,
    runtime::Handle,
    sync::mpsc,
    task::{JoinHandle, JoinSet},
};
use tracing::{info, warn};

pub use self::unmatched::Unmatched;
use self::{
    reload::{Configured, ReloadReports},
    tasks::Tasks,
    view::View,
};
use crate::{
    admin::{self, Status, StatusSource as _},
    ca::{self, Ca, CaError},
    clock::Clock,
    config::Config,
    lane::Lanes,
    listen::{self, Given},
    metrics::Metrics,
    proxy::{self, Pool, Proxy},
    tls::{Tls, TlsError},
};

/// A started andante.
pub struct Running {
    proxy: Arc<Proxy>,
    view: Arc<View>,
    listen: Vec<SocketAddr>,
    admin: Option<SocketAddr>,
    drain: Duration,
    configured: Configured,
    /// Acceptors and housekeeping; aborted when dropped.
    tasks: JoinSet<()>,
    /// The admin pages, which show the drain too.
    pages: Option<JoinHandle<()>>,
    workers: WorkerThreads,
}

/// Why andante could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("could not listen on {addr}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The files that TLS towards upstreams needs are not in order.
    #[error("could not prepare TLS towards upstreams")]
    Tls(#[from] TlsError),
    /// There is no certificate authority to intercept with.
    #[error("could not prepare the certificate authority that interception needs")]
    Ca(#[from] CaError),
    /// No folder is named for it.
    #[error("there is no place for the certificate authority that interception needs")]
    NoData,
    /// A socket that we were started with cannot be listened on.
    #[error("could not listen on a socket that andante was started with")]
    Given {
        /// What the system said.
        source: io::Error,
    },
    /// A thread or its runtime could not be made.
    #[error("could not start a worker thread")]
    Thread {
        /// What the system said.
        source: io::Error,
    },
}

impl StartError {
    /// What to do about it, where that is known here.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Ca(error) => error.hint(),
            Self::Tls(error) => Some(error.hint().to_owned()),
            Self::NoData => Some("name a folder with --data DIR, `data` or ANDANTE_DATA".to_owned()),
            Self::Listen { .. } | Self::Given { .. } | Self::Thread { .. } => None,
        }
    }
}

/// The threads that serve connections, each with a runtime and a pool of its own.
#[derive(Clone)]
struct WorkerThreads(Arc<[WorkerThread]>);

struct WorkerThread {
    connections: mpsc::UnboundedSender<(std::net::TcpStream, IpAddr)>,
    open: Arc<AtomicUsize>,
    runtime: Handle,
}

/// More threads gain nothing: a proxy that paces needs little, and shares its machine.
const MOST_THREADS: usize = 4;
/// How often unused lanes and connections are looked for.
const SWEEP: Duration = Duration::from_secs(5);
/// After the drain's deadline the last answers (503) are still written, for this long.
const LAST_WORDS: Duration = Duration::from_secs(1);

// === impl Running ===

impl Running {
    /// Starts andante. Must be called on a tokio runtime, which accepts connections and sweeps from then on.
    ///
    /// Sockets that are `given` replace the configured addresses. `ca` signs the certificates of
    /// intercepted hosts; without it this installation's does, if any host is intercepted.
    pub async fn start(config: Config, given: Given, ca: Option<Ca>) -> Result<Self, StartError> {
        let ca = if ca.is_none() && config.rules.intercepts() { Some(authority(&config)?) } else { ca };
        raise_descriptor_limit();
        let (clock, metrics) = (Clock::start(), Metrics::new());
        let (listen, listeners): (Vec<_>, Vec<_>) = open(given.workers, &config.listen)?.into_iter().unzip();
        let (admin, admin_listener) = open(given.admin.into_iter().collect(), config.admin.as_slice())?.pop().unzip();
        let exposed = listen.iter().any(|addr| !addr.ip().is_loopback());
        let tls = Tls::new(&config.upstream_ca, &config.upstream_crl, &config.rules)?;
        let own = listen.iter().copied().chain(admin).collect();
        let reports = Arc::new(ReloadReports::new(&config, clock, metrics.clone()));
        let configured = Configured::new(&config, &listen, own, reports.clone());
        let proxy = Arc::new(Proxy::new(proxy::Parts {
            lanes: Lanes::new(config.rules.clone(), metrics.clone(), clock),
            metrics: metrics.clone(),
            clock,
            clients: config.clients.clone(),
            timeouts: config.timeouts,
            dialer: configured.dialer(&config),
            exposed,
            ports: listen.iter().map(SocketAddr::port).collect(),
            gateways: config.gateways.clone(),
            tls,
            ca: ca.map(Arc::new),
            admin: admin.map_or_else(|| "an admin address, once one is set".into(), |addr| format!("http://{addr}/")),
            instance: instance(),
            access_log: config.access_log.is_some(),
        }));
        let workers = WorkerThreads::start(config.threads, &proxy, config.timeouts.upstream_keep_alive)?;
        let runtimes = workers.0.iter().map(|worker| worker.runtime.clone()).chain([Handle::current()]);
        metrics.register(Box::new(Tasks::of(runtimes.collect())));
        let mut tasks = JoinSet::new();
        for listener in listeners {
            tasks.spawn(accept(listener, workers.clone()));
        }
        tasks.spawn(sweep(proxy.clone()));
        let view = Arc::new(View::new(proxy.clone(), reports));
        let pages =
            admin_listener.map(|listener| tokio::spawn(admin::serve(listener, view.clone(), metrics, pending())));
        Ok(Self { proxy, view, listen, admin, drain: config.drain, configured, tasks, pages, workers })
    }

    /// Where workers connect.
    pub fn listen(&self) -> &[SocketAddr] {
        &self.listen
    }

    /// Where the admin pages are.
    pub fn admin(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// andante as it stands.
    pub fn status(&self) -> Status {
        self.view.status()
    }

    /// Rules that no request has matched so far.
    pub fn unmatched_rules(&self) -> Vec<Unmatched> {
        unmatched::with_nearest(&self.proxy)
    }

    /// Waits until no worker is connected, for as long as `at_most`.
    pub async fn settled(&self, at_most: Duration) {
        // Returns after `at_most` in either case.
        let _ = tokio::time::timeout(at_most, self.proxy.emptied()).await;
    }

    /// Stops accepting, lets queued and running requests finish within the configured time, and answers the rest 503.
    pub async fn drain(self) {
        let Self { proxy, drain, mut tasks, pages, workers, .. } = self;
        info!(open = proxy.open(), within_s = drain.as_secs_f64(), "draining");
        // Closes the listening sockets: from now on the system refuses new connections at once.
        tasks.shutdown().await;
        proxy.drain(proxy.clock.now() + drain);
        if tokio::time::timeout(drain + LAST_WORDS, proxy.emptied()).await.is_err() {
            warn!(open = proxy.open(), "cutting connections that have not ended");
        }
        proxy.log_retries(true);
        drop(workers);
        if let Some(pages) = pages {
            pages.abort();
        }
    }
}

/// This installation's certificate authority: the one in its place, or a new one.
fn authority(config: &Config) -> Result<Ca, StartError> {
    let place = config.data.clone().or_else(|| ca::default_dir(|name| std::env::var_os(name)));
    let place = place.ok_or(StartError::NoData)?;
    let ca = Ca::find_or_create(&place, SystemTime::now())?;
    let place = place.display();
    info!(%place, fingerprint = ca.fingerprint(), "intercepting HTTPS; workers have to trust this CA (andante ca env)");
    Ok(ca)
}

/// Sockets to listen on, each with its address: those that were given, else one for each address that was asked for.
fn open(given: Vec<std::net::TcpListener>, asked: &[SocketAddr]) -> Result<Vec<(SocketAddr, TcpListener)>, StartError> {
    if !given.is_empty() {
        let take = |listener: std::net::TcpListener| Ok((listener.local_addr()?, TcpListener::from_std(listener)?));
        return given.into_iter().map(take).collect::<io::Result<_>>().map_err(|source| StartError::Given { source });
    }
    let open = |addr: &SocketAddr| {
        let opened = listen::bind(*addr).and_then(|listener| Ok((listener.local_addr()?, listener)));
        opened.map_err(|source| StartError::Listen { addr: *addr, source })
    };
    asked.iter().map(open).collect()
}

async fn accept(listener: TcpListener, workers: WorkerThreads) {
    loop {
        let (stream, peer) = listen::accept(&listener).await;
        match stream.into_std() {
            Ok(stream) => workers.dispatch(stream, peer.ip()),
            Err(error) => warn!(%error, "could not hand a connection to its thread"),
        }
    }
}

async fn sweep(proxy: Arc<Proxy>) {
    let mut turns = tokio::time::interval(SWEEP);
    let mut watch = unmatched::UnmatchedWatch::default();
    loop {
        turns.tick().await;
        // Before the lanes are swept: they know which hosts were asked for.
        watch.look(&proxy, proxy.clock.now()).iter().for_each(Unmatched::say);
        proxy.lanes.sweep();
        proxy.log_retries(false);
    }
}

// === impl WorkerThreads ===

impl WorkerThreads {
    fn start(threads: Option<NonZeroUsize>, proxy: &Arc<Proxy>, keep_alive: Duration) -> Result<Self, StartError> {
        let cores = || thread::available_parallelism().map_or(1, NonZeroUsize::get).min(MOST_THREADS);
        let count = threads.map_or_else(cores, NonZeroUsize::get);
        let start = |index| WorkerThread::start(index, proxy.clone(), keep_alive);
        let workers =
            (0..count).map(start).collect::<io::Result<_>>().map_err(|source| StartError::Thread { source })?;
        Ok(Self(workers))
    }

    /// To the thread with the fewest: long-lived connections must not pile up on one core.
    fn dispatch(&self, stream: std::net::TcpStream, peer: IpAddr) {
        let idlest = self.0.iter().min_by_key(|worker| worker.open.load(Ordering::Relaxed));
        let worker = idlest.expect("there is at least one");
        worker.open.fetch_add(1, Ordering::Relaxed);
        // A thread ends only after the tasks that accept, so this fails only at the very end.
        let _ = worker.connections.send((stream, peer));
    }
}

impl WorkerThread {
    fn start(index: usize, proxy: Arc<Proxy>, keep_alive: Duration) -> io::Result<Self> {
        let (connections, receiver) = mpsc::unbounded_channel();
        let open = Arc::new(AtomicUsize::new(0));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (counted, handle) = (open.clone(), runtime.handle().clone());
        thread::Builder::new()
            .name(format!("worker-{index}"))
            .spawn(move || runtime.block_on(work(receiver, proxy, keep_alive, counted)))?;
        Ok(Self { connections, open, runtime: handle })
    }
}

/// Serves the connections that are handed over, until no more can come.
async fn work(
    mut connections: mpsc::UnboundedReceiver<(std::net::TcpStream, IpAddr)>,
    proxy: Arc<Proxy>,
    keep_alive: Duration,
    open: Arc<AtomicUsize>,
) {
    let pool = Arc::new(Pool::new(proxy.clock, keep_alive));
    let mut sweep = tokio::time::interval(SWEEP);
    loop {
        tokio::select! {
            connection = connections.recv() => {
                let Some((stream, peer)) = connection else { return };
                let stream = match tokio::net::TcpStream::from_std(stream) {
                    Ok(stream) => stream,
                    Err(error) => {
                        warn!(%error, "could not take a connection over");
                        open.fetch_sub(1, Ordering::Relaxed);
                        continue;
                    }
                };
                let (proxy, pool, open) = (proxy.clone(), pool.clone(), open.clone());
                tokio::spawn(async move {
                    proxy::serve(proxy, pool, stream, peer).await;
                    open.fetch_sub(1, Ordering::Relaxed);
                });
            }
            _ = sweep.tick() => pool.sweep(),
        }
    }
}

/// Raises the limit of file descriptors to the hard limit: each request on its way may need two.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        warn!(%error, "could not raise the limit of open files");
    }
}

/// Distinguishes this process from others; need not be secret.
fn instance() -> u32 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish() as u32
}
