//! How far a batch is, for whoever watches it.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use parking_lot::Mutex;

use super::answers::{ItemOutcome, is_success};

/// How far it is.
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
    /// Requests whose line is written: with an answer, or with why there is none.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Those among them with a status from 400 on, or with none.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Those among them that no API has answered.
    pub fn unanswered(&self) -> u64 {
        self.unanswered.load(Ordering::Relaxed)
    }

    /// Requests that were given up when the batch stopped: nothing keeps them from being sent later.
    pub fn given_up(&self) -> u64 {
        self.given_up.load(Ordering::Relaxed)
    }

    /// Whether andante was not there when it was last looked for.
    pub fn is_unreached(&self) -> bool {
        self.unreached.load(Ordering::Relaxed)
    }

    /// How many had each status, or failed for which reason.
    pub fn by_status(&self) -> BTreeMap<String, u64> {
        self.by_status.lock().clone()
    }

    /// The names of those that may have been executed, and must not be executed twice.
    pub fn unknown(&self) -> Vec<String> {
        self.unknown.lock().clone()
    }

    /// Counts `outcome` for so `many`, and returns how many have failed so far.
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
