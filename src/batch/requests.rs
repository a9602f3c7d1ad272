//! Where the requests of a batch come from, for many to take from.

use std::collections::HashSet;

use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::{
    input::{Input, InputError},
    item::Item,
};

/// Where requests come from.
pub enum WorkInput {
    /// A file that can be read without waiting.
    File(Box<Input>),
    /// A pipe, whose requests come when they come.
    Stream(mpsc::Receiver<Result<Item, InputError>>),
}

/// The same, for many to take from.
pub(super) enum SharedInput {
    File(Box<Mutex<Input>>),
    Stream(tokio::sync::Mutex<mpsc::Receiver<Result<Item, InputError>>>),
}

// === impl SharedInput ===

impl SharedInput {
    /// The next request that is not `skipped`. Of a pipe it may be a long time until there is one.
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
