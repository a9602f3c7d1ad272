//! Names to addresses. Chooses the resolver; `servers` sends the queries.

use std::{
    collections::HashMap,
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket},
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime},
};

use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use parking_lot::Mutex;
use tokio::runtime::{self, Handle};
use tower::ServiceExt;
use tracing::warn;

use super::{
    not_resolved::NotResolved,
    servers::{ServerSettings, Servers},
};
use crate::{
    config::Dns,
    error::{BoxError, is_exhaustion},
};

const RESOLV_CONF: &str = "/etc/resolv.conf";
const HOSTS: &str = "/etc/hosts";

/// Resolves names, the way that the configuration says.
pub(super) struct NameResolver {
    dns: Dns,
    /// How long a look-up may take.
    patience: Duration,
    /// One per runtime, made at the first name there: hickory's tasks run where they were spawned, and end with it.
    known: Mutex<HashMap<runtime::Id, KnownServers>>,
}

/// What was made of the system's files as they were.
struct KnownServers {
    /// When the files were written.
    written: [Option<SystemTime>; 2],
    /// The servers to ask; `None` leaves it to the system's resolver.
    servers: Option<Arc<Servers>>,
}

// === impl NameResolver ===

impl NameResolver {
    pub(super) fn new(dns: Dns, patience: Duration) -> Self {
        Self { dns, patience, known: Mutex::default() }
    }

    /// All addresses of `host`, in the order to try them in. At least one.
    pub(super) async fn resolve(&self, host: &str) -> Result<Vec<IpAddr>, NotResolved> {
        if let Ok(address) = host.parse() {
            return Ok(vec![address]);
        }
        if is_localhost(host) {
            return Ok(loopback());
        }
        match self.servers() {
            Some(servers) => servers.resolve(host).await,
            None => system(host).await,
        }
    }

    /// How long an answer holds at least. What is kept for its TTL costs nothing to be asked for again; each question to
    /// the system is a query, or a thread that waits for one.
    pub(super) fn least_ttl(&self) -> Duration {
        match self.dns {
            Dns::System => Duration::from_secs(30),
            Dns::Cached | Dns::Servers(_) => Duration::ZERO,
        }
    }

    /// Whom to ask on this thread. Made anew when the system's files have changed: a proxy lives longer than a network.
    fn servers(&self) -> Option<Arc<Servers>> {
        let written = match self.dns {
            Dns::System => return None,
            Dns::Servers(_) => [None; 2],
            Dns::Cached => [RESOLV_CONF, HOSTS].map(|path| fs::metadata(path).and_then(|file| file.modified()).ok()),
        };
        let mut known = self.known.lock();
        match known.get(&Handle::current().id()) {
            Some(known) if known.written == written => known.servers.clone(),
            _ => {
                let servers = self.settings().map(|settings| Arc::new(Servers::new(settings, self.patience)));
                known.insert(Handle::current().id(), KnownServers { written, servers: servers.clone() });
                servers
            }
        }
    }

    fn settings(&self) -> Option<ServerSettings> {
        if let Dns::Servers(servers) = &self.dns {
            return Some(ServerSettings::of(servers));
        }
        let settings = fs::read(RESOLV_CONF).map_err(BoxError::from).and_then(|text| ServerSettings::parse(&text));
        let settings = settings.inspect_err(|error| {
            warn!(%error, "could not read /etc/resolv.conf; names are resolved by the system, and not kept");
        });
        // A machine without the file has no names of its own.
        Some(ServerSettings { hosts: fs::read(HOSTS).unwrap_or_default(), ..settings.ok()? })
    }
}

/// RFC 6761 §6.3: never looked up, so that no name server can redirect it.
pub(super) fn is_localhost(host: &str) -> bool {
    host == "localhost" || host.ends_with(".localhost")
}

/// `::1` only where there is one: its "address not available" would hide why `127.0.0.1` refused.
fn loopback() -> Vec<IpAddr> {
    static HAS_V6: OnceLock<bool> = OnceLock::new();
    let v4 = IpAddr::from(Ipv4Addr::LOCALHOST);
    match HAS_V6.get_or_init(|| UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()) {
        true => vec![v4, Ipv6Addr::LOCALHOST.into()],
        false => vec![v4],
    }
}

/// Asks `getaddrinfo`, on a thread that may block.
async fn system(host: &str) -> Result<Vec<IpAddr>, NotResolved> {
    let name: Name = host.parse().map_err(|error| NotResolved::Failed(BoxError::from(error)))?;
    let found = GaiResolver::new().oneshot(name).await.map_err(|error| match is_exhaustion(&error) {
        true => NotResolved::NoDescriptor,
        false => NotResolved::Failed(error.into()),
    })?;
    Ok(found.map(|address| address.ip()).collect())
}
