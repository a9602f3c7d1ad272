//! CONNECT: a blind tunnel. Takes a permit like any request, and holds it until the tunnel ends.

use std::{
    io,
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use http::Response;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, copy_bidirectional_with_sizes},
    net::TcpStream,
};
use tracing::{debug, info, warn};

use super::{
    body::Body,
    connection::Speech,
    inside,
    link::{Link, Phase},
    noted::{Moved, Noted},
    notices::Notice,
    socket::Socket,
    stack::{Admitted, Boxed, Call, Outcome},
    upstream::Route,
    voice::Voice,
};
use crate::{learn::Heard, metrics, pace::Permit};

/// What is copied at a time, each way: 0.8 GB/s where tokio's 8 KiB reach 0.58. An idle tunnel costs 16 KiB all in all.
const BUFFER: usize = 32 * 1024;
/// How long the slot of a tunnel is kept for whoever says nothing in it. Unspent it holds up its lane: as many silent
/// tunnels as a limit has slots, and nobody else would get one.
const FIRST_WORD: Duration = Duration::from_millis(500);

/// Connects, and only then says so (R28); what the client sends before that stays unread (R30).
pub(super) async fn open(admitted: Admitted) -> Outcome {
    let Admitted { call: Call { link, request, route, .. }, mut permit, .. } = admitted;
    let policy = route.lane.policy();
    let dial = || link.proxy.dialer.connect(&route.origin, &policy.egress, policy.allow_private);
    let begun = link.tries();
    let dialled = link.peer.pool.with_room(dial).await;
    link.tried(begun);
    let upstream = dialled?;
    let limited = policy.is_limited();
    if !limited {
        permit.sent();
        permit.answered(&Heard::SERVED, link.proxy.clock.now());
        say_unseen(&link, &route);
    }
    link.hand_over();
    tokio::spawn(async move {
        let Some(client) = worker(request).await else { return };
        if limited {
            look_first(link, route, client, upstream, permit).await;
        } else {
            blind(link, client, upstream, permit).await;
        }
    });
    Ok(Response::new(Body::Own(None)))
}

/// Says that what is inside is not seen, unless that was asked for.
fn say_unseen(link: &Link, route: &Route) {
    let host = &route.origin.host;
    if route.lane.policy().https.is_none() && link.proxy.notices.is_newly_unseen(host) {
        info!(
            %host,
            "a blind tunnel: requests inside are neither paced nor sent again after a 429; to change that, start with \
             --intercept {host} and let workers trust the CA (andante ca env), use andante run, or call the API by a \
             gateway address; https = \"tunnel\" in a rule for the host says that it is meant"
        );
    }
}

/// The worker's end of the tunnel, once it has been told that there is one.
pub(super) async fn worker(request: Boxed) -> Option<Socket> {
    let upgraded = match hyper::upgrade::on(*request).await {
        Ok(upgraded) => upgraded,
        Err(error) => {
            debug!(%error, "the client left before its tunnel was open");
            return None;
        }
    };
    // What hyper has read on belongs to the tunnel.
    let parts = upgraded.downcast::<TokioIo<Voice<Socket>>>().ok()?;
    Some(parts.io.into_inner().into_inner().hearing(parts.read_buf))
}

/// Some clients send plain HTTP through tunnels, too (Node's `fetch`). Where a limit is set each such request takes a slot
/// of its own, which needs no certificates; anything else is relayed unseen.
async fn look_first(link: Arc<Link>, route: Arc<Route>, mut client: Socket, upstream: TcpStream, mut permit: Permit) {
    let clock = link.proxy.clock;
    let mut spend = || {
        permit.sent();
        permit.answered(&Heard::SERVED, clock.now());
    };
    let first = {
        let mut first = pin!(first_word(&link, &mut client, &upstream));
        tokio::select! {
            first = &mut first => first,
            () = clock.sleep_until(clock.now() + FIRST_WORD) => {
                spend();
                first.await
            }
        }
    };
    if let Ok(Some(speech)) = first {
        // The slot was not spent, if that came soon. What was connected for the tunnel serves the first of the requests.
        drop(permit);
        inside::plain(link, route, client, speech, upstream).await;
        return;
    }
    spend();
    if link.proxy.notices.is_due(Notice::BlindTunnel, &route.origin.host, link.proxy.clock.now()) {
        let host = &*route.origin.host;
        warn!(
            host,
            "a limit is set for this host, but only tunnels to it are counted, not the requests inside; to pace those, \
             start with --intercept {host} and let workers trust the CA (andante ca env), or use andante run"
        );
    }
    blind(link, client, upstream, permit).await;
}

/// What the worker begins to speak, if that is HTTP.
async fn first_word(link: &Link, client: &mut Socket, upstream: &TcpStream) -> io::Result<Option<Speech>> {
    let (proxy, mut there) = (&link.proxy, [0]);
    tokio::select! {
        biased;
        first = client.glance() => first.map(inside::speech),
        // Whoever waits for the upstream to speak first is not speaking HTTP. Looked at, because a connection that a
        // parent proxy has made is still noted as readable after its answer.
        _ = upstream.peek(&mut there) => Ok(None),
        () = proxy.clock.sleep_until(proxy.clock.now() + proxy.timeouts.idle) => Ok(None),
        () = drained(link) => Ok(None),
    }
}

async fn blind(link: Arc<Link>, client: Socket, upstream: TcpStream, permit: Permit) {
    let metrics = permit.lane().metrics().clone();
    // Somebody who asks sees it open until it is counted.
    let open = Open::new(&link);
    relay(link.clone(), client, upstream, permit).await;
    metrics.count(metrics::Outcome::Tunnelled);
    drop(open);
}

/// Copies both ways until both sides have closed, one of them breaks, nothing moves for too long, or the process ends.
pub(super) async fn relay<C, U>(link: Arc<Link>, mut client: C, upstream: U, _permit: Permit)
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    let proxy = &link.proxy;
    link.enter(Phase::Body, proxy.timeouts.idle);
    let mut upstream = Noted::new(upstream, |moved| {
        if moved != Moved::Flushed {
            link.enter(Phase::Body, proxy.timeouts.idle);
        }
    });
    let copied = tokio::select! {
        copied = copy_bidirectional_with_sizes(&mut client, &mut upstream, BUFFER, BUFFER) => copied,
        () = too_long(&link) => Err(io::ErrorKind::TimedOut.into()),
    };
    match copied {
        Ok((up, down)) => debug!(up, down, "a tunnel has ended"),
        Err(error) => debug!(%error, "a tunnel broke"),
    }
}

/// Ends when nothing has moved for too long, or at the end of the drain.
async fn too_long(link: &Link) {
    let proxy = &link.proxy;
    loop {
        // Before looking at what it tells of: it must not come in between.
        let drain = proxy.drain.notified();
        let deadline = link.deadline().min(proxy.cut_off());
        if proxy.clock.now() >= deadline {
            return;
        }
        tokio::select! {
            () = proxy.clock.sleep_until(deadline) => {}
            () = drain => {}
        }
    }
}

/// Ends when the process begins to drain.
pub(super) async fn drained(link: &Link) {
    loop {
        let drain = link.proxy.drain.notified();
        if link.proxy.is_draining() {
            return;
        }
        drain.await;
    }
}

/// Counts the tunnel while it is open.
pub(super) struct Open<'a>(&'a Link);

impl<'a> Open<'a> {
    pub(super) fn new(link: &'a Link) -> Self {
        link.proxy.tunnels.fetch_add(1, Ordering::Relaxed);
        Self(link)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.proxy.tunnels.fetch_sub(1, Ordering::Relaxed);
    }
}
