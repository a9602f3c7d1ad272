//! Listening socket of the API.

use std::{io, net::SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

/// Connections that may wait to be accepted: enough for thousands of workers that connect at once.
pub(super) const BACKLOG: u32 = 4096;

/// Returns a listener whose backlog absorbs a burst of thousands of connections. A full backlog would delay each
/// further connection by a second or more, until its SYN is sent again.
///
/// # Errors
/// Returns the error of the system, such as an address in use.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    bind(address)?.listen(BACKLOG)
}

/// Returns a socket that is bound to `address` and does not listen yet.
pub(super) fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}
