//! A worker's socket as TLS and hyper see it.
//!
//! In addition to tokio's stream, it can tell whether the client has gone *while bytes lie unread*. A request with a
//! body leaves bytes unread for as long as it waits, because its body must not be read before admission.

use std::{
    future::poll_fn,
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use rustix::{io::Errno, net::Shutdown};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, Interest, ReadBuf};

use crate::proxy::{
    client_connection::ClientConnection,
    message::send::{poll_send, poll_send_pieces},
};

/// The socket of a client.
pub(crate) struct Socket {
    client: Arc<ClientConnection>,
    /// Bytes that were read already, and are to be read again. Boxed, because most connections have none.
    ahead: Option<Box<Bytes>>,
}

/// Maximum number of bytes that are read to detect a client's protocol.
const PEEK: usize = 4096;

// === impl Socket ===

impl Socket {
    pub(crate) fn new(client: Arc<ClientConnection>) -> Self {
        Self { client, ahead: None }
    }

    /// Returns the socket with the bytes `ahead` put back in front.
    pub(crate) fn with_prefix(self, ahead: Bytes) -> Self {
        let ahead = match &self.ahead {
            _ if ahead.is_empty() => return self,
            Some(behind) => Bytes::from([&*ahead, &**behind].concat()),
            None => ahead,
        };
        Self { ahead: Some(Box::new(ahead)), ..self }
    }

    /// The client's first bytes, which stay unread. Empty if the client has closed its side.
    pub(crate) async fn peek(&mut self) -> io::Result<&[u8]> {
        if self.ahead.is_none() {
            let mut heard = BytesMut::with_capacity(PEEK);
            self.read_buf(&mut heard).await?;
            self.ahead = (!heard.is_empty()).then(|| Box::new(heard.freeze()));
        }
        Ok(self.ahead.as_deref().map_or(&[], |ahead| ahead))
    }
}

impl Socket {
    /// Peeks at bytes beyond those peeked at before. Returns their number; 0 if the client has closed its side.
    pub(crate) async fn peek_on(&mut self) -> io::Result<usize> {
        let mut more = vec![0; PEEK];
        let read = poll_fn(|cx| {
            let mut buffer = ReadBuf::new(&mut more);
            ready!(self.poll_socket(cx, &mut buffer))?;
            Poll::Ready(io::Result::Ok(buffer.filled().len()))
        });
        let read = read.await?;
        let mut all = self.ahead.take().map_or_else(BytesMut::new, |ahead| BytesMut::from(*ahead));
        all.extend_from_slice(&more[..read]);
        self.ahead = (!all.is_empty()).then(|| Box::new(all.freeze()));
        Ok(read)
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(ahead) = &mut self.ahead {
            let n = ahead.len().min(buf.remaining());
            buf.put_slice(&ahead[..n]);
            ahead.advance(n);
            if ahead.is_empty() {
                self.ahead = None;
            }
            return Poll::Ready(Ok(()));
        }
        self.poll_socket(cx, buf)
    }
}

impl Socket {
    fn poll_socket(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let client = &self.client;
        while client.unread() {
            // Tokio believes that nothing is there. Ask the system, until that is true again.
            match rustix::io::read(&client.stream, buf.initialize_unfilled()) {
                Ok(n) => {
                    buf.advance(n);
                    return Poll::Ready(Ok(()));
                }
                Err(Errno::AGAIN) => client.set_unread(false),
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        loop {
            ready!(client.stream.poll_read_ready(cx))?;
            let (room, mut read) = (buf.remaining(), None);
            let outcome = client.stream.try_io(Interest::READABLE, || {
                let n = client.stream.try_read_buf(buf)?;
                read = Some(n);
                // A short read: the socket is empty, and another attempt would be a useless call.
                if n > 0 && n < room { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            match (read, outcome) {
                (Some(_), _) => return Poll::Ready(Ok(())),
                (None, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
                (None, Err(error)) => return Poll::Ready(Err(error)),
                (None, Ok(())) => {}
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        poll_send(&self.client.stream, cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        poll_send_pieces(&self.client.stream, cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match rustix::net::shutdown(&self.client.stream, Shutdown::Write) {
            // The other side closed first.
            Err(Errno::NOTCONN) => Poll::Ready(Ok(())),
            outcome => Poll::Ready(outcome.map_err(Into::into)),
        }
    }
}
