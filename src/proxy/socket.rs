//! A worker's socket as hyper sees it.
//!
//! It differs from tokio's own stream in one thing: it can be asked whether the client has gone *while bytes lie unread*,
//! which a request with a body leaves there for as long as it waits (its body must not be read before admission).

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use bytes::{Buf, Bytes};
use rustix::{io::Errno, net::Shutdown};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

use super::{
    link::{Link, Phase},
    respond,
};

/// The socket of a link.
pub(super) struct Socket {
    link: Arc<Link>,
    /// What is still to be written of our answer to something that hyper could not read.
    instead: Option<Bytes>,
}

// === impl Socket ===

impl Socket {
    pub(super) fn new(link: Arc<Link>) -> Self {
        Self { link, instead: None }
    }

    /// What hyper says on its own account, to a client whose request it could not read, helps nobody. Says it better.
    ///
    /// Ready with `true` once all of that is written; `false`: there is nothing of the kind.
    fn poll_say_better(&mut self, cx: &mut Context<'_>, head: &[u8]) -> Poll<io::Result<bool>> {
        if self.instead.is_none() {
            if self.link.is_answering() || !head.starts_with(b"HTTP/1.1 4") {
                return Poll::Ready(Ok(false));
            }
            self.instead = Some(respond::to_unreadable(&self.link.proxy, &head[9..12]));
        }
        while let Some(rest) = self.instead.as_mut().filter(|rest| !rest.is_empty()) {
            ready!(self.link.stream.poll_write_ready(cx))?;
            match self.link.stream.try_write(rest) {
                Ok(written) => rest.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        self.link.set_answering(true);
        Poll::Ready(Ok(true))
    }
}

impl Link {
    /// Whether the client has closed its side, even if it has sent something before that is still unread. If not, the
    /// task is woken when it does.
    pub(super) fn poll_left(&self, cx: &mut Context<'_>) -> bool {
        loop {
            let ready = std::pin::pin!(self.stream.ready(Interest::READABLE));
            match ready.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Ok(ready)) if ready.is_read_closed() => return true,
                Poll::Ready(Ok(_)) => {
                    // Readable is not what we wait for: put it aside, so that the next event wakes us.
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

    /// Whether the client has closed its side, as far as the system has told. Wakes nobody, and costs no system call.
    pub(super) fn has_left(&self) -> bool {
        let ready = std::pin::pin!(self.stream.ready(Interest::READABLE));
        match ready.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ready) => ready.map_or(true, |ready| ready.is_read_closed()),
            Poll::Pending => false,
        }
    }

    /// Something was read: if that is the beginning of a request, the rest of its head has to follow soon.
    fn heard(&self, something: bool) {
        if something && self.phase() == Phase::Idle {
            self.enter(Phase::Head, self.proxy.timeouts.head);
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let link = &self.link;
        while link.unread() {
            // Tokio believes that there is nothing. Ask the system, until that is true again.
            match rustix::io::read(&link.stream, buf.initialize_unfilled()) {
                Ok(n) => {
                    buf.advance(n);
                    link.heard(n > 0);
                    return Poll::Ready(Ok(()));
                }
                Err(Errno::AGAIN) => link.set_unread(false),
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        loop {
            ready!(link.stream.poll_read_ready(cx))?;
            let (room, mut read) = (buf.remaining(), None);
            let outcome = link.stream.try_io(Interest::READABLE, || {
                let n = link.stream.try_read_buf(buf)?;
                read = Some(n);
                // Less than there was room for: the socket is empty, and the next attempt would be a call for nothing.
                if n > 0 && n < room { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            match (read, outcome) {
                (Some(n), _) => {
                    link.heard(n > 0);
                    return Poll::Ready(Ok(()));
                }
                (None, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
                (None, Err(error)) => return Poll::Ready(Err(error)),
                (None, Ok(())) => {}
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if ready!(self.poll_say_better(cx, buf))? {
            return Poll::Ready(Ok(buf.len()));
        }
        loop {
            ready!(self.link.stream.poll_write_ready(cx))?;
            match self.link.stream.try_write(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return Poll::Ready(outcome),
            }
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if ready!(self.poll_say_better(cx, bufs.first().map_or(&[], |buf| buf)))? {
            return Poll::Ready(Ok(bufs.iter().map(|buf| buf.len()).sum()));
        }
        loop {
            ready!(self.link.stream.poll_write_ready(cx))?;
            match self.link.stream.try_write_vectored(bufs) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return Poll::Ready(outcome),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // All of the answer has been written, if it is one that had been asked for.
        if self.link.phase() == Phase::Idle {
            self.link.set_answering(false);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match rustix::net::shutdown(&self.link.stream, Shutdown::Write) {
            // The other side was faster.
            Err(Errno::NOTCONN) => Poll::Ready(Ok(())),
            outcome => Poll::Ready(outcome.map_err(Into::into)),
        }
    }
}
