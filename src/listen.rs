//! Listening sockets, and what becomes of errors of `accept`.

mod given;

use std::{io, net::SocketAddr, time::Duration};

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tracing::warn;

pub use self::given::Given;

/// How many connections may wait for `accept`: a burst of workers starts at once.
const BACKLOG: u32 = 8192;
/// How long to pause when the system has no file descriptor left.
const EXHAUSTED: Duration = Duration::from_millis(100);

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
