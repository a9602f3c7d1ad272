//! One worker's connection: hyper reads and writes it, this file sees to it that it cannot hang.

use std::{convert::Infallible, future::poll_fn, net::IpAddr, pin::pin, sync::Arc, task::Poll, time::Duration};

use http::Request;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::Service;
use tracing::debug;

use super::{
    Pool, Proxy,
    body::RequestBody,
    link::{Link, Phase},
    socket::Socket,
    stack::{Arrival, stack},
};

/// The head of a request, and each piece of a body that is buffered: a worker's longest URL with its fields.
pub(super) const MAX_HEAD: usize = 64 * 1024;
/// As many fields as a request may have.
pub(super) const MAX_FIELDS: usize = 100;
/// How often a connection looks whether it has taken too long. A phase's limit is kept to within this.
const TICK: Duration = Duration::from_secs(10);
/// How long a connection that has not said anything is listened to once the process drains.
const LAST_MOMENT: Duration = Duration::from_millis(500);

/// Serves one connection until it ends, hangs, or the process drains.
pub(super) async fn serve(proxy: Arc<Proxy>, pool: Arc<Pool>, stream: TcpStream, peer: IpAddr) {
    let tick = tick(&proxy);
    let link = Arc::new(Link::new(proxy, pool, stream, peer));
    if !first_word(&link).await {
        return;
    }
    let service = service_fn(|request: Request<Incoming>| {
        link.set_answering(true);
        link.enter(Phase::Answer, link.proxy.timeouts.answer);
        let request = Box::new(request.map(|body| RequestBody::new(body, link.clone())));
        let arrival = Arrival { link: link.clone(), request };
        let answer = stack().call(arrival);
        async move { Ok::<_, Infallible>(answer.await.unwrap_or_else(|never| match never {})) }
    });
    let connection = http1::Builder::new()
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_FIELDS)
        // The upstream's date is the answer's; we are no origin.
        .auto_date_header(false)
        .writev(false)
        .serve_connection(TokioIo::new(Socket::new(link.clone())), service)
        .with_upgrades();

    let mut connection = pin!(connection);
    let mut timer = pin!(tokio::time::sleep(tick));
    let mut drain = pin!(link.proxy.drain.notified());
    // Registers this task once; whoever drains wakes it, and the flags say what has happened.
    drain.as_mut().enable();
    let mut shutting_down = false;
    poll_fn(|cx| {
        let _ = drain.as_mut().poll(cx);
        if link.proxy.is_draining() && !shutting_down {
            shutting_down = true;
            connection.as_mut().graceful_shutdown();
            timer.as_mut().reset(link.wake_at(tick));
        }
        while timer.as_mut().poll(cx).is_ready() {
            let (now, cut_off) = (link.proxy.clock.now(), link.proxy.cut_off());
            if now >= link.deadline().min(cut_off) && !link.give_up(now >= cut_off) {
                debug!(phase = ?link.phase(), "closing a connection that takes too long");
                return Poll::Ready(());
            }
            // Behind a pipelined request hyper does not see the client leave: rare, so that a look now and then will do.
            if link.phase() == Phase::Answer && link.has_left() {
                return Poll::Ready(());
            }
            timer.as_mut().reset(link.wake_at(tick));
        }
        if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
            if let Err(error) = ended {
                debug!(%error, "a worker's connection ended early");
            }
            return Poll::Ready(());
        }
        // A phase that has begun may have to end before the next look at the clock: a short `Prefer: wait`, for instance.
        if link.proxy.clock.to_tokio(link.deadline()) < timer.deadline() {
            timer.as_mut().reset(link.wake_at(tick));
        }
        // hyper notices a client that leaves only while it has nothing else to read.
        if link.phase() == Phase::Waiting && link.poll_left(cx) {
            return Poll::Ready(());
        }
        Poll::Pending
    })
    .await;
}

/// Waits until the client says something: a connection that is only kept open costs no buffers until then.
async fn first_word(link: &Link) -> bool {
    let (proxy, mut deadline) = (&link.proxy, link.deadline());
    let mut drain = pin!(proxy.drain.notified());
    drain.as_mut().enable();
    loop {
        if proxy.is_draining() {
            // Whoever has connected at the last moment may be about to speak; a silent one must not hold up the end.
            deadline = deadline.min(proxy.clock.now() + LAST_MOMENT);
        }
        tokio::select! {
            ready = link.stream.readable() => return ready.is_ok(),
            () = proxy.clock.sleep_until(deadline) => return false,
            () = &mut drain, if !proxy.is_draining() => {}
        }
    }
}

/// Short enough for the shortest of the limits.
fn tick(proxy: &Proxy) -> Duration {
    let limits = &proxy.timeouts;
    [limits.answer, limits.idle, limits.head, limits.keep_alive].into_iter().fold(TICK, Duration::min)
}

impl Link {
    /// When to look again: a phase that begins meanwhile may have an earlier deadline than this one.
    fn wake_at(&self, tick: Duration) -> tokio::time::Instant {
        let now = self.proxy.clock.now();
        let at = self.deadline().min(self.proxy.cut_off()).min(now + tick).max(now + Duration::from_millis(1));
        self.proxy.clock.to_tokio(at)
    }
}
