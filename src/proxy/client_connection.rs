//! A worker's TCP connection: whether its client has left, and how it ends.

use std::{
    io,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{RecvFlags, Shutdown},
};
use tokio::{io::Interest, net::TcpStream};

use crate::{clock::Instant, proxy::context::Proxy};

/// A worker's TCP connection.
pub(crate) struct ClientConnection {
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) stream: TcpStream,
    /// True if tokio believes that there is nothing to read, although there may be: see `inbound::socket`.
    unread: AtomicBool,
    /// True if the connection has carried a request.
    used: AtomicBool,
}

/// Time in which a client is read that still sends after its answer.
pub(crate) struct Linger {
    begun: Instant,
    /// Time at which reading ends if nothing else is read.
    pub(crate) silent_until: Instant,
}

/// Maximum silence of a client that still sends after its answer, before its connection or stream is dropped.
const LINGER: Duration = Duration::from_secs(2);
/// Maximum time for reading such a client while the process ends.
const LINGER_IN_DRAIN: Duration = Duration::from_millis(100);

// === impl ClientConnection ===

impl ClientConnection {
    pub(crate) fn new(proxy: Arc<Proxy>, stream: TcpStream) -> Self {
        proxy.drain.opened();
        proxy.metrics.client_connections.inc();
        Self { proxy, stream, unread: AtomicBool::new(false), used: AtomicBool::new(false) }
    }

    pub(crate) fn unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed)
    }

    pub(crate) fn set_unread(&self, unread: bool) {
        self.unread.store(unread, Ordering::Relaxed);
    }

    /// Counts a request on the connection, inside a tunnel or not.
    pub(crate) fn count_request(&self) {
        let reused = self.used.load(Ordering::Relaxed);
        if !reused {
            self.used.store(true, Ordering::Relaxed);
        }
        self.proxy.metrics.client_reuse.count(reused);
    }

    /// Returns whether the client has closed its side, as far as the system has reported. Wakes no task, and costs no
    /// system call.
    pub(crate) fn has_left(&self) -> bool {
        let ready = pin!(self.stream.ready(Interest::READABLE));
        match ready.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ready) => ready.map_or(true, |ready| ready.is_read_closed()),
            Poll::Pending => false,
        }
    }

    /// Returns whether nothing from the client lies unread, and nothing waits to be written to it.
    pub(crate) fn is_quiet(&self) -> bool {
        let unread = rustix::net::recv(&self.stream, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        let writable = pin!(self.stream.ready(Interest::WRITABLE));
        unread == Err(Errno::AGAIN) && writable.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// Returns whether the client has closed its side, even if earlier bytes are still unread. If it has not, wakes the
    /// task when it does.
    pub(crate) fn poll_left(&self, cx: &mut Context<'_>) -> bool {
        loop {
            let ready = pin!(self.stream.ready(Interest::READABLE));
            match ready.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Ok(ready)) if ready.is_read_closed() => return true,
                Poll::Ready(Ok(_)) => {
                    // Readability is set aside, so that the next event wakes the task.
                    self.set_unread(true);
                    let _ = self
                        .stream
                        .try_io(Interest::READABLE, || io::Result::<()>::Err(io::ErrorKind::WouldBlock.into()));
                }
                Poll::Ready(Err(_)) => return true,
                Poll::Pending => {}
            }
            match self.stream.poll_read_ready(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return true,
                Poll::Pending => return false,
            }
        }
    }

    /// Waits until the client closes its side, too. The client may still be sending, such as a body that was answered
    /// early. If the socket were closed with data unread, the system would reset the connection, and the client would
    /// lose the answer (RFC 9112 §9.6). Waits at most [`LINGER`] after the client's last byte, and in all at most
    /// `timeouts.idle`, or [`LINGER_IN_DRAIN`].
    pub(crate) async fn linger(&self) {
        let (clock, mut linger) = (self.proxy.clock, Linger::begin(&self.proxy));
        // hyper shuts down itself, but not after a refused CONNECT.
        let _ = rustix::net::shutdown(&self.stream, Shutdown::Write);
        // Tokio may believe that nothing is there: see `poll_left`.
        let mut over = discard(&self.stream).unwrap_or(false);
        while !over {
            tokio::select! {
                ready = self.stream.readable() => {
                    let discarded = self.stream.try_io(Interest::READABLE, || discard(&self.stream));
                    over = ready.is_err() || discarded.unwrap_or(false) || linger.extend(&self.proxy);
                }
                () = clock.sleep_until(linger.silent_until) => return,
            }
        }
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        self.proxy.metrics.client_connections.dec();
        self.proxy.drain.closed();
    }
}

// === impl Linger ===

impl Linger {
    pub(crate) fn begin(proxy: &Proxy) -> Self {
        let begun = proxy.clock.now();
        let mut linger = Self { begun, silent_until: begun };
        linger.extend(proxy);
        linger
    }

    /// Extends the time after a read. Returns whether it is over all the same.
    pub(crate) fn extend(&mut self, proxy: &Proxy) -> bool {
        let now = proxy.clock.now();
        let ends_at = self.begun + if proxy.is_draining() { LINGER_IN_DRAIN } else { proxy.timeouts().idle };
        self.silent_until = ends_at.min(now + LINGER);
        now >= ends_at
    }
}

/// Reads and drops up to a megabyte. Returns whether that reached the end.
fn discard(stream: &TcpStream) -> io::Result<bool> {
    let mut waste = [0; 16 * 1024];
    for _ in 0..64 {
        match rustix::io::read(stream, &mut waste) {
            Ok(0) => return Ok(true),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(io::ErrorKind::WouldBlock.into()),
            Err(_) => return Ok(true),
        }
    }
    Ok(false)
}
