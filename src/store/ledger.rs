//! Where the members of a fleet meet: the port, and the places that implement it.

mod in_memory;
mod redis;
#[cfg(test)]
mod tests;

use tokio::sync::mpsc;

pub use self::{in_memory::InMemoryLedger, redis::RedisLedger};
use crate::fleet::{MemberId, Reply, Sync};

/// A store that executes the calls of members, one after the other.
pub trait Ledger: Send + 'static {
    /// Executes a call. If this fails or is given up, nobody knows whether the call was executed.
    fn sync(&mut self, call: &Sync) -> impl Future<Output = Result<Reply, LedgerError>> + Send;

    /// What this member is told from now on. A hint may be lost.
    fn listen(&mut self, member: MemberId) -> mpsc::Receiver<StoreHint>;

    /// Nobody knows what has become of the last call: the next one goes another way, if there is one.
    fn give_up(&mut self) {}
}

/// A member is to call soon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreHint {
    /// For the sake of a pool.
    Pool {
        /// The pool.
        pool: String,
        /// Its turn has come; otherwise somebody wants what it has.
        turn: bool,
    },
    /// There are pauses that it does not know.
    Pauses,
}

/// So many hints wait to be heard at most.
const HINTS: usize = 1024;

/// Why a store did not execute a call, without any password.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct LedgerError(pub String);
