//! The earlier process' side: offers its sockets, and gives its lanes away.

use std::{
    fs,
    future::pending,
    io,
    net::TcpListener,
    os::fd::{AsFd as _, BorrowedFd},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{net::sockopt, process};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixListener, UnixStream},
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::timeout,
};
use tracing::{info, warn};

use super::{Message, READY, socket_of};
use crate::{
    lane::{GivenLane, Lanes},
    listen,
};

/// A later process that is ready to serve.
#[derive(Debug)]
pub struct Successor {
    stream: UnixStream,
    /// Error after which no messages are sent.
    lost: Option<io::Error>,
}

/// Offer of this process' sockets to later processes. Without a state no process can find the offer.
#[derive(Debug, Default)]
pub struct Successors(Option<Offer>);

#[derive(Debug)]
struct Offer {
    /// The socket file, which is removed when this is dropped; empty once the later process owns it.
    path: PathBuf,
    ready: mpsc::Receiver<Successor>,
    offering: JoinHandle<()>,
}

/// The time that a later process may take to start.
const STARTS_WITHIN: Duration = Duration::from_secs(60);
/// Time that a later process may take to read a message.
const READS_WITHIN: Duration = Duration::from_secs(10);

// === impl Successors ===

impl Successors {
    /// Offers `workers` and `admin`, on which this process listens, beside the state at `state`. Later processes wait
    /// until everything of the previous process is `taken`: only one pair hands over at a time.
    pub(in crate::app) fn offer(
        state: &Path,
        workers: Vec<TcpListener>,
        admin: Option<TcpListener>,
        taken: oneshot::Receiver<()>,
    ) -> io::Result<Self> {
        let path = socket_of(state);
        // A socket file of a process that has ended: this process has the lock of the state.
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let listener = UnixListener::bind(&path)?;
        let (sender, ready) = mpsc::channel(1);
        let offering = tokio::spawn(async move {
            // The sender is dropped at once if there is no predecessor.
            let _ = taken.await;
            offer(listener, workers, admin, sender).await;
        });
        Ok(Self(Some(Offer { path, ready, offering })))
    }

    /// Waits for a later process that is ready to serve. From then on that process owns the socket file.
    pub async fn next(&mut self) -> Successor {
        let received = match &mut self.0 {
            Some(offer) => offer.ready.recv().await,
            None => None,
        };
        let Some(successor) = received else { return pending().await };
        if let Some(offer) = &mut self.0 {
            offer.path = PathBuf::new();
        }
        self.0 = None;
        successor
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        self.offering.abort();
        if !self.path.as_os_str().is_empty() {
            // A leftover socket is dead and harmless.
            let _ = fs::remove_file(&self.path);
        }
    }
}

async fn offer(
    listener: UnixListener,
    workers: Vec<TcpListener>,
    admin: Option<TcpListener>,
    ready: mpsc::Sender<Successor>,
) {
    loop {
        let asked = match listener.accept().await {
            Ok((stream, _)) => introduce(stream, &workers, admin.as_ref()).await,
            Err(error) => {
                listen::exhausted().await;
                Err(error)
            }
        };
        match asked {
            Ok(successor) => {
                // The receiver of this message ends this task.
                let _ = ready.send(successor).await;
            }
            Err(error) => warn!(%error, "another andante asked to take over and did not; this one keeps serving"),
        }
    }
}

/// Gives the sockets to a later process, and waits until it is ready to serve.
async fn introduce(
    mut stream: UnixStream,
    workers: &[TcpListener],
    admin: Option<&TcpListener>,
) -> io::Result<Successor> {
    let peer = sockopt::socket_peercred(&stream)?;
    if peer.uid != process::geteuid() && !peer.uid.is_root() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it runs as another user"));
    }
    let sockets: Vec<BorrowedFd<'_>> = workers.iter().chain(admin).map(|socket| socket.as_fd()).collect();
    let hello = line(&Message::Sockets { pid: std::process::id(), workers: workers.len() })?;
    listen::send_sockets(&stream, &hello, &sockets)?;
    let mut said = [0; READY.len()];
    timeout(STARTS_WITHIN, stream.read_exact(&mut said)).await??;
    if said != READY {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it does not speak andante's language"));
    }
    info!(pid = process::Pid::as_raw(Some(peer.pid)), "another andante takes over");
    Ok(Successor { stream, lost: None })
}

// === impl Successor ===

impl Successor {
    /// Announces that the state file is free, and that lanes with these names still have requests to send.
    pub(in crate::app) async fn released(&mut self, lanes: &Lanes) {
        let awaited = lanes.not_given().iter().map(ToString::to_string).collect();
        self.say(&Message::Released { awaited }).await;
    }

    /// Gives `lanes` away.
    pub(in crate::app) async fn give(&mut self, lanes: Vec<GivenLane>) {
        for GivenLane { id, text } in lanes {
            let record = text.map(|text| String::from_utf8_lossy(&text).into_owned());
            self.say(&Message::Lane { id: id.to_string(), record }).await;
        }
    }

    /// Announces that all lanes are given away.
    pub(in crate::app) async fn ended(mut self) {
        self.say(&Message::Ended).await;
        if let Some(error) = self.lost {
            warn!(%error, "could not tell the andante that takes over what was sent; it counts all of it as used");
        }
    }

    /// Sends `message`, unless an earlier message failed.
    async fn say(&mut self, message: &Message) {
        if self.lost.is_none() {
            let said = async { timeout(READS_WITHIN, self.stream.write_all(&line(message)?)).await? };
            self.lost = said.await.err();
        }
    }
}

fn line(message: &Message) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}
