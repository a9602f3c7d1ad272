//! Relays bytes both ways, unseen: blind tunnels, and connections that have switched to another protocol.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
};

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional_with_sizes};
use tracing::debug;

use crate::{
    lane::Permit,
    metrics,
    proxy::{
        exchange::Exchange,
        outbound::sensor_io::{Moved, SensorIo},
    },
};

/// What is copied at a time, each way: 0.8 GB/s where tokio's 8 KiB reach 0.58. An idle tunnel costs 16 KiB all in all.
const BUFFER: usize = 32 * 1024;

/// Counts the tunnel while it is open.
struct OpenTunnel<'a>(&'a Exchange);

/// Relays a blind tunnel to its end, and counts it.
pub(crate) async fn tunnel<C, U>(exchange: Arc<Exchange>, client: C, upstream: U, permit: Permit)
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    let metrics = permit.lane().metrics().clone();
    // `/status` shows it open until it is counted.
    let open = OpenTunnel::new(&exchange);
    copy(&exchange, client, upstream, permit).await;
    metrics.count(metrics::CallOutcome::Tunnelled);
    drop(open);
}

/// Relays what both sides speak after they have switched. The permit is in flight for as long as they do.
pub(crate) async fn upgraded(exchange: Arc<Exchange>, worker: OnUpgrade, upstream: OnUpgrade, permit: Permit) {
    match tokio::try_join!(worker, upstream) {
        Ok((worker, upstream)) => {
            let _open = OpenTunnel::new(&exchange);
            copy(&exchange, TokioIo::new(worker), TokioIo::new(upstream), permit).await;
        }
        Err(error) => debug!(%error, "one side left before the protocol was switched"),
    }
}

/// Copies both ways until both sides have closed, one of them breaks, nothing moves for too long, or the process ends.
async fn copy<C, U>(exchange: &Exchange, mut client: C, upstream: U, _permit: Permit)
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    exchange.progress.moves();
    let mut upstream = SensorIo::new(upstream, |moved| {
        if moved != Moved::Flushed {
            exchange.progress.moves();
        }
    });
    let copied = tokio::select! {
        copied = copy_bidirectional_with_sizes(&mut client, &mut upstream, BUFFER, BUFFER) => copied,
        () = too_long(exchange) => Err(io::ErrorKind::TimedOut.into()),
    };
    match copied {
        Ok((up, down)) => debug!(up, down, "a tunnel has ended"),
        Err(error) => debug!(%error, "a tunnel broke"),
    }
}

/// Ends when nothing has moved for too long, or at the end of the drain.
async fn too_long(exchange: &Exchange) {
    let proxy = &exchange.proxy;
    loop {
        // Before looking at what it tells of: it must not come in between.
        let drain = proxy.drain.notified();
        let deadline = exchange.progress.deadline().min(proxy.drain.cut_off());
        if proxy.clock.now() >= deadline {
            return;
        }
        tokio::select! {
            () = proxy.clock.sleep_until(deadline) => {}
            () = drain => {}
        }
    }
}

// === impl OpenTunnel ===

impl<'a> OpenTunnel<'a> {
    fn new(exchange: &'a Exchange) -> Self {
        exchange.proxy.tunnels.fetch_add(1, Ordering::Relaxed);
        Self(exchange)
    }
}

impl Drop for OpenTunnel<'_> {
    fn drop(&mut self) {
        self.0.proxy.tunnels.fetch_sub(1, Ordering::Relaxed);
    }
}
