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

/// Words by which problems of a store are known, and what to do about them.
const REMEDIES: [(&str, &str); 6] = [
    ("NOAUTH", "write the store's password into the URL: redis://:PASSWORD@HOST:PORT"),
    ("WRONGPASS", "write the store's user name and password into the URL: redis://USER:PASSWORD@HOST:PORT"),
    ("NOPERM", "let this user read and write keys that begin with {andante}:, and use EVAL, EVALSHA, INFO and TIME"),
    ("older than Redis 7", "name a Redis 7 or later, or a Valkey, with --store"),
    ("no TLS", "name the store's port for TLS, or write redis:// if it speaks none"),
    ("no Redis", "name the address of a Redis with --store; if it speaks TLS alone, write rediss://"),
];

// === impl LedgerError ===

impl LedgerError {
    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        let known = REMEDIES.iter().find(|(words, _)| self.0.contains(words));
        known.map_or("start the store, let this machine reach it, or name another with --store", |(_, remedy)| remedy)
    }
}
