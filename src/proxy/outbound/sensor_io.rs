//! An upstream's socket that calls back whenever bytes have moved.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The socket, and the callback.
pub(crate) struct SensorIo<S, F> {
    stream: S,
    note: F,
}

/// Direction in which bytes have moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// From the upstream.
    In,
    /// To the upstream.
    Out,
    /// To the upstream, and no bytes are left to be written.
    Flushed,
    /// One side has closed.
    Ended,
}

// === impl SensorIo ===

impl<S, F: Fn(Moved) + Unpin> SensorIo<S, F> {
    pub(crate) fn new(stream: S, note: F) -> Self {
        Self { stream, note }
    }
}

impl<S: AsyncRead + Unpin, F: Fn(Moved) + Unpin> AsyncRead for SensorIo<S, F> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        (self.note)(if buf.filled().len() > before { Moved::In } else { Moved::Ended });
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin, F: Fn(Moved) + Unpin> AsyncWrite for SensorIo<S, F> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        (self.note)(Moved::Out);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        (self.note)(Moved::Flushed);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        (self.note)(Moved::Ended);
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
