//! Listening sockets, and the handling of errors of `accept`.

mod given;
mod passing;

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd},
    time::Duration,
};

use rustix::{
    io::fcntl_dupfd_cloexec,
    net::sockopt,
    process::{Resource, getrlimit},
};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tracing::warn;

pub use self::{
    given::Given,
    passing::{receive as receive_sockets, send as send_sockets},
};

/// Connections that may wait for `accept`: a burst of workers starts at once.
pub const BACKLOG: u32 = 8192;
/// A client's connection is probed after this long without a segment: NATs and load balancers forget silent ones after 120
/// to 350 s, and a request may wait for hours.
const PROBE_AFTER: Duration = Duration::from_secs(60);
/// A probe without an answer is repeated after this long.
const PROBE_INTERVAL: Duration = Duration::from_secs(15);
/// Number of unanswered probes that end the connection, two minutes after its last segment. A machine that has died
/// loses its place in the queue. TCP_USER_TIMEOUT would end connections of slow readers, too.
const MAX_LOST_PROBES: u32 = 4;
/// Pause while the system has no file descriptor left.
const EXHAUSTED: Duration = Duration::from_millis(100);
/// File descriptors that new clients may not use: this number, or this part of all descriptors if that is fewer. Each
/// present client needs one for its API, and its request would fail without one.
const KEPT: u64 = 64;
const PART: u64 = 8;

/// Listens on `addr`.
pub fn bind(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restarted proxy must not wait until the system forgets the last process' connections.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    probe_silent_clients(&socket)?;
    socket.listen(BACKLOG)
}

/// Lets the system probe connections that are accepted from `listener` (TCP keep-alive): they inherit its options.
fn probe_silent_clients(listener: &impl AsFd) -> io::Result<()> {
    sockopt::set_tcp_keepidle(listener, PROBE_AFTER)?;
    sockopt::set_tcp_keepintvl(listener, PROBE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(listener, MAX_LOST_PROBES)?;
    Ok(sockopt::set_socket_keepalive(listener, true)?)
}

/// The next connection. Ignores errors of single connections. When descriptors run out, the caller must free some and
/// pause, so that it neither spins nor dies.
pub async fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Without this option an answer's last segment waits for the client's delayed acknowledgement.
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

/// Returns whether `stream` was given one of the last file descriptors, which new clients may not use. The system
/// always gives the lowest free descriptor first.
pub fn is_among_the_last(stream: &impl AsRawFd) -> bool {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    u64::try_from(stream.as_raw_fd()).is_ok_and(|number| number >= most - (most / PART).min(KEPT))
}

/// Returns whether the next descriptor would be one of the last.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_silent_client_is_probed_after_a_minute_and_given_up_after_two() {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = accept(&listener).await.unwrap();
        assert!(sockopt::socket_keepalive(&accepted).unwrap());
        let idle = sockopt::tcp_keepidle(&accepted).unwrap();
        assert_eq!(idle, Duration::from_secs(60));
        let probes = sockopt::tcp_keepintvl(&accepted).unwrap() * sockopt::tcp_keepcnt(&accepted).unwrap();
        assert_eq!(idle + probes, Duration::from_secs(120));
    }
}
