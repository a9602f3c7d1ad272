//! Applies another configuration to a running andante: all changes at once, or none.

use std::{net::SocketAddr, sync::Arc};

use parking_lot::Mutex;

use super::{StartError, authority};
use crate::{
    admin::status::ConfigStatus,
    clock::{Clock, Instant},
    config::{Clients, Config},
    dial::Dialer,
    metrics::Metrics,
    policy::Egress,
    proxy::{NewSettings, Proxy, reweigh_waiting},
    tls::Tls,
};

/// Configuration of the running andante.
pub(super) struct Configured {
    /// Configuration in force. Settings that cannot change keep their values from the start.
    config: Config,
    /// A listener is reachable from other machines.
    exposed: bool,
    /// Own addresses.
    own: Vec<SocketAddr>,
    pub(super) reports: Arc<ReloadReports>,
}

/// Results of reloads, for people.
pub(super) struct ReloadReports {
    clock: Clock,
    metrics: Metrics,
    last: Mutex<LastReload>,
}

#[derive(Clone, Debug, Default)]
struct LastReload {
    file: Option<String>,
    total: u64,
    /// Time at which the present configuration was loaded: the start, if there was no reload.
    loaded: Instant,
    problems: Vec<String>,
}

// === impl Configured ===

impl Configured {
    pub(super) fn new(
        config: &Config,
        listen: &[SocketAddr],
        admin: Option<SocketAddr>,
        clock: Clock,
        metrics: Metrics,
    ) -> Self {
        Self {
            config: config.clone(),
            exposed: listen.iter().any(|addr| !addr.ip().is_loopback()),
            own: listen.iter().copied().chain(admin).collect(),
            reports: Arc::new(ReloadReports::new(config, clock, metrics)),
        }
    }

    pub(super) fn dialer(&self, config: &Config) -> Dialer {
        let guarded = self.exposed && config.clients != Clients::Loopback;
        Dialer::new(config.timeouts.connect, guarded, self.own.clone(), config.dns.clone())
    }

    /// Returns whether `other` has the same settings for connections to upstreams.
    fn connects_as(&self, other: &Config) -> bool {
        // Skips rules with the default way to their hosts, whatever their names.
        let ways = |config: &Config| -> Vec<_> {
            let rules = config.rules.iter().chain([config.rules.unruled()]);
            let own = rules.filter(|rule| rule.egress != Egress::default() || rule.allow_private);
            own.map(|rule| (rule.name.clone(), rule.egress.clone(), rule.allow_private)).collect()
        };
        let (config, loopback) = (&self.config, |config: &Config| config.clients == Clients::Loopback);
        config.upstream_ca == other.upstream_ca
            && config.upstream_crl == other.upstream_crl
            && config.timeouts.connect == other.timeouts.connect
            && config.dns == other.dns
            && loopback(config) == loopback(other)
            && ways(config) == ways(other)
    }

    /// Configuration in force.
    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Applies `config` to `proxy`. `files` tells that files named in the configuration have changed, so that they are
    /// read again.
    ///
    /// Changes nothing on an error.
    pub(super) fn reload(&mut self, proxy: &Proxy, config: &Config, files: bool) -> Result<(), StartError> {
        let connects = !files && self.connects_as(config);
        let tls = || Tls::new(&config.upstream_ca, &config.upstream_crl, &config.rules);
        let outbound = if connects { None } else { Some((self.dialer(config), tls()?)) };
        let signs = proxy.signs() || !config.rules.intercepts();
        let ca = if signs { None } else { Some(authority(&self.config)?) };
        proxy.reload(config.rules.clone(), NewSettings::of(config, ca), outbound);
        reweigh_waiting(proxy);
        self.config = self.config.with_changes_of(config);
        self.reports.succeeded();
        Ok(())
    }
}

// === impl ReloadReports ===

impl ReloadReports {
    fn new(config: &Config, clock: Clock, metrics: Metrics) -> Self {
        let file = config.file.as_deref().map(|file| file.display().to_string());
        metrics.config_loaded(true, clock.time_of_day());
        Self { clock, metrics, last: Mutex::new(LastReload { file, loaded: clock.now(), ..LastReload::default() }) }
    }

    fn succeeded(&self) {
        let mut last = self.last.lock();
        last.total += 1;
        last.loaded = self.clock.now();
        last.problems.clear();
        self.metrics.config_loaded(true, self.clock.time_of_day());
    }

    pub(super) fn failed(&self, problems: Vec<String>) {
        self.last.lock().problems = problems;
        self.metrics.config_loaded(false, self.clock.time_of_day());
    }

    /// Result of the last reload.
    pub(super) fn status(&self) -> ConfigStatus {
        let LastReload { file, total, loaded, problems } = self.last.lock().clone();
        ConfigStatus {
            file,
            reloads_total: total,
            last_reload_successful: problems.is_empty(),
            loaded_s: self.clock.now().since(loaded).as_secs_f64(),
            problems,
        }
    }
}
