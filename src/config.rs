//! The checked configuration: everything that andante runs on, free of contradictions. Starts nothing.

pub mod duration;

use std::{net::SocketAddr, num::NonZeroUsize, path::PathBuf, time::Duration};

use ipnet::IpNet;

use crate::policy::Rules;

/// All that a running andante needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where workers connect.
    pub listen: Vec<SocketAddr>,
    /// Where `/metrics`, `/status`, `/healthz` and `/readyz` answer; `None` switches them off.
    pub admin: Option<SocketAddr>,
    /// Runtime threads; `None` is one per core, four at most.
    pub threads: Option<NonZeroUsize>,
    /// How logs are written.
    pub log: LogFormat,
    /// Who may use the proxy.
    pub clients: Clients,
    /// How long queued and running requests may take to finish after SIGTERM.
    pub drain: Duration,
    /// Bounds on everything that can hang.
    pub timeouts: Timeouts,
    /// Which limits hold where.
    pub rules: Rules,
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

/// Who may use the proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Clients {
    /// Whoever reaches a loopback address: the default, and only good for loopback listeners.
    #[default]
    Loopback,
    /// Loopback and these networks.
    Networks(Vec<IpNet>),
    /// Anybody who can connect: said explicitly (`clients = ["any"]`), never a default.
    Any,
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
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 3128))],
            admin: Some(SocketAddr::from(([127, 0, 0, 1], 9128))),
            threads: None,
            log: LogFormat::Text,
            clients: Clients::Loopback,
            drain: Duration::from_secs(30),
            timeouts: Timeouts::default(),
            rules: Rules::default(),
            file: None,
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            answer: Duration::from_secs(600),
            idle: Duration::from_secs(300),
            head: Duration::from_secs(30),
            keep_alive: Duration::from_secs(600),
            upstream_keep_alive: Duration::from_secs(60),
        }
    }
}
