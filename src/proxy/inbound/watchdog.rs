//! Sees to it that nothing takes too long that a exchange is at.

use std::{
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{task::coop::unconstrained, time::Sleep};
use tracing::debug;

use crate::{
    clock::Instant,
    proxy::{
        context::Proxy,
        drain::{RESTED, SLOW},
        exchange::Exchange,
        message::progress::Phase,
        steps::respond,
    },
};

/// How often a connection looks whether it has taken too long. A phase's limit is kept to within this.
const TICK: Duration = Duration::from_secs(10);

/// Watches one exchange.
pub(crate) struct Watchdog {
    exchange: Arc<Exchange>,
    bell: Bell,
    /// Its connection may ring the exchange's alarm.
    of_stream: bool,
}

/// What has it look at the clock.
enum Bell {
    Timer {
        timer: Pin<Box<Sleep>>,
        /// When it rings.
        rings: Instant,
        /// It wakes the task when it rings.
        wakes: bool,
    },
    /// Only the exchange's alarm, which its connection rings if it will be late before the connection looks at all of its
    /// streams again.
    Alarm(Arc<NextLook>),
}

/// When a connection looks next whether its streams are late.
#[derive(Default)]
pub(crate) struct NextLook(AtomicU64);

// === impl NextLook ===

impl NextLook {
    pub(crate) fn set(&self, at: Instant) {
        self.0.store(at.as_nanos(), Ordering::Relaxed);
    }

    fn at(&self) -> Instant {
        Instant::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

// === impl Watchdog ===

impl Watchdog {
    pub(crate) fn new(exchange: Arc<Exchange>) -> Self {
        let tick = tick(&exchange.proxy);
        let (timer, rings) = (Box::pin(tokio::time::sleep(tick)), exchange.proxy.clock.now() + tick);
        Self { exchange, bell: Bell::Timer { timer, rings, wakes: false }, of_stream: false }
    }

    /// One for a stream, whose connection looks after it at `next_look`: it needs a timer only for what has to be over
    /// before that.
    pub(crate) fn of_stream(exchange: Arc<Exchange>, next_look: Arc<NextLook>) -> Self {
        let mut watch = Self { exchange, bell: Bell::Alarm(next_look), of_stream: true };
        if watch.exchange.proxy.is_draining() {
            watch.look_again();
        }
        watch
    }

    /// Ready when the current phase has taken too long and there is no request to fail. Before that it makes the
    /// request under way fail, so it is to be polled before that.
    pub(crate) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.poll_bell(cx).is_ready() {
            let exchange = &self.exchange;
            let (now, cut_off) = (exchange.proxy.clock.now(), exchange.proxy.drain.cut_off());
            // What holds memory here is half of a head, or an answer that its worker does not read.
            let holds = !self.of_stream && matches!(exchange.progress.phase(), Phase::Head | Phase::Body);
            if holds && exchange.proxy.memory.is_to_end(exchange.session.holder()) {
                respond::unread(exchange);
                return Poll::Ready(());
            }
            let late = now >= exchange.progress.deadline().min(cut_off);
            if (late || self.gives_way(now)) && !exchange.progress.give_up(now >= cut_off) {
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

    /// Whether the connection is to make room for others: nothing is under way on it, or half of a head for long. A request that has
    /// just come, and what is still to be written of an answer, would be lost.
    fn gives_way(&self, now: Instant) -> bool {
        let Exchange { proxy, progress, session, .. } = &*self.exchange;
        if self.of_stream || !proxy.drain.is_full(now) {
            return false;
        }
        let since = |at_most: Duration| (now + at_most).since(progress.deadline());
        match progress.phase() {
            Phase::Idle => since(progress.timeouts().keep_alive) >= RESTED && session.client.is_quiet(),
            Phase::Head => since(progress.timeouts().head) >= SLOW,
            _ => false,
        }
    }

    /// A phase that has begun may have to end before the next look at the clock: a short `Prefer: wait`, for instance. To
    /// be called after whatever can begin one.
    pub(crate) fn catch_up(&mut self, cx: &mut Context<'_>) {
        let rings = match &self.bell {
            Bell::Timer { rings, .. } => *rings,
            Bell::Alarm(next_look) => next_look.at(),
        };
        if self.exchange.progress.deadline() < rings {
            self.look_again();
            // One that was never asked wakes nobody.
            if self.poll_timer(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
        }
    }

    /// Ready when it is time to look.
    fn poll_bell(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.of_stream && self.exchange.alarm.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        self.poll_timer(cx)
    }

    /// Ready when its timer has rung, if it has one. It is asked once, and wakes the task, which asks far more often.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.bell {
            Bell::Timer { timer, wakes: true, .. } if !timer.is_elapsed() => Poll::Pending,
            Bell::Timer { timer, wakes, .. } => {
                *wakes = true;
                pin!(unconstrained(timer.as_mut())).poll(cx)
            }
            Bell::Alarm(_) => Poll::Pending,
        }
    }

    /// The exchange that is watched.
    pub(crate) fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    /// Looks at the clock when the current phase ends, or at the next tick.
    pub(crate) fn look_again(&mut self) {
        let exchange = &self.exchange;
        let now = exchange.proxy.clock.now();
        let next = exchange
            .progress
            .deadline()
            .min(exchange.proxy.drain.cut_off())
            .min(now + tick(&exchange.proxy))
            .max(now + Duration::from_millis(1));
        let at = exchange.proxy.clock.to_tokio(next);
        match &mut self.bell {
            Bell::Timer { timer, rings, wakes } => {
                timer.as_mut().reset(at);
                (*rings, *wakes) = (next, false);
            }
            Bell::Alarm(next_look) if next_look.at() <= next => {}
            Bell::Alarm(_) => {
                let timer = Box::pin(tokio::time::sleep_until(at));
                self.bell = Bell::Timer { timer, rings: next, wakes: false };
            }
        }
    }
}

/// Short enough for the shortest of the limits.
pub(crate) fn tick(proxy: &Proxy) -> Duration {
    let limits = proxy.timeouts();
    [limits.answer, limits.idle, limits.head, limits.keep_alive].into_iter().fold(TICK, Duration::min)
}
