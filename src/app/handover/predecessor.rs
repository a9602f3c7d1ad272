//! The later process' side: gets the sockets, the state and then the lanes of the earlier one.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    net::TcpListener,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader as AsyncBufReader},
    sync::oneshot,
    task::JoinHandle,
};
use tracing::{error, info, warn};

use super::{Message, READY, socket_of};
use crate::{clock::Instant, lane::Lanes, listen, proxy::Proxy};

/// The earlier process, which has passed on its sockets.
pub(in crate::app) struct Predecessor {
    stream: BufReader<UnixStream>,
    path: PathBuf,
    pid: u32,
    /// Sockets for workers.
    pub(in crate::app) workers: Vec<TcpListener>,
    /// Socket of the admin pages.
    pub(in crate::app) admin: Option<TcpListener>,
}

/// Treatment of lanes that the earlier process never gave.
const PRESUMED: &str = "their limits count as used to the full since it gave up its state";

/// The lanes of the earlier process on their way to this one.
pub(in crate::app) struct TakingOver(Option<(JoinHandle<()>, Instant)>);

/// Reason why andante cannot take over from the running process.
#[derive(Debug, thiserror::Error)]
pub enum TakeOverError {
    /// No state is configured by which the process could be found.
    #[error("could not look for an andante to take over from: no state is kept")]
    NoState,
    /// The process does not give up its place.
    #[error("could not take over by {path}", path = path.display())]
    Failed {
        /// The socket of the request.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

/// Longest time for each of the earlier process' first answers. In between it writes its state, or takes over from
/// another process itself.
const ANSWERS_WITHIN: Duration = Duration::from_secs(300);

// === impl TakingOver ===

impl TakingOver {
    /// Begins to take over from `predecessor`, which was known to be alive at `alive`. The receiver ends once that is
    /// done, or at once without a predecessor.
    pub(in crate::app) fn start(
        predecessor: Option<Predecessor>,
        proxy: &Arc<Proxy>,
        alive: Instant,
    ) -> (Self, oneshot::Receiver<()>) {
        let (sender, taken) = oneshot::channel::<()>();
        let begin = |predecessor: Predecessor| {
            let proxy = proxy.clone();
            let taking = async move {
                predecessor.take_lanes(proxy, alive).await;
                drop(sender);
            };
            (tokio::spawn(taking), alive)
        };
        (Self(predecessor.map(begin)), taken)
    }

    /// Ends the takeover with this process: lanes that have not arrived count as fully used.
    pub(in crate::app) fn end(self, lanes: &Lanes) {
        if let Some((taking, alive)) = self.0 {
            taking.abort();
            lanes.predecessor_lost(alive);
        }
    }
}

// === impl Predecessor ===

impl Predecessor {
    /// Gets the sockets of the process that has the state at `state`; `None` if there is none.
    pub(in crate::app) fn find(state: &Path) -> Result<Option<Self>, TakeOverError> {
        let path = socket_of(state);
        match Self::connect(&path) {
            Ok(found) => Ok(Some(found)),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                Ok(None)
            }
            Err(source) => Err(TakeOverError::Failed { path, source }),
        }
    }

    fn connect(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(ANSWERS_WITHIN))?;
        stream.set_write_timeout(Some(ANSWERS_WITHIN))?;
        let (text, mut sockets) = listen::receive_sockets(&stream)?;
        let Message::Sockets { pid, workers } = serde_json::from_slice(&text)? else { return Err(unexpected()) };
        if sockets.len() < workers {
            return Err(unexpected());
        }
        let admin = sockets.split_off(workers).pop();
        Ok(Self { stream: BufReader::new(stream), path: path.to_owned(), pid, workers: sockets, admin })
    }

    /// Declares that this process is ready to serve. Returns once the earlier one has given up its state, with the
    /// names of the lanes that it keeps for now.
    pub(in crate::app) fn replace(&mut self) -> Result<Vec<String>, TakeOverError> {
        self.replaced().map_err(|source| TakeOverError::Failed { path: self.path.clone(), source })
    }

    fn replaced(&mut self) -> io::Result<Vec<String>> {
        self.stream.get_mut().write_all(READY)?;
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Message::Released { awaited } = serde_json::from_str(&line)? else { return Err(unexpected()) };
        info!(
            pid = self.pid,
            hosts = awaited.len(),
            "taking over; these hosts still have requests that wait in the andante before this one"
        );
        Ok(awaited)
    }

    /// Takes over the lanes that the earlier process gives away, until that process has ended. The process was known to
    /// be alive at `alive`.
    async fn take_lanes(self, proxy: Arc<Proxy>, alive: Instant) {
        let pid = self.pid;
        let ended = self.lanes_taken(&proxy).await;
        let lanes = proxy.lanes.predecessor_lost(alive);
        match ended {
            Ok(()) if lanes == 0 => info!(pid, "the andante before this one has sent all requests that waited there"),
            Ok(()) => warn!(pid, lanes, "the andante before this one did not hand these lanes over: {PRESUMED}"),
            Err(error) => {
                warn!(pid, %error, lanes, "the andante before this one ended before it handed these lanes over: {PRESUMED}")
            }
        }
    }

    async fn lanes_taken(self, proxy: &Proxy) -> io::Result<()> {
        let early = self.stream.buffer().to_vec();
        let stream = self.stream.into_inner();
        stream.set_nonblocking(true)?;
        let stream = tokio::net::UnixStream::from_std(stream)?;
        let mut lines = AsyncBufReader::new((&early[..]).chain(stream)).lines();
        while let Some(line) = lines.next_line().await? {
            match serde_json::from_str(&line)? {
                Message::Lane { id, record } => {
                    if let Err(problem) = proxy.lanes.arrived(&id, record.as_deref().map(str::as_bytes)) {
                        let lane = id.replace('\n', " ");
                        error!(lane, %problem, "the record of a lane cannot be read: all of its limits count as used up");
                    }
                }
                Message::Ended => return Ok(()),
                Message::Sockets { .. } | Message::Released { .. } => return Err(unexpected()),
            }
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

fn unexpected() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the other process does not speak this andante's language")
}
