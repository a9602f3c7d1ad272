//! Assembly: puts the parts together, starts them, and ends them in order.

mod explain;
mod fleet;
mod keeping;
mod lane_view;
mod process;
mod reload;
mod steering;
mod tasks;
mod unmatched;
mod view;
mod worker_threads;

use std::{
    future::pending,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::{
    net::TcpListener,
    runtime::Handle,
    task::{JoinHandle, JoinSet},
};
use tracing::{info, warn};

pub use self::{explain::explain_by, unmatched::Unmatched};
use self::{
    fleet::{FleetMember, Talking},
    keeping::{Keeping, Writer},
    process::{instance, raise_descriptor_limit},
    reload::{Configured, ReloadReports},
    tasks::Tasks,
    view::View,
    worker_threads::WorkerThreads,
};
use crate::{
    admin::{self, Status, StatusSource as _, Token},
    ca::{self, Ca, CaError},
    clock::Clock,
    config::{
        Config,
        expiry::{self, EXPIRED_HINT},
        token_file::{self, TOKEN_FILE_HINT, TokenFileError},
    },
    error::BoxError,
    lane::{Lanes, Sharing},
    listen::{self, Given},
    memory::{self, Memory},
    metrics::Metrics,
    otlp::{Exporter, Exporting},
    proxy::{self, Proxy},
    store::{LedgerError, OpenError, RedisLedger},
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
    /// Writes what outlives this process.
    writer: Option<Writer>,
    /// Talks to the store that budgets are shared by.
    talking: Option<Talking>,
    /// Exports traces and metrics.
    exporting: Option<Exporting>,
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
    /// The file with the token for changes is not in order.
    #[error("could not use the token in {}", token_file::shown(file))]
    Token {
        /// The file.
        file: PathBuf,
        /// Why it cannot be read, or what is wrong with what it says.
        source: BoxError,
    },
    /// No folder is named for it.
    #[error("there is no place for the certificate authority that interception needs")]
    NoData,
    /// A socket that we were started with cannot be listened on.
    #[error("could not listen on a socket that andante was started with")]
    Given {
        /// What the system said.
        source: io::Error,
    },
    /// What was kept of the andante before cannot be had.
    #[error("could not take over what was sent so far")]
    State(#[from] OpenError),
    /// The store of the fleet cannot be used at all.
    #[error("could not use the store {store}")]
    Store {
        /// Where it is.
        store: String,
        /// What is wrong.
        source: LedgerError,
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
            Self::Token { source, .. } if source.is::<TokenFileError>() => Some(TOKEN_FILE_HINT.to_owned()),
            Self::Token { .. } => Some(
                "write at least 16 characters into it, without spaces: `openssl rand -hex 32 > FILE; chmod 600 FILE`"
                    .to_owned(),
            ),
            Self::NoData => Some("name a folder with --data DIR, `data` or ANDANTE_DATA".to_owned()),
            Self::State(OpenError::InUse { pid, .. }) => {
                let how = pid.map(|pid| format!(" (`kill {pid}`; it drains first)")).unwrap_or_default();
                Some(format!("stop that process{how}, or name another file with --state FILE, or --state off"))
            }
            Self::State(_) => Some("name another file with --state FILE, or say --state off".to_owned()),
            Self::Listen { .. } | Self::Given { .. } | Self::Store { .. } | Self::Thread { .. } => None,
        }
    }
}

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
        Self::begin(config, given, ca, false).await
    }

    /// The same with this installation's certificate authority. What was kept of lanes is `forgotten` if that is asked for.
    pub async fn start_keeping(config: Config, given: Given, forgotten: bool) -> Result<Self, StartError> {
        Self::begin(config, given, None, forgotten).await
    }

    async fn begin(config: Config, given: Given, ca: Option<Ca>, forgotten: bool) -> Result<Self, StartError> {
        let ca = if ca.is_none() && config.rules.intercepts() { Some(authority(&config)?) } else { ca };
        raise_descriptor_limit();
        let token = config.admin_token.as_deref().map(admin_token).transpose()?;
        let metrics = Metrics::new();
        let (listen, listeners): (Vec<_>, Vec<_>) = open(given.workers, &config.listen)?.into_iter().unzip();
        let (admin, admin_listener) = open(given.admin.into_iter().collect(), config.admin.as_slice())?.pop().unzip();
        let exposed = listen.iter().any(|addr| !addr.ip().is_loopback());
        warn_of_expired(&config.upstream_ca);
        let tls = Tls::new(&config.upstream_ca, &config.upstream_crl, &config.rules)?;
        let own = listen.iter().copied().chain(admin).collect();
        let (clock, kept) = Keeping::open(&config, &listen, forgotten)?;
        let (keeping, kept) = kept.unzip();
        let memory = Memory::new(config.max_memory.unwrap_or_else(memory::default_bytes), clock);
        let lanes = Lanes::new(config.rules.clone(), metrics.clone(), clock).within(memory.bytes());
        let lanes = match kept {
            Some(kept) => lanes.keeping(kept),
            None => lanes,
        };
        let member = member(&config, clock)?;
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
        let mut tasks = JoinSet::new();
        for listener in listeners {
            tasks.spawn(accept(listener, workers.clone(), proxy.clone()));
        }
        tasks.spawn(sweep(proxy.clone()));
        proxy.lanes.open_kept();
        let writer = keeping.map(|keeping| keeping.start(&proxy, &metrics)).transpose();
        let writer = writer.map_err(|source| StartError::Thread { source })?;
        let state = writer.as_ref().map(|writer| writer.report.clone());
        let talking = member.map(|member| member.start(&proxy, &metrics));
        let fleet = talking.as_ref().map(|talking| talking.report.clone());
        let view = Arc::new(View::new(proxy.clone(), reports, state, fleet, instance_name(&listen)));
        let pages = admin_listener
            .map(|listener| tokio::spawn(admin::serve(listener, view.clone(), metrics, token, pending())));
        let exporting = exporter.map(|exporter| exporter.start(clock, &configured.dialer(&config), &plain));
        let drain = config.drain;
        Ok(Self { proxy, view, listen, admin, drain, configured, tasks, pages, workers, writer, talking, exporting })
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

    /// Says that whoever started it is its only client: nobody else is told if requests are taken back.
    pub fn serves_own_clients(&self) {
        self.proxy.serves_own_clients();
    }

    /// Waits until no worker is connected, for as long as `at_most`.
    pub async fn settled(&self, at_most: Duration) {
        // Returns after `at_most` in either case.
        let _ = tokio::time::timeout(at_most, self.proxy.emptied()).await;
    }

    /// Stops accepting, lets queued and running requests finish within the configured time, and answers the rest 503.
    pub async fn drain(self) {
        let Self { proxy, drain, mut tasks, pages, workers, writer, talking, exporting, .. } = self;
        info!(open = proxy.open(), within_s = drain.as_secs_f64(), "draining");
        // Closes the listening sockets: from now on the system refuses new connections at once.
        tasks.shutdown().await;
        proxy.drain(proxy.clock.now() + drain);
        if tokio::time::timeout(drain + LAST_WORDS, proxy.emptied()).await.is_err() {
            warn!(open = proxy.open(), "cutting connections that have not ended");
        }
        proxy.log_counted(true);
        drop(workers);
        if let Some(talking) = talking {
            talking.finish().await;
        }
        if let Some(writer) = writer {
            writer.finish().await;
        }
        if let Some(exporting) = exporting {
            exporting.finish().await;
        }
        if let Some(pages) = pages {
            pages.abort();
        }
    }
}

/// The member of a fleet that `config` makes of this process, if any.
fn member(config: &Config, clock: Clock) -> Result<Option<(FleetMember<RedisLedger>, Sharing)>, StartError> {
    let Some(url) = &config.fleet.store else { return Ok(None) };
    let store = url.to_string();
    let ledger = RedisLedger::new(url).map_err(|source| StartError::Store { store: store.clone(), source })?;
    Ok(Some(FleetMember::new(ledger, store, &config.fleet, clock)))
}

/// This installation's certificate authority: the one in its place, or a new one.
fn authority(config: &Config) -> Result<Ca, StartError> {
    let place = config.data.clone().or_else(|| ca::default_dir(|name| std::env::var_os(name)));
    let place = place.ok_or(StartError::NoData)?;
    let ca = Ca::find_or_create(&place, SystemTime::now())?;
    let place = place.display();
    info!(%place, fingerprint = ca.fingerprint(), "intercepting HTTPS; workers have to trust this CA (andante env)");
    Ok(ca)
}

/// Logs which of these files have nothing but certificates that have expired. They are no reason not to start: APIs that others
/// vouch for are reached.
fn warn_of_expired(files: &[PathBuf]) {
    for file in files {
        if let Some(what) = std::fs::read(file).ok().and_then(|bytes| expiry::expired(&bytes)) {
            warn!(file = %file.display(), hint = EXPIRED_HINT, "upstream-ca: {what}");
        }
    }
}

/// What this andante is called on its pages: the machine, and where workers connect.
fn instance_name(listen: &[SocketAddr]) -> String {
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let address = listen.first().map(ToString::to_string).unwrap_or_default();
    format!("{} {address}", machine.trim()).trim().to_owned()
}

/// The token in this file.
fn admin_token(file: &Path) -> Result<Token, StartError> {
    let unusable = |source| StartError::Token { file: file.to_owned(), source };
    let text = token_file::read(file).map_err(|error| unusable(error.into()))?;
    if let Some(exposed) = token_file::exposed(file) {
        warn!(hint = "chmod 600, or 640 with a group of its own", "{exposed}");
    }
    Token::new(&text).map_err(|error| unusable(error.into()))
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

async fn accept(listener: TcpListener, workers: WorkerThreads, proxy: Arc<Proxy>) {
    // Whether the last descriptors have been near: from then on it is asked before each connection which one it would be given.
    let mut scarce = false;
    loop {
        while scarce && workers.have_connections() && listen::is_nearly_exhausted(&listener) {
            proxy.lacks_descriptors(None);
            listen::exhausted().await;
        }
        match listen::accept(&listener).await.and_then(|(stream, peer)| Ok((stream.into_std()?, peer))) {
            Ok((stream, peer)) => {
                scarce |= listen::is_among_the_last(&stream);
                workers.dispatch(stream, peer.ip());
            }
            Err(error) => {
                proxy.not_accepted(&error);
                listen::exhausted().await;
            }
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
        proxy.forget_answers();
        proxy.log_counted(false);
    }
}
