//! Makes a connection of a pool from a new socket.

use std::sync::Arc;

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use super::{
    Outbound, h1,
    h2_handshake::{self, NewConnection},
    host_pool::{HostPool, PooledConnection},
    lifespan::Lifespan,
    sensor_io::{Moved, SensorIo},
};
use crate::{
    error::Error,
    policy::{Origin, Scheme},
    proxy::message::{send::UpstreamSocket, writes::Writes},
};

/// A connection for `pool` that is being made.
pub(super) struct Handshake<'a> {
    outbound: &'a Outbound,
    origin: &'a Origin,
    pool: &'a Arc<HostPool>,
    writes: Arc<Writes>,
    life: Lifespan,
}

// === impl Handshake ===

impl<'a> Handshake<'a> {
    /// Begins on `stream`, which leads to `origin`. Returns the stream in a wrapper that records its writes.
    pub(super) fn begin(
        outbound: &'a Outbound,
        origin: &'a Origin,
        pool: &'a Arc<HostPool>,
        stream: TcpStream,
    ) -> (Self, SensorIo<UpstreamSocket, impl Fn(Moved) + use<>>) {
        let peer = stream.peer_addr().ok().map(|peer| peer.ip());
        let (writes, life) = (Writes::new(outbound.clock), Lifespan::new(outbound.clock.now(), peer));
        let stream = SensorIo::new(UpstreamSocket::new(stream, origin.scheme == Scheme::Https), note(writes.clone()));
        (Self { outbound, origin, pool, writes, life }, stream)
    }

    /// Makes an HTTP/1 connection on `stream`.
    pub(super) async fn http1<S>(self, stream: S) -> Result<PooledConnection, Error>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let Self { outbound, origin, pool, writes, life } = self;
        let sender = h1::handshake(&outbound.metrics, stream, writes.clone()).await;
        let sender = sender.map_err(|error| Error::Connect { origin: origin.to_string(), source: error.into() })?;
        Ok(PooledConnection::own(sender, life, pool.clone(), writes, false))
    }

    /// Makes an HTTP/2 connection on `stream`, which all users of the pool share.
    pub(super) async fn http2<S>(self, stream: S) -> Result<PooledConnection, Error>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let Self { outbound, origin, pool, writes, life } = self;
        let new = NewConnection { origin, writes, life, no_pings: pool.no_pings.clone() };
        let (shared, stream) = h2_handshake::handshake(outbound, new, stream).await?;
        pool.share(shared);
        Ok(PooledConnection::shared(stream, false))
    }
}

/// Records the writes on a connection.
fn note(writes: Arc<Writes>) -> impl Fn(Moved) {
    move |moved| match moved {
        Moved::In | Moved::Ended => {}
        Moved::Out => writes.wrote(),
        Moved::Flushed => writes.finished(),
    }
}
