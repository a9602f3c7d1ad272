//! A file on a disk whose power fails.

use std::{io, sync::Arc};

use parking_lot::Mutex;
use redb::StorageBackend;

/// A file in two views: the system's and the disk's. A power failure loses unsynchronised writes: all of them, or any
/// sectors.
#[derive(Clone, Debug, Default)]
pub(crate) struct FaultyFile(Arc<Mutex<Content>>);

#[derive(Debug, Default)]
struct Content {
    /// Content as programs see it.
    seen: Vec<u8>,
    /// Content that is certainly on the disk.
    synced: Vec<u8>,
    /// Changes since the last synchronisation.
    pending: Vec<Change>,
    fails: bool,
    /// Reports synchronisations that did not happen.
    lies: bool,
    /// Operations until the power fails; from then on nothing reaches the disk.
    lasts: Option<u32>,
}

#[derive(Debug)]
enum Change {
    Written(usize, Vec<u8>),
    Length(usize),
}

/// Unit that a disk writes whole or not at all, in bytes.
const SECTOR: usize = 512;

// === impl FaultyFile ===

impl FaultyFile {
    /// A file with this content, all of it on the disk.
    pub(crate) fn with(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(Content { seen: bytes.clone(), synced: bytes, ..Content::default() })))
    }

    /// Content of the disk after a power failure. `survives` decides for each pending sector, and for each pending
    /// change of the length.
    pub(crate) fn after_power_failure(&self, mut survives: impl FnMut() -> bool) -> Vec<u8> {
        let content = self.0.lock();
        let mut disk = content.synced.clone();
        for change in &content.pending {
            match change {
                Change::Length(length) if survives() => disk.resize(*length, 0),
                Change::Length(_) => {}
                Change::Written(offset, bytes) => {
                    let (mut at, end) = (*offset, offset + bytes.len());
                    while at < end {
                        let next = end.min((at / SECTOR + 1) * SECTOR);
                        if survives() {
                            disk.resize(disk.len().max(next), 0);
                            disk[at..next].copy_from_slice(&bytes[at - offset..next - offset]);
                        }
                        at = next;
                    }
                }
            }
        }
        disk
    }

    /// Content as programs see it.
    pub(crate) fn seen(&self) -> Vec<u8> {
        self.0.lock().seen.clone()
    }

    /// Makes every write fail.
    pub(crate) fn fail(&self, fails: bool) {
        self.0.lock().fails = fails;
    }

    /// Stops synchronising, but still reports success.
    pub(crate) fn lie(&self) {
        self.0.lock().lies = true;
    }

    /// Makes the power fail after this many writes and synchronisations.
    pub(crate) fn lose_power_after(&self, operations: u32) {
        self.0.lock().lasts = Some(operations);
    }

    /// Returns whether the power has failed.
    pub(crate) fn has_lost_power(&self) -> bool {
        self.0.lock().lasts == Some(0)
    }
}

impl Content {
    /// Returns whether an operation reaches the system. The program cannot tell whether it reaches the disk.
    fn reaches(&mut self) -> io::Result<bool> {
        if self.fails {
            return Err(io::ErrorKind::StorageFull.into());
        }
        match &mut self.lasts {
            Some(0) => Ok(false),
            Some(left) => {
                *left -= 1;
                Ok(*left > 0)
            }
            None => Ok(true),
        }
    }
}

impl StorageBackend for FaultyFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let content = self.0.lock();
        let from = offset as usize;
        let bytes = content.seen.get(from..from + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut content = self.0.lock();
        let reaches = content.reaches()?;
        content.seen.resize(len as usize, 0);
        if reaches {
            content.pending.push(Change::Length(len as usize));
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut content = self.0.lock();
        if content.reaches()? && !content.lies {
            content.synced = content.seen.clone();
            content.pending.clear();
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut content = self.0.lock();
        let reaches = content.reaches()?;
        let (from, end) = (offset as usize, offset as usize + data.len());
        let longer = content.seen.len().max(end);
        content.seen.resize(longer, 0);
        content.seen[from..end].copy_from_slice(data);
        if reaches {
            content.pending.push(Change::Written(from, data.to_vec()));
        }
        Ok(())
    }
}
