//! Relays bytes both ways, unseen: blind tunnels, and connections that have switched to another protocol.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional_with_sizes};
use tracing::{debug, info};

use crate::{
    lane::Permit,
    metrics,
    proxy::{
        exchange::Exchange,
        outbound::{
            route::Route,
            sensor_io::{Moved, SensorIo},
        },
    },
};

/// What is copied at a time, each way: 0.8 GB/s where tokio's 8 KiB reach 0.58. An idle tunnel costs 16 KiB all in all.
const BUFFER: usize = 32 * 1024;

/// The slots of what is in flight, of one lane mostly.
pub(crate) type Permits = SmallVec<[Permit; 2]>;

/// Counts the tunnel while it is open.
pub(crate) struct OpenTunnel<'a>(&'a Exchange);

/// Relays a blind tunnel to its end, and counts it. `_permits` are in flight until then.
pub(crate) async fn tunnel<C, U>(exchange: Arc<Exchange>, route: &Route, client: C, upstream: U, _permits: Permits)
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    // `/status` shows it open until it is counted.
    let open = OpenTunnel::new(&exchange);
    copy(&exchange, client, upstream, Some(&route.origin.host)).await;
    route.lane.metrics().count(metrics::CallOutcome::Tunnelled);
    drop(open);
}

/// Relays what both sides speak after they have switched. The permit is in flight for as long as they do.
pub(crate) async fn upgraded(exchange: Arc<Exchange>, worker: OnUpgrade, upstream: OnUpgrade, _permit: Permit) {
    match tokio::try_join!(worker, upstream) {
        Ok((worker, upstream)) => {
            let _open = OpenTunnel::new(&exchange);
            copy(&exchange, TokioIo::new(worker), TokioIo::new(upstream), None).await;
        }
        Err(error) => debug!(%error, "one side left before the protocol was switched"),
    }
}

/// Copies both ways until both sides have closed, one of them breaks, nothing moves for too long, or the process ends.
/// `host` is that of a blind tunnel, in which an answer may be awaited.
async fn copy<C, U>(exchange: &Exchange, mut client: C, upstream: U, host: Option<&Arc<str>>)
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    exchange.progress.moves();
    let ended = AtomicBool::new(false);
    let mut upstream = SensorIo::new(upstream, |moved| {
        match moved {
            Moved::Flushed => return,
            Moved::Ended => ended.store(true, Ordering::Relaxed),
            Moved::In | Moved::Out => {}
        }
        exchange.progress.moves();
    });
    let copied = tokio::select! {
        copied = copy_bidirectional_with_sizes(&mut client, &mut upstream, BUFFER, BUFFER) => copied,
        () = too_long(exchange, host, || host.is_some() && !ended.load(Ordering::Relaxed)) => {
            Err(io::ErrorKind::TimedOut.into())
        }
    };
    match copied {
        Ok((up, down)) => debug!(up, down, "a tunnel has ended"),
        Err(error) => debug!(%error, "a tunnel broke"),
    }
}

/// Ends when nothing has moved for too long, or at the end of the drain. As long as `answers` says so, an answer may be
/// awaited, for which an API has no less time than in other ways. The log has it if `host` is that of a tunnel.
pub(crate) async fn too_long(exchange: &Exchange, host: Option<&Arc<str>>, answers: impl Fn() -> bool) {
    let (proxy, answer, idle) = (&exchange.proxy, exchange.progress.answer(), exchange.progress.idle());
    loop {
        // Before looking at what it tells of: it must not come in between.
        let drain = proxy.drain.notified();
        let (timeout, silence) = match answers() && answer > idle {
            true => ("answer", answer),
            false => ("idle", idle),
        };
        let silent_until = exchange.progress.deadline() + (silence - idle);
        let deadline = silent_until.min(proxy.drain.tunnels_cut_off());
        let now = proxy.clock.now();
        if now >= silent_until
            && let Some(host) = host
        {
            let silent_s = silence.as_secs_f64();
            info!(%host, client = %exchange.session.address, silent_s, timeout, "ended a silent tunnel");
        }
        if now >= deadline {
            return;
        }
        // Once a side has ended, the deadline is an earlier one.
        tokio::select! {
            () = proxy.clock.sleep_until(deadline.min(now + idle)) => {}
            () = drain => {}
        }
    }
}

// === impl OpenTunnel ===

impl<'a> OpenTunnel<'a> {
    pub(crate) fn new(exchange: &'a Exchange) -> Self {
        exchange.proxy.tunnels.fetch_add(1, Ordering::Relaxed);
        Self(exchange)
    }
}

impl Drop for OpenTunnel<'_> {
    fn drop(&mut self) {
        self.0.proxy.tunnels.fetch_sub(1, Ordering::Relaxed);
    }
}
