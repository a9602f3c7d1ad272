//! One worker's connection: finds out what it speaks, and serves that to its end.

use std::{io, net::IpAddr, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use rustix::net::RecvFlags;
use tokio::{io::Interest, net::TcpStream};

use super::{
    Pool, Proxy, http1, http2,
    link::{Link, Peer, Wire},
    socket::Socket,
};

/// The head of a request, and each piece of a body that is buffered: a worker's longest URL with its fields.
pub(super) const MAX_HEAD: usize = 64 * 1024;
/// As many fields as a request may have.
pub(super) const MAX_FIELDS: usize = 100;
/// How long a connection that has not said anything is listened to once the process drains.
const LAST_MOMENT: Duration = Duration::from_millis(500);
/// What an HTTP/2 client says first, and no method begins with (RFC 9113 §3.4).
pub(super) const PREFACE: &[u8] = b"PRI ";

/// What a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speech {
    Http1,
    /// With prior knowledge (RFC 9113 §3.3).
    Http2,
}

/// Serves one connection until it ends, hangs, or the process drains.
pub(super) async fn serve(proxy: Arc<Proxy>, pool: Arc<Pool>, stream: TcpStream, address: IpAddr) {
    let wire = Arc::new(Wire::new(proxy.clone(), stream));
    let link = Arc::new(Link::new(Arc::new(Peer::new(proxy, pool, wire.clone(), address))));
    match first_word(&link).await {
        Some(Speech::Http1) => http1::serve(link, Socket::new(wire, Bytes::new())).await,
        Some(Speech::Http2) => Box::pin(http2::serve(link.peer.clone(), Socket::new(wire, Bytes::new()))).await,
        None => {}
    }
}

/// Waits until the client says something: a connection that is only kept open costs no buffers until then.
async fn first_word(link: &Link) -> Option<Speech> {
    let (proxy, wire, mut deadline) = (&link.proxy, &link.peer.wire, link.deadline());
    let mut drain = pin!(proxy.drain.notified());
    drain.as_mut().enable();
    loop {
        if proxy.is_draining() {
            // Whoever has connected at the last moment may be about to speak; a silent one must not hold up the end.
            deadline = deadline.min(proxy.clock.now() + LAST_MOMENT);
        }
        tokio::select! {
            ready = wire.stream.ready(Interest::READABLE) => {
                let all_said = ready.map_or(true, |ready| ready.is_read_closed());
                match glance(wire) {
                    // Half of a preface: nothing will tell any more what it was to become.
                    None if all_said => return None,
                    None => {}
                    speech => return speech,
                }
            }
            () = proxy.clock.sleep_until(deadline) => return None,
            () = &mut drain, if !proxy.is_draining() => {}
        }
    }
}

/// What the client speaks, if its first bytes tell. If not, its socket is readable again when more is there.
fn glance(wire: &Wire) -> Option<Speech> {
    let mut heard = [0; PREFACE.len()];
    let peek = || match rustix::net::recv(&wire.stream, &mut heard, RecvFlags::PEEK)? {
        (n, _) if n > 0 && n < PREFACE.len() && PREFACE.starts_with(&heard[..n]) => {
            // What is there is no news any more, but whoever reads on has to know of it.
            wire.set_unread(true);
            Err(io::ErrorKind::WouldBlock.into())
        }
        _ => Ok(()),
    };
    match wire.stream.try_io(Interest::READABLE, peek) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        Ok(()) if heard == PREFACE => Some(Speech::Http2),
        // Its end, too, is hyper's to find.
        _ => Some(Speech::Http1),
    }
}
