//! The proxy: from a worker's connection to the upstream's answer. `stack` shows the way of a request.

mod access;
mod account;
mod body;
mod connection;
mod count;
mod credential;
mod drive;
mod fields;
mod forward;
mod gateway;
mod http1;
mod http2;
mod incidents;
mod inside;
mod interim;
mod lease;
mod link;
mod noted;
mod notices;
mod pieces;
mod pool;
mod recent;
mod request;
mod respond;
mod retry;
mod retry_log;
mod seen;
mod shared_body;
mod socket;
mod stack;
mod tunnel;
mod upload;
mod upstream;
mod voice;
mod wait;
mod watch;
mod writes;

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use http::HeaderValue;
use tokio::{net::TcpStream, sync::Notify};

pub use access::ACCESS;
pub use incidents::{Incident, Incidents};
pub use pool::Pool;

use self::{account::RequestIds, notices::Notices, retry_log::RetryLog, seen::Seen, upload::ReplayMemory};
use crate::{
    ca::Ca,
    clock::{Clock, Instant},
    config::{Clients, Timeouts},
    dial::Dialer,
    metrics::{Metrics, RuleMetrics},
    pace::Lanes,
    policy::Gateway,
    tls::Tls,
};

/// As much of requests' bodies is kept at once, over all requests, in case they have to be sent again.
const MOST_KEPT: usize = 64 * 1024 * 1024;

/// What every connection of this process shares.
pub struct Proxy {
    /// The lanes.
    pub lanes: Lanes,
    /// Where things are counted.
    pub metrics: Metrics,
    /// The time.
    pub clock: Clock,
    clients: Clients,
    timeouts: Timeouts,
    dialer: Dialer,
    /// Whether workers on other machines are let in, so that targets need a closer look.
    exposed: bool,
    /// The ports that workers connect to.
    ports: Vec<u16>,
    /// Paths that stand for an API.
    gateways: Vec<Gateway>,
    /// TLS towards upstreams.
    tls: Tls,
    /// Who signs the certificates of intercepted hosts, if any is.
    ca: Option<Arc<Ca>>,
    notices: Notices,
    seen: Seen,
    replay_memory: Arc<ReplayMemory>,
    retry_log: RetryLog,
    /// What went wrong so far.
    pub incidents: Incidents,
    /// Whether each request is logged.
    access_log: bool,
    request_ids: RequestIds,
    /// Where people find out more, for answers to those who took us for a web server.
    admin: String,
    /// `1.1 andante-…`, `1.0 …` and `2 …`: unique to this process, so that a loop is told from a chain.
    via: [HeaderValue; 3],
    /// Where requests are counted that never got as far as a lane.
    nowhere: Arc<RuleMetrics>,
    open: AtomicUsize,
    tunnels: AtomicUsize,
    draining: AtomicBool,
    /// From when on what is unfinished is cut off, in nanoseconds of the clock.
    cut_off: AtomicU64,
    /// Wakes every connection, to look at the two above.
    drain: Notify,
    /// Wakes who waits for the last connection to end.
    empty: Notify,
}

/// What a [`Proxy`] is made of.
pub struct Parts {
    /// The lanes.
    pub lanes: Lanes,
    /// Where things are counted.
    pub metrics: Metrics,
    /// The time.
    pub clock: Clock,
    /// Who may use the proxy.
    pub clients: Clients,
    /// Bounds on everything that can hang.
    pub timeouts: Timeouts,
    /// How upstreams are connected to.
    pub dialer: Dialer,
    /// Whether a listener is reachable from other machines.
    pub exposed: bool,
    /// The ports that workers connect to.
    pub ports: Vec<u16>,
    /// Paths that stand for an API.
    pub gateways: Vec<Gateway>,
    /// TLS towards upstreams.
    pub tls: Tls,
    /// Who signs the certificates of intercepted hosts; needed if any is.
    pub ca: Option<Arc<Ca>>,
    /// The admin address as a URL, or words that say that there is none.
    pub admin: String,
    /// Tells this process from others in `Via`.
    pub instance: u32,
    /// Whether each request is logged, to the target [`ACCESS`].
    pub access_log: bool,
}

// === impl Proxy ===

impl Proxy {
    /// Puts a proxy together; it serves what is handed to [`serve`](Self::serve).
    pub fn new(parts: Parts) -> Self {
        let via = |version| {
            HeaderValue::try_from(format!("{version} andante-{:08x}", parts.instance)).expect("letters and digits")
        };
        Self {
            nowhere: parts.metrics.rule("none"),
            lanes: parts.lanes,
            metrics: parts.metrics,
            clock: parts.clock,
            clients: parts.clients,
            timeouts: parts.timeouts,
            dialer: parts.dialer,
            exposed: parts.exposed,
            ports: parts.ports,
            gateways: parts.gateways,
            tls: parts.tls,
            ca: parts.ca,
            notices: Notices::default(),
            incidents: Incidents::default(),
            retry_log: RetryLog::default(),
            access_log: parts.access_log,
            request_ids: RequestIds::new(parts.instance),
            seen: Seen::default(),
            replay_memory: Arc::new(ReplayMemory::new(MOST_KEPT)),
            admin: parts.admin,
            via: [via("1.1"), via("1.0"), via("2")],
            open: AtomicUsize::new(0),
            tunnels: AtomicUsize::new(0),
            draining: AtomicBool::new(false),
            cut_off: AtomicU64::new(u64::MAX),
            drain: Notify::new(),
            empty: Notify::new(),
        }
    }

    /// Serves one worker's connection to its end. `pool` is the calling thread's.
    pub async fn serve(self: Arc<Self>, pool: Arc<Pool>, stream: TcpStream, peer: IpAddr) {
        connection::serve(self, pool, stream, peer).await;
    }

    /// Asks all connections to finish what they are at; at `cut_off` the rest is answered 503 or cut.
    pub fn drain(&self, cut_off: Instant) {
        self.cut_off.store(cut_off.as_nanos(), Ordering::Relaxed);
        self.draining.store(true, Ordering::Release);
        self.drain.notify_waiters();
    }

    /// Whether the process is about to end.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Waits until no connection is left.
    pub async fn emptied(&self) {
        loop {
            let empty = self.empty.notified();
            if self.open.load(Ordering::Acquire) == 0 {
                return;
            }
            empty.await;
        }
    }

    /// Logs what was sent again lately; `all` of it before the process ends. To be called every few seconds.
    pub fn log_retries(&self, all: bool) {
        self.retry_log.tell(self.clock.now(), all);
    }

    /// Workers' connections, tunnels included.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Tunnels.
    pub fn tunnels(&self) -> usize {
        self.tunnels.load(Ordering::Relaxed)
    }

    /// Certificates made for intercepted hosts.
    pub fn certificates(&self) -> u64 {
        self.ca.as_ref().map_or(0, |ca| ca.minted())
    }

    /// From when on what is unfinished is cut off.
    fn cut_off(&self) -> Instant {
        Instant::from_nanos(self.cut_off.load(Ordering::Relaxed))
    }

    fn lets_in(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        match &self.clients {
            Clients::Any => true,
            Clients::Loopback => peer.is_loopback(),
            Clients::Networks(networks) => peer.is_loopback() || networks.iter().any(|net| net.contains(&peer)),
        }
    }
}

#[cfg(test)]
impl Proxy {
    /// One that listens nowhere, for tests; `rules` are all that is configured.
    pub(crate) fn with_rules(rules: crate::policy::Rules) -> Self {
        use crate::{clock::Clock, config, dial::Dialer, tls::Tls};
        let (clock, metrics, config) = (Clock::start(), Metrics::new(), config::Config::default());
        Self::new(Parts {
            tls: Tls::new(&[], &[], &rules).unwrap(),
            lanes: Lanes::new(rules, metrics.clone(), clock),
            metrics,
            clock,
            clients: config.clients,
            timeouts: config.timeouts,
            dialer: Dialer::new(config.timeouts.connect, false, Vec::new(), config::Dns::System),
            exposed: false,
            ports: Vec::new(),
            gateways: Vec::new(),
            ca: None,
            admin: String::new(),
            instance: 1,
            access_log: false,
        })
    }
}
