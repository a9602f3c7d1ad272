//! Sends on a socket by one system call, past the C library.
//!
//! The C library makes `send` a point at which a thread may be cancelled, and `writev` costs the system more than
//! `send`. Both costs are useless here, and each request would pay them twice.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use rustix::net::SendFlags;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
};

/// The system sends no signal if the other side has closed: the error is enough.
const QUIET: SendFlags = SendFlags::NOSIGNAL;

/// Maximum size of pieces that are copied together instead of sent as a list: the head of a usual answer and its small
/// body.
const TOGETHER: usize = 1024;

/// Minimum length of a send that counts as part of an upload: heads are shorter.
#[cfg(target_os = "linux")]
const UPLOAD_BYTES: usize = 4096;

/// A connection to an upstream.
pub(crate) struct UpstreamSocket {
    stream: TcpStream,
    /// True if the socket carries TLS.
    tls: bool,
}

/// Sends as much of `bytes` as `stream` takes.
pub(crate) fn poll_send(stream: &TcpStream, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
    poll_try(stream, cx, || Ok(rustix::net::send(stream, bytes, QUIET)?))
}

/// Sends as much of `pieces` as `stream` takes.
pub(crate) fn poll_send_pieces(
    stream: &TcpStream,
    cx: &mut Context<'_>,
    pieces: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    let mut together = [0; TOGETHER];
    let mut len = 0;
    for piece in pieces {
        let Some(room) = together.get_mut(len..len + piece.len()) else {
            return poll_try(stream, cx, || Ok(rustix::io::writev(stream, pieces)?));
        };
        room.copy_from_slice(piece);
        len += piece.len();
    }
    poll_send(stream, cx, &together[..len])
}

/// Tries `act`, and waits until it can be tried again.
fn poll_try(
    stream: &TcpStream,
    cx: &mut Context<'_>,
    mut act: impl FnMut() -> io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        match stream.try_io(Interest::WRITABLE, &mut act) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            outcome => return Poll::Ready(outcome),
        }
        ready!(stream.poll_write_ready(cx))?;
    }
}

// === impl UpstreamSocket ===

impl UpstreamSocket {
    /// Wraps `stream`; `tls` says whether it carries TLS.
    pub(crate) fn new(stream: TcpStream, tls: bool) -> Self {
        Self { stream, tls }
    }

    /// Acknowledges at once what the upstream sends during an upload. `sent` is the length of the last send.
    ///
    /// A TLS server sends session tickets while the first request of a connection comes. Until they are acknowledged, up to
    /// 40 ms later, Nagle's algorithm holds an early answer in the server's socket. A server that then closes, with the
    /// upload unread, discards the answer. The option is set with each send because each send may clear it.
    #[cfg(target_os = "linux")]
    fn acknowledge(&self, sent: usize) {
        if self.tls && sent >= UPLOAD_BYTES {
            // Without the option, acknowledgements are late, and nothing else changes.
            let _ = rustix::net::sockopt::set_tcp_quickack(&self.stream, true);
        }
    }

    /// Other systems have no such option.
    #[cfg(not(target_os = "linux"))]
    fn acknowledge(&self, _: usize) {}
}

impl AsyncRead for UpstreamSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for UpstreamSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let sent = ready!(poll_send(&self.stream, cx, buf))?;
        self.acknowledge(sent);
        Poll::Ready(Ok(sent))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::{io::AsyncReadExt as _, net::TcpListener};

    use super::*;
    use crate::clock::Clock;

    /// Pieces of these lengths arrive complete and in order, regardless of their lengths.
    #[tokio::test]
    async fn pieces_come_whole_and_in_order() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut receiver, _) = listener.accept().await.unwrap();
        for lengths in [vec![], vec![0, 0], vec![3, 0, 5], vec![TOGETHER], vec![1, TOGETHER], vec![TOGETHER, 1, 9000]] {
            let pieces: Vec<Vec<u8>> = lengths
                .iter()
                .scan(0_u8, |next, len| {
                    Some(vec![
                        {
                            *next += 1;
                            *next
                        };
                        *len
                    ])
                })
                .collect();
            let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
            let all: Vec<u8> = pieces.concat();
            let sent = poll_fn(|cx| poll_send_pieces(&sender, cx, &slices)).await.unwrap();
            assert_eq!(sent, all.len(), "an empty socket takes a few kilobytes at once");
            let mut got = vec![0; all.len()];
            receiver.read_exact(&mut got).await.unwrap();
            assert_eq!(got, all, "{lengths:?}");
        }
    }

    /// A closed receiver is an error, not a signal that ends the process.
    #[tokio::test]
    async fn a_closed_socket_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        drop(listener.accept().await.unwrap());
        let error = loop {
            match poll_fn(|cx| poll_send(&sender, cx, b"hello")).await {
                Ok(_) => tokio::task::yield_now().await,
                Err(error) => break error,
            }
        };
        assert!(matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset), "{error}");
    }

    /// Milliseconds until the second of two short sends of `server` arrives. Nagle's algorithm holds it back until the
    /// first is acknowledged.
    #[cfg(target_os = "linux")]
    async fn second_send_takes(server: &mut TcpStream, client: &mut UpstreamSocket, clock: Clock) -> u128 {
        use tokio::io::AsyncWriteExt as _;

        // After these answers the socket acknowledges late.
        for _ in 0..4 {
            server.write_all(b"answer").await.unwrap();
            client.read_exact(&mut [0; 6]).await.unwrap();
            client.write_all(&[0; UPLOAD_BYTES]).await.unwrap();
        }
        let begun = clock.now();
        server.write_all(b"ticket").await.unwrap();
        server.write_all(b"answer").await.unwrap();
        // Both are read together: a read of the first would acknowledge it.
        while client.stream.peek(&mut [0; 12]).await.unwrap() < 12 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        client.read_exact(&mut [0; 12]).await.unwrap();
        clock.now().since(begun).as_millis()
    }

    /// Linux acknowledges after 40 ms or more if it does so late (`TCP_DELACK_MIN`).
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn tls_socket_acknowledges_at_once_during_an_upload() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (mut shortest, clock) = ([u128::MAX; 2], Clock::start());
        for (tls, shortest) in [false, true].into_iter().zip(&mut shortest) {
            let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut server, _) = listener.accept().await.unwrap();
            let mut client = UpstreamSocket::new(client, tls);
            for _ in 0..5 {
                *shortest = second_send_takes(&mut server, &mut client, clock).await.min(*shortest);
            }
        }
        let [late, at_once] = shortest;
        assert!(late >= 30 && at_once < 30, "{late} ms without TLS, {at_once} ms with it");
    }
}
