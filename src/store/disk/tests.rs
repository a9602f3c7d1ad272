//! Contents of the file after a power failure, and after damage by others.

use std::sync::Arc;

use proptest::prelude::*;

use super::{faulty::FaultyFile, *};
use crate::store::{InMemory, Stamp};

fn disk(file: &FaultyFile) -> Disk {
    let file = file.clone();
    Disk::over(move || Ok(file.clone()))
}

fn header(commits: u64) -> Header {
    Header {
        version: Header::VERSION,
        commits,
        stamp: Stamp::default(),
        clean: false,
        gap: None,
        lost: None,
        secret: [0; 2],
    }
}

fn rows(of: &[(u8, u16)]) -> Vec<(Arc<str>, Vec<u8>)> {
    of.iter().map(|(lane, length)| (format!("rule\n{lane}").into(), vec![*lane; *length as usize])).collect()
}

fn commit(store: &mut dyn Store, commits: u64, lanes: &[(u8, u16)], gone: &[Arc<str>]) -> Result<(), StoreError> {
    store.commit(&Batch { header: &header(commits), lanes: &rows(lanes), gone })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Committed data is complete after a power failure at any time, whichever unsynchronised sectors have reached
    /// the disk.
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
            let mut next = survives.iter().cycle().copied();
            let after = disk(&FaultyFile::with(file.after_power_failure(|| next.next().unwrap())));
            prop_assert_eq!(after.read().unwrap(), known.read().unwrap());
        }
    }

    /// Foreign bytes never crash andante, and any content that it reads from them is content that it wrote.
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
        let mut damaged = file.seen();
        // The first bytes lead to all others.
        let length = if narrow { 512 } else { damaged.len() };
        flips.iter().for_each(|(at, with)| damaged[at % length] ^= with);
        if let Some(cut) = cut {
            damaged.truncate(cut % damaged.len());
        }
        if let Ok(stored) = Disk::read_copy(&damaged) {
            prop_assert!(known.contains(&stored));
            // A readable store can be continued.
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
    let stored = disk(&FaultyFile::with(file.after_power_failure(|| true))).read().unwrap();
    assert_eq!(stored.header.unwrap().commits, 1);
    assert_eq!(stored.lanes, [("rule\n1".to_owned(), vec![1; 100])]);
    file.fail(false);
    commit(&mut store, 2, &[(1, 200), (2, 60_000)], &[]).unwrap();
    commit(&mut store, 3, &[(3, 10)], &[]).unwrap();
    let stored = disk(&FaultyFile::with(file.after_power_failure(|| false))).read().unwrap();
    assert_eq!((stored.header.unwrap().commits, stored.lanes.len()), (3, 3));
}

#[test]
fn what_a_later_andante_wrote_is_not_read() {
    let mut store = disk(&FaultyFile::default());
    let later = Header { version: Header::VERSION + 1, ..header(1) };
    store.commit(&Batch { header: &later, lanes: &[], gone: &[] }).unwrap();
    assert!(matches!(store.read(), Err(StoreError::Newer(version)) if version == Header::VERSION + 1));
}
