//! What outlives the process: the port, and the places that implement it. Knows of lanes only their names and bytes.
//!
//! A store takes a batch as a whole or not at all, and has it when [`Store::commit`] returns, whatever happens to the
//! process or the machine afterwards. It keeps a [`Header`] beside the lanes, which says until when it is complete.

mod disk;
mod file;
mod ledger;
mod memory;
mod stamp;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

#[cfg(test)]
pub(crate) use self::disk::faulty::FaultyFile;
pub(crate) use self::file::sync_name;
pub use self::{
    disk::Disk,
    file::{Aside, OpenError, Opened, StateFile},
    ledger::{InMemoryLedger, Ledger, LedgerError, RedisLedger, StoreHint},
    memory::InMemory,
    stamp::{Reading, Stamp},
};
use crate::{clock::Instant, limit::Gap};

/// A place that keeps lanes.
pub trait Store: Send {
    /// All that was committed; the header is `None` if nothing ever was.
    fn read(&self) -> Result<Stored, StoreError>;

    /// Replaces the lanes that are in `batch`, and the header. Returns when that is sure to last.
    fn commit(&mut self, batch: &Batch<'_>) -> Result<(), StoreError>;
}

/// What a store has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stored {
    /// Of whom it is the memory, and until when.
    pub header: Option<Header>,
    /// Lanes by their names.
    pub lanes: Vec<(String, Vec<u8>)>,
}

/// What is committed together.
#[derive(Debug)]
pub struct Batch<'a> {
    /// How the store stands after it.
    pub header: &'a Header,
    /// The lanes that have changed.
    pub lanes: &'a [(Arc<str>, Vec<u8>)],
    /// The lanes that are to be forgotten.
    pub gone: &'a [Arc<str>],
}

/// How a store stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// Of the form in which all is written: [`VERSION`](Self::VERSION).
    pub version: u32,
    /// Counts the commits.
    pub commits: u64,
    /// All that happened until then is in the store.
    pub stamp: Stamp,
    /// Nothing happened afterwards: the process has ended as it should.
    pub clean: bool,
    /// The last time of which nobody knows what was sent in it.
    pub gap: Option<Gap>,
    /// Before then, nothing is known of lanes that are not in the store: an earlier one could not be read.
    pub lost: Option<Instant>,
    /// What hashes of clients' words are keyed with that the records have; zeros if there is none yet.
    pub secret: [u64; 2],
}

/// Why a store does not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// What is there cannot be read, or is not ours.
    #[error("{0}")]
    Corrupt(String),
    /// A later andante wrote it.
    #[error("it was written by a later andante, in version {0} of its form; this one knows {known}", known = Header::VERSION)]
    Newer(u32),
    /// The disk, or whatever is below.
    #[error("{0}")]
    Failed(String),
}

impl Header {
    /// What this andante writes and reads.
    pub const VERSION: u32 = 1;
}
