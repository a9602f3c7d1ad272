//! Whose the state is, and what becomes of one that cannot be read.

use std::sync::Arc;

use super::*;
use crate::{clock::Instant, store::Batch};

fn write(opened: &mut Opened, commits: u64) -> Header {
    let stamp = Reading::now().stamp(Instant::from_nanos(commits));
    let header = Header { version: Header::VERSION, commits, stamp, clean: false, gap: None };
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
