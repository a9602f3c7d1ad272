//! A connection to a store with a bound on unparsed data, so that a store cannot fill the memory.
//!
//! The parser of the `redis` crate keeps a reply until it is complete, whatever its length. So connections are opened
//! here, with TLS as the crate would open them, and every byte that the parser gets is counted.

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

use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, RedisError, aio::MultiplexedConnection};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

/// A reply to a call of a fleet with 65,536 lanes has about 8 MiB.
const MAX_REPLY_BYTES: usize = 16 * 1024 * 1024;

/// Bytes read since a message was last parsed or a command sent. Clones share one count.
#[derive(Clone, Debug, Default)]
pub(super) struct UnreadReply(Arc<AtomicUsize>);

/// A stream that fails if a reply is too long.
struct BoundedStream<S> {
    stream: S,
    unread: UnreadReply,
}

/// A connection, and the future that drives it.
type Opened = (MultiplexedConnection, Pin<Box<dyn Future<Output = ()> + Send>>);

/// Connects to `client` within this time. The receiver of pushed messages resets `unread` after each message.
pub(super) async fn connect(
    client: &Client,
    config: AsyncConnectionConfig,
    unread: UnreadReply,
    within: Duration,
) -> Result<MultiplexedConnection, RedisError> {
    let info = client.get_connection_info();
    let connecting = async {
        match info.addr() {
            ConnectionAddr::Tcp(host, port) => open(info, config, tcp(host, *port).await?, unread).await,
            ConnectionAddr::TcpTls { host, port, insecure: false, .. } => {
                let (name, trust) = (ServerName::try_from(host.clone())?, trust()?);
                let tls = TlsConnector::from(Arc::new(trust)).connect(name, tcp(host, *port).await?).await?;
                open(info, config, tls, unread).await
            }
            // The crate's error explains the failure: it has no sockets of other kinds, and no TLS without
            // verification.
            _ => {
                let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
                Ok::<Opened, _>((connection, Box::pin(std::future::ready(()))))
            }
        }
    };
    let late = || RedisError::from(io::Error::from(io::ErrorKind::TimedOut));
    let (connection, driver) = tokio::time::timeout(within, connecting).await.map_err(|_| late())??;
    // The driver ends with the last handle of the connection.
    tokio::spawn(driver);
    Ok(connection)
}

async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The system's roots, read again for each connection, because they change while a process runs.
fn trust() -> Result<ClientConfig, RedisError> {
    let mut system = rustls_native_certs::load_native_certs();
    if let Some(error) = system.errors.pop() {
        return Err(error.into());
    }
    let mut roots = RootCertStore::empty();
    system.certs.into_iter().try_for_each(|root| roots.add(root))?;
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Starts the store's protocol on `stream`.
async fn open<S>(
    info: &ConnectionInfo,
    config: AsyncConnectionConfig,
    stream: S,
    unread: UnreadReply,
) -> Result<Opened, RedisError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
{
    let stream = BoundedStream { stream, unread };
    let (connection, driver) = MultiplexedConnection::new_with_config(info.redis_settings(), stream, config).await?;
    Ok((connection, Box::pin(driver)))
}

// === impl UnreadReply ===

impl UnreadReply {
    /// Resets the count, because the bytes read were parsed.
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

impl<S: AsyncRead + Unpin> AsyncRead for BoundedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        Poll::Ready(self.unread.add(buf.filled().len() - before))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BoundedStream<S> {
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
