//! The active store, and the one before it, which may continue to answer.

use andante_fleet::{Micros, Reply, Sync, WakeUp};
use andante_fleet_model::Book;

use super::{LEASE, S, World, Wrong};

/// Store that a process reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The active store.
    Now,
    /// The store that the active one has replaced.
    Before,
}

/// The active store and its predecessor.
#[derive(Debug)]
pub(super) struct Stores {
    book: Book,
    run: String,
    runs: u64,
    pub(super) wall: Micros,
    pub(super) frozen_until: Micros,
    before: Option<DeposedStore>,
    /// Time for which a replaced store continues to answer.
    pub(super) split: Micros,
}

/// A store that another one has replaced.
#[derive(Clone, Debug)]
struct DeposedStore {
    book: Book,
    run: String,
    /// When it stops answering: `split` after the first answer of its successor.
    until: Option<Micros>,
}

impl Stores {
    pub(super) fn new() -> Self {
        let (run, wall) = ("1".to_owned(), 1_700_000_000 * S);
        Self { book: Book::default(), run, runs: 1, wall, frozen_until: 0, before: None, split: 0 }
    }

    /// Declares that no member holds tokens.
    pub(super) fn declare_new(&mut self) {
        self.book = Book::declared_new(&self.run, self.wall, LEASE, 7);
    }

    /// Makes the active store lose its state.
    pub(super) fn forget(&mut self) {
        self.runs += 1;
        (self.run, self.book) = (self.runs.to_string(), Book::default());
    }

    /// Executes a call; `None` if the store does not answer any more.
    pub(super) fn execute(&mut self, call: &Sync, place: Place, now: Micros) -> Option<(Reply, Vec<WakeUp>)> {
        let wall = self.wall + now;
        let (book, run) = match (place, &mut self.before) {
            (Place::Now, before) => {
                before.iter_mut().for_each(|before| before.until = before.until.or(Some(now + self.split)));
                (&mut self.book, &self.run)
            }
            (Place::Before, Some(before)) if before.until.is_none_or(|until| now < until) => {
                (&mut before.book, &before.run)
            }
            (Place::Before, _) => return None,
        };
        let replied = book.sync(call, wall, run);
        assert!(book.is_sound(), "{book:?}");
        Some(replied)
    }

    /// Returns true if the predecessor continues to answer.
    fn goes_on(&self, now: Micros) -> bool {
        self.before.as_ref().is_some_and(|before| before.until.is_none_or(|until| now < until))
    }

    /// Replaces the active store, unless its predecessor still answers.
    fn fail_over(&mut self, now: Micros, comes_back: bool, keeps_its_name: bool) -> bool {
        if self.goes_on(now) {
            return false;
        }
        let former = self.before.clone().filter(|_| comes_back);
        self.runs += 1;
        let mut next = DeposedStore { book: Book::default(), run: self.runs.to_string(), until: None };
        if let Some(former) = former {
            // The former store has learned nothing of the events meanwhile.
            next.book = former.book;
            next.run = if keeps_its_name { former.run } else { next.run };
        }
        let book = std::mem::replace(&mut self.book, next.book);
        let run = std::mem::replace(&mut self.run, next.run);
        self.before = Some(DeposedStore { book, run, until: None });
        true
    }
}

impl World {
    /// Replaces the store, while some processes reach only the one before.
    pub(super) fn fail_over(&mut self) {
        let (now, comes_back) = (self.now, self.below(2) == 0);
        if !self.stores.fail_over(now, comes_back, self.wrong == Some(Wrong::KeepsItsName)) {
            return;
        }
        self.pauses_forgotten();
        self.stores.frozen_until = now + self.below(6 * S);
        for at in 0..self.processes.len() {
            let parted = self.below(2) * self.below(30 * S);
            let process = &mut self.processes[at];
            (process.place, process.parted_until) = (Place::Before, now + parted);
        }
    }

    /// Store that a call of this process reaches. Sentinels may name a store that is no longer there.
    pub(super) fn place_of(&mut self, at: usize) -> Place {
        if !self.stores.goes_on(self.now) && self.processes[at].place == Place::Now {
            return Place::Now;
        }
        let turns = self.below(12);
        let parted = self.processes[at].parted_until > self.now;
        let process = &mut self.processes[at];
        process.place = match (process.place, turns) {
            _ if parted => Place::Before,
            (Place::Before, 0..3) => Place::Now,
            (Place::Now, 0) => Place::Before,
            (place, _) => place,
        };
        process.place
    }
}
