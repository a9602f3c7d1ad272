//! A ledger in this process: for tests.

use std::{collections::BTreeMap, sync::Arc};

use andante_fleet_model::Book;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::{HINTS, Ledger, LedgerError, StoreHint};
use crate::{
    clock::Clock,
    fleet::{MemberId, Reply, Sync, WakeUp, micros},
};

/// A ledger in this process. Clones share the same data.
#[derive(Clone, Debug)]
pub(crate) struct InMemoryLedger {
    clock: Clock,
    shared: Arc<Mutex<LedgerState>>,
}

#[derive(Debug, Default)]
struct LedgerState {
    book: Book,
    /// Number of restarts.
    run: u32,
    listeners: BTreeMap<MemberId, mpsc::Sender<StoreHint>>,
}

// === impl InMemoryLedger ===

impl InMemoryLedger {
    /// An empty ledger.
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, shared: Arc::default() }
    }

    /// A ledger whose operator declares that no member holds anything.
    pub(crate) fn declared_new(clock: Clock, lease: i64) -> Self {
        let ledger = Self::new(clock);
        ledger.shared.lock().book =
            Book::declared_new("0", micros(clock.now().since(crate::clock::Instant::START)), lease, 1);
        ledger
    }
}

impl Ledger for InMemoryLedger {
    async fn sync(&mut self, call: &Sync) -> Result<Reply, LedgerError> {
        let wall = micros(self.clock.now().since(crate::clock::Instant::START));
        let mut shared = self.shared.lock();
        let run = shared.run.to_string();
        let (reply, hints) = shared.book.sync(call, wall, &run);
        for hint in hints {
            let (to, hint) = match hint {
                WakeUp::Pool { member, pool } => {
                    (member, StoreHint::Pool { pool: pool.to_string(), turn: member.is_some() })
                }
                WakeUp::Pauses => (None, StoreHint::Pauses),
            };
            for (member, listener) in &shared.listeners {
                if to.is_none_or(|told| told == *member) && *member != call.member {
                    // A listener that has gone is ignored.
                    let _ = listener.try_send(hint.clone());
                }
            }
        }
        Ok(reply)
    }

    fn listen(&mut self, member: MemberId) -> mpsc::Receiver<StoreHint> {
        let (sender, receiver) = mpsc::channel(HINTS);
        self.shared.lock().listeners.insert(member, sender);
        receiver
    }
}
