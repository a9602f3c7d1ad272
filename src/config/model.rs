//! What andante runs on: the values of a checked configuration, and their defaults.

use std::{
    net::{IpAddr, SocketAddr},
    num::NonZeroUsize,
    path::PathBuf,
    time::Duration,
};

use ipnet::IpNet;

use super::{fleet::FleetConfig, otlp::OtlpConfig};
use crate::policy::{ClientIdentity, Gateway, Rules};

/// All that a running andante needs to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where workers connect.
    pub listen: Vec<SocketAddr>,
    /// Where the live page, `/metrics`, `/status`, `/healthz` and `/readyz` answer; `None` switches them off.
    pub admin: Option<SocketAddr>,
    /// The file with the token that changes by the admin API need; `None` is no changes.
    pub admin_token: Option<PathBuf>,
    /// Runtime threads; `None` is one per core, four at most.
    pub threads: Option<NonZeroUsize>,
    /// Memory that the process takes at most, in bytes; `None` is a part of what the system has.
    pub max_memory: Option<u64>,
    /// How logs are written.
    pub log: LogFormat,
    /// Where each request is logged; `None` is nowhere.
    pub access_log: Option<AccessLog>,
    /// Where traces and metrics are exported to; `None` is nowhere.
    pub otlp: Option<OtlpConfig>,
    /// Who may use the proxy.
    pub clients: Clients,
    /// Which addresses are one client.
    pub identity: ClientIdentity,
    /// How long queued and running requests may take to finish after SIGTERM.
    pub drain: Duration,
    /// Bounds on everything that can hang.
    pub timeouts: Timeouts,
    /// Which limits hold where.
    pub rules: Rules,
    /// Paths that stand for an API: `/openai` for `https://api.openai.com`.
    pub gateways: Vec<Gateway>,
    /// PEM files with authorities that upstreams are verified by, besides the system's.
    pub upstream_ca: Vec<PathBuf>,
    /// PEM files with lists of certificates that are revoked.
    pub upstream_crl: Vec<PathBuf>,
    /// Who resolves names.
    pub dns: Dns,
    /// Where the certificate authority is kept; `None` is the user's data folder.
    pub data: Option<PathBuf>,
    /// Where what was sent is kept beyond the end of the process.
    pub state: StatePlace,
    /// How budgets are shared with other andantes.
    pub fleet: FleetConfig,
    /// The file it came from, if any.
    pub file: Option<PathBuf>,
}

/// How logs are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One object a line.
    Json,
}

/// Where what was sent is kept beyond the end of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StatePlace {
    /// In the folder for such things, one for each address that is listened on.
    #[default]
    Usual,
    /// Nowhere.
    Off,
    /// In this file.
    At(PathBuf),
}

/// Where a line for each request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLog {
    /// Standard output.
    Stdout,
    /// Standard error, with the rest of the log.
    Stderr,
    /// A file; lines are appended.
    File(PathBuf),
}

/// Who resolves names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Dns {
    /// The servers of `/etc/resolv.conf`, and `/etc/hosts`; answers are kept for as long as they say.
    #[default]
    Cached,
    /// The system's resolver, with all that `/etc/nsswitch.conf` has in it; nothing is kept.
    System,
    /// These servers; answers are kept for as long as they say.
    Servers(Vec<SocketAddr>),
}

/// Who may use the proxy.
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
    /// Whether a client at `address` may use the proxy.
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

/// Bounds on everything that can hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Resolving and connecting to an upstream.
    pub connect: Duration,
    /// From the request's last byte to the answer's head.
    pub answer: Duration,
    /// Silence in the middle of a body or a tunnel, in either direction.
    pub idle: Duration,
    /// From the first byte of a request's head to its last.
    pub head: Duration,
    /// A worker's connection without a request.
    pub keep_alive: Duration,
    /// An unused connection to an upstream.
    pub upstream_keep_alive: Duration,
    /// A connection to an upstream since it was made, while others may still use it.
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
    /// This configuration, with all that `other` changes while andante runs. What is fixed at the start stays.
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
