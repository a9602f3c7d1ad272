//! Accepts connections of workers.

use std::sync::Arc;

use tokio::net::TcpListener;

use super::worker_threads::WorkerThreads;
use crate::{listen, proxy::Proxy};

/// Accepts connections until the drain begins. What connects to a socket that is not `ours` is the next process'.
pub(super) async fn accept(listener: TcpListener, ours: bool, workers: WorkerThreads, proxy: Arc<Proxy>) {
    // Whether the last descriptors have been near: from then on it is asked before each connection which one it would be given.
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

/// Accepts the connections that the system has made already, and closes the socket: with it they would be reset.
fn accept_rest(listener: TcpListener, workers: &WorkerThreads) {
    // What cannot be accepted any more is reset in any case.
    let Ok(listener) = listener.into_std() else { return };
    for (stream, peer) in (0..listen::BACKLOG).map_while(|_| listener.accept().ok()) {
        let _ = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
        workers.dispatch(stream, peer.ip());
    }
}
