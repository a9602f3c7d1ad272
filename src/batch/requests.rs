//! Source of the requests of a batch, shared by its workers.

use std::collections::HashSet;

use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::{
    input::{Input, InputError},
    item::Item,
};

/// Source of requests.
pub enum WorkInput {
    /// File that can be read without waiting.
    File(Box<Input>),
    /// Pipe whose requests arrive over time.
    Stream(mpsc::Receiver<Result<Item, InputError>>),
}

/// Source of requests that many workers share.
pub(super) enum SharedInput {
    File(Box<Mutex<Input>>),
    Stream(tokio::sync::Mutex<mpsc::Receiver<Result<Item, InputError>>>),
}

// === impl SharedInput ===

impl SharedInput {
    /// Returns the next request that is not `skipped`. The wait for a pipe has no bound.
    pub(super) async fn next(&self, skipped: &HashSet<String>) -> Option<Result<Item, InputError>> {
        loop {
            let next = match self {
                Self::File(input) => input.lock().next(),
                Self::Stream(items) => items.lock().await.recv().await,
            };
            match next? {
                Ok(item) if skipped.contains(&item.id.name) => {}
                other => return Some(other),
            }
        }
    }
}

impl From<WorkInput> for SharedInput {
    fn from(input: WorkInput) -> Self {
        match input {
            WorkInput::File(input) => Self::File(Box::new(Mutex::new(*input))),
            WorkInput::Stream(items) => Self::Stream(tokio::sync::Mutex::new(items)),
        }
    }
}
