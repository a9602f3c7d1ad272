//! Sees to it that nothing takes too long that a link is at.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::Sleep;
use tracing::debug;

use super::{
    Proxy,
    link::{Link, Phase},
};

/// How often a connection looks whether it has taken too long. A phase's limit is kept to within this.
const TICK: Duration = Duration::from_secs(10);

/// Watches one link.
pub(super) struct Watch {
    link: Arc<Link>,
    tick: Duration,
    timer: Pin<Box<Sleep>>,
}

// === impl Watch ===

impl Watch {
    pub(super) fn new(link: Arc<Link>) -> Self {
        let tick = tick(&link.proxy);
        Self { link, tick, timer: Box::pin(tokio::time::sleep(tick)) }
    }

    /// Ready when what the link is at has taken too long, and there is nobody left to tell. Before that it makes the
    /// request fail that is under way. To be asked before that is polled.
    pub(super) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let link = self.link.clone();
        while self.timer.as_mut().poll(cx).is_ready() {
            let (now, cut_off) = (link.proxy.clock.now(), link.proxy.cut_off());
            if now >= link.deadline().min(cut_off) && !link.give_up(now >= cut_off) {
                debug!(phase = ?link.phase(), "ending what takes too long");
                return Poll::Ready(());
            }
            // Behind a pipelined request hyper does not see the client leave: rare, so that a look now and then will do.
            if link.phase() == Phase::Answer && link.peer.wire.has_left() {
                return Poll::Ready(());
            }
            self.look_again();
        }
        Poll::Pending
    }

    /// A phase that has begun may have to end before the next look at the clock: a short `Prefer: wait`, for instance. To
    /// be called after whatever can begin one.
    pub(super) fn catch_up(&mut self) {
        if self.link.proxy.clock.to_tokio(self.link.deadline()) < self.timer.deadline() {
            self.look_again();
        }
    }

    /// Looks at the clock when the current phase ends, or at the next tick.
    pub(super) fn look_again(&mut self) {
        let link = &self.link;
        let now = link.proxy.clock.now();
        let at = link.deadline().min(link.proxy.cut_off()).min(now + self.tick).max(now + Duration::from_millis(1));
        self.timer.as_mut().reset(link.proxy.clock.to_tokio(at));
    }
}

/// Short enough for the shortest of the limits.
pub(super) fn tick(proxy: &Proxy) -> Duration {
    let limits = &proxy.timeouts;
    [limits.answer, limits.idle, limits.head, limits.keep_alive].into_iter().fold(TICK, Duration::min)
}
