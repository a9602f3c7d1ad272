//! The task of an HTTP/2 connection to an upstream: exchanges its frames, checks that the upstream is alive, and
//! announces the windows of streams.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{Arc, Weak, atomic::Ordering},
    task::{Context, Poll},
};

use bytes::Bytes;
use h2::{Ping, PingPong, Reason, client};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::oneshot,
    time::Sleep,
};
use tracing::debug;

use super::{
    h2::{ConnectionState, SharedConnection},
    liveness::Check,
};

/// Bound on streams that h2 assumes until the upstream has announced one: a value that no upstream announces.
pub(super) const UNTOLD: usize = 7919;

/// Drives a connection until it has ended.
pub(super) struct Driver<S: AsyncRead + AsyncWrite + Unpin> {
    connection: client::Connection<S, Bytes>,
    ping: PingPong,
    shared: Weak<SharedConnection>,
    state: Arc<ConnectionState>,
    /// Notified once the upstream has announced how many requests it allows.
    told: Option<oneshot::Sender<()>>,
    /// Timer of the next check, while requests are unanswered.
    look: Option<Pin<Box<Sleep>>>,
}

// === impl Driver ===

impl<S: AsyncRead + AsyncWrite + Unpin> Driver<S> {
    pub(super) fn new(
        mut connection: client::Connection<S, Bytes>,
        shared: Weak<SharedConnection>,
        state: Arc<ConnectionState>,
        told: oneshot::Sender<()>,
    ) -> Self {
        let ping = connection.ping_pong().expect("nobody else has asked for it");
        Self { connection, ping, shared, state, told: Some(told), look: None }
    }

    /// Passes on the upstream's limit, and announces windows that have changed.
    fn settle(&mut self, cx: &Context<'_>) {
        let allowed = self.connection.max_concurrent_send_streams();
        let Some(shared) = self.shared.upgrade().filter(|_| allowed != UNTOLD) else { return };
        shared.allow(allowed);
        self.told.take().map(|told| told.send(()));
        let window = &self.state.window;
        window.set_driver(cx.waker());
        // The last change may not be acknowledged yet. The acknowledgement wakes this task.
        if let Some(bytes) = window.change(shared.active())
            && self.connection.set_initial_window_size(bytes).is_ok()
        {
            window.changes_to(bytes);
            cx.waker().wake_by_ref();
        }
    }

    /// Sends a PING when it is due. Ready if the connection is dead.
    fn poll_life(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let state = &self.state;
        if self.look.is_none() && !state.liveness.is_watched() {
            return Poll::Pending;
        }
        loop {
            if let Some(look) = &mut self.look {
                if look.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                self.look = None;
            }
            let is_busy = self.shared.upgrade().is_some_and(|shared| shared.is_busy());
            let may_ping = is_busy && !state.no_pings.load(Ordering::Relaxed);
            match state.liveness.check(state.clock.now(), may_ping) {
                Check::Rest => return Poll::Pending,
                Check::LookAt(at) => {
                    self.look = Some(Box::pin(tokio::time::sleep_until(state.clock.to_tokio(at))));
                }
                Check::Ping => {
                    // The call fails while a PING is unanswered, whose deadline is watched already.
                    let _ = self.ping.send_ping(Ping::opaque());
                }
                Check::End => {
                    state.is_dead.store(true, Ordering::Relaxed);
                    return Poll::Ready(());
                }
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Future for Driver<S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let ended = pin!(&mut this.connection).poll(cx);
        this.settle(cx);
        match ended {
            Poll::Ready(Ok(())) => Poll::Ready(()),
            Poll::Ready(Err(error)) => {
                debug!(%error, "an upstream's connection ended early");
                // gRPC servers send this after too many PINGs.
                if error.is_go_away() && error.is_remote() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM) {
                    this.state.no_pings.store(true, Ordering::Relaxed);
                }
                Poll::Ready(())
            }
            Poll::Pending => {
                // Takes the PONG, so that another PING may be sent.
                let _ = this.ping.poll_pong(cx);
                let ended = this.poll_life(cx);
                if ended.is_ready() {
                    debug!("an upstream's connection is dead: not even a PING was answered");
                }
                ended
            }
        }
    }
}
