//! HTTP/1 towards an upstream: how a connection begins.

use std::sync::Arc;

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::debug;

use crate::{
    metrics::Metrics,
    proxy::{
        message::{request_body::RequestBody, writes::Writes},
        outbound::piecewise_io::PiecewiseIo,
    },
};

/// The head of an answer.
pub(crate) const MAX_HEAD: usize = 512 * 1024;

/// Sends requests on a connection, one at a time.
pub(crate) type Sender = http1::SendRequest<RequestBody>;

/// Makes an HTTP/1 connection of `stream`, whose writes are noted in `writes`.
pub(crate) async fn handshake<S>(metrics: &Metrics, stream: S, writes: Arc<Writes>) -> Result<Sender, hyper::Error>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = http1::Builder::new()
        .max_buf_size(MAX_HEAD)
        .writev(false)
        .handshake(TokioIo::new(PiecewiseIo::of(stream, writes)))
        .await?;
    let open = metrics.upstream_connections.clone();
    open.inc();
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            debug!(%error, "an upstream's connection ended early");
        }
        open.dec();
    });
    Ok(sender)
}
