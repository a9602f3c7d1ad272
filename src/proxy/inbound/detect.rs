//! One worker's connection: detects its protocol, and serves it to its end.

use std::{io, net::IpAddr, pin::pin, sync::Arc, time::Duration};

use rustix::net::RecvFlags;
use tokio::{io::Interest, net::TcpStream};

use super::{http1, http2, socket::Socket, takeover};
use crate::{
    clock::Instant,
    proxy::{
        client_connection::ClientConnection,
        context::Proxy,
        drain::{NEW, SLOW},
        exchange::Exchange,
        outbound::pool::Pool,
        protocol::PREFACE,
        session::Session,
    },
    tls::Protocol,
};

/// Time that a silent connection still has once the process drains.
const LAST_MOMENT: Duration = Duration::from_millis(500);

/// Serves one connection until it ends, hangs, or the process drains. `pool` is the calling thread's; `counted` is dropped
/// at the end.
pub fn serve(
    proxy: Arc<Proxy>,
    pool: Arc<Pool>,
    stream: TcpStream,
    address: IpAddr,
    counted: impl Send,
) -> impl Future<Output = ()> + Send {
    let client = Arc::new(ClientConnection::new(proxy.clone(), stream));
    let now = proxy.clock.now();
    serve_exchange(Arc::new(Exchange::new(Arc::new(Session::new(proxy, pool, client, address)), now)), counted)
}

/// Separate from [`serve`], whose arguments every waiting connection would carry.
async fn serve_exchange(exchange: Arc<Exchange>, _counted: impl Send) {
    match first_word(&exchange).await {
        Some(Protocol::Http1) => {
            http1::serve(exchange.clone(), Socket::new(exchange.session.client.clone())).await;
            if let Some(takeover) = exchange.take_over() {
                // Boxed: every waiting connection would carry its size.
                Box::pin(takeover::serve(exchange, *takeover)).await;
            }
        }
        Some(Protocol::Http2) => {
            let session = exchange.session.clone();
            let socket = Socket::new(session.client.clone());
            Box::pin(http2::serve(session, socket)).await;
        }
        None => {}
    }
}

/// Waits until the client sends something: an open connection costs no buffers until then.
async fn first_word(exchange: &Exchange) -> Option<Protocol> {
    let Exchange { proxy, progress, session, .. } = exchange;
    let (client, mut deadline) = (&session.client, progress.deadline());
    let begun = proxy.clock.now();
    let mut wake = pin!(proxy.drain.silent());
    wake.as_mut().enable();
    loop {
        let draining = proxy.is_draining();
        if draining {
            // A client that connected at the last moment may be about to send; a silent client must not delay the end.
            deadline = deadline.min(proxy.clock.now() + LAST_MOMENT);
        }
        tokio::select! {
            ready = client.stream.ready(Interest::READABLE) => {
                let all_said = ready.map_or(true, |ready| ready.is_read_closed());
                match peek(client) {
                    // An incomplete preface: no further byte can show which protocol it was.
                    None if all_said => return None,
                    None => {}
                    speech => return speech,
                }
            }
            () = proxy.clock.sleep_until(deadline) => return None,
            () = &mut wake, if !draining => {
                if gives_way(proxy, client, begun) {
                    return None;
                }
                wake.set(proxy.drain.silent());
                wake.as_mut().enable();
            }
        }
    }
}

/// Returns whether a client is to make room for others: it has sent nothing since `begun`, or only part of a preface.
/// Bytes that have just come are read in the next turn.
fn gives_way(proxy: &Proxy, client: &ClientConnection, begun: Instant) -> bool {
    let now = proxy.clock.now();
    let patience = if client.unread() { SLOW } else { NEW };
    proxy.drain.is_full(now) && now.since(begun) >= patience && (client.unread() || client.is_quiet())
}

/// The client's protocol, if its first bytes show it. If they do not, the socket becomes readable again when more bytes
/// come.
fn peek(client: &ClientConnection) -> Option<Protocol> {
    let mut heard = [0; PREFACE.len()];
    let read = || match rustix::net::recv(&client.stream, &mut heard, RecvFlags::PEEK)? {
        (n, _) if n > 0 && n < PREFACE.len() && PREFACE.starts_with(&heard[..n]) => {
            // The socket does not report bytes again that are there already, so the next reader has to know of them.
            client.set_unread(true);
            Err(io::ErrorKind::WouldBlock.into())
        }
        _ => Ok(()),
    };
    match client.stream.try_io(Interest::READABLE, read) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        Ok(()) if heard == PREFACE => Some(Protocol::Http2),
        // hyper also handles the end of the connection.
        _ => Some(Protocol::Http1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// tokio needs some 100 bytes beside the task, and the allocator's next size after 1,024 is 1,280.
    #[test]
    fn a_connections_task_fits_in_1024_bytes() {
        fn size<F: Future>(_: impl FnOnce(Arc<Exchange>) -> F) -> usize {
            size_of::<F>()
        }

        let size = size(|exchange| serve_exchange(exchange, Arc::new(())));
        assert!(size <= 1024 - 104, "what a connection's task holds takes {size} bytes");
    }
}
