//! Ownership of the state, and handling of an unreadable one.

use std::sync::Arc;

use super::*;
use crate::{
    clock::Instant,
    store::{Batch, Store as _},
};

fn write(opened: &mut Opened, commits: u64) -> Header {
    let stamp = Reading::now().stamp(Instant::from_nanos(commits));
    let header =
        Header { version: Header::VERSION, commits, stamp, clean: false, gap: None, lost: None, secret: [0; 2] };
    let lanes = [(Arc::<str>::from("rule\nhost"), b"{}".to_vec())];
    opened.store.commit(&Batch { header: &header, lanes: &lanes, gone: &[] }).unwrap();
    header
}

#[test]
fn the_next_process_reads_what_this_one_wrote_and_until_when_it_was_alive() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/state.redb");
    let mut opened = StateFile::open(&path, false).unwrap();
    assert_eq!(opened.stored, Stored::default());
    let mut header = write(&mut opened, 7);
    header.stamp = Reading::now().stamp(Instant::from_nanos(99));
    opened.file.beat(&header).unwrap();
    drop(opened);
    let opened = StateFile::open(&path, false).unwrap();
    assert_eq!(opened.stored.header.as_ref(), Some(&header), "nothing happened up to the last heartbeat");
    assert_eq!(opened.stored.lanes.len(), 1);
    assert!(opened.aside.is_none());
}

#[test]
fn a_heartbeat_of_another_commit_says_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.redb");
    let mut opened = StateFile::open(&path, false).unwrap();
    let header = write(&mut opened, 7);
    let other = Header { commits: 6, stamp: Reading::now().stamp(Instant::from_nanos(99)), ..header.clone() };
    opened.file.beat(&other).unwrap();
    drop(opened);
    assert_eq!(StateFile::open(&path, false).unwrap().stored.header, Some(header));
}

#[test]
fn only_one_process_has_it_and_the_other_hears_which() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.redb");
    let _opened = StateFile::open(&path, false).unwrap();
    let error = StateFile::open(&path, true).unwrap_err();
    assert!(error.to_string().ends_with(&format!("is in use by process {}", std::process::id())), "{error}");
}

#[test]
fn a_state_is_in_use_though_its_lock_file_was_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.redb");
    let mut opened = StateFile::open(&path, false).unwrap();
    let lock = folder.path().join("state.redb.lock");
    for forget in [false, true] {
        fs::remove_file(&lock).unwrap();
        let error = StateFile::open(&path, forget).unwrap_err();
        assert!(error.to_string().ends_with("is in use by another process"), "{error}");
        write(&mut opened, 1);
    }
}

#[test]
fn a_state_is_in_use_by_its_other_name_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.redb");
    let _opened = StateFile::open(&path, false).unwrap();
    fs::hard_link(&path, folder.path().join("other.redb")).unwrap();
    let outcome = StateFile::open(&folder.path().join("other.redb"), false);
    assert!(matches!(outcome, Err(OpenError::InUse { .. })), "{outcome:?}");
}

#[test]
fn a_state_in_the_place_of_one_that_was_set_aside_is_locked_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.redb");
    fs::write(&path, "x".repeat(10_000)).unwrap();
    let _opened = StateFile::open(&path, false).unwrap();
    fs::remove_file(folder.path().join("state.redb.lock")).unwrap();
    let outcome = StateFile::open(&path, false);
    assert!(matches!(outcome, Err(OpenError::InUse { .. })), "{outcome:?}");
}

#[test]
fn what_cannot_be_read_is_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.redb");
    fs::write(&path, "x".repeat(10_000)).unwrap();
    let opened = StateFile::open(&path, false).unwrap();
    let aside = opened.aside.as_ref().unwrap();
    assert!(matches!(aside.why, Some(StoreError::Corrupt(_))), "{aside:?}");
    assert_eq!(fs::read(&aside.path).unwrap().len(), 10_000);
    assert_eq!(opened.stored, Stored::default());
}

#[test]
fn what_is_to_be_forgotten_is_set_aside_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.redb");
    drop(write(&mut StateFile::open(&path, false).unwrap(), 1));
    let opened = StateFile::open(&path, true).unwrap();
    assert!(opened.aside.unwrap().why.is_none());
    assert_eq!(opened.stored, Stored::default());
}

/// Opens a state after `change`; the state had three commits, and its lock says so.
fn found(change: impl FnOnce(&Path)) -> Opened {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.redb");
    let mut opened = StateFile::open(&path, false).unwrap();
    for commits in 1..=3 {
        let header = write(&mut opened, commits);
        opened.file.beat(&header).unwrap();
    }
    drop(opened);
    change(&path);
    StateFile::open(&path, false).unwrap()
}

#[test]
fn what_was_kept_and_is_not_there_any_more_is_missed() {
    let is_missed = |change: fn(&Path)| {
        let Opened { aside, stored, commits, .. } = found(change);
        assert_eq!((stored, commits), (Stored::default(), 3));
        matches!(aside, Some(Aside { why: Some(StoreError::Corrupt(_)), .. }))
    };
    assert!(is_missed(|path| File::options().write(true).open(path).unwrap().set_len(0).unwrap()), "it is empty");
    assert!(is_missed(|path| fs::remove_file(path).unwrap()), "it was removed");
    assert!(is_missed(|path| fs::write(path, [0; 100]).unwrap()), "it is nothing but zeros");
    assert!(is_missed(|path| fs::write(path, [7; 100]).unwrap()), "it is a hundred bytes of something");
    assert!(is_missed(|path| File::options().write(true).open(path).unwrap().set_len(MOST + 1).unwrap()), "it is huge");
    assert!(is_missed(older), "it is from a backup");
}

/// Replaces the state at `path` with one of a single commit.
fn older(path: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other");
    drop(write(&mut StateFile::open(&other, false).unwrap(), 1));
    fs::copy(other, path).unwrap();
}

#[test]
fn what_is_missed_stays_missed_until_a_store_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.redb");
    fs::write(&path, [7; 100]).unwrap();
    let is_missed = || StateFile::open(&path, false).unwrap().aside.is_some_and(|aside| aside.why.is_some());
    assert!(is_missed(), "it is damaged");
    assert!(is_missed(), "and the process was killed before it wrote that down");
    let mut opened = StateFile::open(&path, true).unwrap();
    let commits = opened.commits + 1;
    drop(write(&mut opened, commits));
    drop(opened);
    assert!(!is_missed(), "somebody knows better");
}

#[test]
fn a_store_whose_making_was_interrupted_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.redb");
    fs::write(&path, [0; 73_728]).unwrap();
    let mut opened = StateFile::open(&path, false).unwrap();
    assert!(opened.aside.is_none(), "nothing was ever in it");
    write(&mut opened, 1);
}

#[test]
fn an_end_that_could_not_be_taken_back_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.redb");
    let mut opened = StateFile::open(&path, false).unwrap();
    let clean = Header { clean: true, ..write(&mut opened, 1) };
    opened.store.commit(&Batch { header: &clean, lanes: &[], gone: &[] }).unwrap();
    opened.file.beat(&clean).unwrap();
    drop(opened);
    let is_clean = || StateFile::open(&path, false).unwrap().stored.header.unwrap().clean;
    assert!(is_clean(), "all was written");
    assert!(!is_clean(), "a process has begun, and whatever it sent could not be written");
}

#[test]
fn a_lock_says_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.redb");
    drop(write(&mut StateFile::open(&path, false).unwrap(), 1));
    let lock = beside(&path, "lock");
    for nonsense in [&b"\xff\xfe\0"[..], b"", b"{\"commits\": -1}", &[b' '; 10_000]] {
        fs::write(&lock, nonsense).unwrap();
        assert_eq!(StateFile::open(&path, false).unwrap().stored.lanes.len(), 1);
    }
    fs::remove_file(&lock).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &lock, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert!(matches!(StateFile::open(&path, false), Err(OpenError::Io { .. })), "it is not waited for");
    fs::remove_file(&lock).unwrap();
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(matches!(StateFile::open(&path, false), Err(OpenError::Io { .. })), "a folder is no file");
}
