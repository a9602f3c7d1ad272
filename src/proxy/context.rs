//! What every connection of this process shares, in groups: a step asks the group that it needs.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use http::HeaderValue;
use tracing::warn;

use crate::{
    ca::Ca,
    clock::{Clock, Instant},
    config::{Clients, Timeouts},
    dial::Dialer,
    error::{MORE_DESCRIPTORS, is_exhaustion},
    lane::Lanes,
    memory::Memory,
    metrics::{Metrics, RuleMetrics},
    policy::{ClientIdentity, Gateway, Policy, Rules},
    proxy::{
        cache::Caches,
        drain::Drain,
        failure_log::{FailedBy, FailureLog},
        incidents::Incidents,
        log_throttle::{LogThrottle, LogTopic},
        message::replay_memory::ReplayMemory,
        outbound::Outbound,
        replays::Replays,
        request_stats::RequestIds,
        retry_log::RetryLog,
        settings::{CurrentSettings, ProxySettings, Reload},
        sharing::SharedCalls,
    },
    tls::Tls,
    trace::Tracer,
};

/// The most bytes that are kept of request bodies, in case they have to be sent again; of answers that requests share; and of
/// answers that belong to an `Idempotency-Key`.
const MAX_KEPT_BYTES: u64 = 64 * 1024 * 1024;
/// Each of the three takes up to this part of the process's memory.
const KEPT_PART: u64 = 16;

/// What every connection of this process shares.
pub struct Proxy {
    /// The lanes.
    pub lanes: Lanes,
    /// Where things are counted.
    pub metrics: Metrics,
    /// The time.
    pub clock: Clock,
    /// The account of the process's memory.
    pub memory: Arc<Memory>,
    pub(crate) access: Access,
    pub(crate) drain: Arc<Drain>,
    pub(crate) reports: Reports,
    pub(crate) settings: CurrentSettings,
    pub(crate) replay_memory: Arc<ReplayMemory>,
    /// The answers that are kept to be used again.
    pub(crate) caches: Caches,
    /// The calls that identical requests share.
    pub(crate) sharing: Arc<SharedCalls>,
    /// The calls that requests with the same key share, and their answers.
    pub(crate) replays: Arc<Replays>,
    pub(crate) request_ids: RequestIds,
    /// Where spans go; `None` traces nothing.
    pub(crate) tracer: Option<Arc<Tracer>>,
    /// `1.1 andante-…`, `1.0 …` and `2 …`: unique to this process, so that a loop is told from a chain.
    pub(crate) via: [HeaderValue; 3],
    /// Where requests are counted that never got as far as a lane.
    pub(crate) nowhere: Arc<RuleMetrics>,
    pub(crate) tunnels: AtomicUsize,
}

/// The addresses by which the proxy is used.
pub(crate) struct Access {
    /// Whether workers on other machines are let in, so that targets need a closer look.
    pub(crate) exposed: bool,
    /// The ports that workers connect to.
    pub(crate) ports: Vec<u16>,
    /// Where people find out more, for answers to clients that take andante for a web server.
    pub(crate) admin: String,
}

/// What people are told beside the metrics.
pub(crate) struct Reports {
    pub(crate) throttle: LogThrottle,
    pub(crate) retries: RetryLog,
    pub(crate) failures: FailureLog,
    /// Requests that andante has refused.
    pub(crate) refusals: FailureLog,
    /// What went wrong so far.
    pub(crate) incidents: Incidents,
    /// Whether each request is logged.
    pub(crate) access_log: bool,
    /// Whether the clients are a part of this program, which knows itself why they leave.
    pub(crate) own_clients: AtomicBool,
}

/// What a [`Proxy`] is made of.
pub struct ProxyParts {
    /// The lanes.
    pub lanes: Lanes,
    /// Where things are counted.
    pub metrics: Metrics,
    /// The time.
    pub clock: Clock,
    /// Who may use the proxy.
    pub clients: Clients,
    /// Which addresses are one client.
    pub identity: ClientIdentity,
    /// The account of the process's memory.
    pub memory: Arc<Memory>,
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
    /// Where spans go; `None` traces nothing.
    pub tracer: Option<Arc<Tracer>>,
}

// === impl Proxy ===

impl Proxy {
    /// Puts a proxy together; it serves what is handed to [`serve`](super::serve).
    pub fn new(parts: ProxyParts) -> Self {
        let via = |version| {
            HeaderValue::try_from(format!("{version} andante-{:08x}", parts.instance)).expect("letters and digits")
        };
        let drain = Arc::new(Drain::default());
        let kept = (parts.memory.bytes() / KEPT_PART).min(MAX_KEPT_BYTES) as usize;
        let caches = Caches::new(parts.memory.clone());
        Self {
            nowhere: parts.metrics.rule("none"),
            lanes: parts.lanes,
            clock: parts.clock,
            memory: parts.memory,
            access: Access { exposed: parts.exposed, ports: parts.ports, admin: parts.admin },
            settings: CurrentSettings::new(ProxySettings {
                clients: parts.clients,
                identity: parts.identity,
                gateways: parts.gateways.into(),
                timeouts: Arc::new(parts.timeouts),
                outbound: Arc::new(Outbound {
                    clock: parts.clock,
                    dialer: parts.dialer,
                    tls: parts.tls,
                    metrics: parts.metrics.clone(),
                    connect: parts.timeouts.connect,
                    known: Arc::default(),
                    drain: drain.clone(),
                    windows: Arc::default(),
                    way: 0,
                }),
                ca: parts.ca,
                generation: 0,
            }),
            metrics: parts.metrics,
            drain,
            reports: Reports {
                throttle: LogThrottle::default(),
                retries: RetryLog::default(),
                failures: FailureLog::new(FailedBy::Upstream),
                refusals: FailureLog::new(FailedBy::Us),
                incidents: Incidents::default(),
                access_log: parts.access_log,
                own_clients: AtomicBool::new(false),
            },
            replay_memory: Arc::new(ReplayMemory::new(kept)),
            caches,
            sharing: SharedCalls::new(kept),
            replays: Replays::new(kept),
            request_ids: RequestIds::new(parts.instance),
            tracer: parts.tracer,
            via: [via("1.1"), via("1.0"), via("2")],
            tunnels: AtomicUsize::new(0),
        }
    }

    /// Goes on under `rules` and with what `reload` says, all at once. Requests that wait keep their places, and those on
    /// their way end as they began. Must be called on a tokio runtime.
    pub fn reload(&self, rules: Rules, reload: Reload) {
        self.settings.replace(reload, || {
            self.caches.retain(&rules);
            self.lanes.reload(rules);
        });
    }

    /// From now on the rule called `name` is what `change` makes of it, if it makes anything of it. Requests that wait keep
    /// their places. Returns the rule as it is now; `None` if nothing has changed. Must be called on a tokio runtime.
    pub fn change_rule(&self, name: &str, change: impl FnOnce(&Arc<Policy>) -> Option<Policy>) -> Option<Arc<Policy>> {
        self.settings.renew(|| {
            let rules = self.lanes.rules();
            let position = rules.iter().position(|rule| *rule.name == *name)?;
            let changed = change(rules.get(position))?;
            self.lanes.reload(rules.with(position, changed));
            Some(self.lanes.rules().get(position).clone())
        })
    }

    /// Bounds on everything that can hang, for what begins now.
    pub(crate) fn timeouts(&self) -> Arc<Timeouts> {
        self.settings.read().timeouts.clone()
    }

    /// Who signs the certificates of intercepted hosts, if any is.
    pub(crate) fn ca(&self) -> Option<Arc<Ca>> {
        self.settings.read().ca.clone()
    }

    /// Whether there is a CA to sign the certificates of intercepted hosts.
    pub fn signs(&self) -> bool {
        self.settings.read().ca.is_some()
    }

    /// Asks all connections to finish what they are at; at `cut_off` the rest is answered 503 or cut. Requests that
    /// certainly wait for longer are answered 503 at once.
    pub fn drain(&self, cut_off: Instant) {
        self.drain.begin(self.clock.now(), cut_off);
        self.lanes.all().iter().for_each(|lane| lane.ends_at(cut_off));
    }

    /// Returns once the process drains.
    pub async fn drain_begun(&self) {
        self.drain.begun().await;
    }

    /// Whether the process is about to end.
    pub fn is_draining(&self) -> bool {
        self.drain.is_draining()
    }

    /// A connection could not be accepted because of `error`.
    pub fn not_accepted(&self, error: &io::Error) {
        if is_exhaustion(error) {
            return self.lacks_descriptors(Some(error));
        }
        if self.reports.throttle.is_due(LogTopic::AcceptFailed, &"".into(), self.clock.now()) {
            warn!(%error, "could not accept a connection: trying again");
        }
    }

    /// There are no file descriptors for more connections, or an `error` says so: those that carry no request make room.
    pub fn lacks_descriptors(&self, error: Option<&io::Error>) {
        let now = self.clock.now();
        self.drain.make_room(now);
        if self.reports.throttle.is_due(LogTopic::Unaccepted, &"".into(), now) {
            warn!(
                error = error.map(tracing::field::display),
                hint = MORE_DESCRIPTORS,
                "file descriptors run out: silent and idle connections are closed, the oldest first"
            );
        }
    }

    /// Whether there are no file descriptors for more connections.
    pub fn is_full(&self) -> bool {
        self.drain.is_full(self.clock.now())
    }

    /// Waits until no connection is left.
    pub async fn emptied(&self) {
        self.drain.emptied().await;
    }

    /// Logs what was sent again and what failed lately; `all` of it before the process ends. To be called every few seconds.
    pub fn log_counted(&self, all: bool) {
        let now = self.clock.now();
        self.reports.retries.tell(now, all);
        self.reports.failures.tell(now, all);
        self.reports.refusals.tell(now, all);
    }

    /// Says that the clients are a part of this program: nobody is told if they leave.
    pub fn serves_own_clients(&self) {
        self.reports.own_clients.store(true, Ordering::Relaxed);
    }

    /// Forgets answers that were kept for long enough. To be called every few seconds.
    pub fn forget_answers(&self) {
        self.replays.sweep(self.clock.now());
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
        self.ca().map_or(0, |ca| ca.minted())
    }
}

#[cfg(test)]
impl Proxy {
    /// One that listens nowhere, for tests; `rules` are all that is configured.
    pub(crate) fn with_rules(rules: Rules) -> Self {
        use crate::config;
        let (clock, metrics, config) = (Clock::start(), Metrics::new(), config::Config::default());
        Self::new(ProxyParts {
            tls: Tls::new(&[], &[], &rules).unwrap(),
            lanes: Lanes::new(rules, metrics.clone(), clock),
            metrics,
            clock,
            clients: config.clients,
            identity: config.identity,
            memory: Memory::new(u64::MAX / 2, clock),
            timeouts: config.timeouts,
            dialer: Dialer::new(config.timeouts.connect, false, Vec::new(), config::Dns::System),
            exposed: false,
            ports: Vec::new(),
            gateways: Vec::new(),
            ca: None,
            admin: String::new(),
            instance: 1,
            access_log: false,
            tracer: None,
        })
    }
}
