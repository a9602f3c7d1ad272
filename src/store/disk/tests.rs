//! What is left after a power failure, and of files that somebody else wrote.

use std::{io, sync::Arc};

use parking_lot::Mutex;
use proptest::prelude::*;

use super::*;
use crate::store::{InMemory, Stamp};

/// A file as the system and the disk have it. What was not synchronised is lost with the power: all of it, or any part.
#[derive(Clone, Debug, Default)]
struct FaultyFile(Arc<Mutex<Content>>);

#[derive(Debug, Default)]
struct Content {
    /// As programs see it.
    seen: Vec<u8>,
    /// As the disk has it for sure.
    synced: Vec<u8>,
    /// What came since: written at an offset, or cut or filled up to a length.
    pending: Vec<(u64, Vec<u8>)>,
    fails: bool,
}

impl FaultyFile {
    /// The power fails. Of the pending writes those survive that `survives` says.
    fn after_power_failure(&self, survives: &[bool]) -> Self {
        let content = self.0.lock();
        let mut disk = content.synced.clone();
        for ((offset, bytes), _) in
            content.pending.iter().zip(survives.iter().cycle()).filter(|(_, survives)| **survives)
        {
            let end = *offset as usize + bytes.len();
            disk.resize(disk.len().max(end), 0);
            disk[*offset as usize..end].copy_from_slice(bytes);
        }
        Self(Arc::new(Mutex::new(Content { seen: disk.clone(), synced: disk, ..Content::default() })))
    }

    fn fail(&self, fails: bool) {
        self.0.lock().fails = fails;
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
        if content.fails {
            return Err(io::ErrorKind::StorageFull.into());
        }
        content.seen.resize(len as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut content = self.0.lock();
        if content.fails {
            return Err(io::ErrorKind::StorageFull.into());
        }
        content.synced = content.seen.clone();
        content.pending.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut content = self.0.lock();
        if content.fails {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let end = offset as usize + data.len();
        let longer = content.seen.len().max(end);
        content.seen.resize(longer, 0);
        content.seen[offset as usize..end].copy_from_slice(data);
        content.pending.push((offset, data.to_vec()));
        Ok(())
    }
}

fn disk(file: &FaultyFile) -> Disk {
    let file = file.clone();
    Disk::over(move || Ok(file.clone()))
}

fn header(commits: u64) -> Header {
    Header { version: Header::VERSION, commits, stamp: Stamp::default(), clean: false, gap: None, lost: None }
}

fn rows(of: &[(u8, u16)]) -> Vec<(Arc<str>, Vec<u8>)> {
    of.iter().map(|(lane, length)| (format!("rule\n{lane}").into(), vec![*lane; *length as usize])).collect()
}

fn commit(store: &mut dyn Store, commits: u64, lanes: &[(u8, u16)], gone: &[Arc<str>]) -> Result<(), StoreError> {
    store.commit(&Batch { header: &header(commits), lanes: &rows(lanes), gone })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whenever the power fails, and whatever of the unsynchronised writes has reached the disk, in any order: what was
    /// committed is there, as a whole.
    #[test]
    fn what_was_committed_survives_any_power_failure(
        batches in proptest::collection::vec(proptest::collection::vec((0u8..30, 0u16..2000), 0..20), 1..12),
        survives in proptest::collection::vec(any::<bool>(), 1..50),
    ) {
        let file = FaultyFile::default();
        let (mut store, mut known) = (disk(&file), InMemory::default());
        for (number, lanes) in (1..).zip(&batches) {
            let gone = if number % 3 == 0 { vec!["rule\n7".into()] } else { Vec::new() };
            commit(&mut store, number, lanes, &gone).unwrap();
            commit(&mut known, number, lanes, &gone).unwrap();
            let after = disk(&file.after_power_failure(&survives));
            prop_assert_eq!(after.read().unwrap(), known.read().unwrap());
        }
    }

    /// Nobody's bytes end andante, and what is read of them was written like that.
    #[test]
    fn damage_is_told_and_never_fatal(
        flips in proptest::collection::vec((any::<usize>(), 1u8..), 1..20),
        narrow in any::<bool>(),
        cut in proptest::option::of(any::<usize>()),
        clean in any::<bool>(),
    ) {
        let file = FaultyFile::default();
        let (mut store, mut known) = (disk(&file), vec![Stored::default()]);
        for number in 1..6 {
            let lanes: Vec<_> = (0..200).filter(|lane| lane % 5 == number % 5).map(|lane| (lane, 900)).collect();
            commit(&mut store, number.into(), &lanes, &["rule\n7".into()]).unwrap();
            known.push(store.read().unwrap());
        }
        if clean {
            drop(store);
        } else {
            std::mem::forget(store);
        }
        let mut damaged = file.0.lock().seen.clone();
        // The first bytes say where all others are.
        let length = if narrow { 512 } else { damaged.len() };
        flips.iter().for_each(|(at, with)| damaged[at % length] ^= with);
        if let Some(cut) = cut {
            damaged.truncate(cut % damaged.len());
        }
        if let Ok(stored) = Disk::read_copy(&damaged) {
            prop_assert!(known.contains(&stored));
            // What can be read can be gone on with.
            let copy = FaultyFile::default();
            copy.write(0, &damaged).unwrap();
            let mut store = disk(&copy);
            commit(&mut store, 9, &[(1, 100)], &[]).unwrap();
            prop_assert_eq!(store.read().unwrap().header.unwrap().commits, 9);
        }
    }
}

#[test]
fn a_full_disk_is_told_and_what_was_there_stays_until_there_is_room_again() {
    let file = FaultyFile::default();
    let mut store = disk(&file);
    commit(&mut store, 1, &[(1, 100)], &[]).unwrap();
    file.fail(true);
    for _ in 0..3 {
        assert!(matches!(commit(&mut store, 2, &[(1, 200), (2, 60_000)], &[]), Err(StoreError::Failed(_))));
    }
    let stored = disk(&file.after_power_failure(&[true])).read().unwrap();
    assert_eq!(stored.header.unwrap().commits, 1);
    assert_eq!(stored.lanes, [("rule\n1".to_owned(), vec![1; 100])]);
    file.fail(false);
    commit(&mut store, 2, &[(1, 200), (2, 60_000)], &[]).unwrap();
    commit(&mut store, 3, &[(3, 10)], &[]).unwrap();
    let stored = disk(&file.after_power_failure(&[false])).read().unwrap();
    assert_eq!((stored.header.unwrap().commits, stored.lanes.len()), (3, 3));
}

#[test]
fn what_a_later_andante_wrote_is_not_read() {
    let mut store = disk(&FaultyFile::default());
    let later = Header { version: Header::VERSION + 1, ..header(1) };
    store.commit(&Batch { header: &later, lanes: &[], gone: &[] }).unwrap();
    assert!(matches!(store.read(), Err(StoreError::Newer(version)) if version == Header::VERSION + 1));
}
