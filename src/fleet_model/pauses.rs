//! The pauses that APIs have asked members for.

use std::{collections::BTreeMap, sync::Arc};

use andante_fleet::{LONGEST_PAUSE, Micros, Pause, PauseCause};

/// All pauses, and the order in which they were reported.
#[derive(Clone, Debug, Default)]
pub(super) struct PauseBook {
    pauses: BTreeMap<Arc<str>, PauseRow>,
    /// Number of the last change.
    last: u64,
}

#[derive(Clone, Debug)]
struct PauseRow {
    /// End of the pause, by the store's time.
    until: Micros,
    cause: PauseCause,
    /// Number of the pause's last change.
    number: u64,
    /// An operator has ended the pause.
    ended: bool,
}

/// Maximum number of pauses: further ones are not shared.
const MOST: usize = 500;

impl PauseBook {
    /// Number of the last change.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Changes after number `known` that matter at `now`, the first change first.
    pub(super) fn since(&self, known: u64, now: Micros) -> Vec<Pause> {
        if known >= self.last {
            return Vec::new();
        }
        let runs = |row: &PauseRow| row.ended || row.until > now;
        let mut news: Vec<_> = self.pauses.iter().filter(|(_, row)| row.number > known && runs(row)).collect();
        news.sort_by_key(|(_, row)| row.number);
        let pause = |(name, row): (&Arc<str>, &PauseRow)| {
            let left = if row.ended { 0 } else { row.until - now };
            Pause { name: name.clone(), left, cause: row.cause }
        };
        news.into_iter().map(pause).collect()
    }

    /// Applies `pauses` that a member reports: the longer of two holds. Ended pauses are remembered for one `lease`, by
    /// when every member has called. Returns true if other members have to hear of them at once.
    pub(super) fn hear(&mut self, pauses: &[Pause], now: Micros, lease: Micros) -> bool {
        let mut urgent = false;
        if !pauses.is_empty() {
            self.pauses.retain(|_, row| row.until + lease > now);
        }
        for Pause { name, left, cause } in pauses {
            let (until, ended) = (now + (*left).clamp(0, LONGEST_PAUSE), *left <= 0);
            let runs = self.pauses.get(name).filter(|row| !row.ended && row.until > now);
            let longer = runs.is_none_or(|row| row.until < until);
            let until = if ended { until } else { runs.map_or(until, |row| row.until.max(until)) };
            // A pause that is not longer is news too: the store's time may lag, and others end earlier the pauses they
            // heard of.
            let changes = !ended || runs.is_some();
            if changes && (self.pauses.len() < MOST || self.pauses.contains_key(name)) {
                self.last += 1;
                self.pauses.insert(name.clone(), PauseRow { until, cause: *cause, number: self.last, ended });
                urgent |= ended || longer;
            }
        }
        urgent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Micros = 10;

    fn pause(name: &str, left: Micros) -> Pause {
        Pause { name: name.into(), left, cause: PauseCause::RetryAfter }
    }

    #[test]
    fn the_longer_of_two_holds_and_each_change_is_said_once() {
        let mut book = PauseBook::default();
        assert!(book.hear(&[pause("a", 30), pause("b", 5)], 100, LEASE));
        assert!(!book.hear(&[pause("a", 20)], 105, LEASE), "it ends before");
        assert_eq!(book.since(0, 106), [pause("a", 24)], "the other one is over");
        assert_eq!(book.since(2, 106), [pause("a", 24)], "who has heard of it may have ended it by now");
        assert!(book.hear(&[pause("a", 40)], 106, LEASE));
        assert_eq!((book.since(3, 107), book.since(book.last(), 107)), (vec![pause("a", 39)], vec![]));
    }

    #[test]
    fn an_operator_ends_one_and_the_next_one_may_be_shorter() {
        let mut book = PauseBook::default();
        assert!(!book.hear(&[pause("a", 0)], 100, LEASE), "there is none");
        book.hear(&[pause("a", 3600)], 100, LEASE);
        let known = book.last();
        assert!(book.hear(&[pause("a", 0)], 101, LEASE));
        assert_eq!(book.since(known, 105), [pause("a", 0)]);
        assert!(book.hear(&[pause("a", 7)], 106, LEASE));
        assert_eq!(book.since(known, 107), [pause("a", 6)]);
    }

    #[test]
    fn what_is_over_for_a_lease_is_forgotten_and_no_more_is_kept_than_fits() {
        let mut book = PauseBook::default();
        let many: Vec<Pause> = (0..MOST + 50).map(|at| pause(&at.to_string(), 30)).collect();
        book.hear(&many, 100, LEASE);
        assert_eq!(book.since(0, 101).len(), MOST);
        assert!(!book.hear(&[pause("new", 30)], 139, LEASE));
        assert!(book.hear(&[pause("new", LONGEST_PAUSE * 2)], 140, LEASE));
        assert_eq!(book.since(0, 140), [pause("new", LONGEST_PAUSE)]);
    }
}
