//! An upstream's connection, read in pieces of bounded size, one at a time. Also finds interim answers.
//!
//! hyper doubles its read size each time a read fills it, up to the longest head that it accepts. In addition, hyper
//! reads on while its data waits for a slow worker. So hyper gets at most one piece at once, and the next piece of an
//! answer after the last one has been passed on.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf, Take};

use crate::proxy::message::{
    head_memory,
    interim_reader::InterimReader,
    writes::{Writes, is_reset},
};

/// Maximum number of bytes of a read. With one byte more, hyper, whose buffer is a power of two, would double it.
const PIECE: u64 = 32 * 1024 - 1;

/// A connection that is read in pieces.
pub(crate) struct PiecewiseIo<S> {
    /// Never at its limit: each read resets the limit.
    stream: Take<S>,
    writes: Arc<Writes>,
    /// Waker by which hyper wakes the connection's task.
    waker: Waker,
    interim: InterimReader,
}

// === impl PiecewiseIo ===

impl<S: AsyncRead> PiecewiseIo<S> {
    /// Wraps `stream`; hyper wakes the connection's task by `waker`.
    pub(crate) fn of(stream: S, writes: Arc<Writes>, waker: Waker) -> Self {
        Self { stream: stream.take(PIECE), writes, waker, interim: InterimReader::default() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PiecewiseIo<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let Self { stream, writes, waker, interim } = &mut *self;
        let mut read = |cx: &mut Context<'_>| {
            ready!(writes.appetite.poll(cx));
            poll_piece(stream, cx, buf)
        };
        match cx.waker().will_wake(waker) {
            true => ready!(writes.task.ask(read))?,
            // Upgraded, or about to be closed: the connection belongs to another task, or is woken without a filter.
            false => ready!(read(cx))?,
        }
        let read = &buf.filled()[before..];
        if !writes.head.add(read.len()) {
            return Poll::Ready(Err(head_memory::error()));
        }
        if writes.interim.listens() {
            interim.note(read, &writes.interim);
        }
        Poll::Ready(Ok(()))
    }
}

fn poll_piece<S: AsyncRead + Unpin>(
    stream: &mut Take<S>,
    cx: &mut Context<'_>,
    buf: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    if buf.remaining() as u64 <= PIECE {
        return Pin::new(stream.get_mut()).poll_read(cx, buf);
    }
    stream.set_limit(PIECE);
    Pin::new(stream).poll_read(cx, buf)
}

impl<S: AsyncRead + AsyncWrite + Unpin> PiecewiseIo<S> {
    /// Runs `act` so that its wake-up reaches the connection's task, even when hyper's waker would not.
    ///
    /// An upstream that answers early and closes resets later writes, while its answer lies unread in the socket. hyper
    /// would end with the error of the write. So such a write stays pending, and the bytes or the end read from the
    /// socket decide (RFC 9112 §9.6).
    fn poll_writing<T>(
        &mut self,
        cx: &mut Context<'_>,
        act: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let Self { stream, writes, waker, .. } = self;
        let stream = Pin::new(stream.get_mut());
        if !cx.waker().will_wake(waker) {
            return act(stream, cx);
        }
        if writes.failure().is_some() {
            return Poll::Pending;
        }
        match writes.task.with_waker(|cx| act(stream, cx)) {
            Poll::Ready(Err(error)) if is_reset(&error) => {
                writes.failed(error.kind());
                // There may have been nothing to read yet when this turn began.
                writes.task.with_waker(|cx| cx.waker().wake_by_ref());
                Poll::Pending
            }
            acted => acted,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for PiecewiseIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_writing(cx, |stream, cx| stream.poll_write(cx, buf))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_writing(cx, |stream, cx| stream.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.writes.failure().is_some() {
            return Poll::Ready(Ok(()));
        }
        self.poll_writing(cx, |stream, cx| stream.poll_shutdown(cx))
    }
}
