//! Group commit: records in the journal that requests begin, before they do. One sync serves all requests that arrived
//! during the previous one. So a slow disk delays requests, but does not bound their rate.

use std::{mem, sync::Arc};

use parking_lot::Mutex;
use tokio::{sync::oneshot, task};

use super::journal::{BatchJournal, JournalError};

/// Journal that many workers write to.
pub(super) struct GroupCommit {
    journal: Mutex<BatchJournal>,
    next: Mutex<NextGroup>,
}

/// Records since the last commit began.
#[derive(Default)]
struct NextGroup {
    names: Vec<String>,
    waiting: Vec<oneshot::Sender<Result<(), JournalError>>>,
    /// True while a thread commits. The thread takes this group after the current one.
    committing: bool,
}

/// Failure to record that a request begins. Only the first request of a group gets the error.
pub(super) struct NotCommitted(pub(super) Option<JournalError>);

// === impl GroupCommit ===

impl GroupCommit {
    pub(super) fn new(journal: BatchJournal) -> Self {
        Self { journal: Mutex::new(journal), next: Mutex::default() }
    }

    /// Returns when the record that the item `name` begins survives a loss of power. Must be called on a tokio runtime,
    /// whose blocking threads do the sync.
    pub(super) async fn begins(self: &Arc<Self>, name: String) -> Result<(), NotCommitted> {
        let (committed, outcome) = oneshot::channel();
        let leads = {
            let mut next = self.next.lock();
            next.names.push(name);
            next.waiting.push(committed);
            !mem::replace(&mut next.committing, true)
        };
        if leads {
            let group = self.clone();
            task::spawn_blocking(move || group.commit());
        }
        match outcome.await {
            Ok(outcome) => outcome.map_err(|error| NotCommitted(Some(error))),
            Err(_) => Err(NotCommitted(None)),
        }
    }

    /// Ends the journal, because all items are answered.
    pub(super) fn finish(&self) -> Result<(), JournalError> {
        self.journal.lock().finish()
    }

    /// Commits group after group, until no record is left.
    fn commit(&self) {
        loop {
            let (names, waiting) = {
                let mut next = self.next.lock();
                if next.names.is_empty() {
                    next.committing = false;
                    return;
                }
                (mem::take(&mut next.names), mem::take(&mut next.waiting))
            };
            let committed = self.journal.lock().begin(&names);
            let mut waiting = waiting.into_iter();
            match committed {
                // The receiver is gone if its request was given up.
                Ok(()) => waiting.for_each(|waiting| drop(waiting.send(Ok(())))),
                Err(error) => drop(waiting.next().map(|first| first.send(Err(error)))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test]
    async fn what_begins_outlives_a_loss_of_power_and_shares_its_sync_with_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let group = Arc::new(GroupCommit::new(BatchJournal::open(&path, None, false).unwrap().0));
        let mut begun = JoinSet::new();
        let names: HashSet<String> = (0..1000).map(|n| n.to_string()).collect();
        for name in names.clone() {
            let group = group.clone();
            begun.spawn(async move {
                assert!(group.begins(name.clone()).await.is_ok());
                let journal = group.journal.lock();
                let length = journal.synced.last().copied().unwrap_or_default();
                let lasting = std::fs::read(journal.lines.path()).unwrap()[..length as usize].to_owned();
                assert!(String::from_utf8(lasting).unwrap().contains(&format!("\"{name}\"")), "{name} is not synced");
            });
        }
        begun.join_all().await;
        // Nearly all names arrive before the first sync ends.
        let syncs = group.journal.lock().synced.len();
        assert!((1..=100).contains(&syncs), "{syncs}");
        // The last committing thread may still hold the journal.
        while Arc::strong_count(&group) > 1 {
            task::yield_now().await;
        }
        drop(group);
        assert_eq!(BatchJournal::open(&path, None, false).unwrap().1, names);
    }
}
