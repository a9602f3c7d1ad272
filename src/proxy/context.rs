//! State that all connections of the process share, in groups: each step asks the group that it needs.

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
    config::Timeouts,
    dial::Dialer,
    error::{MORE_DESCRIPTORS, is_exhaustion},
    lane::Lanes,
    memory::Memory,
    metrics::{Metrics, RuleMetrics},
    policy::{Policy, Rules},
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
        settings::{CurrentSettings, NewSettings, ProxySettings},
        sharing::SharedCalls,
    },
    tls::Tls,
    trace::Tracer,
};

/// Maximum bytes kept of each of three kinds: request bodies for retries, answers that requests share, and answers to
/// requests with an `Idempotency-Key`.
const MAX_KEPT_BYTES: u64 = 64 * 1024 * 1024;
/// Each of the three takes at most 1/`KEPT_PART` of the process's memory.
const KEPT_PART: u64 = 16;

/// State that all connections of the process share.
pub struct Proxy {
    /// The lanes.
    pub lanes: Lanes,
    /// Metrics of the process.
    pub metrics: Metrics,
    /// The clock.
    pub clock: Clock,
    /// Account of the process's memory.
    pub memory: Arc<Memory>,
    pub(crate) access: Access,
    pub(crate) drain: Arc<Drain>,
    pub(crate) reports: Reports,
    pub(crate) settings: CurrentSettings,
    pub(crate) replay_memory: Arc<ReplayMemory>,
    /// Answers that are cached for later requests.
    pub(crate) caches: Caches,
    /// The calls that identical requests share.
    pub(crate) sharing: Arc<SharedCalls>,
    /// Calls of requests with an `Idempotency-Key`, and their answers.
    pub(crate) replays: Arc<Replays>,
    pub(crate) request_ids: RequestIds,
    /// Destination of spans; `None` traces nothing.
    pub(crate) tracer: Option<Arc<Tracer>>,
    /// `1.1 andante-…`, `1.0 …` and `2 …`: unique to this process, so that a loop can be told from a chain.
    pub(crate) via: [HeaderValue; 3],
    /// Metrics of requests that never reached a lane.
    pub(crate) nowhere: Arc<RuleMetrics>,
    pub(crate) tunnels: AtomicUsize,
}

/// Addresses at which the proxy is used.
#[derive(Default)]
pub struct Access {
    /// True if workers on other machines are let in, so that targets need a closer look.
    pub exposed: bool,
    /// The ports that workers connect to.
    pub ports: Vec<u16>,
    /// Admin address as a URL, or words that say that there is none. For answers to clients that mistake andante for a
    /// web server.
    pub admin: String,
}

/// Reports to people, in addition to the metrics.
pub(crate) struct Reports {
    pub(crate) throttle: LogThrottle,
    pub(crate) retries: RetryLog,
    pub(crate) failures: FailureLog,
    /// Requests that andante has refused.
    pub(crate) refusals: FailureLog,
    /// Incidents so far.
    pub(crate) incidents: Incidents,
    /// True if each request is logged.
    pub(crate) access_log: bool,
    /// True if the clients are part of this program, which knows itself why they leave.
    pub(crate) own_clients: AtomicBool,
}

/// Parts of a [`Proxy`].
pub struct ProxyParts {
    /// The lanes.
    pub lanes: Lanes,
    /// Metrics of the process.
    pub metrics: Metrics,
    /// The clock.
    pub clock: Clock,
    /// Account of the process's memory.
    pub memory: Arc<Memory>,
    /// Settings that a reload replaces.
    pub settings: NewSettings,
    /// Dialer of connections to upstreams.
    pub dialer: Dialer,
    /// TLS towards upstreams.
    pub tls: Tls,
    /// Addresses at which the proxy is used.
    pub access: Access,
    /// Number that distinguishes this process from others in `Via`.
    pub instance: u32,
    /// True if each request is logged, to the target [`ACCESS`](super::ACCESS).
    pub access_log: bool,
    /// Destination of spans; `None` traces nothing.
    pub tracer: Option<Arc<Tracer>>,
}

// === impl Proxy ===

impl Proxy {
    /// Creates a proxy; it serves the connections that are handed to [`serve`](super::serve).
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
            memory: parts.memory.clone(),
            access: parts.access,
            settings: CurrentSettings::new(ProxySettings {
                clients: parts.settings.clients,
                identity: parts.settings.identity,
                gateways: parts.settings.gateways.into(),
                timeouts: Arc::new(parts.settings.timeouts),
                outbound: Arc::new(Outbound {
                    clock: parts.clock,
                    dialer: parts.dialer,
                    tls: parts.tls,
                    metrics: parts.metrics.clone(),
                    connect: parts.settings.timeouts.connect,
                    known: Arc::default(),
                    drain: drain.clone(),
                    windows: Arc::default(),
                    memory: parts.memory.clone(),
                    way: 0,
                }),
                ca: parts.settings.ca,
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

    /// Applies `rules` and `settings`, all at once. `outbound` is the way to reach upstreams, if it changes. Requests that
    /// wait keep their places, and requests in flight end under the settings that they began with. Must be called on a
    /// tokio runtime.
    pub fn reload(&self, rules: Rules, settings: NewSettings, outbound: Option<(Dialer, Tls)>) {
        self.settings.replace(settings, outbound, || {
            self.caches.retain(&rules);
            self.lanes.reload(rules);
        });
    }

    /// Replaces the rule called `name` with the result of `change`. Requests that wait keep their places. Returns the
    /// new rule; `None` if nothing has changed. Must be called on a tokio runtime.
    pub fn change_rule(&self, name: &str, change: impl FnOnce(&Arc<Policy>) -> Option<Policy>) -> Option<Arc<Policy>> {
        self.settings.renew(|| {
            let rules = self.lanes.rules();
            let position = rules.iter().position(|rule| *rule.name == *name)?;
            let changed = change(rules.get(position))?;
            self.lanes.reload(rules.with(position, changed));
            Some(self.lanes.rules().get(position).clone())
        })
    }

    /// Bounds on everything that can hang, for operations that begin now.
    pub(crate) fn timeouts(&self) -> Arc<Timeouts> {
        self.settings.read().timeouts.clone()
    }

    /// CA that signs the certificates of intercepted hosts, if there is one.
    pub(crate) fn ca(&self) -> Option<Arc<Ca>> {
        self.settings.read().ca.clone()
    }

    /// Returns whether there is a CA to sign the certificates of intercepted hosts.
    pub fn signs(&self) -> bool {
        self.settings.read().ca.is_some()
    }

    /// Asks all connections to finish their requests. At `cut_off`, the remaining requests are answered 503 or cut.
    /// Requests that certainly wait for longer are answered 503 at once.
    pub fn drain(&self, cut_off: Instant) {
        self.drain.begin(self.clock.now(), cut_off);
        self.lanes.all().iter().for_each(|lane| lane.ends_at(cut_off));
    }

    /// Returns once the process drains.
    pub async fn drain_begun(&self) {
        self.drain.begun().await;
    }

    /// Returns whether the process is about to end.
    pub fn is_draining(&self) -> bool {
        self.drain.is_draining()
    }

    /// Reports that a connection could not be accepted because of `error`.
    pub fn not_accepted(&self, error: &io::Error) {
        if is_exhaustion(error) {
            return self.lacks_descriptors(Some(error));
        }
        if self.reports.throttle.is_due(LogTopic::AcceptFailed, &"".into(), self.clock.now()) {
            warn!(%error, "could not accept a connection: trying again");
        }
    }

    /// Reports that there are no file descriptors for more connections; `error` is the system's error, if any. Closes
    /// connections that carry no request to make room.
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

    /// Returns whether there are no file descriptors for more connections.
    pub fn is_full(&self) -> bool {
        self.drain.is_full(self.clock.now())
    }

    /// Waits until no connection is left.
    pub async fn emptied(&self) {
        self.drain.emptied().await;
    }

    /// Logs recent retries and failures. `all` logs every one that is left, before the process ends. To be called every
    /// few seconds.
    pub fn log_counted(&self, all: bool) {
        let now = self.clock.now();
        self.reports.retries.tell(now, all);
        self.reports.failures.tell(now, all);
        self.reports.refusals.tell(now, all);
    }

    /// Declares that the clients are part of this program: their departures are not reported.
    pub fn serves_own_clients(&self) {
        self.reports.own_clients.store(true, Ordering::Relaxed);
    }

    /// Drops answers whose retention time is over. To be called every few seconds.
    pub fn forget_answers(&self) {
        self.replays.sweep(self.clock.now());
    }

    /// Incidents so far.
    pub fn incidents(&self) -> &Incidents {
        &self.reports.incidents
    }

    /// Number of workers' connections, tunnels included.
    pub fn open(&self) -> usize {
        self.drain.open()
    }

    /// Number of requests, turns and tunnels that a drain has cut off, and of connections that are still open.
    pub fn cut_off(&self) -> usize {
        self.drain.cut() + self.drain.open()
    }

    /// Number of tunnels.
    pub fn tunnels(&self) -> usize {
        self.tunnels.load(Ordering::Relaxed)
    }

    /// Number of certificates made for intercepted hosts.
    pub fn certificates(&self) -> u64 {
        self.ca().map_or(0, |ca| ca.minted())
    }
}

#[cfg(test)]
impl Proxy {
    /// Creates a proxy without listeners, for tests; `rules` are the only configuration.
    pub(crate) fn with_rules(rules: Rules) -> Self {
        use crate::config;
        let (clock, metrics, config) = (Clock::start(), Metrics::new(), config::Config::default());
        Self::new(ProxyParts {
            tls: Tls::new(&[], &[], &rules).unwrap(),
            lanes: Lanes::new(rules, metrics.clone(), clock),
            metrics,
            clock,
            memory: Memory::new(u64::MAX / 2, clock),
            settings: NewSettings::of(&config, None),
            dialer: Dialer::new(config.timeouts.connect, false, Vec::new(), config::Dns::System),
            access: Access::default(),
            instance: 1,
            access_log: false,
            tracer: None,
        })
    }
}
