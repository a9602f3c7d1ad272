//! When units were taken, coarser with age: the past of a lane for a limit that is added while requests leave.
//!
//! An entry counts as if all of its units had been taken with its last one. An entry spans at most half of its age, so
//! fewer than a hundred entries describe months of a lane. The error is always on the safe side.

use std::time::Duration;

use andante_clock::Instant;
use smallvec::SmallVec;

use super::{Amount, Seq};

/// When the units of one lane were taken.
#[derive(Clone, Debug, Default)]
pub(super) struct SpendHistory {
    /// Entries in order of time. Most keyed budgets are used once.
    entries: SmallVec<[HistoryEntry; 1]>,
}

/// Units taken one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct HistoryEntry {
    first: Instant,
    pub(super) last: Instant,
    pub(super) units: u64,
    /// Number of the first unit; unknown for units of other lanes.
    seq: Option<Seq>,
}

/// Units taken within this time share an entry, however recent they are.
const FINEST: Duration = Duration::from_millis(100);

// === impl SpendHistory ===

impl SpendHistory {
    /// Records that `cost` units, numbered from `seq`, are taken at `now`.
    #[inline]
    pub(super) fn take(&mut self, now: Instant, seq: Seq, cost: Amount) {
        let units = u64::from(cost.get());
        match self.entries.last_mut() {
            Some(newest) if now < newest.first + FINEST => {
                // Two threads may have read the clock in one order and arrived here in the other.
                newest.last = newest.last.max(now);
                newest.units += units;
                newest.seq = newest.seq.or(Some(seq));
            }
            _ => self.begin(HistoryEntry { first: now, last: now, units, seq: Some(seq) }),
        }
    }

    fn begin(&mut self, entry: HistoryEntry) {
        self.entries.push(entry);
        self.coarsen(entry.last);
    }

    /// Removes `cost` taken units, numbered from `seq`, that are never sent.
    pub(super) fn return_unused(&mut self, seq: Seq, cost: Amount) {
        let theirs = |entry: &HistoryEntry| entry.seq.is_some_and(|first| first <= seq);
        if let Some(index) = self.entries.iter().rposition(theirs) {
            let entry = &mut self.entries[index];
            entry.units = entry.units.saturating_sub(cost.get().into());
            if entry.units == 0 {
                self.entries.remove(index);
            }
        }
    }

    /// The form to persist: first instant, last instant and number of units of each entry.
    pub(super) fn record(&self) -> Vec<(Instant, Instant, u64)> {
        self.iter().map(|HistoryEntry { first, last, units, .. }| (first, last, units)).collect()
    }

    /// Restores a persisted record.
    pub(super) fn restored(record: &[(Instant, Instant, u64)]) -> Self {
        Self {
            entries: record
                .iter()
                .map(|&(first, last, units)| HistoryEntry { first, last, units, seq: None })
                .collect(),
        }
    }

    /// The entries, oldest first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = HistoryEntry> {
        self.entries.iter().copied()
    }

    /// Adds the units that `other` has taken since the instant `since`.
    pub(super) fn absorb(&mut self, other: &Self, since: Instant) {
        let entries = other.iter().filter(|entry| entry.last >= since);
        self.entries.extend(entries.map(|entry| HistoryEntry { seq: None, ..entry }));
        self.entries.sort_by_key(|entry| entry.last);
    }

    /// Joins neighbours that together span at most half of their age.
    fn coarsen(&mut self, now: Instant) {
        let mut kept = 0;
        for next in 1..self.entries.len() {
            let (earlier, later) = (self.entries[kept], self.entries[next]);
            if later.last.since(earlier.first) <= now.since(later.last) / 2 {
                self.entries[kept] = HistoryEntry {
                    first: earlier.first,
                    last: later.last,
                    units: earlier.units + later.units,
                    seq: earlier.seq.or(later.seq),
                };
            } else {
                kept += 1;
                self.entries[kept] = later;
            }
        }
        self.entries.truncate(kept + 1);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::START + Duration::from_millis(ms)
    }

    #[test]
    fn months_of_requests_are_known_by_few_entries() {
        let mut history = SpendHistory::default();
        // A request every 10 s, for 60 days.
        let count = 60 * 24 * 360;
        (0..count).for_each(|n| history.take(at(n * 10_000), n, Amount::MIN));
        assert_eq!(history.iter().map(|entry| entry.units).sum::<u64>(), count);
        assert!(history.entries.len() < 100, "{}", history.entries.len());
    }

    #[test]
    fn what_was_never_sent_is_not_known() {
        let mut history = SpendHistory::default();
        let known = |history: &SpendHistory| history.iter().map(|entry| (entry.last, entry.units)).collect::<Vec<_>>();
        history.take(at(0), 0, Amount::new(2).unwrap());
        history.take(at(50), 2, Amount::MIN);
        history.take(at(200), 3, Amount::MIN);
        history.return_unused(0, Amount::new(2).unwrap());
        assert_eq!(known(&history), [(at(50), 1), (at(200), 1)], "what has left since is known");
        history.return_unused(3, Amount::MIN);
        assert_eq!(known(&history), [(at(50), 1)]);
    }

    proptest! {
        /// For any period up to now, the history knows at least the units taken in it. Units older than one and a half
        /// times that period plus 100 ms are never included.
        #[test]
        fn no_unit_is_forgotten_and_few_seem_later_than_they_were(
            gaps in proptest::collection::vec(0u64..100_000, 1..300), per in 1u64..10_000_000,
        ) {
            let (mut history, mut taken, mut now) = (SpendHistory::default(), Vec::new(), 0);
            for gap in gaps {
                now += gap;
                history.take(at(now), taken.len() as u64, Amount::MIN);
                taken.push(now);
            }
            let from = now.saturating_sub(per);
            let known: u64 = history.iter().filter(|entry| entry.last >= at(from)).map(|entry| entry.units).sum();
            let since = |from: u64| taken.iter().filter(|taken| **taken >= from).count() as u64;
            prop_assert!(known >= since(from));
            prop_assert!(known <= since(now.saturating_sub(per + per / 2 + 100)), "{known}");
        }
    }
}
