//! Values of a checked configuration, with their defaults.

use std::{
    net::{IpAddr, SocketAddr},
    num::NonZeroUsize,
    path::PathBuf,
    time::Duration,
};

use ipnet::IpNet;

use super::{fleet::FleetConfig, otlp::OtlpConfig};
use crate::policy::{ClientIdentity, Gateway, Rules};

/// Settings of a running andante.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Addresses for workers.
    pub listen: Vec<SocketAddr>,
    /// Address of the live page, `/metrics`, `/status`, `/healthz` and `/readyz`; `None` switches them off.
    pub admin: Option<SocketAddr>,
    /// File with the token for changes by the admin API; `None` allows no changes.
    pub admin_token: Option<PathBuf>,
    /// Runtime threads; `None` is one per core, four at most.
    pub threads: Option<NonZeroUsize>,
    /// Largest memory of the process, in bytes; `None` is a part of the system's memory.
    pub max_memory: Option<u64>,
    /// Format of the log.
    pub log: LogFormat,
    /// Destination of the access log; `None` writes none.
    pub access_log: Option<AccessLog>,
    /// Destination of traces and metrics; `None` exports none.
    pub otlp: Option<OtlpConfig>,
    /// Clients that may use the proxy.
    pub clients: Clients,
    /// Addresses that count as one client.
    pub identity: ClientIdentity,
    /// Time in which queued and running requests may finish after SIGTERM.
    pub drain: Duration,
    /// Time limits for everything that can hang.
    pub timeouts: Timeouts,
    /// Rules with their limits.
    pub rules: Rules,
    /// Paths that stand for an API: `/openai` for `https://api.openai.com`.
    pub gateways: Vec<Gateway>,
    /// PEM files with authorities for verifying upstreams, besides the system's.
    pub upstream_ca: Vec<PathBuf>,
    /// PEM files with revocation lists.
    pub upstream_crl: Vec<PathBuf>,
    /// Resolver of names.
    pub dns: Dns,
    /// Folder of the certificate authority; `None` is the user's data folder.
    pub data: Option<PathBuf>,
    /// Place of the state that outlives the process.
    pub state: StatePlace,
    /// Sharing of budgets with other andantes.
    pub fleet: FleetConfig,
    /// The configuration file, if any.
    pub file: Option<PathBuf>,
}

/// Format of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// JSON, one object per line.
    Json,
}

/// Place of the state that outlives the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StatePlace {
    /// A file in the default folder for state, one for each listening address.
    #[default]
    Usual,
    /// Nowhere.
    Off,
    /// This file.
    At(PathBuf),
}

/// Destination of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLog {
    /// Standard output.
    Stdout,
    /// Standard error, with the rest of the log.
    Stderr,
    /// A file; lines are appended.
    File(PathBuf),
}

/// Resolver of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Dns {
    /// The servers of `/etc/resolv.conf`, and `/etc/hosts`; answers are kept for their TTL.
    #[default]
    Cached,
    /// The system's resolver, with everything in `/etc/nsswitch.conf`; nothing is kept.
    System,
    /// The given servers; answers are kept for their TTL.
    Servers(Vec<SocketAddr>),
}

/// Clients that may use the proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Clients {
    /// Clients on this machine: the default, and safe only for loopback listeners.
    #[default]
    Loopback,
    /// Loopback and these networks.
    Networks(Vec<IpNet>),
    /// Every client that can connect: only by an explicit `clients = ["any"]`, never by default.
    Any,
}

// === impl Clients ===

impl Clients {
    /// Returns whether a client at `address` may use the proxy.
    pub fn allow(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        match self {
            Self::Any => true,
            Self::Loopback => address.is_loopback(),
            Self::Networks(networks) => {
                address.is_loopback() || networks.iter().any(|network| network.contains(&address))
            }
        }
    }
}

/// Time limits for everything that can hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Time for resolving and connecting to an upstream.
    pub connect: Duration,
    /// Time from the request's last byte to the answer's head.
    pub answer: Duration,
    /// Silence within a body or a tunnel, in either direction.
    pub idle: Duration,
    /// Time from the first byte of a request's head to its last.
    pub head: Duration,
    /// Time that a worker's connection stays open without a request.
    pub keep_alive: Duration,
    /// Time that an unused connection to an upstream stays open.
    pub upstream_keep_alive: Duration,
    /// Age of a connection to an upstream after which no new request uses it.
    pub upstream_max_age: Duration,
}

// === impl Config ===

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 3128))],
            admin: Some(SocketAddr::from(([127, 0, 0, 1], 9128))),
            admin_token: None,
            threads: None,
            max_memory: None,
            log: LogFormat::Text,
            access_log: None,
            otlp: None,
            clients: Clients::Loopback,
            identity: ClientIdentity::default(),
            drain: Duration::from_secs(120),
            timeouts: Timeouts::default(),
            rules: Rules::default(),
            gateways: Vec::new(),
            upstream_ca: Vec::new(),
            upstream_crl: Vec::new(),
            dns: Dns::default(),
            data: None,
            state: StatePlace::Usual,
            fleet: FleetConfig::default(),
            file: None,
        }
    }
}

impl Config {
    /// This configuration, with everything in `other` that can change while andante runs. Settings that are
    /// fixed at the start stay.
    pub fn with_changes_of(&self, other: &Self) -> Self {
        let Self {
            listen,
            admin,
            admin_token,
            threads,
            max_memory,
            log,
            access_log,
            otlp,
            data,
            state,
            fleet,
            file,
            timeouts,
            ..
        } = self.clone();
        let Timeouts { upstream_keep_alive, upstream_max_age, .. } = timeouts;
        let timeouts = Timeouts { upstream_keep_alive, upstream_max_age, ..other.timeouts };
        Self {
            listen,
            admin,
            admin_token,
            threads,
            max_memory,
            log,
            access_log,
            otlp,
            data,
            state,
            fleet,
            file,
            timeouts,
            ..other.clone()
        }
    }
}

// === impl Timeouts ===

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            answer: Duration::from_secs(600),
            idle: Duration::from_secs(300),
            head: Duration::from_secs(30),
            keep_alive: Duration::from_secs(600),
            upstream_keep_alive: Duration::from_secs(60),
            upstream_max_age: Duration::from_secs(3600),
        }
    }
}
