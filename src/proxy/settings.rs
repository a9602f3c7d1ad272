//! Settings that a reload replaces, all at once.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use parking_lot::{RwLock, RwLockReadGuard};

use crate::{
    ca::Ca,
    config::{Clients, Config, Timeouts},
    dial::Dialer,
    policy::{ClientIdentity, Gateway},
    proxy::outbound::Outbound,
    tls::Tls,
};

/// Settings that a reload replaces in addition to the rules.
#[derive(Clone)]
pub(crate) struct ProxySettings {
    pub(crate) clients: Clients,
    pub(crate) identity: ClientIdentity,
    /// Paths that stand for an API.
    pub(crate) gateways: Arc<[Gateway]>,
    pub(crate) timeouts: Arc<Timeouts>,
    pub(crate) outbound: Arc<Outbound>,
    /// CA that signs the certificates of intercepted hosts, if there is one.
    pub(crate) ca: Option<Arc<Ca>>,
    /// Number of reloads.
    pub(crate) generation: u64,
}

/// The settings in force.
pub(crate) struct CurrentSettings {
    settings: RwLock<ProxySettings>,
    /// The generation of the settings, to be compared for each request without a lock.
    generation: AtomicU64,
}

/// Configured settings that a reload replaces in addition to the rules.
pub struct NewSettings {
    /// Clients that may use the proxy.
    pub clients: Clients,
    /// Rule that maps addresses to clients, for connections from now on.
    pub identity: ClientIdentity,
    /// Bounds on everything that can hang.
    pub timeouts: Timeouts,
    /// Paths that stand for an API.
    pub gateways: Vec<Gateway>,
    /// CA that signs the certificates of intercepted hosts; required if any host is intercepted. `None` keeps the present
    /// one.
    pub ca: Option<Arc<Ca>>,
}

// === impl NewSettings ===

impl NewSettings {
    /// The settings of `config`.
    pub fn of(config: &Config, ca: Option<Ca>) -> Self {
        Self {
            clients: config.clients.clone(),
            identity: config.identity,
            timeouts: config.timeouts,
            gateways: config.gateways.clone(),
            ca: ca.map(Arc::new),
        }
    }
}

// === impl CurrentSettings ===

impl CurrentSettings {
    pub(crate) fn new(settings: ProxySettings) -> Self {
        Self { generation: AtomicU64::new(settings.generation), settings: RwLock::new(settings) }
    }

    /// The settings. While the guard is held, neither settings nor rules are replaced: all values read under one guard
    /// belong together.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, ProxySettings> {
        self.settings.read()
    }

    /// Generation of the settings in force. A route that was found under another generation is looked up again.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Keeps the settings, and starts a new generation; `rules` may replace the rules meanwhile.
    pub(crate) fn renew<R>(&self, rules: impl FnOnce() -> R) -> R {
        let mut settings = self.settings.write();
        settings.generation += 1;
        let done = rules();
        self.generation.store(settings.generation, Ordering::Relaxed);
        done
    }

    /// Applies `new` settings; `rules` replaces the rules meanwhile. Connections made with earlier `outbound` settings
    /// carry no new request.
    pub(crate) fn replace(&self, new: NewSettings, outbound: Option<(Dialer, Tls)>, rules: impl FnOnce()) {
        let NewSettings { clients, identity, timeouts, gateways, ca } = new;
        let mut settings = self.settings.write();
        settings.generation += 1;
        settings.clients = clients;
        settings.identity = identity;
        settings.gateways = gateways.into();
        if let Some((dialer, tls)) = outbound {
            settings.outbound = Arc::new(settings.outbound.with(dialer, tls, timeouts.connect, settings.generation));
        }
        settings.timeouts = Arc::new(timeouts);
        settings.ca = ca.or_else(|| settings.ca.take());
        rules();
        self.generation.store(settings.generation, Ordering::Relaxed);
    }
}
