//! The API's listening socket.

use std::{io, net::SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

/// Connections that wait to be accepted.
pub(super) const BACKLOG: u32 = 4096;

/// A listener whose backlog takes a burst: thousands of workers connect at once, and a full backlog costs each of
/// those left out a second or more until its SYN is sent again.
///
/// # Errors
/// What the system says, e.g. that the address is in use.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    bind(address)?.listen(BACKLOG)
}

/// A socket that has the address, and does not listen yet.
pub(super) fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}
