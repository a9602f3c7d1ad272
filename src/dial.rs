//! Resolves and connects. Decides which addresses may be reached; knows nothing of requests.
//!
//! Names are resolved by the system, addresses are classified *after* that, and the very addresses that were classified
//! are dialled: a second look-up could answer differently (R51). Connecting is `hyper-util`'s: happy eyeballs (RFC 8305).

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use hyper_util::{
    client::legacy::connect::{
        HttpConnector,
        dns::{GaiResolver, Name},
    },
    rt::TokioIo,
};
use tokio::net::TcpStream;
use tower::Service;

use crate::{
    error::{Cause, Error},
    policy::Origin,
};

/// Connects to upstreams.
#[derive(Clone, Debug)]
pub struct Dialer {
    timeout: Duration,
    /// Whether private addresses need a rule's permission.
    guarded: bool,
    /// Our own listening addresses, which must not be reached through us (R53).
    own: Vec<SocketAddr>,
}

/// Resolves, and lets only those addresses through that may be reached.
#[derive(Clone)]
struct Resolver {
    system: GaiResolver,
    guarded: bool,
}

/// Every address of the name is forbidden.
#[derive(Debug, thiserror::Error)]
#[error("a {kind} address")]
struct Prohibited {
    kind: &'static str,
}

/// The resolver's own failure, to tell it from a connection's.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NotResolved(io::Error);

// === impl Dialer ===

impl Dialer {
    /// A dialer that gives up after `timeout`, reaches private addresses only if not `guarded`, and never `own`.
    pub fn new(timeout: Duration, guarded: bool, own: Vec<SocketAddr>) -> Self {
        Self { timeout, guarded, own }
    }

    /// Connects to `origin`. `allow_private` is a rule's permission for guarded addresses.
    pub async fn connect(&self, origin: &Origin, allow_private: bool) -> Result<TcpStream, Error> {
        let guarded = self.guarded && !allow_private;
        // The resolver is not asked about literal addresses.
        if let Ok(address) = origin.host.parse::<IpAddr>()
            && let Some(kind) = guarded.then(|| special(address)).flatten()
        {
            return Err(Error::Forbidden { origin: origin.to_string(), kind });
        }
        let uri = http::Uri::builder().scheme("http").authority(origin.to_string()).path_and_query("/").build();
        let uri = uri.map_err(|source| Error::Connect { origin: origin.to_string(), source: source.into() })?;
        let connecting = self.connector(guarded).call(uri);
        let stream = match tokio::time::timeout(self.timeout, connecting).await {
            Ok(Ok(stream)) => TokioIo::into_inner(stream),
            Ok(Err(error)) => return Err(self.failure(origin, error.into())),
            Err(_) => return Err(Error::ConnectTimeout { origin: origin.to_string(), after: self.timeout }),
        };
        if self.is_own(&stream) {
            return Err(Error::Myself { origin: origin.to_string() });
        }
        Ok(stream)
    }

    fn connector(&self, guarded: bool) -> HttpConnector<Resolver> {
        let mut connector = HttpConnector::new_with_resolver(Resolver { system: GaiResolver::new(), guarded });
        connector.set_nodelay(true);
        connector.set_keepalive(Some(Duration::from_secs(60)));
        connector.set_connect_timeout(Some(self.timeout));
        connector
    }

    fn failure(&self, origin: &Origin, error: Cause) -> Error {
        let name = || origin.to_string();
        let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error.as_ref());
        while let Some(cause) = next {
            if let Some(Prohibited { kind }) = cause.downcast_ref() {
                return Error::Forbidden { origin: name(), kind };
            }
            if let Some(NotResolved(source)) = cause.downcast_ref() {
                return Error::Dns { host: origin.host.to_string(), source: source.to_string().into() };
            }
            if cause.downcast_ref::<io::Error>().is_some_and(|io| io.kind() == io::ErrorKind::TimedOut) {
                return Error::ConnectTimeout { origin: name(), after: self.timeout };
            }
            next = cause.source();
        }
        Error::Connect { origin: name(), source: error }
    }

    /// Whether this connection ends at ourselves: at one of our ports, on an address of this machine.
    fn is_own(&self, stream: &TcpStream) -> bool {
        let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else { return false };
        // The system gives a connection to one of its own addresses the same address on both ends.
        let here = peer.ip() == local.ip() || peer.ip().to_canonical().is_loopback();
        here && self.own.iter().any(|own| own.port() == peer.port() && covers(own.ip(), peer.ip()))
    }
}

/// Whether a socket that listens on `own` is reached at `address`.
fn covers(own: IpAddr, address: IpAddr) -> bool {
    own.is_unspecified() || own.to_canonical() == address.to_canonical()
}

// === impl Resolver ===

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = Cause;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Cause>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cause>> {
        self.system.poll_ready(cx).map_err(|error| NotResolved(error).into())
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (lookup, guarded) = (self.system.call(name), self.guarded);
        Box::pin(async move {
            let found: Vec<SocketAddr> = lookup.await.map_err(NotResolved)?.collect();
            let kind = found.iter().find_map(|address| special(address.ip()));
            match kind {
                // One forbidden address among public ones is a sign of rebinding: none of them is used (R51).
                Some(kind) if guarded => Err(Prohibited { kind }.into()),
                _ => Ok(found.into_iter()),
            }
        })
    }
}

/// What makes an address one that a shared proxy must not reach for others (R52; IANA's special-purpose registries).
pub fn special(address: IpAddr) -> Option<&'static str> {
    match address.to_canonical() {
        IpAddr::V4(v4) => special_v4(v4),
        IpAddr::V6(v6) => special_v6(v6),
    }
}

fn special_v4(v4: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, _] = v4.octets();
    match (a, b, c) {
        (0, ..) => Some("\"this network\""),
        (127, ..) => Some("loopback"),
        (10, ..) | (192, 168, _) | (172, 16..=31, _) => Some("private"),
        (169, 254, _) => Some("link-local"),
        (100, 64..=127, _) => Some("carrier-grade NAT"),
        (192, 0, 0) => Some("protocol assignment"),
        (198, 18..=19, _) => Some("benchmarking"),
        (224..=239, ..) => Some("multicast"),
        (240.., ..) => Some("reserved"),
        _ => None,
    }
}

fn special_v6(v6: Ipv6Addr) -> Option<&'static str> {
    let [a, b, ..] = v6.segments();
    match (a, b) {
        _ if v6.is_unspecified() => Some("unspecified"),
        _ if v6.is_loopback() => Some("loopback"),
        (0, 0) => Some("IPv4-compatible"),
        (0xfc00..=0xfdff, _) => Some("unique local"),
        (0xfe80..=0xfebf, _) => Some("link-local"),
        (0xff00.., _) => Some("multicast"),
        (0x2002, _) => Some("6to4"),
        (0x2001, 0) => Some("Teredo"),
        (0x64, 0xff9b) => Some("NAT64"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r52_special_addresses_are_known_in_every_disguise() {
        for address in [
            "127.0.0.1",
            "10.1.2.3",
            "172.31.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "192.0.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "0.0.0.0",
            "::",
            "::1",
            "::ffff:7f00:1",
            "::ffff:a00:1",
            "64:ff9b::a9fe:a9fe",
            "2002:7f00:1::",
            "2001::1",
            "fd00::1",
            "fe80::1",
            "ff02::1",
            "::7f00:1",
        ] {
            assert!(special(address.parse().unwrap()).is_some(), "{address}");
        }
        for address in ["1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2001:db8::1"] {
            assert_eq!(special(address.parse().unwrap()), None, "{address}");
        }
    }
}
