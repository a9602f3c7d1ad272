//! Accepts connections of workers.

use std::sync::Arc;

use tokio::net::TcpListener;

use super::worker_threads::WorkerThreads;
use crate::{listen, proxy::Proxy};

/// Accepts connections until the drain begins. Connections to a socket that is not `ours` belong to the next process.
pub(super) async fn accept(listener: TcpListener, ours: bool, workers: WorkerThreads, proxy: Arc<Proxy>) {
    // Set once a connection has got one of the last descriptors. From then on the next descriptor is checked before
    // each connection.
    let mut scarce = false;
    loop {
        if proxy.is_draining() {
            if ours {
                accept_rest(listener, &workers);
            }
            return;
        }
        while scarce && !proxy.is_draining() && workers.have_connections() && listen::is_nearly_exhausted(&listener) {
            proxy.lacks_descriptors(None);
            listen::exhausted().await;
        }
        let accepted = tokio::select! {
            accepted = listen::accept(&listener) => accepted,
            () = proxy.drain_begun() => continue,
        };
        match accepted.and_then(|(stream, peer)| Ok((stream.into_std()?, peer))) {
            Ok((stream, peer)) => {
                scarce |= listen::is_among_the_last(&stream);
                workers.dispatch(stream, peer.ip());
            }
            Err(error) => {
                proxy.not_accepted(&error);
                listen::exhausted().await;
            }
        }
    }
}

/// Accepts the connections that the system has already made, and closes the socket: closing it first would reset them.
fn accept_rest(listener: TcpListener, workers: &WorkerThreads) {
    // Connections that cannot be accepted any more are reset in any case.
    let Ok(listener) = listener.into_std() else { return };
    for (stream, peer) in (0..listen::BACKLOG).map_while(|_| listener.accept().ok()) {
        let _ = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
        workers.dispatch(stream, peer.ip());
    }
}
