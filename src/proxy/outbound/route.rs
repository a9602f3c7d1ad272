//! The way to an upstream: which connection carries a request, and how one is made.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{
    HeaderValue, Request, Uri, Version,
    header::{ACCEPT_ENCODING, CONNECTION, HOST, PROXY_AUTHORIZATION, TRANSFER_ENCODING},
    uri,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tracing::debug;

use crate::{
    clock::Instant,
    dial::Dialer,
    error::Error,
    lane::{AddedRule, Lane, Refusal},
    policy::{Origin, Parent, Scheme, UsageSource},
    proxy::{
        message::{request_body::RequestBody, send::UpstreamSocket, writes::Writes},
        outbound::{
            Outbound, h1, h2,
            host_pool::{HostPool, PooledConnection},
            pool::{Pool, PoolKey},
            sensor_io::{Moved, SensorIo},
        },
    },
    tls::{self, Protocol},
};

/// How long others wait for a connection that one has begun to make, before they make one of their own.
const HEAD_START: Duration = Duration::from_secs(1);
/// How often it is checked whether requests still wait for the slot that a connection is to be made ready for.
const STILL_WANTED: Duration = Duration::from_secs(1);

/// Where a request goes, found once and remembered by the connection it came on.
pub(crate) struct Route {
    /// How the request named it, to recognise the next one by.
    scheme: Scheme,
    named: Box<str>,
    pub(crate) origin: Origin,
    pub(crate) lane: Arc<Lane>,
    /// The rules that are for some of the requests to the origin.
    pub(crate) added: Box<[AddedRule]>,
    /// The authority, as the upstream is to see it.
    authority: uri::Authority,
    host: HeaderValue,
    outbound: Arc<Outbound>,
    host_pool: Arc<HostPool>,
    tls: tls::TlsClient,
    way: Way,
    /// Requests are for a parent proxy, which wants them in the absolute form.
    absolute: bool,
    /// What the parent proxy wants to know of us along with them.
    authorization: Option<HeaderValue>,
    /// Whether it has answered a request that came this way.
    answered: AtomicBool,
    /// The settings under which it was found.
    generation: u64,
}

/// Where a request is to go.
pub(crate) struct Destination<'a> {
    /// How the request names it.
    pub(crate) scheme: Scheme,
    pub(crate) named: &'a str,
    pub(crate) origin: Origin,
    /// As which the upstream is to see itself named.
    pub(crate) authority: uri::Authority,
    pub(crate) lane: Arc<Lane>,
    pub(crate) added: Box<[AddedRule]>,
}

/// How a tunnel's client has chosen the way to an upstream.
#[derive(Clone, Default)]
pub(crate) struct Way {
    /// It speaks HTTP/2 in the clear.
    pub(crate) h2c: bool,
    /// The address to connect to, in the place of what the name resolves to.
    pub(crate) pin: Option<Arc<Pin>>,
}

/// The address that a CONNECT names, where the client names the host in its TLS handshake only.
pub(crate) struct Pin {
    /// The address, as a target.
    pub(crate) target: Origin,
    /// Whether the rule for the address allows a private one. The name's rule must not: the client chooses the address.
    pub(crate) allow_private: bool,
}

/// The settings that hold when a route is found.
pub(crate) struct FoundUnder<'a> {
    pub(crate) outbound: &'a Arc<Outbound>,
    pub(crate) generation: u64,
}

// === impl Route ===

impl Route {
    /// Its lane has no slot for a request in the time it may wait.
    pub(crate) fn refused(&self, refusal: &Refusal) -> Error {
        if *refusal == Refusal::DroppedByOperator {
            return Error::DroppedByOperator;
        }
        let (host, obstacle) = (self.origin.host.to_string(), self.lane.obstacle().map(Box::new));
        Error::Refused { host, why: refusal.to_string(), obstacle, retry_after: refusal.retry_after() }
    }

    /// The way to `destination`, on connections of `pool`, as `way` says. `None` if its authority does not fit into a field.
    pub(crate) fn new(destination: Destination<'_>, found: FoundUnder<'_>, pool: &Pool, way: Way) -> Option<Self> {
        let FoundUnder { outbound, generation } = found;
        let Destination { scheme, named, origin, authority, lane, added } = destination;
        let policy = lane.policy();
        let parent = policy.egress.via.as_ref().filter(|_| policy.egress.absolute_form(&origin));
        Some(Self {
            scheme,
            named: named.into(),
            absolute: parent.is_some(),
            authorization: parent.and_then(Parent::authorization),
            host_pool: pool.host(PoolKey {
                origin: origin.clone(),
                rule: policy.name.clone(),
                h2c: way.h2c,
                pin: way.pin.as_ref().map(|pin| pin.target.host.clone()),
                way: outbound.way,
            }),
            way,
            tls: outbound.tls.client(policy),
            outbound: outbound.clone(),
            host: HeaderValue::from_str(authority.as_str()).ok()?,
            authority,
            origin,
            lane,
            added,
            answered: AtomicBool::new(false),
            generation,
        })
    }

    /// Whether a request that names `authority` goes this way, under the settings of `generation`.
    pub(crate) fn is_named(&self, scheme: Scheme, authority: &str, generation: u64) -> bool {
        self.scheme == scheme && *self.named == *authority && self.generation == generation
    }

    /// What connects to the upstream.
    pub(crate) fn dialer(&self) -> &Dialer {
        &self.outbound.dialer
    }

    /// The authority, as the upstream is to see it.
    pub(crate) fn host(&self) -> &HeaderValue {
        &self.host
    }

    /// The upstream has answered.
    pub(crate) fn answered(&self) {
        // Written down for others once per worker's connection, and not for each request.
        if !self.answered.load(Ordering::Relaxed) {
            self.answered.store(true, Ordering::Relaxed);
            self.outbound.known.add(&self.origin);
        }
    }

    /// Whether the upstream has ever answered anybody.
    pub(crate) fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed) || self.outbound.known.has(&self.origin)
    }

    /// An unused connection; of HTTP/1 if only that will do.
    pub(crate) fn unused_connection(&self, http1_only: bool) -> Option<PooledConnection> {
        self.host_pool.take(http1_only)
    }

    /// Makes a connection shortly after `at`, unless there is one then, no request waits any more, or one is being
    /// made: never one per ticket.
    pub(crate) fn warm(self: &Arc<Self>, at: Instant) {
        if self.host_pool.is_warm() || self.host_pool.warming.swap(true, Ordering::Relaxed) {
            return;
        }
        let route = self.clone();
        tokio::spawn(async move {
            let wanted = route.is_wanted_at(at).await;
            // One that is being made may do for all.
            let shared = wanted && route.host_pool.protocol() != Some(Protocol::Http1);
            let _first = match shared {
                true => Some(tokio::time::timeout(HEAD_START, route.host_pool.dialling.lock()).await),
                false => None,
            };
            if wanted && !route.host_pool.is_warm() && !route.outbound.drain.is_draining() {
                match route.dial(false).await {
                    Ok(connection) => connection.release(route.outbound.clock.now()),
                    Err(error) => debug!(%error, "could not make a connection ready ahead of its slot"),
                }
            }
            route.host_pool.warming.store(false, Ordering::Relaxed);
        });
    }

    /// Waits for `at`, as long as requests wait for a slot: a lane may pause for hours, and must not be kept for
    /// nothing.
    async fn is_wanted_at(&self, at: Instant) -> bool {
        let clock = &self.outbound.clock;
        loop {
            let now = clock.now();
            if self.lane.waiting() == 0 {
                return false;
            }
            if now >= at {
                return true;
            }
            clock.sleep_until(at.min(now + STILL_WANTED)).await;
        }
    }

    /// The upstream's protocol. If it is not known yet, makes a connection, which the next request will use.
    pub(crate) async fn protocol(&self, pool: &Pool) -> Result<Protocol, Error> {
        if let Some(known) = self.host_pool.protocol() {
            return Ok(known);
        }
        // Not for long: behind an upstream that hangs they would come one after the other.
        let _first = tokio::time::timeout(HEAD_START, self.host_pool.dialling.lock()).await;
        if let Some(known) = self.host_pool.protocol() {
            return Ok(known);
        }
        let connection = pool.with_room(&self.outbound.drain, || self.dial(false)).await?;
        let protocol = connection.protocol();
        connection.release(self.outbound.clock.now());
        Ok(protocol)
    }

    /// Puts `request` into the form that a connection of `protocol` wants.
    pub(crate) fn prepare_for(&self, protocol: Protocol, request: &mut Request<RequestBody>) {
        // What a compressed answer reports could not be read on the way.
        if self.lane.policy().usage.iter().any(UsageSource::is_in_body) {
            request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        let is_plain = request.version() == Version::HTTP_11 && request.uri().authority().is_none();
        if protocol == Protocol::Http1 && !self.absolute && is_plain {
            return;
        }
        let mut parts = uri::Parts::default();
        parts.path_and_query = request.uri().path_and_query().cloned();
        if self.absolute || protocol == Protocol::Http2 {
            parts.authority = Some(self.authority.clone());
            parts.scheme = self.origin.scheme.as_str().parse().ok();
        }
        *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
        let fields = request.headers_mut();
        match protocol {
            Protocol::Http1 => {
                fields.insert(HOST, self.host.clone());
                if let Some(said) = &self.authorization {
                    fields.insert(PROXY_AUTHORIZATION, said.clone());
                }
                *request.version_mut() = Version::HTTP_11;
            }
            Protocol::Http2 => {
                // RFC 9113 §8.2.2, §8.3.1.
                [HOST, CONNECTION, TRANSFER_ENCODING].iter().for_each(|name| drop(fields.remove(name)));
                *request.version_mut() = Version::HTTP_2;
            }
        }
    }

    /// Puts a connection into the pool that was made for something else, and has carried nothing yet.
    pub(crate) async fn insert(&self, stream: TcpStream) -> Result<(), Error> {
        if self.absolute {
            // It leads through the parent proxy to the upstream, who must not see what is for the parent: its password.
            return Ok(());
        }
        let writes = Writes::new(self.outbound.clock);
        let mut connection = self.http1(SensorIo::new(UpstreamSocket(stream), note(writes.clone())), writes).await?;
        // The request that it is for asks at once.
        connection.settle().await;
        connection.release(self.outbound.clock.now());
        Ok(())
    }

    /// Makes a connection, unless another request just has.
    pub(crate) async fn dial_or_share(&self, pool: &Pool, http1_only: bool) -> Result<PooledConnection, Error> {
        let mut first = None;
        if self.may_share(http1_only) {
            first = tokio::time::timeout(HEAD_START, self.host_pool.dialling.lock()).await.ok();
            if let Some(connection) = self.host_pool.take(http1_only) {
                return Ok(connection);
            }
            // The first request may have found out that none has to wait for another.
            first = first.filter(|_| self.may_share(http1_only));
        }
        let _first = first;
        pool.with_room(&self.outbound.drain, || self.dial(http1_only)).await
    }

    /// Whether one connection may do for all requests that want one now.
    fn may_share(&self, http1_only: bool) -> bool {
        let newer =
            self.way.h2c || self.origin.scheme == Scheme::Https && self.host_pool.protocol() != Some(Protocol::Http1);
        newer && !http1_only
    }

    async fn dial(&self, http1_only: bool) -> Result<PooledConnection, Error> {
        let (outbound, policy) = (&self.outbound, self.lane.policy());
        let (target, allow_private) = match &self.way.pin {
            Some(pin) => (&pin.target, pin.allow_private),
            None => (&self.origin, policy.allow_private),
        };
        let stream = outbound.dialer.connect(target, &policy.egress, allow_private).await?;
        let writes = Writes::new(outbound.clock);
        let stream = SensorIo::new(UpstreamSocket(stream), note(writes.clone()));
        let secured = async {
            if self.way.h2c {
                self.host_pool.learn(Protocol::Http2);
                return self.http2(stream, writes).await;
            }
            if self.origin.scheme == Scheme::Http {
                return self.http1(stream, writes).await;
            }
            let (stream, protocol) = self.tls.connect(&self.origin, stream, http1_only).await?;
            if !http1_only {
                self.host_pool.learn(protocol);
            }
            match protocol {
                Protocol::Http1 => self.http1(stream, writes).await,
                Protocol::Http2 => self.http2(stream, writes).await,
            }
        };
        let late = || Error::ConnectTimeout { origin: self.origin.to_string(), after: outbound.connect };
        tokio::time::timeout(outbound.connect, secured).await.unwrap_or_else(|_| Err(late()))
    }

    async fn http1<S>(&self, stream: S, writes: Arc<Writes>) -> Result<PooledConnection, Error>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let sender = h1::handshake(&self.outbound.metrics, stream, writes.clone()).await;
        let sender =
            sender.map_err(|error| Error::Connect { origin: self.origin.to_string(), source: error.into() })?;
        Ok(PooledConnection::own(sender, self.host_pool.clone(), writes, false))
    }

    async fn http2<S>(&self, stream: S, writes: Arc<Writes>) -> Result<PooledConnection, Error>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let Outbound { clock, metrics, .. } = &*self.outbound;
        let (shared, stream) = h2::handshake(*clock, metrics, &self.origin, stream, writes).await?;
        self.host_pool.share(shared);
        Ok(PooledConnection::shared(stream, false))
    }
}

/// Notes what is written to a connection.
fn note(writes: Arc<Writes>) -> impl Fn(Moved) {
    move |moved| match moved {
        Moved::In | Moved::Ended => {}
        Moved::Out => writes.wrote(),
        Moved::Flushed => writes.finished(),
    }
}

#[cfg(test)]
mod tests;
