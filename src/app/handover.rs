//! Takeover by one process from another on the same addresses, while the earlier one sends its queued requests.
//!
//! The later process (`serve --take-over`) connects to a Unix socket beside the state file, and gets the listening
//! sockets. Once it is ready to serve, it says so. The earlier process then stops accepting, writes its state, and
//! gives up the state. The message names the lanes in which requests still wait. In the later process, requests for
//! their hosts wait until the lanes' records arrive. Each record arrives when the last request of its lane has left.

mod predecessor;
mod successor;

use std::{
    io,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tokio::{net::TcpListener, sync::oneshot};
use tracing::info;

pub(super) use self::predecessor::{Predecessor, TakingOver};
pub use self::{
    predecessor::TakeOverError,
    successor::{Successor, Successors},
};
use super::keeping::Keeping;
use crate::config::Config;

/// Sockets for workers, and the socket of the admin pages.
type PassedOn = (Vec<std::net::TcpListener>, Option<std::net::TcpListener>);

/// A message of the earlier process: one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Message {
    /// The message carries the listening sockets: this number for workers, and last the one of the admin pages.
    Sockets {
        /// The number of the process.
        pid: u32,
        /// The number of sockets for workers.
        workers: usize,
    },
    /// The state file is free. The named lanes still have requests to send.
    Released {
        /// Names of these lanes in the store.
        awaited: Vec<String>,
    },
    /// A lane is given away.
    Lane {
        /// Name of the lane in the store.
        id: String,
        /// Record of the lane, in the form of a state file; `None` if the lane remembers nothing.
        record: Option<String>,
    },
    /// All lanes are given away.
    Ended,
}

/// Message of the later process: it is ready to serve.
const READY: &[u8] = b"ready\n";

/// The Unix socket at which the process with the state at `state` offers its place.
fn socket_of(state: &Path) -> PathBuf {
    let mut name = state.file_name().unwrap_or_default().to_owned();
    name.push(".handover");
    state.with_file_name(name)
}

/// The running process with the state of `config`.
pub(super) fn find_predecessor(config: &Config) -> Result<Option<Predecessor>, TakeOverError> {
    let state = Keeping::path(config, &config.listen).ok_or(TakeOverError::NoState)?;
    Predecessor::find(&state)
}

/// Copies of this process' listening sockets, for the next one.
pub(super) fn passed_on(workers: &[TcpListener], admin: Option<&TcpListener>) -> io::Result<PassedOn> {
    let copy = |listener: &TcpListener| listener.as_fd().try_clone_to_owned().map(std::net::TcpListener::from);
    Ok((workers.iter().map(copy).collect::<io::Result<_>>()?, admin.map(copy).transpose()?))
}

/// Offers these sockets to the next process, once everything of the previous one is `taken`. Without sockets the next
/// process cannot take over, and this one serves all the same.
pub(super) fn offer(state: &Path, sockets: io::Result<PassedOn>, taken: oneshot::Receiver<()>) -> Successors {
    let offered = sockets.and_then(|(workers, admin)| Successors::offer(state, workers, admin, taken));
    let say = |error: &io::Error| {
        let state = state.display();
        info!(%state, %error, "another andante cannot take over from this one: there is no socket beside the state");
    };
    offered.inspect_err(say).unwrap_or_default()
}
