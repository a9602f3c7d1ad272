//! Listening sockets, and what becomes of errors of `accept`.

mod given;

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd},
    time::Duration,
};

use rustix::{
    io::fcntl_dupfd_cloexec,
    process::{Resource, getrlimit},
};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tracing::warn;

pub use self::given::Given;

/// How many connections may wait for `accept`: a burst of workers starts at once.
const BACKLOG: u32 = 8192;
/// How long to pause when the system has no file descriptor left.
const EXHAUSTED: Duration = Duration::from_millis(100);
/// So many file descriptors, or such a part of them if those are fewer, are kept from clients that come: those that are there
/// need one each for the API, and would be refused for want of it.
const KEPT: u64 = 64;
const PART: u64 = 8;

/// Listens on `addr`.
pub fn bind(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restarted proxy must not wait for the last one's connections to be forgotten.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

/// The next connection. Errors of single connections are passed over; when descriptors run out the caller has to free some, and
/// to pause, so that it neither spins nor dies.
pub async fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Without it an answer's last segment waits for the client's delayed acknowledgement.
                if let Err(error) = stream.set_nodelay(true) {
                    warn!(%error, "could not set TCP_NODELAY");
                }
                return Ok((stream, peer));
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether `stream` was given one of the last file descriptors, which are not for clients that come. The lowest that is free is
/// always given first.
pub fn is_among_the_last(stream: &impl AsRawFd) -> bool {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    u64::try_from(stream.as_raw_fd()).is_ok_and(|number| number >= most - (most / PART).min(KEPT))
}

/// Whether the next one would be given one of these.
pub fn is_nearly_exhausted(any: &impl AsFd) -> bool {
    fcntl_dupfd_cloexec(any, 0).map_or(true, |next| is_among_the_last(&next))
}

/// Pauses until there may be descriptors again.
pub async fn exhausted() {
    tokio::time::sleep(EXHAUSTED).await;
}

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
    )
}
