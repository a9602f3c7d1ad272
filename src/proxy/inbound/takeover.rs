//! Serves a connection that no longer carries HTTP, in the task that has served it so far. So a thread with many
//! tunnels is known to have many connections.

use std::sync::Arc;

use hyper_util::rt::TokioIo;
use tracing::debug;

use super::{intercept, relay, rewrite_errors::RewriteErrorsIo, socket::Socket, tunnel};
use crate::proxy::{exchange::Exchange, message::request_body::BoxedRequest, steps::ask, takeover::Takeover};

/// Serves the new use of a connection to its end.
pub(crate) async fn serve(exchange: Arc<Exchange>, takeover: Takeover) {
    match takeover {
        Takeover::Intercept { request, route } => {
            let stated = ask::stated(request.headers());
            if let Some(client) = worker(request).await {
                let left_alone = intercept::serve(exchange.clone(), client, route).await;
                if let Some(left) = left_alone {
                    tunnel::connect(exchange, left, stated).await;
                }
            }
        }
        Takeover::Tunnel { request, route, upstream, terms } => {
            if let Some(client) = worker(request).await {
                tunnel::serve(exchange, route, client, upstream, *terms).await;
            }
        }
        Takeover::Upgrade { worker, upstream, permit } => relay::upgraded(exchange, worker, upstream, permit).await,
    }
}

/// The worker's end of the tunnel, once the worker has the answer to its CONNECT.
async fn worker(request: BoxedRequest) -> Option<Socket> {
    let upgraded = match hyper::upgrade::on(*request).await {
        Ok(upgraded) => upgraded,
        Err(error) => {
            debug!(%error, "the client left before its tunnel was open");
            return None;
        }
    };
    // Bytes that hyper has read beyond the request belong to the tunnel.
    let parts = upgraded.downcast::<TokioIo<RewriteErrorsIo<Socket>>>().ok()?;
    let (client, unread) = parts.io.into_inner().into_inner();
    Some(client.with_prefix(unread).with_prefix(parts.read_buf))
}
