//! Counts that show the progress of a batch.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use parking_lot::Mutex;

use super::answers::{ItemOutcome, is_success};

/// Progress of a batch, in numbers of requests.
#[derive(Debug, Default)]
pub struct Counts {
    done: AtomicU64,
    failed: AtomicU64,
    unanswered: AtomicU64,
    pub(super) given_up: AtomicU64,
    pub(super) unreached: AtomicBool,
    by_status: Mutex<BTreeMap<String, u64>>,
    pub(super) unknown: Mutex<Vec<String>>,
}

// === impl Counts ===

impl Counts {
    /// Requests whose line is written, with an answer or an error.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Requests whose line has a status of 400 or above, or an error.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Requests whose line has an error instead of an answer.
    pub fn unanswered(&self) -> u64 {
        self.unanswered.load(Ordering::Relaxed)
    }

    /// Requests that were given up when the batch stopped, and may be sent by a later run.
    pub fn given_up(&self) -> u64 {
        self.given_up.load(Ordering::Relaxed)
    }

    /// Returns whether the last attempt to reach andante failed.
    pub fn is_unreached(&self) -> bool {
        self.unreached.load(Ordering::Relaxed)
    }

    /// Number of requests for each status, and for each error code.
    pub fn by_status(&self) -> BTreeMap<String, u64> {
        self.by_status.lock().clone()
    }

    /// Names of requests that may have been executed, and must not be executed twice.
    pub fn unknown(&self) -> Vec<String> {
        self.unknown.lock().clone()
    }

    /// Counts `many` requests with this `outcome`, and returns the number of failures so far.
    pub(super) fn note(&self, outcome: &ItemOutcome, many: u64) -> u64 {
        let (name, failed) = match outcome {
            ItemOutcome::Answered(received) => {
                (received.status.as_str().to_owned(), !is_success(received.status.as_u16()))
            }
            ItemOutcome::Failed { code, .. } => (code.clone(), true),
        };
        if matches!(outcome, ItemOutcome::Failed { .. }) {
            self.unanswered.fetch_add(many, Ordering::Relaxed);
        }
        *self.by_status.lock().entry(name).or_default() += many;
        self.done.fetch_add(many, Ordering::Relaxed);
        let more = if failed { many } else { 0 };
        self.failed.fetch_add(more, Ordering::Relaxed) + more
    }
}
