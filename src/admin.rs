//! The pages for operators and monitoring: the live page, metrics, health, status. Changes nothing except through
//! `/api/v1`, with the token.
//!
//! Serves one request per connection: monitoring asks every few seconds, and no client can occupy the few connections
//! there are. When all are taken, a new connection replaces the one that has been silent for longest. A file descriptor
//! is reserved for the case that the process has none left. So probes are answered in any situation.

use std::{
    convert::Infallible,
    future::poll_fn,
    io,
    os::fd::{AsFd as _, OwnedFd},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::event::{self, PollFd, PollFlags, Timespec};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{AbortHandle, JoinSet},
    time,
};
use tracing::{debug, warn};

use self::shared_page::SharedPage;
use crate::{listen, metrics::Metrics, policy::Names};

mod access;
mod answer;
mod api;
mod assets;
pub mod detail;
pub mod explanation;
mod exposition;
mod lanes;
mod live;
mod pages;
mod shared_page;
mod source;
pub mod status;
mod token;

pub use source::{FlowName, LaneChoice, StatusSource, Steered, Steering};
pub use status::Status;
pub use token::{BadToken, Token};

/// Connections at a time.
const CONNECTIONS: usize = 64;
/// Connections at a time while new ones get the last file descriptors, which are kept for requests to APIs. Each
/// further connection ends another one.
const FEW: usize = 4;
/// Time from accepting a connection to the end of its request's head.
const HEAD: Duration = Duration::from_secs(5);
/// Lifetime of a connection. A live page gets another such period if it has read anything in the last one.
const WHOLE: Duration = Duration::from_secs(30);
/// Interval of checks for a new connection while the process has no descriptors.
const RECHECK: Duration = Duration::from_millis(50);
/// Time for unfinished answers after the shutdown began.
const STOP: Duration = Duration::from_secs(1);

/// Answers on `listener` until `shutdown` is done, about `state` and `metrics`. Clients with the `token` may change
/// settings.
///
/// Adds values computed from `state`, such as `andante_slots_used_ratio`, to `metrics`: serve the same metrics only
/// once.
pub async fn serve<S>(
    listener: TcpListener,
    state: Arc<dyn StatusSource>,
    metrics: Metrics,
    token: Option<Token>,
    shutdown: S,
) where
    S: Future<Output = ()>,
{
    metrics.register(Box::new(lanes::OfLanes::new(Arc::downgrade(&state))));
    let names = match listener.local_addr() {
        Ok(at) if at.ip().is_loopback() => Names::Loopback,
        // Outsiders cannot point a name of their own at a private address.
        _ => Names::Private,
    };
    let live = Arc::new(live::Live::new(Arc::clone(&state)));
    let access = access::Access::new(token, metrics.wrong_tokens.clone());
    let pages = Arc::new(pages::Pages {
        state,
        metrics,
        names,
        live: Arc::clone(&live),
        access,
        planner: api::Planner::new(),
        status: SharedPage::new(),
        exposition: SharedPage::new(),
    });
    let (stop, stopped) = watch::channel(());
    let mut live_turns = JoinSet::new();
    live_turns.spawn(Arc::clone(&live).run());
    let mut connections = Connections::new(&listener);
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = accept(&listener, &mut connections.reserve) => accepted,
            Some(_) = connections.tasks.join_next() => {
                connections.refill();
                continue;
            }
        };
        match accepted {
            Ok(stream) => connections.serve(stream, Arc::clone(&pages), stopped.clone()),
            Err(error) => connections.on_exhausted(&error).await,
        }
    }
    live.close();
    let mut tasks = connections.tasks;
    drop((listener, stop, live_turns));
    // Dropping the set ends all connections that are still open.
    let _ = time::timeout(STOP, async { while tasks.join_next().await.is_some() {} }).await;
}

/// The connections, and a descriptor for one more.
struct Connections<'a> {
    listener: &'a TcpListener,
    tasks: JoinSet<()>,
    /// The oldest first.
    open: Vec<Open>,
    /// A descriptor to give up for a connection.
    reserve: Option<OwnedFd>,
}

/// A connection.
struct Open {
    task: AbortHandle,
    /// The request has arrived.
    asked: Arc<AtomicBool>,
}

/// Accepts the next connection, and gives up `reserve` for it if there is no other descriptor.
async fn accept(listener: &TcpListener, reserve: &mut Option<OwnedFd>) -> io::Result<TcpStream> {
    loop {
        match listen::accept(listener).await {
            Ok((stream, _)) => return Ok(stream),
            Err(error) if reserve.take().is_none() => return Err(error),
            Err(_) => {}
        }
        // Accepts at once, before another thread takes the descriptor. The system also reports exhaustion while no
        // client is waiting.
        let mut next = pin!(listen::accept(listener));
        if let Poll::Ready(Ok((stream, _))) = poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await {
            return Ok(stream);
        }
        *reserve = spare(listener);
    }
}

/// Returns whether a connection waits to be accepted. `accept` cannot tell: without descriptors it fails before it
/// looks.
fn is_called(listener: &TcpListener) -> bool {
    let mut listener = [PollFd::new(listener, PollFlags::IN)];
    event::poll(&mut listener, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// A descriptor to give up for a connection.
fn spare(listener: &TcpListener) -> Option<OwnedFd> {
    listener.as_fd().try_clone_to_owned().ok()
}

/// Answers the one request of a connection.
async fn connection(
    stream: TcpStream,
    pages: Arc<pages::Pages>,
    asked: Arc<AtomicBool>,
    mut stopped: watch::Receiver<()>,
) {
    let peer = stream.peer_addr().ok();
    let progress = live::StreamProgress::default();
    let goes_on = progress.clone();
    let answer = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        asked.store(true, Ordering::Relaxed);
        let (pages, progress) = (Arc::clone(&pages), progress.clone());
        async move { Ok::<answer::PageAnswer, Infallible>(pages.answer(request, peer, progress).await) }
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
    let mut whole = pin!(whole);
    loop {
        match time::timeout(WHOLE, whole.as_mut()).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => return debug!(%error, "an admin connection broke"),
            Err(_) if goes_on.take() => {}
            Err(_) => return debug!("an admin connection took too long"),
        }
    }
}

// === impl Connections ===

impl<'a> Connections<'a> {
    fn new(listener: &'a TcpListener) -> Self {
        Self { listener, tasks: JoinSet::new(), open: Vec::new(), reserve: spare(listener) }
    }

    /// Answers the request that comes on `stream`.
    fn serve(&mut self, stream: TcpStream, pages: Arc<pages::Pages>, stopped: watch::Receiver<()>) {
        self.open.retain(|open| !open.task.is_finished());
        let most = if listen::is_among_the_last(&stream) { FEW } else { CONNECTIONS };
        if self.open.len() >= most {
            self.make_room();
        }
        let asked = Arc::new(AtomicBool::new(false));
        let task = self.tasks.spawn(connection(stream, pages, asked.clone(), stopped));
        self.open.push(Open { task, asked });
    }

    /// Handles `error`, which says that no connection can be accepted: there is no descriptor.
    async fn on_exhausted(&mut self, error: &io::Error) {
        self.open.retain(|open| !open.task.is_finished());
        if !is_called(self.listener) {
            tokio::select! {
                () = time::sleep(RECHECK) => {}
                // The descriptor of the ended connection becomes the new reserve, before another thread can take it.
                Some(_) = self.tasks.join_next() => self.refill(),
            }
        } else if !self.open.is_empty() {
            self.make_room();
            self.tasks.join_next().await;
        } else {
            self.reserve = spare(self.listener);
            if self.reserve.is_none() {
                warn!(%error, "could not accept a connection of the admin address");
                listen::exhausted().await;
            }
        }
    }

    fn refill(&mut self) {
        self.reserve = self.reserve.take().or_else(|| spare(self.listener));
    }

    /// Ends the connection that has been silent for longest; if all have sent a request, the oldest.
    fn make_room(&mut self) {
        let silent = self.open.iter().position(|open| !open.asked.load(Ordering::Relaxed));
        self.open.remove(silent.unwrap_or_default()).task.abort();
    }
}

#[cfg(test)]
mod tests;
