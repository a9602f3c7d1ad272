//! What every connection of this process shares, in groups: a step asks the group that it needs.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use http::HeaderValue;

use crate::{
    ca::Ca,
    clock::{Clock, Instant},
    config::{Clients, Timeouts},
    dial::Dialer,
    lane::Lanes,
    metrics::{Metrics, RuleMetrics},
    policy::Gateway,
    proxy::{
        drain::Drain,
        incidents::Incidents,
        log_throttle::LogThrottle,
        message::replay_buffer::ReplayMemory,
        outbound::{Outbound, known_origins::KnownOrigins},
        request_stats::RequestIds,
        retry_log::RetryLog,
    },
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
    pub(crate) timeouts: Arc<Timeouts>,
    pub(crate) access: Access,
    pub(crate) outbound: Arc<Outbound>,
    pub(crate) drain: Arc<Drain>,
    pub(crate) reports: Reports,
    /// Who signs the certificates of intercepted hosts, if any is.
    pub(crate) ca: Option<Arc<Ca>>,
    pub(crate) replay_memory: Arc<ReplayMemory>,
    pub(crate) request_ids: RequestIds,
    /// `1.1 andante-…`, `1.0 …` and `2 …`: unique to this process, so that a loop is told from a chain.
    pub(crate) via: [HeaderValue; 3],
    /// Where requests are counted that never got as far as a lane.
    pub(crate) nowhere: Arc<RuleMetrics>,
    pub(crate) tunnels: AtomicUsize,
}

/// Who may use the proxy, and by which addresses.
pub(crate) struct Access {
    clients: Clients,
    /// Whether workers on other machines are let in, so that targets need a closer look.
    pub(crate) exposed: bool,
    /// The ports that workers connect to.
    pub(crate) ports: Vec<u16>,
    /// Paths that stand for an API.
    pub(crate) gateways: Vec<Gateway>,
    /// Where people find out more, for answers to those who took andante for a web server.
    pub(crate) admin: String,
}

/// What people are told beside the metrics.
pub(crate) struct Reports {
    pub(crate) throttle: LogThrottle,
    pub(crate) retries: RetryLog,
    /// What went wrong so far.
    pub(crate) incidents: Incidents,
    /// Whether each request is logged.
    pub(crate) access_log: bool,
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
    /// Whether each request is logged, to the target [`ACCESS`](super::ACCESS).
    pub access_log: bool,
}

// === impl Proxy ===

impl Proxy {
    /// Puts a proxy together; it serves what is handed to [`serve`](super::serve).
    pub fn new(parts: Parts) -> Self {
        let via = |version| {
            HeaderValue::try_from(format!("{version} andante-{:08x}", parts.instance)).expect("letters and digits")
        };
        let drain = Arc::new(Drain::default());
        Self {
            nowhere: parts.metrics.rule("none"),
            lanes: parts.lanes,
            clock: parts.clock,
            timeouts: Arc::new(parts.timeouts),
            access: Access {
                clients: parts.clients,
                exposed: parts.exposed,
                ports: parts.ports,
                gateways: parts.gateways,
                admin: parts.admin,
            },
            outbound: Arc::new(Outbound {
                clock: parts.clock,
                dialer: parts.dialer,
                tls: parts.tls,
                metrics: parts.metrics.clone(),
                connect: parts.timeouts.connect,
                known: KnownOrigins::default(),
                drain: drain.clone(),
            }),
            metrics: parts.metrics,
            drain,
            reports: Reports {
                throttle: LogThrottle::default(),
                retries: RetryLog::default(),
                incidents: Incidents::default(),
                access_log: parts.access_log,
            },
            ca: parts.ca,
            replay_memory: Arc::new(ReplayMemory::new(MOST_KEPT)),
            request_ids: RequestIds::new(parts.instance),
            via: [via("1.1"), via("1.0"), via("2")],
            tunnels: AtomicUsize::new(0),
        }
    }

    /// Asks all connections to finish what they are at; at `cut_off` the rest is answered 503 or cut.
    pub fn drain(&self, cut_off: Instant) {
        self.drain.begin(cut_off);
    }

    /// Whether the process is about to end.
    pub fn is_draining(&self) -> bool {
        self.drain.is_draining()
    }

    /// Waits until no connection is left.
    pub async fn emptied(&self) {
        self.drain.emptied().await;
    }

    /// Logs what was sent again lately; `all` of it before the process ends. To be called every few seconds.
    pub fn log_retries(&self, all: bool) {
        self.reports.retries.tell(self.clock.now(), all);
    }

    /// What went wrong so far.
    pub fn incidents(&self) -> &Incidents {
        &self.reports.incidents
    }

    /// Workers' connections, tunnels included.
    pub fn open(&self) -> usize {
        self.drain.open()
    }

    /// Tunnels.
    pub fn tunnels(&self) -> usize {
        self.tunnels.load(Ordering::Relaxed)
    }

    /// Certificates made for intercepted hosts.
    pub fn certificates(&self) -> u64 {
        self.ca.as_ref().map_or(0, |ca| ca.minted())
    }
}

// === impl Access ===

impl Access {
    /// Whether a client at `address` may use the proxy.
    pub(crate) fn allows(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        match &self.clients {
            Clients::Any => true,
            Clients::Loopback => address.is_loopback(),
            Clients::Networks(networks) => {
                address.is_loopback() || networks.iter().any(|network| network.contains(&address))
            }
        }
    }
}

#[cfg(test)]
impl Proxy {
    /// One that listens nowhere, for tests; `rules` are all that is configured.
    pub(crate) fn with_rules(rules: crate::policy::Rules) -> Self {
        use crate::config;
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
