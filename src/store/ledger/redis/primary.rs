//! Finds the deciding server: the single server, the one that Sentinels name, or the one that a cluster names.

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
    /// Index of the host that is asked next.
    next: usize,
    /// Server of a cluster that another server has named.
    named: Option<String>,
}

/// Condition that a server has to meet, so that no other one decides at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requirement {
    /// The server is the only one.
    Single,
    /// This many of its replicas are connected. Together with the server they are more than half of all, so that no
    /// other server has as many.
    Replicas(u32),
    /// The server is part of a cluster. Such a server refuses by itself after being cut off from most others for this
    /// time.
    Cluster { node_timeout: Duration },
}

/// Default of `cluster-node-timeout`.
const NODE_TIMEOUT: Duration = Duration::from_secs(15);
/// Time after which the next Sentinel is asked.
const PATIENCE: Duration = Duration::from_millis(400);

/// A client for `url` with the protocol version that supports pushed messages.
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

    /// The deciding server, if it is known without asking.
    pub(super) fn given(&self) -> Result<Option<Client>, LedgerError> {
        match self.url.layout() {
            StoreLayout::Single => self.at(&self.url.hosts()[0]).map(Some),
            StoreLayout::Sentinel | StoreLayout::Cluster => Ok(None),
        }
    }

    /// The deciding server, as far as any host knows.
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

    /// Asks another host next, because the server that was found does not decide.
    pub(super) fn is_of_no_use(&mut self) {
        self.named = None;
        self.next = (self.next + 1) % self.url.hosts().len();
    }

    /// Records that a server of the cluster names this one, as `HOST:PORT`. Without a host it is the host that was
    /// asked.
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
            // If the caller gives up, the next call asks another Sentinel.
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

    /// Address of the server, and the number of replicas that it has or had.
    async fn ask_sentinel(&self, host: &str, says_password: bool) -> Result<(String, u32), RedisError> {
        let client = Client::open(self.url.sentinel(host, says_password))?;
        let config = AsyncConnectionConfig::new();
        let config = config.set_response_timeout(Some(PATIENCE));
        let mut sentinel = bounded::connect(&client, config, UnreadReply::default(), PATIENCE).await?;
        let (mut question, service) = (redis::pipe(), self.url.service());
        // The second command names a new server later than the first, when all of its replicas follow it.
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
    /// Requirement for a server with this many replicas, present or former: two servers cannot both have more than
    /// half.
    fn of(replicas: u32) -> Self {
        Self::Replicas(replicas.div_ceil(2))
    }

    /// Time for which a server may still answer after another one has replaced it.
    pub(super) fn split(self) -> Duration {
        match self {
            Self::Single => Duration::ZERO,
            // A server counts a replica if it has heard of it in less than two seconds, in whole seconds
            // (`server.lua`). Data in transit gets one more second.
            Self::Replicas(_) => Duration::from_secs(3),
            Self::Cluster { node_timeout } => node_timeout + Duration::from_secs(1),
        }
    }
}

/// Form in which the script receives it.
impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Single => Ok(()),
            Self::Replicas(replicas) => write!(f, "{replicas}"),
            Self::Cluster { .. } => f.write_str("cluster"),
        }
    }
}
