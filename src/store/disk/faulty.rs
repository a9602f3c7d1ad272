//! A file on a disk whose power fails.

use std::{io, sync::Arc};

use parking_lot::Mutex;
use redb::StorageBackend;

/// A file as the system and the disk have it. What was not synchronised is lost with the power: all of it, or any sectors.
#[derive(Clone, Debug, Default)]
pub(crate) struct FaultyFile(Arc<Mutex<Content>>);

#[derive(Debug, Default)]
struct Content {
    /// As programs see it.
    seen: Vec<u8>,
    /// As the disk has it for sure.
    synced: Vec<u8>,
    /// What came since.
    pending: Vec<Change>,
    fails: bool,
    /// It says that it has synchronised what it has not.
    lies: bool,
    /// The power fails after so many more operations; from then on nothing reaches the disk.
    lasts: Option<u32>,
}

#[derive(Debug)]
enum Change {
    Written(usize, Vec<u8>),
    Length(usize),
}

/// What a disk writes as a whole or not at all.
const SECTOR: usize = 512;

// === impl FaultyFile ===

impl FaultyFile {
    /// A file with this content, all of it on the disk.
    pub(crate) fn with(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(Content { seen: bytes.clone(), synced: bytes, ..Content::default() })))
    }

    /// What is on the disk after the power has failed. Of what was pending each sector, and each change of the length,
    /// is there if `survives` says so.
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

    /// As programs see it.
    pub(crate) fn seen(&self) -> Vec<u8> {
        self.0.lock().seen.clone()
    }

    /// It cannot be written to.
    pub(crate) fn fail(&self, fails: bool) {
        self.0.lock().fails = fails;
    }

    /// Nothing is synchronised any more, whatever it says.
    pub(crate) fn lie(&self) {
        self.0.lock().lies = true;
    }

    /// The power fails after so many more writes and synchronisations.
    pub(crate) fn lose_power_after(&self, operations: u32) {
        self.0.lock().lasts = Some(operations);
    }

    /// Whether it has.
    pub(crate) fn has_lost_power(&self) -> bool {
        self.0.lock().lasts == Some(0)
    }
}

impl Content {
    /// Whether what is done now reaches the system; the program does not see what becomes of the disk.
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
