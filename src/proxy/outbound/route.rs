//! The route to an upstream: chooses the connection that carries a request, and makes new ones.

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
use tokio::net::TcpStream;
use tracing::debug;

use crate::{
    clock::Instant,
    dial::{Addresses, Dialer},
    error::Error,
    lane::{AddedRule, Lane, Refusal},
    policy::{Origin, Parent, Scheme},
    proxy::{
        message::request_body::RequestBody,
        outbound::{
            Outbound,
            handshake::Handshake,
            host_pool::{HostPool, LEAST_RECHECK, PooledConnection},
            lifespan::ReportedAddresses,
            pool::{Pool, PoolKey},
            route_pools::RoutePools,
            way::{ConnectionNeeds, Way},
        },
        signatures,
    },
    tls::{self, Protocol},
};

/// Maximum time for which requests wait for a connection that is being made, before they make their own.
const HEAD_START: Duration = Duration::from_secs(1);
/// Interval of the check whether requests still wait for the slot that a connection is to be made for.
const STILL_WANTED: Duration = Duration::from_secs(1);

/// Destination of a request, found once and remembered by the worker's connection.
pub(crate) struct Route {
    /// The request's own words for the target, to recognise the next request.
    scheme: Scheme,
    named: Box<str>,
    pub(crate) origin: Origin,
    pub(crate) lane: Arc<Lane>,
    /// Rules for some of the requests to the origin.
    pub(crate) added: Box<[AddedRule]>,
    /// The authority, as the upstream is to see it.
    authority: uri::Authority,
    host: HeaderValue,
    outbound: Arc<Outbound>,
    pools: RoutePools,
    tls: tls::TlsClient,
    way: Way,
    /// True if requests are for a parent proxy that wants them in the absolute form.
    absolute: bool,
    /// Credentials for the parent proxy.
    authorization: Option<HeaderValue>,
    /// True once the upstream has answered a request on this route.
    answered: AtomicBool,
    /// Generation of the settings under which the route was found.
    generation: u64,
}

/// Destination of a request.
pub(crate) struct Destination<'a> {
    /// The request's own words for the target.
    pub(crate) scheme: Scheme,
    pub(crate) named: &'a str,
    pub(crate) origin: Origin,
    /// The authority, as the upstream is to see it.
    pub(crate) authority: uri::Authority,
    pub(crate) lane: Arc<Lane>,
    pub(crate) added: Box<[AddedRule]>,
}

/// The settings in force when a route is found.
pub(crate) struct FoundUnder<'a> {
    pub(crate) outbound: &'a Arc<Outbound>,
    pub(crate) generation: u64,
}

// === impl Route ===

impl Route {
    /// The error for a request that the lane refuses: no slot within the time that the request may wait, for instance.
    pub(crate) fn refused(&self, refusal: &Refusal) -> Error {
        super::refusal::error(&self.origin.host, &self.lane, refusal)
    }

    /// The route to `destination`, on connections of `pool`, as `way` says. `None` if its authority does not fit into a
    /// field.
    pub(crate) fn new(destination: Destination<'_>, found: FoundUnder<'_>, pool: &Pool, way: Way) -> Option<Self> {
        let FoundUnder { outbound, generation } = found;
        let Destination { scheme, named, origin, authority, lane, added } = destination;
        let policy = lane.policy();
        let parent = policy.egress.via.as_ref().filter(|_| policy.egress.absolute_form(&origin));
        let key = PoolKey {
            origin: origin.clone(),
            rule: policy.name.clone(),
            h2c: way.h2c,
            pin: way.pin.as_ref().map(|pin| pin.target.host.clone()),
            way: outbound.way,
        };
        Some(Self {
            scheme,
            named: named.into(),
            absolute: parent.is_some(),
            authorization: parent.and_then(Parent::authorization),
            pools: RoutePools::new(pool.host(key)),
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

    /// Returns whether a request that names `authority` takes this route, under the settings of `generation`.
    pub(crate) fn is_named(&self, scheme: Scheme, authority: &str, generation: u64) -> bool {
        self.scheme == scheme && *self.named == *authority && self.generation == generation
    }

    /// The dialer of connections to the upstream.
    pub(crate) fn dialer(&self) -> &Dialer {
        &self.outbound.dialer
    }

    /// The authority, as the upstream is to see it.
    pub(crate) fn host(&self) -> &HeaderValue {
        &self.host
    }

    /// Records that the upstream has answered.
    pub(crate) fn answered(&self) {
        // Shared with others once per worker's connection, not for each request.
        if !self.answered.load(Ordering::Relaxed) {
            self.answered.store(true, Ordering::Relaxed);
            self.outbound.known.add(&self.origin);
        }
    }

    /// Returns whether the upstream has ever answered any request.
    pub(crate) fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed) || self.outbound.known.has(&self.origin)
    }

    /// Gives the session connections of its own to the upstream from now on, because a login is bound to one of them.
    pub(crate) fn bind(&self) -> &Arc<HostPool> {
        self.pools.own()
    }

    /// Returns whether the session's connections may be logged in. Answers on them are never shared.
    pub(crate) fn is_bound(&self) -> bool {
        self.pools.is_bound()
    }

    /// An unused connection.
    pub(crate) async fn unused_connection(
        self: &Arc<Self>,
        needs: ConnectionNeeds,
        now: Instant,
    ) -> Option<PooledConnection> {
        let pool = self.pool(needs);
        // Streams of HTTP/2 share a connection that is known to be alive.
        if needs.fresh && pool.protocol() != Some(Protocol::Http2) {
            return None;
        }
        loop {
            let mut connection = pool.take(self.needs_http1(needs), now)?;
            if needs.own && !connection.settle().await {
                continue;
            }
            if pool.takes_address_check(now) {
                tokio::spawn(self.clone().check_addresses());
            }
            return Some(connection);
        }
    }

    /// Drops connections to addresses that the name no longer resolves to. Keeps all if the name cannot be resolved
    /// now.
    async fn check_addresses(self: Arc<Self>) {
        let (Outbound { clock, dialer, .. }, pool) = (&*self.outbound, self.pools.shared());
        let asked_at = clock.now();
        // A pinned address needs no look-up of the name.
        let target = self.way.pin.as_ref().map_or(&self.origin, |pin| &pin.target);
        match dialer.addresses(target, &self.lane.policy().egress).await {
            None => pool.check_addresses_at(Instant::FAR),
            Some(Err(error)) => debug!(%error, "could not resolve the name of connections that are in use"),
            Some(Ok(Addresses { list, ttl })) => {
                pool.on_addresses(ReportedAddresses::new(asked_at, &list));
                pool.check_addresses_at(clock.now() + ttl.max(LEAST_RECHECK));
            }
        }
    }

    fn pool(&self, needs: ConnectionNeeds) -> &Arc<HostPool> {
        if needs.own { self.pools.own() } else { self.pools.shared() }
    }

    /// Returns whether the request requires HTTP/1. By HTTP/2, servers refuse connection-bound logins with
    /// HTTP_1_1_REQUIRED.
    fn needs_http1(&self, needs: ConnectionNeeds) -> bool {
        needs.http1 || needs.own && !self.way.h2c || self.pools.shared().requires_http1()
    }

    /// Makes a connection shortly after `at`, but never one per ticket. Does nothing if there is one then, no request
    /// waits any more, or another call is making one.
    pub(crate) fn warm(self: &Arc<Self>, at: Instant) {
        if self.is_bound() || self.pools.shared().is_warm() || self.pools.shared().warming.swap(true, Ordering::Relaxed)
        {
            return;
        }
        let route = self.clone();
        tokio::spawn(async move {
            let wanted = route.is_wanted_at(at).await;
            // A connection that is being made may serve all requests.
            let shared = wanted && route.pools.shared().protocol() != Some(Protocol::Http1);
            let _first = match shared {
                true => Some(tokio::time::timeout(HEAD_START, route.pools.shared().dialling.lock()).await),
                false => None,
            };
            if wanted && !route.pools.shared().is_warm() && !route.outbound.drain.is_draining() {
                match route.dial(ConnectionNeeds::ANY).await {
                    Ok(connection) => connection.release(route.outbound.clock.now()),
                    Err(error) => debug!(%error, "could not make a connection ready ahead of its slot"),
                }
            }
            route.pools.shared().warming.store(false, Ordering::Relaxed);
        });
    }

    /// Waits for `at`, as long as requests wait for a slot. A lane may pause for hours, and the task must not keep an
    /// unused lane alive.
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

    /// The upstream's protocol, if it can be learned. If it is not known yet, makes a connection, which the next
    /// request will use. All callers share that one connection, because it takes no permit.
    pub(crate) async fn protocol(&self, pool: &Pool) -> Option<Protocol> {
        let shared = self.pools.shared();
        if let Some(known) = shared.protocol() {
            return Some(known);
        }
        let failed = shared.failed_probes.load(Ordering::Relaxed);
        let _first = shared.dialling.lock().await;
        if let Some(known) = shared.protocol() {
            return Some(known);
        }
        if shared.failed_probes.load(Ordering::Relaxed) != failed {
            return None;
        }
        match pool.with_room(&self.outbound.drain, || self.dial(ConnectionNeeds::ANY)).await {
            Ok(connection) => {
                let protocol = connection.protocol();
                connection.release(self.outbound.clock.now());
                Some(protocol)
            }
            Err(error) => {
                debug!(%error, "could not connect to learn what an upstream speaks");
                shared.failed_probes.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }

    /// Puts `request` into the form that a connection of `protocol` wants.
    pub(crate) fn prepare_for(&self, protocol: Protocol, request: &mut Request<RequestBody>) {
        // A usage report in a compressed answer could not be read in transit. A signed field passes as it is.
        if self.lane.policy().reads_bodies() && !signatures::cover(request.headers(), request.uri(), &ACCEPT_ENCODING) {
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

    /// Puts a connection into the pool that was made for another purpose, and has carried nothing yet.
    pub(crate) async fn insert(&self, stream: TcpStream) -> Result<(), Error> {
        if self.absolute {
            // The connection leads through the parent proxy to the upstream, which must not see the parent's password.
            return Ok(());
        }
        let (handshake, stream) = Handshake::begin(&self.outbound, &self.origin, self.pools.shared(), stream);
        let mut connection = handshake.http1(stream).await?;
        // The request that needs the connection asks at once.
        connection.settle().await;
        connection.release(self.outbound.clock.now());
        Ok(())
    }

    /// Makes a connection, or shares one that was just made. Calls `dials` before it connects.
    pub(crate) async fn dial_or_share(
        &self,
        pool: &Pool,
        needs: ConnectionNeeds,
        dials: impl FnOnce(),
    ) -> Result<PooledConnection, Error> {
        let host_pool = self.pool(needs);
        let mut first = None;
        if self.may_share(needs) {
            first = tokio::time::timeout(HEAD_START, host_pool.dialling.lock()).await.ok();
            if let Some(connection) = host_pool.take(self.needs_http1(needs), self.outbound.clock.now()) {
                return Ok(connection);
            }
            // The first request may have found out that none has to wait for another.
            first = first.filter(|_| self.may_share(needs));
        }
        let _first = first;
        dials();
        pool.with_room(&self.outbound.drain, || self.dial(needs)).await
    }

    /// Returns whether one connection may serve all requests that want one now.
    fn may_share(&self, needs: ConnectionNeeds) -> bool {
        let newer = self.way.h2c || self.origin.scheme == Scheme::Https;
        newer && !self.needs_http1(needs) && self.pool(needs).protocol() != Some(Protocol::Http1)
    }

    /// Records that the upstream requires HTTP/1.1, for this request and later ones.
    pub(crate) fn require_http1(&self) {
        self.pools.shared().require_http1();
    }

    async fn dial(&self, needs: ConnectionNeeds) -> Result<PooledConnection, Error> {
        let (pool, http1_only) = (self.pool(needs), self.needs_http1(needs));
        let (outbound, policy) = (&self.outbound, self.lane.policy());
        let (target, allow_private) = match &self.way.pin {
            Some(pin) => (&pin.target, pin.allow_private),
            None => (&self.origin, policy.allow_private),
        };
        let stream = outbound.dialer.connect(target, &policy.egress, allow_private).await?;
        let (handshake, stream) = Handshake::begin(outbound, &self.origin, pool, stream);
        let secured = async {
            if self.way.h2c && !self.pools.shared().requires_http1() {
                pool.learn(Protocol::Http2);
                return handshake.http2(stream).await;
            }
            if self.origin.scheme == Scheme::Http {
                return handshake.http1(stream).await;
            }
            let (stream, protocol) = self.tls.connect(&self.origin, stream, http1_only).await?;
            if !http1_only {
                pool.learn(protocol);
            }
            match protocol {
                Protocol::Http1 => handshake.http1(stream).await,
                Protocol::Http2 => handshake.http2(stream).await,
            }
        };
        let connect = policy.egress.timeouts.connect.unwrap_or(outbound.connect);
        let late = || Error::HandshakeTimeout { origin: self.origin.to_string(), after: connect };
        tokio::time::timeout(connect, secured).await.unwrap_or_else(|_| Err(late()))
    }
}

#[cfg(test)]
mod tests;
