//! The place where the members of a fleet meet: the port, and its implementations.

#[cfg(test)]
mod in_memory;
mod redis;
#[cfg(test)]
mod tests;

use tokio::sync::mpsc;

#[cfg(test)]
pub(crate) use self::in_memory::InMemoryLedger;
pub use self::redis::RedisLedger;
use crate::fleet::{MemberId, Reply, Sync};

/// A store that executes the calls of members, one after the other.
pub trait Ledger: Send + 'static {
    /// Executes a call. If this fails or is given up, the call may or may not have been executed.
    fn sync(&mut self, call: &Sync) -> impl Future<Output = Result<Reply, LedgerError>> + Send;

    /// Hints for this member from now on. A hint may be lost.
    fn listen(&mut self, member: MemberId) -> mpsc::Receiver<StoreHint>;

    /// Abandons the last call, whose outcome is unknown. The next call uses another connection, if
    /// there is one.
    fn give_up(&mut self) {}
}

/// A hint that a member should call soon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreHint {
    /// A pool needs the call.
    Pool {
        /// The pool.
        pool: String,
        /// This member's turn has come; otherwise another member wants the tokens that this one
        /// holds.
        turn: bool,
    },
    /// There are pauses that the member does not know.
    Pauses,
}

/// Hints that may wait to be received.
const HINTS: usize = 1024;

/// Reason why a store did not execute a call, without any password.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct LedgerError(pub String);

/// Words that identify problems of a store, with advice for each.
const REMEDIES: &[(&str, &str)] = &[
    ("NOAUTH", "write the store's password into the URL: redis://:PASSWORD@HOST:PORT"),
    ("WRONGPASS", "write the store's user name and password into the URL: redis://USER:PASSWORD@HOST:PORT"),
    ("NOPERM", PERMISSIONS),
    ("can't run this command", PERMISSIONS),
    ("READONLY", "name the primary with --store, or let Sentinels name it: redis+sentinel://HOST:PORT/NAME"),
    ("LOADING", "wait until the store has loaded its data"),
    ("OOM", "give the store more memory (maxmemory), or keep other data elsewhere"),
    ("WRONGTYPE", "name another database with --store: here another program uses keys that begin with {andante}:"),
    ("of its replicas", "bring replicas back, or remove lost ones with SENTINEL RESET"),
    ("part of a cluster", "write --store redis+cluster://HOST:PORT"),
    ("the Sentinel at", "correct the Sentinel's address, or the NAME in the URL"),
    ("send from one to another", "wait until the cluster has moved its slots"),
    ("SSL_CERT_FILE", "name a file with the store's certificate authority in SSL_CERT_FILE"),
    ("older than Redis 7", "name a Redis 7 or later, or a Valkey, with --store"),
    ("no TLS", "name the store's port for TLS, or write redis:// if it speaks none"),
    ("no answer", "start the store, and let this machine reach it; if its port accepts only TLS, write rediss://"),
    ("no Redis", "name the address of a Redis with --store; if it accepts only TLS, write rediss://"),
];
const PERMISSIONS: &str = "let this user use keys and channels that begin with {andante}:, as in ACL SETUSER NAME \
                           ~{andante}:* &{andante}:* +@read +@write +eval +evalsha +info +time +publish +subscribe";

// === impl LedgerError ===

impl LedgerError {
    /// Advice on solving the problem.
    pub fn remedy(&self) -> &'static str {
        let known = REMEDIES.iter().find(|(words, _)| self.0.contains(words));
        known.map_or("start the store, let this machine reach it, or name another with --store", |(_, remedy)| remedy)
    }
}
