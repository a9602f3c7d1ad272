//! Assembly: builds the parts, starts them, and ends them in order.

mod accept;
mod closing;
mod drain_tally;
mod explain;
mod fleet;
mod handover;
mod keeping;
mod lane_view;
mod process;
mod reload;
mod start_error;
mod start_files;
mod steering;
mod tasks;
mod unmatched;
mod view;
mod worker_threads;

use std::{future::pending, io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use tokio::{net::TcpListener, runtime::Handle, task::JoinSet};
use tracing::{info, warn};

use self::{
    accept::accept,
    closing::Closing,
    fleet::FleetMember,
    handover::{Predecessor, TakingOver, find_predecessor, offer, passed_on},
    keeping::Keeping,
    process::{instance, raise_descriptor_limit},
    reload::{Configured, ReloadReports},
    start_files::{admin_token, authority},
    tasks::Tasks,
    view::View,
    worker_threads::WorkerThreads,
};
pub use self::{
    drain_tally::DrainTally,
    explain::explain_by,
    handover::{Successor, Successors, TakeOverError},
    start_error::StartError,
    start_files::unusable_files,
    unmatched::Unmatched,
};
use crate::{
    admin::{self, Status, StatusSource as _},
    ca::Ca,
    clock::{Clock, log_seconds},
    config::{
        Config,
        authorities::{self, NO_AUTHORITY_HINT},
        expiry::{self, EXPIRED_HINT},
    },
    lane::Lanes,
    listen::{self, Given},
    memory::{self, Memory},
    metrics::Metrics,
    otlp::Exporter,
    proxy::{self, Proxy},
    store::RedisLedger,
    tls::Tls,
};

/// A running andante.
pub struct Running {
    proxy: Arc<Proxy>,
    view: Arc<View>,
    listen: Vec<SocketAddr>,
    admin: Option<SocketAddr>,
    drain: Duration,
    configured: Configured,
    /// Tasks that accept connections until the drain begins; aborted when dropped.
    acceptors: JoinSet<()>,
    /// Housekeeping tasks; aborted when dropped.
    tasks: JoinSet<()>,
    workers: WorkerThreads,
    /// Takes over from the previous process, while that one sends its queued requests.
    taking_over: TakingOver,
    /// Socket at which the next process asks for the listening sockets.
    successors: Successors,
    closing: Closing,
}

/// Options of `serve` besides its configuration.
#[derive(Debug, Default)]
pub struct StartOptions {
    /// Sockets that a service manager has opened.
    pub given: Given,
    /// Sets the persisted state of lanes aside.
    pub forget: bool,
    /// Takes over from the process that has the same state, if there is one.
    pub take_over: bool,
}

/// Interval of the sweep for unused lanes and connections.
const SWEEP: Duration = Duration::from_secs(5);
/// Time after the drain's deadline in which the last answers (503) are still written.
const LAST_WORDS: Duration = Duration::from_secs(1);

// === impl Running ===

impl Running {
    /// Starts andante. Must be called on a tokio runtime, which accepts connections and sweeps from then on.
    ///
    /// Sockets that are `given` replace the configured addresses. `ca` signs the certificates of intercepted hosts.
    /// Without it this installation's CA signs them, if any host is intercepted.
    pub async fn start(config: Config, given: Given, ca: Option<Ca>) -> Result<Self, StartError> {
        Self::begin(config, ca, StartOptions { given, ..StartOptions::default() }).await
    }

    /// Starts andante with this installation's certificate authority, and with more `options`.
    pub async fn start_keeping(config: Config, options: StartOptions) -> Result<Self, StartError> {
        Self::begin(config, None, options).await
    }

    async fn begin(config: Config, ca: Option<Ca>, options: StartOptions) -> Result<Self, StartError> {
        let StartOptions { mut given, forget, take_over } = options;
        let ca = if ca.is_none() && config.rules.intercepts() { Some(authority(&config)?) } else { ca };
        raise_descriptor_limit();
        let token = config.admin_token.as_deref().map(admin_token).transpose()?;
        let metrics = Metrics::new();
        // Sockets of a service manager outlive this process.
        let ours = given.workers.is_empty();
        let mut predecessor = if take_over { find_predecessor(&config)? } else { None };
        if let Some(predecessor) = &mut predecessor {
            let admin = predecessor.admin.take().filter(|_| config.admin.is_some());
            given.take_over(&mut predecessor.workers, admin);
        }
        let (listen, listeners): (Vec<_>, Vec<_>) = open(given.workers, &config.listen)?.into_iter().unzip();
        let (admin, admin_listener) = open(given.admin.into_iter().collect(), config.admin.as_slice())?.pop().unzip();
        let exposed = listen.iter().any(|addr| !addr.ip().is_loopback());
        warn_of_useless(&config.upstream_ca);
        let tls = Tls::new(&config.upstream_ca, &config.upstream_crl, &config.rules)?;
        let own = listen.iter().copied().chain(admin).collect();
        // All steps that can fail come before the previous process gives up its place.
        let ledger = ledger(&config)?;
        let replacing = Clock::start();
        let awaited = predecessor.as_mut().map(Predecessor::replace).transpose()?.unwrap_or_default();
        let (clock, kept) = Keeping::open(&config, &listen, forget)?;
        let replaced_at = clock.now() - replacing.now().since(replacing.began());
        let (keeping, kept) = kept.unzip();
        let memory = Memory::new(config.max_memory.unwrap_or_else(memory::default_bytes), clock);
        let lanes = Lanes::new(config.rules.clone(), metrics.clone(), clock).within(memory.bytes());
        let lanes = match kept {
            Some(kept) => lanes.keeping(kept).awaiting(awaited),
            None => lanes,
        };
        let member = ledger.map(|(ledger, store)| FleetMember::new(ledger, store, &config.fleet, clock));
        let (member, sharing) = member.unzip();
        let reports = Arc::new(ReloadReports::new(&config, clock, metrics.clone()));
        let configured = Configured::new(&config, &listen, own, reports.clone());
        let (exporter, tracer) = config.otlp.clone().map(|otlp| Exporter::new(otlp, &metrics)).unzip();
        let (tracer, plain) = (tracer.flatten(), tls.plain());
        let proxy = Arc::new(Proxy::new(proxy::ProxyParts {
            lanes: match sharing {
                Some(sharing) => lanes.sharing(sharing),
                None => lanes,
            },
            metrics: metrics.clone(),
            clock,
            clients: config.clients.clone(),
            identity: config.identity,
            memory,
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
            tracer,
        }));
        let workers = WorkerThreads::start(config.threads, &proxy, config.timeouts)?;
        let runtimes = workers.runtimes().chain([Handle::current()]);
        metrics.register(Box::new(Tasks::of(runtimes.collect())));
        let (mut acceptors, mut tasks) = (JoinSet::new(), JoinSet::new());
        let passed_on = passed_on(&listeners, admin_listener.as_ref());
        for listener in listeners {
            acceptors.spawn(accept(listener, ours, workers.clone(), proxy.clone()));
        }
        tasks.spawn(sweep(proxy.clone()));
        proxy.lanes.open_kept();
        let writer = keeping.map(|keeping| keeping.start(&proxy, &metrics)).transpose();
        let writer = writer.map_err(|source| StartError::Thread { source })?;
        let (taking_over, taken) = TakingOver::start(predecessor, &proxy, replaced_at);
        let successors = Keeping::path(&config, &listen).filter(|_| writer.is_some());
        let successors = successors.map(|state| offer(&state, passed_on, taken)).unwrap_or_default();
        let state = writer.as_ref().map(|writer| writer.report.clone());
        let talking = member.map(|member| member.start(&proxy, &metrics));
        let fleet = talking.as_ref().map(|talking| talking.report.clone());
        let view = Arc::new(View::new(proxy.clone(), reports, state, fleet, instance_name(&listen)));
        let pages = admin_listener
            .map(|listener| tokio::spawn(admin::serve(listener, view.clone(), metrics, token, pending())));
        let exporting = exporter.map(|exporter| exporter.start(clock, &configured.dialer(&config), &plain));
        Ok(Self {
            proxy,
            view,
            listen,
            admin,
            drain: config.drain,
            configured,
            acceptors,
            tasks,
            workers,
            taking_over,
            successors,
            closing: Closing { talking, writer, exporting, pages },
        })
    }

    /// Addresses for workers.
    pub fn listen(&self) -> &[SocketAddr] {
        &self.listen
    }

    /// Address of the admin pages.
    pub fn admin(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// The present status.
    pub fn status(&self) -> Status {
        self.view.status()
    }

    /// Rules that no request has matched so far.
    pub fn unmatched_rules(&self) -> Vec<Unmatched> {
        unmatched::with_nearest(&self.proxy)
    }

    /// Declares that the process that started andante is its only client. No warning about clients that leave is logged
    /// then.
    pub fn serves_own_clients(&self) {
        self.proxy.serves_own_clients();
    }

    /// Waits until no worker is connected, for as long as `at_most`.
    pub async fn settled(&self, at_most: Duration) {
        // Returns after `at_most` in either case.
        let _ = tokio::time::timeout(at_most, self.proxy.emptied()).await;
    }

    /// Counts of a drain that begins now.
    pub fn drain_tally(&self) -> DrainTally {
        DrainTally::begin(self.proxy.clone())
    }

    /// Stops accepting, lets queued and running requests finish within the configured time, and answers the rest 503.
    pub async fn drain(self) {
        let tally = self.drain_tally();
        let Self { proxy, drain, acceptors, mut tasks, workers, taking_over, successors, closing, .. } = self;
        drop(successors);
        info!(open = proxy.open(), within_s = log_seconds(drain), "draining");
        proxy.drain(proxy.clock.now() + drain);
        // Closes the listening sockets: from then on the system refuses new connections at once.
        acceptors.join_all().await;
        tasks.shutdown().await;
        if tokio::time::timeout(drain + LAST_WORDS, workers.emptied(&proxy)).await.is_err() {
            warn!(open = proxy.open(), "cutting connections that have not ended");
        }
        tally.log();
        drop(workers);
        taking_over.end(&proxy.lanes);
        closing.finish().await;
    }
}

/// The store of the fleet that `config` names, with its address in a form fit to show.
fn ledger(config: &Config) -> Result<Option<(RedisLedger, String)>, StartError> {
    let Some(url) = &config.fleet.store else { return Ok(None) };
    let store = url.to_string();
    let ledger = RedisLedger::new(url).map_err(|source| StartError::Store { store: store.clone(), source })?;
    Ok(Some((ledger, store)))
}

/// Logs files that vouch for no API: all of their certificates have expired, or none is an authority's. andante still
/// starts, because other authorities may vouch for the APIs.
fn warn_of_useless(files: &[PathBuf]) {
    for file in files {
        let Ok(bytes) = std::fs::read(file) else { continue };
        let expired = expiry::expired(&bytes).map(|what| (what, EXPIRED_HINT));
        let missing = || authorities::missing(&bytes).map(|what| (what, NO_AUTHORITY_HINT));
        if let Some((what, hint)) = expired.or_else(missing) {
            warn!(file = %file.display(), hint, "upstream-ca: {what}");
        }
    }
}

/// Name of this andante on its pages: the machine, and the address for workers.
fn instance_name(listen: &[SocketAddr]) -> String {
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let address = listen.first().map(ToString::to_string).unwrap_or_default();
    format!("{} {address}", machine.trim()).trim().to_owned()
}

/// Sockets to listen on, each with its address: the given ones, or else one for each address in `asked`.
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

async fn sweep(proxy: Arc<Proxy>) {
    let mut turns = tokio::time::interval(SWEEP);
    let mut watch = unmatched::UnmatchedWatch::default();
    loop {
        turns.tick().await;
        // Runs before the lanes are swept, because lanes know which hosts were requested.
        watch.look(&proxy, proxy.clock.now()).iter().for_each(Unmatched::say);
        proxy.lanes.sweep();
        proxy.forget_answers();
        proxy.log_counted(false);
    }
}
