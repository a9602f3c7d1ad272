//! State that outlives the process: the port, and its implementations. Knows only the names and bytes of lanes.
//!
//! A store takes a batch as a whole or not at all. When [`Store::commit`] returns, the batch survives any failure of
//! the process or the machine. A store keeps a [`Header`] beside the lanes, with the time until which the store is
//! complete.

mod disk;
mod file;
mod ledger;
#[cfg(test)]
mod memory;
mod stamp;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub(crate) use self::file::sync_name;
pub use self::{
    disk::Disk,
    file::{Aside, OpenError, Opened, StateFile},
    ledger::{Ledger, LedgerError, RedisLedger, StoreHint},
    stamp::{Reading, Stamp},
};
#[cfg(test)]
pub(crate) use self::{disk::faulty::FaultyFile, ledger::InMemoryLedger, memory::InMemory};
use crate::{clock::Instant, limit::Gap};

/// A place that persists lanes.
pub trait Store: Send {
    /// Everything that was committed; the header is `None` if nothing ever was.
    fn read(&self) -> Result<Stored, StoreError>;

    /// Replaces the lanes that are in `batch`, and the header. Returns when the change is durable.
    fn commit(&mut self, batch: &Batch<'_>) -> Result<(), StoreError>;
}

/// Contents of a store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stored {
    /// Owner of the contents, and the time until which they are complete.
    pub header: Option<Header>,
    /// Lanes by their names.
    pub lanes: Vec<(String, Vec<u8>)>,
}

/// Changes that are committed together.
#[derive(Debug)]
pub struct Batch<'a> {
    /// Header after the commit.
    pub header: &'a Header,
    /// Lanes that have changed.
    pub lanes: &'a [(Arc<str>, Vec<u8>)],
    /// Lanes to forget.
    pub gone: &'a [Arc<str>],
}

/// Header of a store: its format and its completeness.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// Version of the format: [`VERSION`](Self::VERSION).
    pub version: u32,
    /// Number of commits.
    pub commits: u64,
    /// Time until which the store contains everything that happened.
    pub stamp: Stamp,
    /// Set if nothing happened afterwards, because the process ended properly.
    pub clean: bool,
    /// Last period for which the requests sent are unknown.
    pub gap: Option<Gap>,
    /// Set if an earlier store could not be read: before this instant nothing is known of lanes that are not in the
    /// store.
    pub lost: Option<Instant>,
    /// Key of the records' hashes of clients' words; zeros if there is none yet.
    pub secret: [u64; 2],
}

/// Reason why a store fails.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The contents cannot be read, or are not andante's.
    #[error("{0}")]
    Corrupt(String),
    /// A later version of andante wrote it.
    #[error("it was written by a later andante, in version {0} of its form; this one knows {known}", known = Header::VERSION)]
    Newer(u32),
    /// The disk, or a layer below, fails.
    #[error("{0}")]
    Failed(String),
}

impl Header {
    /// Version of the format that this andante writes and reads.
    pub const VERSION: u32 = 1;
}
