//! Serves a connection that is HTTP no more, in the task that has served it so far: so that a thread that has many tunnels
//! is known to have many connections.

use std::{io, pin::pin, sync::Arc, time::Duration};

use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tracing::{debug, warn};

use super::{intercept, relay, rewrite_errors::RewriteErrorsIo, socket::Socket};
use crate::{
    lane::Permit,
    learn::AnswerReport,
    proxy::{
        exchange::Exchange,
        log_throttle::LogTopic,
        message::request_body::BoxedRequest,
        outbound::route::Route,
        takeover::{Takeover, TunnelUse},
    },
    tls::Protocol,
};

/// How long a silent tunnel keeps its slot. Unspent, a slot holds up its lane: silent tunnels could take all slots of a
/// limit.
const FIRST_WORD: Duration = Duration::from_millis(500);

/// Serves what the last request on a connection has made of it, to its end.
pub(crate) async fn serve(exchange: Arc<Exchange>, takeover: Takeover) {
    match takeover {
        Takeover::Intercept { request, route } => {
            if let Some(client) = worker(request).await {
                intercept::serve(exchange, client, route).await;
            }
        }
        Takeover::Tunnel { request, route, upstream, permit, use_of } => {
            let Some(client) = worker(request).await else { return };
            match use_of {
                TunnelUse::Blind => relay::tunnel(exchange, client, upstream, permit).await,
                TunnelUse::Limited | TunnelUse::PlainHttp => {
                    look_first(exchange, route, client, upstream, permit, use_of).await;
                }
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

/// Some clients send plain HTTP through tunnels, too (Node's `fetch`). Where a limit is set each such request takes a slot
/// of its own, which needs no certificates; anything else is relayed unseen, or ended where the tunnel is for nothing else.
async fn look_first(
    exchange: Arc<Exchange>,
    route: Arc<Route>,
    mut client: Socket,
    upstream: TcpStream,
    mut permit: Permit,
    use_of: TunnelUse,
) {
    let clock = exchange.proxy.clock;
    let mut spend = || {
        permit.sent();
        permit.answered(&AnswerReport::SERVED, clock.now());
    };
    let first = {
        let mut first = pin!(first_word(&exchange, &mut client, &upstream));
        tokio::select! {
            first = &mut first => first,
            () = clock.sleep_until(clock.now() + FIRST_WORD) => {
                spend();
                first.await
            }
        }
    };
    if let Ok(Some(protocol)) = first {
        // The slot was not spent, if that came soon. What was connected for the tunnel serves the first of the requests.
        permit.not_connected();
        drop(permit);
        intercept::plain(exchange, route, client, protocol, upstream).await;
        return;
    }
    if use_of == TunnelUse::PlainHttp {
        return intercept::end_other_port(&exchange, &route, client).await;
    }
    spend();
    if exchange.proxy.reports.throttle.is_due(LogTopic::BlindTunnel, &route.origin.host, exchange.proxy.clock.now()) {
        let host = &*route.origin.host;
        warn!(
            host,
            "a limit is set for this host, but only tunnels to it are counted, not the requests inside; to pace those, \
             start with --intercept {host} and let workers trust the CA (andante env), or use andante run"
        );
    }
    relay::tunnel(exchange, client, upstream, permit).await;
}

/// What the worker begins to speak, if that is HTTP.
async fn first_word(exchange: &Exchange, client: &mut Socket, upstream: &TcpStream) -> io::Result<Option<Protocol>> {
    let (proxy, mut there) = (&exchange.proxy, [0]);
    tokio::select! {
        biased;
        first = client.peek() => first.map(intercept::protocol),
        // A client that waits for the upstream to send first does not speak HTTP. Looked at, because a connection that
        // a parent proxy has made is still noted as readable after its answer.
        _ = upstream.peek(&mut there) => Ok(None),
        () = proxy.clock.sleep_until(proxy.clock.now() + exchange.progress.timeouts().idle) => Ok(None),
        () = proxy.drain.begun() => Ok(None),
    }
}
