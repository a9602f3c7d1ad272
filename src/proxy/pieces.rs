//! An upstream's connection, read in pieces of a bounded size, one at a time.
//!
//! hyper asks for twice as much each time it gets all that it has asked for, up to the longest head that it takes, and
//! reads on while what it has read waits for a worker that reads slowly. So it gets no more than this at once, and the next
//! piece of an answer when the last is on its way.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker, ready},
};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf, Take};

use super::writes::Writes;

/// As much is read at once. One byte more, and hyper, which has room for a power of two, would make twice the room.
const PIECE: u64 = 32 * 1024 - 1;

/// A connection that is read in pieces.
pub(super) struct Pieces<S> {
    /// Never at its limit: each read sets it anew.
    stream: Take<S>,
    writes: Arc<Writes>,
}

/// Whether more is to be read.
#[derive(Default)]
pub(super) struct Appetite {
    sated: AtomicBool,
    reader: Mutex<Option<Waker>>,
}

// === impl Appetite ===

impl Appetite {
    /// A piece has come: no more until that is on its way.
    pub(super) fn sate(&self) {
        self.sated.store(true, Ordering::Relaxed);
    }

    /// More may come.
    pub(super) fn whet(&self) {
        if self.sated.swap(false, Ordering::Relaxed)
            && let Some(waker) = self.reader.lock().take()
        {
            waker.wake();
        }
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        if !self.sated.load(Ordering::Relaxed) {
            return Poll::Ready(());
        }
        let mut reader = self.reader.lock();
        *reader = Some(cx.waker().clone());
        // Whoever has whetted it before the waker was there has woken nobody.
        if self.sated.load(Ordering::Relaxed) { Poll::Pending } else { Poll::Ready(()) }
    }
}

// === impl Pieces ===

impl<S: AsyncRead> Pieces<S> {
    pub(super) fn of(stream: S, writes: Arc<Writes>) -> Self {
        Self { stream: stream.take(PIECE), writes }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Pieces<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(self.writes.appetite.poll(cx));
        self.stream.set_limit(PIECE);
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Pieces<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(self.stream.get_mut()).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream.get_mut()).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream.get_mut()).poll_shutdown(cx)
    }
}
