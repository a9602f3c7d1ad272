//! A connection to a store that may not fill the memory: what it sends ahead of being understood is bounded.
//!
//! The parser of the `redis` crate keeps a reply until it is whole, however long it is. A store with TLS has shown a
//! certificate, and is connected to by the crate itself.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use redis::{AsyncConnectionConfig, Client, ConnectionAddr, RedisError, aio::MultiplexedConnection};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// A reply to a call of a fleet with 65,536 lanes has about 8 MiB.
const MAX_REPLY_BYTES: usize = 16 * 1024 * 1024;

/// Bytes that were read since something was last understood or asked. Clones count the same.
#[derive(Clone, Debug, Default)]
pub(super) struct UnreadReply(Arc<AtomicUsize>);

/// A stream that ends in an error where a reply is too long.
struct BoundedStream {
    stream: TcpStream,
    unread: UnreadReply,
}

/// Connects to `client` within this time; `unread` is told by the receiver of what is pushed that a message was understood.
pub(super) async fn connect(
    client: &Client,
    config: AsyncConnectionConfig,
    unread: UnreadReply,
    within: Duration,
) -> Result<MultiplexedConnection, RedisError> {
    let info = client.get_connection_info();
    let ConnectionAddr::Tcp(host, port) = info.addr() else {
        return client.get_multiplexed_async_connection_with_config(&config.set_connection_timeout(Some(within))).await;
    };
    let connecting = async {
        let stream = TcpStream::connect((host.as_str(), *port)).await?;
        stream.set_nodelay(true)?;
        let stream = BoundedStream { stream, unread };
        MultiplexedConnection::new_with_config(info.redis_settings(), stream, config).await
    };
    let late = || RedisError::from(io::Error::from(io::ErrorKind::TimedOut));
    let (connection, driver) = tokio::time::timeout(within, connecting).await.map_err(|_| late())??;
    // Ends with the last handle of the connection.
    tokio::spawn(driver);
    Ok(connection)
}

// === impl UnreadReply ===

impl UnreadReply {
    /// What was read is understood.
    pub(super) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    fn add(&self, bytes: usize) -> io::Result<()> {
        if self.0.fetch_add(bytes, Ordering::Relaxed) + bytes <= MAX_REPLY_BYTES {
            return Ok(());
        }
        Err(io::Error::other(format!("a reply of the store is longer than {} MiB", MAX_REPLY_BYTES >> 20)))
    }
}

// === impl BoundedStream ===

impl AsyncRead for BoundedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        Poll::Ready(self.unread.add(buf.filled().len() - before))
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.unread.reset();
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_bounded_and_many_are_not() {
        let unread = UnreadReply::default();
        for _ in 0..10 {
            assert!(unread.add(MAX_REPLY_BYTES).is_ok());
            unread.reset();
        }
        assert!(unread.add(MAX_REPLY_BYTES).is_ok());
        assert!(unread.add(1).unwrap_err().to_string().contains("16 MiB"));
    }
}
