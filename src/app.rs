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
    reload::Configured,
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
    admin::{self, Status, StatusSource as _, Token},
    ca::Ca,
    clock::{Clock, Instant, log_seconds},
    config::{
        Config,
        authorities::{self, NO_AUTHORITY_HINT},
        expiry::{self, EXPIRED_HINT},
    },
    lane::{KeptLanes, Lanes, Sharing},
    listen::{self, Given},
    memory::{self, Memory},
    metrics::Metrics,
    otlp::Exporter,
    proxy::{Access, NewSettings, Proxy, ProxyParts},
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

/// Parts that can fail to open. All of them are open before the previous process gives up its place.
struct Prerequisites {
    sockets: Sockets,
    ca: Option<Ca>,
    token: Option<Token>,
    tls: Tls,
    /// Store of the fleet, with its address in a form fit to show.
    ledger: Option<(RedisLedger, String)>,
}

/// Listening sockets.
struct Sockets {
    /// The process that they are taken over from.
    predecessor: Option<Predecessor>,
    /// Addresses for workers.
    listen: Vec<SocketAddr>,
    listeners: Vec<TcpListener>,
    /// Address of the admin pages.
    admin: Option<SocketAddr>,
    admin_listener: Option<TcpListener>,
    /// A service manager's sockets for workers outlive this process.
    outlive: bool,
}

/// State of this process, once the previous one has given up its place.
struct Inherited {
    clock: Clock,
    /// Time at which the previous process was told to stop.
    replaced_at: Instant,
    keeping: Option<Keeping>,
    /// Records of lanes, and names of the lanes whose records are still to come.
    kept: Option<(KeptLanes, Vec<String>)>,
}

/// Interval of the sweep for unused lanes and connections.
const SWEEP: Duration = Duration::from_secs(5);
/// Time after the drain's deadline in which the last answers (503) are still written.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Interval of the search for lanes with nothing left to send.
const HANDOVER_TICK: Duration = Duration::from_millis(20);
/// Time for the first request on a connection that was just accepted: later requests are refused here.
const JUST_CONNECTED: Duration = Duration::from_millis(100);
/// Time for which a lane with an empty queue waits for answers that no limit counts. A refused request is sent again
/// from here. A stream of answers may last for minutes.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

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
        let forget = options.forget;
        let Prerequisites { sockets, ca, token, tls, ledger } = Prerequisites::open(&config, ca, options)?;
        let Sockets { mut predecessor, listen, listeners, admin, admin_listener, outlive } = sockets;
        let metrics = Metrics::new();
        let Inherited { clock, replaced_at, keeping, kept } =
            Inherited::take(&config, &listen, forget, predecessor.as_mut())?;
        let memory = Memory::new(config.max_memory.unwrap_or_else(memory::default_bytes), clock);
        let member = ledger.map(|(ledger, store)| FleetMember::new(ledger, store, &config.fleet, clock));
        let (member, sharing) = member.unzip();
        let lanes = Lanes::new(config.rules.clone(), metrics.clone(), clock).within(memory.bytes());
        let configured = Configured::new(&config, &listen, admin, clock, metrics.clone());
        let (exporter, tracer) = config.otlp.clone().map(|otlp| Exporter::new(otlp, &metrics)).unzip();
        let (tracer, plain) = (tracer.flatten(), tls.plain());
        let proxy = Arc::new(Proxy::new(ProxyParts {
            lanes: continuing(lanes, kept, sharing),
            metrics: metrics.clone(),
            clock,
            memory,
            settings: NewSettings::of(&config, ca),
            dialer: configured.dialer(&config),
            tls,
            access: access(&listen, admin),
            instance: instance(),
            access_log: config.access_log.is_some(),
            tracer,
        }));
        let workers = WorkerThreads::start(config.threads, &proxy, config.timeouts)?;
        let runtimes = workers.runtimes().chain([Handle::current()]);
        metrics.register(Box::new(Tasks::of(runtimes.collect())));
        let passed_on = passed_on(&listeners, admin_listener.as_ref());
        let accept = |listener| accept(listener, !outlive, workers.clone(), proxy.clone());
        let acceptors = listeners.into_iter().map(accept).collect();
        let tasks = [sweep(proxy.clone())].into_iter().collect();
        proxy.lanes.open_kept();
        let writer = keeping.map(|keeping| keeping.start(&proxy, &metrics)).transpose();
        let writer = writer.map_err(|source| StartError::Thread { source })?;
        let (taking_over, taken) = TakingOver::start(predecessor, &proxy, replaced_at);
        let state = Keeping::path(&config, &listen).filter(|_| writer.is_some());
        let successors = state.map(|state| offer(&state, passed_on, taken)).unwrap_or_default();
        let talking = member.map(|member| member.start(&proxy, &metrics));
        let view = Arc::new(View::new(&proxy, &configured, writer.as_ref(), talking.as_ref(), instance_name(&listen)));
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

    /// Configuration in force.
    pub fn config(&self) -> &Config {
        self.configured.config()
    }

    /// Applies `config`. Settings that cannot change while andante runs stay the same. `files` tells that files named
    /// in the configuration have changed, so that they are read again.
    ///
    /// Changes nothing on an error.
    pub fn reload(&mut self, config: &Config, files: bool) -> Result<(), StartError> {
        self.configured.reload(&self.proxy, config, files)?;
        self.drain = config.drain;
        Ok(())
    }

    /// Records that a configuration was rejected because of `problems`.
    pub fn not_reloaded(&self, problems: Vec<String>) {
        self.configured.reports.failed(problems);
    }

    /// Offer to later processes that want to take over. Dropping it ends the offer.
    pub fn successors(&mut self) -> Successors {
        std::mem::take(&mut self.successors)
    }

    /// Stops accepting, and gives the state to `successor`. Queued and running requests may finish within the
    /// configured time. Gives each lane away when its queue is empty.
    pub async fn hand_over(self, mut successor: Successor) {
        let Self { proxy, drain, mut acceptors, mut tasks, workers, closing, .. } = self;
        info!(open = proxy.open(), within_s = log_seconds(drain), "draining beside the andante that takes over");
        // The sockets stay open in the other process.
        acceptors.shutdown().await;
        tasks.shutdown().await;
        if let Some(pages) = &closing.pages {
            pages.abort();
        }
        let until = proxy.clock.now() + drain;
        proxy.drain(until);
        let lanes = &proxy.lanes;
        tokio::time::sleep(JUST_CONNECTED).await;
        lanes.begin_handover();
        // The state already contains everything that lanes with nothing to send have sent.
        drop(lanes.hand_over(ANSWERS_WITHIN));
        if let Some(writer) = &closing.writer {
            writer.release().await;
        }
        successor.released(lanes).await;
        while proxy.clock.now() < until + LAST_WORDS {
            let emptied = tokio::time::timeout(HANDOVER_TICK, workers.emptied(&proxy)).await.is_ok();
            successor.give(lanes.hand_over(ANSWERS_WITHIN)).await;
            if emptied {
                break;
            }
        }
        if proxy.open() > 0 {
            warn!(open = proxy.open(), "cutting connections that have not ended");
        }
        proxy.log_counted(true);
        drop(workers);
        successor.give(lanes.hand_over(Duration::ZERO)).await;
        successor.ended().await;
        closing.finish().await;
    }
}

// === impl Prerequisites ===

impl Prerequisites {
    fn open(config: &Config, ca: Option<Ca>, options: StartOptions) -> Result<Self, StartError> {
        let ca = if ca.is_none() && config.rules.intercepts() { Some(authority(config)?) } else { ca };
        raise_descriptor_limit();
        let token = config.admin_token.as_deref().map(admin_token).transpose()?;
        let sockets = Sockets::open(config, options)?;
        warn_of_useless(&config.upstream_ca);
        let tls = Tls::new(&config.upstream_ca, &config.upstream_crl, &config.rules)?;
        Ok(Self { sockets, ca, token, tls, ledger: ledger(config)? })
    }
}

// === impl Sockets ===

impl Sockets {
    fn open(config: &Config, options: StartOptions) -> Result<Self, StartError> {
        let StartOptions { mut given, take_over, .. } = options;
        let outlive = !given.workers.is_empty();
        let mut predecessor = if take_over { find_predecessor(config)? } else { None };
        if let Some(predecessor) = &mut predecessor {
            let admin = predecessor.admin.take().filter(|_| config.admin.is_some());
            given.take_over(&mut predecessor.workers, admin);
        }
        let (listen, listeners) = open(given.workers, &config.listen)?.into_iter().unzip();
        let (admin, admin_listener) = open(given.admin.into_iter().collect(), config.admin.as_slice())?.pop().unzip();
        Ok(Self { predecessor, listen, listeners, admin, admin_listener, outlive })
    }
}

// === impl Inherited ===

impl Inherited {
    fn take(
        config: &Config,
        listen: &[SocketAddr],
        forget: bool,
        predecessor: Option<&mut Predecessor>,
    ) -> Result<Self, StartError> {
        let replacing = Clock::start();
        let awaited = predecessor.map(Predecessor::replace).transpose()?.unwrap_or_default();
        let (clock, kept) = Keeping::open(config, listen, forget)?;
        let replaced_at = clock.now() - replacing.now().since(replacing.began());
        let (keeping, kept) = kept.unzip();
        Ok(Self { clock, replaced_at, keeping, kept: kept.map(|kept| (kept, awaited)) })
    }
}

/// `lanes` with the records that are `kept`, whose limits are shared with other processes by `sharing`.
fn continuing(lanes: Lanes, kept: Option<(KeptLanes, Vec<String>)>, sharing: Option<Sharing>) -> Lanes {
    let lanes = match kept {
        Some((kept, awaited)) => lanes.keeping(kept).awaiting(awaited),
        None => lanes,
    };
    match sharing {
        Some(sharing) => lanes.sharing(sharing),
        None => lanes,
    }
}

/// Addresses for clients: workers connect to `listen`, and people to `admin`.
fn access(listen: &[SocketAddr], admin: Option<SocketAddr>) -> Access {
    Access {
        exposed: listen.iter().any(|addr| !addr.ip().is_loopback()),
        ports: listen.iter().map(SocketAddr::port).collect(),
        admin: admin.map_or_else(|| "an admin address, once one is set".into(), |addr| format!("http://{addr}/")),
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
