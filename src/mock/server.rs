//! Connections of the API: accepts and serves them, and cuts them during an outage.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

use super::{
    control::Down,
    shared::{ApiState, ConnectionState},
    socket::{self, BACKLOG},
};
use crate::clock::{Clock, Instant};

/// Pause after a failed accept, bind or listen. Without it, the loop would spin while the system has no descriptor or
/// memory left.
const REST: Duration = Duration::from_millis(20);

pub(super) async fn accept(mut listener: TcpListener, address: SocketAddr, shared: Arc<ApiState>) {
    let mut connections = JoinSet::new();
    let mut down = shared.down.subscribe();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => Some(accepted),
            Some(_) = connections.join_next() => continue,
            () = refusing(&mut down, shared.clock) => None,
        };
        match accepted {
            Some(Ok((stream, _))) => {
                connections.spawn(serve(stream, shared.clone()));
            }
            // The client has disconnected, or no descriptor is left. Neither error ends the API.
            Some(Err(_)) => tokio::time::sleep(REST).await,
            None => {
                drop(listener);
                listener = away(address, &mut down, shared.clock).await;
            }
        }
    }
}

/// Stays bound without listening until the outage ends, so that the system refuses connections. Returns the next
/// listener.
async fn away(address: SocketAddr, down: &mut watch::Receiver<Option<Down>>, clock: Clock) -> TcpListener {
    loop {
        // A bound socket keeps the port from other processes, unless they set `SO_REUSEADDR` as well.
        if let Ok(socket) = socket::bind(address) {
            while let Some(trouble) = { *down.borrow_and_update() }.filter(|trouble| trouble.refuses(clock.now())) {
                tokio::select! {
                    () = clock.sleep_until(trouble.until) => {}
                    _ = down.changed() => {}
                }
            }
            if let Ok(listener) = socket.listen(BACKLOG) {
                return listener;
            }
        }
        tokio::time::sleep(REST).await;
    }
}

/// Completes as soon as an outage lasts in which the API refuses connections.
async fn refusing(down: &mut watch::Receiver<Option<Down>>, clock: Clock) {
    let refuses = |down: &Option<Down>| down.is_some_and(|down| down.refuses(clock.now()));
    if down.wait_for(refuses).await.is_err() {
        // Without a sender no outage can begin any more.
        clock.sleep_until(Instant::FAR).await;
    }
}

async fn serve(stream: TcpStream, shared: Arc<ApiState>) {
    // Small answers must not wait for the client's delayed acknowledgement. A socket without the option still works.
    let _ = stream.set_nodelay(true);
    let state = Arc::new(ConnectionState::default());
    let (mut down, clock) = (shared.down.subscribe(), shared.clock);
    let answer = service_fn(|request| {
        let (shared, state) = (shared.clone(), state.clone());
        async move { Ok::<_, Infallible>(shared.answer(request, &state).await) }
    });
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
    let mut leaving = false;
    loop {
        tokio::select! {
            // An error means that the client broke off: nothing is left to serve.
            _ = &mut connection => return,
            () = state.cut.notified() => break,
            () = refusing(&mut down, clock), if !leaving => {}
        }
        if !state.controls.load(Ordering::Relaxed) {
            break;
        }
        leaving = true;
        Pin::new(&mut connection).graceful_shutdown();
    }
    // Closing a socket with a linger time of zero resets the connection.
    let _ = connection.into_parts().io.into_inner().set_zero_linger();
}
