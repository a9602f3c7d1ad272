//! Resolution of names to addresses. This module chooses the resolver; `servers` sends the queries.

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
    addresses::Addresses,
    not_resolved::NotResolved,
    servers::{ServerSettings, Servers},
};
use crate::{
    config::Dns,
    error::{BoxError, is_exhaustion},
};

const RESOLV_CONF: &str = "/etc/resolv.conf";
const HOSTS: &str = "/etc/hosts";
/// TTL of addresses that need no name server: an hour, like the maximum for answers of name servers.
const UNASKED_TTL: Duration = Duration::from_secs(3600);
/// TTL of addresses from `getaddrinfo`, which reports none: 30 s, as the JVM assumes.
const SYSTEM_TTL: Duration = Duration::from_secs(30);

/// Resolver of names, with the kind of resolver that the configuration names.
pub(super) struct NameResolver {
    dns: Dns,
    /// Time for all attempts at all name servers. `getaddrinfo` ignores it.
    patience: Duration,
    /// Name servers per runtime, created with its first look-up. hickory's tasks end with the runtime that they were
    /// spawned on.
    known: Mutex<HashMap<runtime::Id, KnownServers>>,
}

/// Name servers from the system's files, and the state of the files then.
struct KnownServers {
    /// Modification times of `/etc/resolv.conf` and `/etc/hosts`.
    written: [Option<SystemTime>; 2],
    /// Servers to ask; `None` leaves look-ups to the system's resolver.
    servers: Option<Arc<Servers>>,
}

// === impl NameResolver ===

impl NameResolver {
    pub(super) fn new(dns: Dns, patience: Duration) -> Self {
        Self { dns, patience, known: Mutex::default() }
    }

    /// Returns the addresses of `host`, in order of preference.
    pub(super) async fn resolve(&self, host: &str) -> Result<Addresses, NotResolved> {
        if let Ok(address) = host.parse() {
            return Ok(Addresses::new(vec![address], UNASKED_TTL));
        }
        if is_localhost(host) {
            return Ok(Addresses::new(loopback(), UNASKED_TTL));
        }
        match self.servers() {
            Some(servers) => servers.resolve(host).await,
            None => system(host).await,
        }
    }

    /// Returns the name servers for this runtime; `None` leaves look-ups to the system's resolver.
    ///
    /// Reads the system's files again after a change, because a proxy runs longer than a network stays the same.
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
        // Without the file, the machine has no names of its own.
        Some(ServerSettings { hosts: fs::read(HOSTS).unwrap_or_default(), ..settings.ok()? })
    }
}

/// Returns whether `host` is a name of this machine (RFC 6761 §6.3). No name server is asked, so none can redirect it.
pub(super) fn is_localhost(host: &str) -> bool {
    host == "localhost" || host.ends_with(".localhost")
}

/// Returns the loopback addresses. `::1` is included only if the machine has it: otherwise its error "address not
/// available" could hide why `127.0.0.1` refused.
fn loopback() -> Vec<IpAddr> {
    static HAS_V6: OnceLock<bool> = OnceLock::new();
    let v4 = IpAddr::from(Ipv4Addr::LOCALHOST);
    match HAS_V6.get_or_init(|| UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()) {
        true => vec![v4, Ipv6Addr::LOCALHOST.into()],
        false => vec![v4],
    }
}

/// Resolves with `getaddrinfo`, on a thread that may block.
async fn system(host: &str) -> Result<Addresses, NotResolved> {
    let name: Name = host.parse().map_err(|error| NotResolved::Failed(BoxError::from(error)))?;
    let found = GaiResolver::new().oneshot(name).await.map_err(|error| match is_exhaustion(&error) {
        true => NotResolved::NoDescriptor,
        false => NotResolved::Failed(error.into()),
    })?;
    Ok(Addresses::new(found.map(|address| address.ip()).collect(), SYSTEM_TTL))
}
