//! Sees to it that nothing takes too long that a exchange is at.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{task::coop::unconstrained, time::Sleep};
use tracing::debug;

use crate::{
    clock::Instant,
    proxy::{context::Proxy, exchange::Exchange, message::progress::Phase},
};

/// How often a connection looks whether it has taken too long. A phase's limit is kept to within this.
const TICK: Duration = Duration::from_secs(10);

/// Watches one exchange.
pub(crate) struct Watchdog {
    exchange: Arc<Exchange>,
    tick: Duration,
    timer: Pin<Box<Sleep>>,
    /// When it rings.
    rings: Instant,
    /// It wakes the task when it rings.
    wakes: bool,
}

// === impl Watchdog ===

impl Watchdog {
    pub(crate) fn new(exchange: Arc<Exchange>) -> Self {
        let tick = tick(&exchange.proxy);
        let rings = exchange.proxy.clock.now() + tick;
        Self { exchange, tick, timer: Box::pin(tokio::time::sleep(tick)), rings, wakes: false }
    }

    /// Ready when the current phase has taken too long and there is no request to fail. Before that it makes the
    /// request under way fail, so it is to be polled before that.
    pub(crate) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.poll_timer(cx).is_ready() {
            let exchange = &self.exchange;
            let (now, cut_off) = (exchange.proxy.clock.now(), exchange.proxy.drain.cut_off());
            if now >= exchange.progress.deadline().min(cut_off) && !exchange.progress.give_up(now >= cut_off) {
                debug!(phase = ?exchange.progress.phase(), "ending what takes too long");
                return Poll::Ready(());
            }
            // Behind a pipelined request hyper does not see the client leave: rare, so that a look now and then will do.
            if exchange.progress.phase() == Phase::Answer && exchange.session.client.has_left() {
                return Poll::Ready(());
            }
            self.look_again();
        }
        Poll::Pending
    }

    /// A phase that has begun may have to end before the next look at the clock: a short `Prefer: wait`, for instance. To
    /// be called after whatever can begin one.
    pub(crate) fn catch_up(&mut self) {
        if self.exchange.progress.deadline() < self.rings {
            self.look_again();
        }
    }

    /// Ready when the timer has rung. Asked once, it wakes the task, which asks far more often than it rings.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.wakes && !self.timer.is_elapsed() {
            return Poll::Pending;
        }
        self.wakes = true;
        pin!(unconstrained(self.timer.as_mut())).poll(cx)
    }

    /// Looks at the clock when the current phase ends, or at the next tick.
    pub(crate) fn look_again(&mut self) {
        let exchange = &self.exchange;
        let now = exchange.proxy.clock.now();
        self.rings = exchange
            .progress
            .deadline()
            .min(exchange.proxy.drain.cut_off())
            .min(now + self.tick)
            .max(now + Duration::from_millis(1));
        self.timer.as_mut().reset(exchange.proxy.clock.to_tokio(self.rings));
        self.wakes = false;
    }
}

/// Short enough for the shortest of the limits.
pub(crate) fn tick(proxy: &Proxy) -> Duration {
    let limits = proxy.timeouts();
    [limits.answer, limits.idle, limits.head, limits.keep_alive].into_iter().fold(TICK, Duration::min)
}
