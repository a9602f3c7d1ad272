//! Relays bytes both ways, unseen: blind tunnels, and connections that have switched to another protocol.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::{debug, info};

use super::both_ways::{self, Gate};
use crate::{
    clock::log_seconds,
    lane::Permit,
    metrics,
    proxy::{exchange::Exchange, outbound::route::Route},
};

/// The slots of a tunnel or turn in flight, usually of one lane.
pub(crate) type Permits = SmallVec<[Permit; 2]>;

/// Counts the tunnel while it is open.
pub(crate) struct OpenTunnel<'a>(&'a Exchange);

/// Lets all bytes pass at once.
struct OpenGate<'a> {
    exchange: &'a Exchange,
    /// True if one side has closed.
    ended: AtomicBool,
}

/// Relays a blind tunnel to its end, and counts it. `permits` are in flight until then.
pub(crate) async fn tunnel<C, U>(exchange: Arc<Exchange>, route: &Route, client: C, upstream: U, permits: Permits)
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    // `/status` shows the tunnel as open until it is counted.
    let open = OpenTunnel::new(&exchange);
    copy(&exchange, client, upstream, Some(&route.origin.host)).await;
    route.lane.metrics().count(metrics::CallOutcome::Tunnelled);
    drop((open, permits));
    exchange.session.client.linger().await;
}

/// Relays both sides after a switch of protocols. The permit is in flight until both have ended.
pub(crate) async fn upgraded(exchange: Arc<Exchange>, worker: OnUpgrade, upstream: OnUpgrade, permit: Permit) {
    match tokio::try_join!(worker, upstream) {
        Ok((worker, upstream)) => {
            let open = OpenTunnel::new(&exchange);
            copy(&exchange, TokioIo::new(worker), TokioIo::new(upstream), None).await;
            drop((open, permit));
            exchange.session.client.linger().await;
        }
        Err(error) => debug!(%error, "one side left before the protocol was switched"),
    }
}

/// Copies both ways until both sides have closed, one of them breaks, nothing moves for too long, or the process ends.
/// `host` is that of a blind tunnel, in which an answer may be awaited.
async fn copy<C, U>(exchange: &Exchange, client: C, upstream: U, host: Option<&Arc<str>>)
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    exchange.progress.moves();
    let gate = OpenGate { exchange, ended: AtomicBool::new(false) };
    tokio::select! {
        copied = both_ways::copy(client, upstream, &gate) => match copied {
            Ok(()) => debug!("a tunnel has ended"),
            Err(error) => debug!(%error, "a tunnel broke"),
        },
        cut = too_long(exchange, host, || host.is_some() && !gate.ended.load(Ordering::Relaxed)) => {
            if cut {
                exchange.proxy.drain.on_cut();
            }
        }
    }
}

/// Ends when nothing has moved for too long, or at the end of the drain, for which it returns true. While `answers` returns
/// true an answer may be awaited, and the `answer` timeout applies if it is longer. With a tunnel's `host`, the end is
/// logged.
pub(crate) async fn too_long(exchange: &Exchange, host: Option<&Arc<str>>, answers: impl Fn() -> bool) -> bool {
    let (proxy, answer, idle) = (&exchange.proxy, exchange.progress.answer(), exchange.progress.idle());
    loop {
        // Created before the drain's state is read, so that its begin cannot be missed.
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
            let silent_s = log_seconds(silence);
            info!(%host, client = %exchange.session.address, silent_s, timeout, "ended a silent tunnel");
        }
        if now >= deadline {
            return now < silent_until;
        }
        // Once a side has ended, the deadline is an earlier one.
        tokio::select! {
            () = proxy.clock.sleep_until(deadline.min(now + idle)) => {}
            () = drain => {}
        }
    }
}

// === impl OpenGate ===

impl Gate for OpenGate<'_> {
    type Closed = Infallible;

    fn next_turn(&self, _: &[u8], _: &mut usize) -> Option<usize> {
        None
    }

    async fn pass(&self) -> Result<(), Infallible> {
        Ok(())
    }

    fn on_answer(&self, _: &[u8]) {
        self.on_progress();
    }

    fn on_progress(&self) {
        self.exchange.progress.moves();
    }

    fn on_api_end(&self) {
        self.on_worker_end();
    }

    fn on_worker_end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        self.on_progress();
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
