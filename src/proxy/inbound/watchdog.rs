//! Enforces the deadlines of exchanges.

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

/// Interval at which a connection checks its deadlines. A phase's limit is kept to within this.
const TICK: Duration = Duration::from_secs(10);

/// Watches one exchange.
pub(crate) struct Watchdog {
    exchange: Arc<Exchange>,
    bell: Bell,
    /// True for an exchange on a stream: its connection may ring the exchange's alarm.
    of_stream: bool,
}

/// Source of the wake-ups to check the clock.
enum Bell {
    Timer {
        timer: Pin<Box<Sleep>>,
        /// Time at which the timer rings.
        rings: Instant,
        /// True if the timer wakes the task when it rings.
        wakes: bool,
    },
    /// Only the exchange's alarm. The connection rings it if the exchange will be late before the connection's next
    /// check of all its streams.
    Alarm(Arc<NextLook>),
}

/// Time of a connection's next check of its streams.
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

    /// Creates a watchdog for a stream whose connection checks it at `next_look`. The watchdog needs a timer only for
    /// deadlines before that.
    pub(crate) fn of_stream(exchange: Arc<Exchange>, next_look: Arc<NextLook>) -> Self {
        let mut watch = Self { exchange, bell: Bell::Alarm(next_look), of_stream: true };
        if watch.exchange.proxy.is_draining() {
            watch.look_again();
        }
        watch
    }

    /// Ready when the current phase has taken too long and there is no request to fail. If there is one, this makes the
    /// current request fail: so poll the watchdog before the request.
    pub(crate) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.poll_bell(cx).is_ready() {
            let exchange = &self.exchange;
            let (now, cut_off) = (exchange.proxy.clock.now(), exchange.proxy.drain.cut_off());
            // Memory is held here by an incomplete head, or by an answer that its worker does not read.
            let holds = !self.of_stream && matches!(exchange.progress.phase(), Phase::Head | Phase::Body);
            if holds && exchange.proxy.memory.is_to_end(exchange.session.holder()) {
                respond::unread(exchange);
                return Poll::Ready(());
            }
            let late = now >= exchange.progress.deadline().min(cut_off);
            if (late || self.gives_way(now)) && !exchange.progress.give_up(now >= cut_off) {
                debug!(phase = ?exchange.progress.phase(), "ending what takes too long");
                if now >= cut_off && exchange.progress.phase() != Phase::Idle {
                    exchange.proxy.drain.on_cut();
                }
                return Poll::Ready(());
            }
            // Behind a pipelined request hyper does not see the client leave. This is rare, so an occasional check is
            // enough.
            if exchange.progress.phase() == Phase::Answer && exchange.session.client.has_left() {
                return Poll::Ready(());
            }
            self.look_again();
        }
        Poll::Pending
    }

    /// Returns whether the connection is to make room for others: it carries no request, or has had an incomplete head
    /// for long. A request that has just come, or the unwritten rest of an answer, would be lost.
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

    /// Brings the timer forward: a phase that has begun may have to end before the next check, because of a short
    /// `Prefer: wait`, for instance. To be called after anything that can begin a phase.
    pub(crate) fn catch_up(&mut self, cx: &mut Context<'_>) {
        let rings = match &self.bell {
            Bell::Timer { rings, .. } => *rings,
            Bell::Alarm(next_look) => next_look.at(),
        };
        if self.exchange.progress.deadline() < rings {
            self.look_again();
            // A timer that was never polled wakes no task.
            if self.poll_timer(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
        }
    }

    /// Ready when it is time to check.
    fn poll_bell(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.of_stream && self.exchange.alarm.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        self.poll_timer(cx)
    }

    /// Ready when the timer has rung, if there is one. The timer is polled once and then wakes the task, which polls
    /// this far more often.
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

    /// Schedules the next check for the end of the current phase, or for the next tick.
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

/// Interval short enough for the shortest of the limits.
pub(crate) fn tick(proxy: &Proxy) -> Duration {
    let limits = proxy.timeouts();
    [limits.answer, limits.idle, limits.head, limits.keep_alive].into_iter().fold(TICK, Duration::min)
}
