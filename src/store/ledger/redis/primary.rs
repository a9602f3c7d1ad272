//! Which server decides: the one there is, the one that Sentinels name, or the one that the servers of a cluster name.

use std::{collections::HashMap, fmt, time::Duration};

use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo as _, ProtocolVersion, RedisError};

use super::{
    LedgerError,
    bounded::{self, UnreadReply},
    problem::{failed, unconnected},
};
use crate::config::{StoreLayout, StoreUrl};

/// Finds the server that decides.
#[derive(Debug)]
pub(super) struct Primary {
    url: StoreUrl,
    /// Which of the hosts is asked next.
    next: usize,
    /// The server of a cluster that another one has named.
    named: Option<String>,
}

/// What a server has to be, so that no other one decides at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requirement {
    /// The only one.
    Single,
    /// Heard of by so many replicas that no other one has as many: with itself these are more than half of all.
    Replicas(u32),
    /// Part of a cluster, which sees to it by itself: a server that does not hear of most others for so long refuses.
    Cluster { node_timeout: Duration },
}

/// What `cluster-node-timeout` is unless a server says otherwise.
const NODE_TIMEOUT: Duration = Duration::from_secs(15);
/// A Sentinel answers within this time, or the next one is asked.
const PATIENCE: Duration = Duration::from_millis(400);

/// A connection to `url` that speaks the protocol in which messages are pushed.
fn client(url: &str) -> Result<Client, RedisError> {
    let info = url.into_connection_info()?;
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    Client::open(info.set_redis_settings(settings))
}

// === impl Primary ===

impl Primary {
    pub(super) fn new(url: StoreUrl) -> Self {
        Self { url, next: 0, named: None }
    }

    /// The server that decides, if nobody has to be asked.
    pub(super) fn given(&self) -> Result<Option<Client>, LedgerError> {
        match self.url.layout() {
            StoreLayout::Single => self.at(&self.url.hosts()[0]).map(Some),
            StoreLayout::Sentinel | StoreLayout::Cluster => Ok(None),
        }
    }

    /// The server that decides, as far as somebody knows.
    pub(super) async fn find(&mut self) -> Result<(Client, Requirement), LedgerError> {
        match self.url.layout() {
            StoreLayout::Single => Ok((self.at(&self.url.hosts()[0])?, Requirement::Single)),
            StoreLayout::Sentinel => self.ask_sentinels().await,
            StoreLayout::Cluster => {
                let host = self.named.as_ref().unwrap_or(&self.url.hosts()[self.next]);
                Ok((self.at(host)?, Requirement::Cluster { node_timeout: NODE_TIMEOUT }))
            }
        }
    }

    /// What was found did not lead to the server that decides: somebody else is asked next.
    pub(super) fn is_of_no_use(&mut self) {
        self.named = None;
        self.next = (self.next + 1) % self.url.hosts().len();
    }

    /// A server of the cluster says that this one decides, as `HOST:PORT`; without a host it is the one that was asked.
    pub(super) fn is_named(&mut self, server: &str, by: &Client) {
        let asked = by.get_connection_info().addr().to_string();
        let host = asked.rsplit_once(':').map_or("", |(host, _)| host);
        self.named = Some(match server.rsplit_once(':') {
            Some(("", port)) => format!("{host}:{port}"),
            Some((host, port)) => format!("{}:{port}", bracketed(host)),
            None => server.to_owned(),
        });
    }

    fn at(&self, host: &str) -> Result<Client, LedgerError> {
        client(&self.url.server(host)).map_err(|error| failed(&error))
    }

    async fn ask_sentinels(&mut self) -> Result<(Client, Requirement), LedgerError> {
        let mut problem = LedgerError(String::new());
        for _ in self.url.hosts() {
            let at = self.next;
            // Should the caller lose its patience, the next call asks another one.
            self.next = (at + 1) % self.url.hosts().len();
            let host = &self.url.hosts()[at];
            let mut answered = self.ask_sentinel(host, false).await;
            if answered.as_ref().is_err_and(|error| error.code() == Some("NOAUTH")) {
                answered = self.ask_sentinel(host, true).await;
            }
            match answered {
                Ok((server, replicas)) => {
                    self.next = at;
                    return Ok((self.at(&server)?, Requirement::of(replicas)));
                }
                Err(error) => {
                    let (LedgerError(said), service) = (unconnected(&error), self.url.service());
                    let hint = match error.code() {
                        Some("ERR") => format!(": it is none, or no `sentinel monitor` of its names {service:?}"),
                        _ => String::new(),
                    };
                    problem = LedgerError(format!("the Sentinel at {host}: {said}{hint}"));
                }
            }
        }
        Err(problem)
    }

    /// The server's address, and how many replicas it has or had.
    async fn ask_sentinel(&self, host: &str, says_password: bool) -> Result<(String, u32), RedisError> {
        let client = Client::open(self.url.sentinel(host, says_password))?;
        let config = AsyncConnectionConfig::new();
        let config = config.set_response_timeout(Some(PATIENCE));
        let mut sentinel = bounded::connect(&client, config, UnreadReply::default(), PATIENCE).await?;
        let (mut question, service) = (redis::pipe(), self.url.service());
        // The second names a new server later, when all of its replicas follow it.
        question.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(service);
        question.cmd("SENTINEL").arg("MASTER").arg(service);
        let ((name, port), facts): ((String, u16), HashMap<String, String>) =
            question.query_async(&mut sentinel).await?;
        let replicas = facts.get("num-slaves").and_then(|count| count.parse().ok()).unwrap_or(0);
        Ok((format!("{}:{port}", bracketed(&name)), replicas))
    }
}

/// A host as it is written in a URL.
fn bracketed(host: &str) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() }
}

// === impl Requirement ===

impl Requirement {
    /// For a server that has or had so many replicas: two servers cannot both have more than half.
    fn of(replicas: u32) -> Self {
        Self::Replicas(replicas.div_ceil(2))
    }

    /// For how long a server may go on answering after another one has taken its place.
    pub(super) fn split(self) -> Duration {
        match self {
            Self::Single => Duration::ZERO,
            // A replica that a server hears of has been heard of in less than two seconds, by whole ones (`server.lua`); and
            // one more for what is on the way.
            Self::Replicas(_) => Duration::from_secs(3),
            Self::Cluster { node_timeout } => node_timeout + Duration::from_secs(1),
        }
    }
}

/// As the script is told it.
impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Single => Ok(()),
            Self::Replicas(replicas) => write!(f, "{replicas}"),
            Self::Cluster { .. } => f.write_str("cluster"),
        }
    }
}
