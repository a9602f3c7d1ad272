//! Serves a connection that is HTTP no more, in the task that has served it so far: so that a thread that has many tunnels
//! is known to have many connections.

use std::sync::Arc;

use hyper_util::rt::TokioIo;
use tracing::debug;

use super::{intercept, relay, rewrite_errors::RewriteErrorsIo, socket::Socket, tunnel};
use crate::proxy::{exchange::Exchange, message::request_body::BoxedRequest, takeover::Takeover};

/// Serves what the last request on a connection has made of it, to its end.
pub(crate) async fn serve(exchange: Arc<Exchange>, takeover: Takeover) {
    match takeover {
        Takeover::Intercept { request, route } => {
            if let Some(client) = worker(request).await {
                let left_alone = intercept::serve(exchange.clone(), client, route).await;
                if let Some(left) = left_alone {
                    tunnel::connect(exchange, left).await;
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

/// The worker's end of the tunnel, once it has been told that there is one.
async fn worker(request: BoxedRequest) -> Option<Socket> {
    let upgraded = match hyper::upgrade::on(*request).await {
        Ok(upgraded) => upgraded,
        Err(error) => {
            debug!(%error, "the client left before its tunnel was open");
            return None;
        }
    };
    // What hyper has read on belongs to the tunnel.
    let parts = upgraded.downcast::<TokioIo<RewriteErrorsIo<Socket>>>().ok()?;
    let (client, unread) = parts.io.into_inner().into_inner();
    Some(client.with_prefix(unread).with_prefix(parts.read_buf))
}
