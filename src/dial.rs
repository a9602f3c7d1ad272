//! Resolves and connects. Decides which addresses may be reached; knows nothing of requests.
//!
//! Addresses are classified *after* names are resolved, and the same addresses are dialled: a second look-up could
//! answer differently. All addresses of a name are tried, each a little after the one before (RFC 8305).

mod address_policy;
mod addresses;
mod names;
mod not_resolved;
mod parent;
mod race;
mod server;
mod servers;
#[cfg(test)]
mod tests;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::net::TcpStream;

pub use self::addresses::Addresses;
use self::{
    address_policy::special_purpose,
    names::{NameResolver, is_localhost},
    not_resolved::NotResolved,
};
use crate::{
    config::Dns,
    error::{BoxError, Error, is_exhaustion},
    policy::{Egress, Origin, Parent},
};

/// Connects to upstreams.
#[derive(Clone)]
pub struct Dialer {
    timeout: Duration,
    /// Requires a rule's permission for private addresses.
    guarded: bool,
    /// Listening addresses of this andante, which must not be reached through it.
    own: Vec<SocketAddr>,
    names: Arc<NameResolver>,
}

// === impl Dialer ===

impl Dialer {
    /// A dialer that gives up after `timeout`, reaches private addresses only if not `guarded`, and never `own`.
    pub fn new(timeout: Duration, guarded: bool, own: Vec<SocketAddr>, dns: Dns) -> Self {
        Self { timeout, guarded, own, names: Arc::new(NameResolver::new(dns, timeout)) }
    }

    /// Connects to `origin` according to `egress`. `allow_private` is a rule's permission for guarded addresses.
    ///
    /// Through a parent proxy, too, the stream leads to `origin` itself, with one exception. If
    /// [`Egress::absolute_form`] returns true, the stream leads to the parent, and requests need the absolute form.
    pub async fn connect(&self, origin: &Origin, egress: &Egress, allow_private: bool) -> Result<TcpStream, Error> {
        let mut resolved = false;
        let reaching = self.reach(origin, egress, self.guarded && !allow_private, &mut resolved);
        let outcome = tokio::time::timeout(self.timeout(egress), reaching).await;
        let host = egress.via.as_ref().map_or(&origin.host, |parent| &parent.host);
        match outcome {
            Ok(outcome) => outcome,
            Err(_) if resolved => Err(self.too_late(origin, egress)),
            Err(_) => Err(Error::DnsTimeout { host: host.to_string() }),
        }
    }

    /// The present addresses for a new connection to `origin`: those of its name, or of the parent proxy's. Asks a
    /// name server only if the last answer's TTL is over.
    ///
    /// `None` if no name is resolved on the way: the address is literal, or pinned by a rule.
    pub async fn addresses(&self, origin: &Origin, egress: &Egress) -> Option<Result<Addresses, Error>> {
        let host = match &egress.via {
            Some(parent) => &parent.host,
            None if !egress.resolve.is_empty() => return None,
            None => &origin.host,
        };
        if host.parse::<IpAddr>().is_ok() {
            return None;
        }
        let resolving = tokio::time::timeout(self.timeout(egress), self.resolve(host, origin)).await;
        Some(resolving.unwrap_or_else(|_| Err(Error::DnsTimeout { host: host.to_string() })))
    }

    async fn reach(
        &self,
        origin: &Origin,
        egress: &Egress,
        guarded: bool,
        resolved: &mut bool,
    ) -> Result<TcpStream, Error> {
        if guarded {
            // Covers hosts that need no look-up, and that a parent proxy would otherwise reach for us.
            admit(origin, egress.resolve.is_empty().then(|| literal(&origin.host)).flatten())?;
        }
        let Some(parent) = &egress.via else {
            let found = match egress.resolve.as_slice() {
                [] => self.resolve(&origin.host, origin).await?.list,
                // The operator's own addresses need no permission.
                pins => pins.to_vec(),
            };
            *resolved = true;
            if guarded && egress.resolve.is_empty() {
                // A forbidden address among public ones is a sign of rebinding: none of them is used.
                admit(origin, found.iter().find_map(|address| special_purpose(*address)))?;
            }
            let stream = race::connect(found, origin.port, egress.source).await;
            let stream = stream.map_err(|source| self.failure(origin, egress, source))?;
            return self.refuse_own(stream, origin.to_string());
        };
        let found = self.resolve(&parent.host, origin).await?.list;
        *resolved = true;
        let stream = race::connect(found, parent.port, egress.source).await;
        let stream = stream.map_err(|source| self.failure(origin, egress, source))?;
        let mut stream = self.refuse_own(stream, parent.to_string())?;
        if !egress.absolute_form(origin) {
            let target = egress.resolve.first().map_or_else(|| origin.host.to_string(), IpAddr::to_string);
            let tunnel = parent::ask_for(&mut stream, parent, &target, origin.port).await;
            tunnel.map_err(|refusal| refused(parent, origin, refusal.into()))?;
        }
        Ok(stream)
    }

    async fn resolve(&self, host: &str, origin: &Origin) -> Result<Addresses, Error> {
        self.names.resolve(host).await.map_err(|error| match error {
            NotResolved::NoDescriptor => Error::NoDescriptor { origin: origin.to_string() },
            NotResolved::Timeout => Error::DnsTimeout { host: host.to_owned() },
            NotResolved::Failed(source) => Error::Dns { host: host.to_owned(), source },
        })
    }

    fn failure(&self, origin: &Origin, egress: &Egress, source: io::Error) -> Error {
        if is_exhaustion(&source) {
            return Error::NoDescriptor { origin: origin.to_string() };
        }
        if source.kind() == io::ErrorKind::TimedOut {
            return self.too_late(origin, egress);
        }
        match &egress.via {
            Some(parent) => refused(parent, origin, source.into()),
            None => Error::Connect { origin: origin.to_string(), source: source.into() },
        }
    }

    fn too_late(&self, origin: &Origin, egress: &Egress) -> Error {
        let origin = match &egress.via {
            Some(parent) => format!("{origin} through {parent}"),
            None => origin.to_string(),
        };
        Error::ConnectTimeout { origin, after: self.timeout(egress) }
    }

    fn timeout(&self, egress: &Egress) -> Duration {
        egress.timeouts.connect.unwrap_or(self.timeout)
    }

    fn refuse_own(&self, stream: TcpStream, origin: String) -> Result<TcpStream, Error> {
        if self.is_own(&stream) { Err(Error::SelfTarget { origin }) } else { Ok(stream) }
    }

    /// Returns whether this connection ends at andante itself: at one of its ports, on an address of this machine.
    fn is_own(&self, stream: &TcpStream) -> bool {
        let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else { return false };
        // The system gives a connection to one of its own addresses the same address on both ends.
        let here = peer.ip() == local.ip() || peer.ip().to_canonical().is_loopback();
        here && self.own.iter().any(|own| own.port() == peer.port() && covers(own.ip(), peer.ip()))
    }
}

/// Reason why a host is forbidden, as far as that is clear without a look-up.
fn literal(host: &str) -> Option<&'static str> {
    match host.parse() {
        Ok(address) => special_purpose(address),
        Err(_) => is_localhost(host).then_some("loopback"),
    }
}

fn admit(origin: &Origin, forbidden: Option<&'static str>) -> Result<(), Error> {
    forbidden.map_or(Ok(()), |kind| Err(Error::Forbidden { origin: origin.to_string(), kind }))
}

fn refused(parent: &Parent, origin: &Origin, source: BoxError) -> Error {
    Error::Parent { parent: parent.to_string(), origin: origin.to_string(), source }
}

/// Returns whether a socket that listens on `own` is reached at `address`.
fn covers(own: IpAddr, address: IpAddr) -> bool {
    own.is_unspecified() || own.to_canonical() == address.to_canonical()
}
