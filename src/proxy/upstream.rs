//! The way to an upstream: which connection carries a request, and how one is made.

use std::{
    future::{Future as _, poll_fn},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use http::{
    HeaderValue, Uri, Version,
    header::{CONNECTION, HOST, PROXY_AUTHORIZATION, TRANSFER_ENCODING},
    uri,
};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::oneshot,
};
use tracing::debug;

use super::{
    Pool, Proxy,
    drive::Drive,
    lease::Lease,
    link::Peer,
    noted::{Moved, Noted},
    pieces::Pieces,
    pool::{Key, Shared, Shelf},
    shared_body::{CONNECTION_WINDOW, MOST_STREAMS, STREAM_WINDOW},
    stack::Boxed,
    writes::Writes,
};
use crate::{
    clock::Instant,
    error::Error,
    pace::Lane,
    policy::{Origin, Parent, Scheme},
    tls::{self, Protocol},
};

/// The head of an answer.
const MAX_HEAD: usize = 512 * 1024;
/// How long others wait for a connection that one has begun to make, before they make one of their own.
const HEAD_START: Duration = Duration::from_secs(1);
/// What hyper takes for the upstream's bound until that has said one. An odd number, which no upstream says.
const UNTOLD: usize = 7919;
/// A connection that is to be made ready for its slot is wanted no more if nobody waits; this often that is looked at.
const STILL_WANTED: Duration = Duration::from_secs(1);
/// A connection with requests under way is asked this often whether it is still there.
const PING: Duration = Duration::from_secs(20);

/// Where a request goes, found once and remembered by the connection it came on.
pub(super) struct Route {
    /// How the request named it, to recognise the next one by.
    pub(super) asked: (Scheme, Box<str>),
    pub(super) origin: Origin,
    pub(super) lane: Arc<Lane>,
    /// The authority, as the upstream is to see it.
    authority: uri::Authority,
    host: HeaderValue,
    shelf: Arc<Shelf>,
    tls: tls::Client,
    h2c: bool,
    /// Requests are for a parent proxy, which wants them in the absolute form.
    absolute: bool,
    /// What the parent proxy wants to know of us along with them.
    authorization: Option<HeaderValue>,
    /// Whether it has answered a request that came this way.
    answered: AtomicBool,
}

// === impl Route ===

impl Route {
    /// The way to `origin`, which a request called `asked`, and which is to see itself called `authority`.
    pub(super) fn new(
        asked: (Scheme, &str),
        origin: Origin,
        authority: uri::Authority,
        lane: Arc<Lane>,
        peer: &Peer,
    ) -> Option<Self> {
        let policy = lane.policy();
        let parent = policy.egress.via.as_ref().filter(|_| policy.egress.absolute_form(&origin));
        Some(Self {
            absolute: parent.is_some(),
            authorization: parent.and_then(Parent::authorization),
            asked: (asked.0, asked.1.into()),
            shelf: peer.pool.shelf(Key { origin: origin.clone(), rule: policy.name.clone(), h2c: peer.h2c }),
            h2c: peer.h2c,
            tls: peer.proxy.tls.client(policy),
            host: HeaderValue::from_str(authority.as_str()).ok()?,
            authority,
            origin,
            lane,
            answered: AtomicBool::new(false),
        })
    }

    /// The way for what comes out of a tunnel to `origin`.
    pub(super) fn inside(origin: &Origin, peer: &Peer) -> Option<Self> {
        let authority = origin.authority();
        let lane = peer.proxy.lanes.find(origin);
        Self::new((origin.scheme, &authority), origin.clone(), authority.parse().ok()?, lane, peer)
    }

    /// The authority, as the upstream is to see it.
    pub(super) fn host(&self) -> &HeaderValue {
        &self.host
    }

    /// The upstream has answered.
    pub(super) fn answered(&self, proxy: &Proxy) {
        // Written down for others once per worker's connection, and not for each request.
        if !self.answered.load(Ordering::Relaxed) {
            self.answered.store(true, Ordering::Relaxed);
            proxy.seen.add(&self.origin);
        }
    }

    /// Whether the upstream has ever answered anybody.
    pub(super) fn has_answered(&self, proxy: &Proxy) -> bool {
        self.answered.load(Ordering::Relaxed) || proxy.seen.has(&self.origin)
    }

    /// A connection that is ready for a request; of HTTP/1 if only that will do.
    pub(super) async fn connection(&self, proxy: &Proxy, pool: &Pool, http1_only: bool) -> Result<Lease, Error> {
        match self.shelf.take(http1_only) {
            Some(lease) => Ok(lease),
            // Boxed, because it is large and rare: every request that waits would carry its size.
            None => Box::pin(self.dial_or_share(proxy, pool, http1_only)).await,
        }
    }

    /// Makes a connection shortly after `at`, unless there is one then, nobody waits any more, or somebody is at it
    /// already: never one per ticket.
    pub(super) fn warm(self: &Arc<Self>, proxy: &Arc<Proxy>, at: Instant) {
        if self.shelf.is_warm() || self.shelf.warming.swap(true, Ordering::Relaxed) {
            return;
        }
        let (route, proxy) = (self.clone(), proxy.clone());
        tokio::spawn(async move {
            let wanted = route.is_wanted_at(at, &proxy).await;
            // One that is being made may do for all.
            let shared = wanted && route.shelf.protocol() != Some(Protocol::Http1);
            let _first = match shared {
                true => Some(tokio::time::timeout(HEAD_START, route.shelf.dialling.lock()).await),
                false => None,
            };
            if wanted && !route.shelf.is_warm() && !proxy.is_draining() {
                match route.dial(&proxy, false).await {
                    Ok(lease) => lease.give_back(),
                    Err(error) => debug!(%error, "could not make a connection ready ahead of its slot"),
                }
            }
            route.shelf.warming.store(false, Ordering::Relaxed);
        });
    }

    /// Waits for `at`, as long as somebody waits for a slot: a lane may pause for hours, and is not to be kept for nobody.
    async fn is_wanted_at(&self, at: Instant, proxy: &Proxy) -> bool {
        loop {
            let now = proxy.clock.now();
            if self.lane.waiting() == 0 {
                return false;
            }
            if now >= at {
                return true;
            }
            proxy.clock.sleep_until(at.min(now + STILL_WANTED)).await;
        }
    }

    /// What the upstream speaks. If nobody knows yet, a connection is made, which the next request will use.
    pub(super) async fn protocol(&self, proxy: &Proxy, pool: &Pool) -> Result<Protocol, Error> {
        if let Some(known) = self.shelf.protocol() {
            return Ok(known);
        }
        // Not for long: behind an upstream that hangs they would come one after the other.
        let _first = tokio::time::timeout(HEAD_START, self.shelf.dialling.lock()).await;
        if let Some(known) = self.shelf.protocol() {
            return Ok(known);
        }
        let lease = pool.with_room(|| self.dial(proxy, false)).await?;
        let protocol = lease.protocol();
        lease.give_back();
        Ok(protocol)
    }

    /// Puts `request` into the form that a connection of `protocol` wants.
    pub(super) fn suit(&self, request: &mut Boxed, protocol: Protocol) {
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

    /// Keeps a connection that was made for something else, and has carried nothing yet.
    pub(super) async fn adopt(&self, proxy: &Proxy, stream: TcpStream) -> Result<(), Error> {
        if self.absolute {
            // It leads through the parent proxy to the upstream, who must not see what is for the parent: its password.
            return Ok(());
        }
        let writes = Writes::new(proxy.clock);
        let mut lease = self.http1(proxy, Noted::new(stream, note(writes.clone())), writes).await?;
        // Whoever it is for asks at once.
        lease.settle().await;
        lease.give_back();
        Ok(())
    }

    /// Dials, unless somebody else just has.
    async fn dial_or_share(&self, proxy: &Proxy, pool: &Pool, http1_only: bool) -> Result<Lease, Error> {
        let mut first = None;
        if self.may_share(http1_only) {
            first = tokio::time::timeout(HEAD_START, self.shelf.dialling.lock()).await.ok();
            if let Some(lease) = self.shelf.take(http1_only) {
                return Ok(lease);
            }
            // The first may have found out that nobody has to wait for anybody.
            first = first.filter(|_| self.may_share(http1_only));
        }
        let _first = first;
        pool.with_room(|| self.dial(proxy, http1_only)).await
    }

    /// Whether one connection may do for all who want one now.
    fn may_share(&self, http1_only: bool) -> bool {
        let newer = self.h2c || self.origin.scheme == Scheme::Https && self.shelf.protocol() != Some(Protocol::Http1);
        newer && !http1_only
    }

    async fn dial(&self, proxy: &Proxy, http1_only: bool) -> Result<Lease, Error> {
        let policy = self.lane.policy();
        let stream = proxy.dialer.connect(&self.origin, &policy.egress, policy.allow_private).await?;
        let writes = Writes::new(proxy.clock);
        let stream = Noted::new(stream, note(writes.clone()));
        let limit = proxy.timeouts.connect;
        let secured = async {
            if self.h2c {
                self.shelf.learn(Protocol::Http2);
                return self.http2(proxy, stream, writes).await;
            }
            if self.origin.scheme == Scheme::Http {
                return self.http1(proxy, stream, writes).await;
            }
            let (stream, protocol) = self.tls.connect(&self.origin, stream, http1_only).await?;
            if !http1_only {
                self.shelf.learn(protocol);
            }
            match protocol {
                Protocol::Http1 => self.http1(proxy, stream, writes).await,
                Protocol::Http2 => self.http2(proxy, stream, writes).await,
            }
        };
        let late = || Error::ConnectTimeout { origin: self.origin.to_string(), after: limit };
        tokio::time::timeout(limit, secured).await.unwrap_or_else(|_| Err(late()))
    }

    async fn http1<S>(&self, proxy: &Proxy, stream: S, writes: Arc<Writes>) -> Result<Lease, Error>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(MAX_HEAD)
            .writev(false)
            .handshake(TokioIo::new(Pieces::of(stream, writes.clone())))
            .await
            .map_err(|error| self.not_made(error))?;
        let open = proxy.metrics.upstream_connections.clone();
        open.inc();
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                debug!(%error, "an upstream's connection ended early");
            }
            open.dec();
        });
        Ok(Lease::own(sender, self.shelf.clone(), writes, false))
    }

    /// Returns once the upstream has said how many requests it takes at once: none is sent before.
    async fn http2<S>(&self, proxy: &Proxy, stream: S, writes: Arc<Writes>) -> Result<Lease, Error>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let drive = Drive::default();
        let (sender, connection) = http2::Builder::new(drive.clone())
            .timer(TokioTimer::new())
            .initial_max_send_streams(UNTOLD)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(MAX_HEAD as u32)
            // Workers that leave in the middle of their answers end their own streams: what is still on its way to those
            // is no fault of the API's, for which h2 would end the connection.
            .max_concurrent_reset_streams(4 * MOST_STREAMS)
            .max_local_error_reset_streams(None)
            .keep_alive_interval(PING)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.not_made(error))?;
        let shared = Arc::new(Shared::new(sender, writes, 0, proxy.clock));
        let (told, settled) = oneshot::channel();
        let open = proxy.metrics.upstream_connections.clone();
        open.inc();
        // Weakly, because the connection ends when nobody can send on it any more.
        let (weak, mut told) = (Arc::downgrade(&shared), Some(told));
        tokio::spawn(async move {
            let (mut connection, mut frames, mut ended) = (Some(Box::pin(connection)), drive.frames(), None);
            let ended = poll_fn(|cx| {
                if frames.as_mut().is_some_and(|frames| frames.as_mut().poll(cx).is_ready()) {
                    frames = None;
                }
                if let Some(requests) = &mut connection {
                    let done = requests.as_mut().poll(cx);
                    let allowed = requests.current_max_send_streams();
                    if allowed != UNTOLD
                        && let Some(shared) = weak.upgrade()
                    {
                        shared.allowed.store(allowed.min(MOST_STREAMS), Ordering::Relaxed);
                        told.take().map(|told| told.send(()));
                    }
                    if let Poll::Ready(how) = done {
                        ended = Some(how);
                        // While it is there, more streams could be opened, and the frames never end.
                        connection = None;
                    }
                }
                // Streams outlive those who could open more.
                if frames.is_none() { ended.take().map_or(Poll::Pending, Poll::Ready) } else { Poll::Pending }
            });
            if let Err(error) = ended.await {
                debug!(%error, "an upstream's connection ended early");
            }
            open.dec();
        });
        settled.await.map_err(|_| Error::Connect {
            origin: self.origin.to_string(),
            source: "it ended before it had said what it allows (SETTINGS)".into(),
        })?;
        let stream = shared.open().ok_or_else(|| Error::BadAnswer {
            origin: self.origin.to_string(),
            source: "it allows no request at all (SETTINGS_MAX_CONCURRENT_STREAMS is 0)".into(),
        })?;
        self.shelf.share(shared);
        Ok(Lease::shared(stream, false))
    }

    fn not_made(&self, error: hyper::Error) -> Error {
        Error::Connect { origin: self.origin.to_string(), source: error.into() }
    }
}

/// Notes what is written to a connection.
fn note(writes: Arc<Writes>) -> impl Fn(Moved) {
    move |moved| match moved {
        Moved::In => {}
        Moved::Out => writes.wrote(),
        Moved::Flushed => writes.finished(),
    }
}

#[cfg(test)]
mod tests;
