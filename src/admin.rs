//! The pages for people and machines who look after andante: metrics, health, status. Never changes anything.
//!
//! One request per connection: whoever looks does so every few seconds, and nobody can sit on the few connections there
//! are.

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use http_body_util::Full;
use hyper::{body::Bytes, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
    time,
};
use tracing::debug;

use crate::{listen, metrics::Metrics};

mod lanes;
mod pages;
pub mod status;

pub use status::{Source, Status};

/// How many may look at once; the next ones wait to be accepted.
const CONNECTIONS: usize = 64;
/// From accepting a connection to the end of its request's head.
const HEAD: Duration = Duration::from_secs(5);
/// A whole connection.
const WHOLE: Duration = Duration::from_secs(30);
/// How long answers may take to finish once we stop.
const STOP: Duration = Duration::from_secs(1);

type Answer = http::Response<Full<Bytes>>;

/// Answers on `listener` until `shutdown` is done, about `state` and `metrics`.
///
/// Adds what is worked out from `state`, such as `andante_slots_used_ratio`, to `metrics`: serve the same metrics once
/// only.
pub async fn serve<S>(listener: TcpListener, state: Arc<dyn Source>, metrics: Metrics, shutdown: S)
where
    S: Future<Output = ()>,
{
    metrics.register(Box::new(lanes::OfLanes::new(Arc::downgrade(&state))));
    let pages = Arc::new(pages::Pages { state, metrics });
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    let (stop, stopped) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = async {
            let permit = Arc::clone(&free).acquire_owned().await;
            (permit, listen::accept(&listener).await.0)
        };
        tokio::select! {
            () = &mut shutdown => break,
            (permit, stream) = accepted => {
                let pages = Arc::clone(&pages);
                let stopped = stopped.clone();
                connections.spawn(async move {
                    let _permit = permit;
                    connection(stream, pages, stopped).await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
    drop((listener, stop));
    // Whoever is not done by then is cut off with the set.
    let _ = time::timeout(STOP, async { while connections.join_next().await.is_some() {} }).await;
}

/// Answers the one request of a connection.
async fn connection(stream: TcpStream, pages: Arc<pages::Pages>, mut stopped: watch::Receiver<()>) {
    let answer = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let pages = Arc::clone(&pages);
        async move { Ok::<Answer, Infallible>(pages.answer(&request.into_parts().0).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .keep_alive(false)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), answer);
    let mut served = pin!(served);
    let whole = async {
        tokio::select! {
            done = served.as_mut() => return done,
            _ = stopped.changed() => served.as_mut().graceful_shutdown(),
        }
        served.await
    };
    match time::timeout(WHOLE, whole).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "an admin connection broke"),
        Err(_) => debug!("an admin connection took too long"),
    }
}

#[cfg(test)]
mod tests;
