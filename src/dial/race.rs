//! Staggered connection attempts to all addresses of a host (RFC 8305 §5).

use std::{
    future::pending,
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use rustix::net::sockopt;
use tokio::{
    net::{TcpSocket, TcpStream},
    task::JoinSet,
};

use super::addresses::Addresses;
use crate::error::is_exhaustion;

/// Head start of an attempt over the next one, as RFC 8305 §8 recommends.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Silence after which a connection is probed. Middleboxes forget idle connections after 120 to 350 s.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Returns the first connection from `source` to any of `addresses`. A failed attempt starts the next one at once.
///
/// # Errors
/// If no attempt succeeds: the error of the first failure, unless a later attempt had no descriptor or panicked.
/// [`io::ErrorKind::NetworkUnreachable`] if no address has the family of `source`.
pub(super) async fn connect(addresses: Vec<IpAddr>, port: u16, source: Option<IpAddr>) -> io::Result<TcpStream> {
    // An address of the other family cannot be reached from `source`.
    let fits = |address: &IpAddr| source.is_none_or(|source| source.is_ipv4() == address.is_ipv4());
    let mut left = Addresses::interleaved(addresses.into_iter().filter(fits).collect()).into_iter();
    // Dropping the set aborts all other attempts.
    let mut attempts = JoinSet::new();
    let mut failure: Option<io::Error> = None;
    loop {
        if let Some(address) = left.next() {
            attempts.spawn(attempt(SocketAddr::new(address, port), source));
        }
        let is_last = left.len() == 0;
        let head_start = async {
            if is_last {
                return pending().await;
            }
            tokio::time::sleep(ATTEMPT_DELAY).await;
        };
        tokio::select! {
            ended = attempts.join_next() => match ended {
                Some(Ok(Ok(stream))) => return Ok(stream),
                Some(Ok(Err(error))) => {
                    if failure.is_none() || is_exhaustion(&error) {
                        failure = Some(error);
                    }
                }
                Some(Err(panicked)) => failure = Some(io::Error::other(panicked)),
                None => return Err(failure.unwrap_or_else(|| unreachable(source))),
            },
            () = head_start => {}
        }
    }
}

async fn attempt(address: SocketAddr, source: Option<IpAddr>) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_nodelay(true)?;
    socket.set_keepalive(true)?;
    sockopt::set_tcp_keepidle(&socket, KEEP_ALIVE)?;
    if let Some(source) = source {
        socket.bind(SocketAddr::new(source, 0))?;
    }
    socket.connect(address).await
}

fn unreachable(source: Option<IpAddr>) -> io::Error {
    let source = source.map_or_else(|| "this machine".to_owned(), |source| source.to_string());
    io::Error::new(io::ErrorKind::NetworkUnreachable, format!("no address can be reached from {source}"))
}
