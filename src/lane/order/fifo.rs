//! Orders waiting requests. Owns no clock and never wakes anyone: the lane asks and sleeps itself.
//!
//! Tickets that different things can hold up stand in lines of their own, so that no line waits for what only another one
//! needs. Among the lines, and in each of them, the order is that of arrival. Urgency and flows will become further parts
//! of [`Place`], before its serial number; nothing outside of this file looks into one.

use std::collections::BTreeMap;

use crate::limit::Cost;

/// Where in the queue a ticket stands: what is smaller is served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    turn: Turn,
    serial: u64,
}

/// Which requests go in front of which, wherever they stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Turn {
    /// It has been sent before.
    Resent,
    /// It has never been sent.
    New,
}

/// Tickets in the order in which they will be served, in a line for each `K`. Every operation is O(lines + log waiting)
/// unless it says otherwise.
#[derive(Debug)]
pub struct Queue<K, T> {
    /// None of them is empty.
    lines: Vec<Line<K, T>>,
    waiting: usize,
    serial: u64,
}

#[derive(Debug)]
struct Line<K, T> {
    key: K,
    tickets: BTreeMap<Place, (Cost, T)>,
    units: u64,
}

/// The ticket of a line that is to be served next.
#[derive(Debug)]
pub struct Head<'a, K, T> {
    /// The number of its line, until the queue is changed.
    pub line: usize,
    /// What its line is for.
    pub key: &'a K,
    /// Where it stands among all tickets.
    pub place: Place,
    /// What it costs.
    pub cost: Cost,
    /// The ticket.
    pub ticket: &'a T,
}

// === impl Queue ===

impl<K: PartialEq, T> Queue<K, T> {
    /// Nobody waits yet.
    pub const fn new() -> Self {
        Self { lines: Vec::new(), waiting: 0, serial: 0 }
    }

    /// Puts `ticket` into the line of `key`, behind all others of its `turn`.
    pub fn enqueue(&mut self, key: K, cost: Cost, turn: Turn, ticket: T) -> Place {
        let place = Place { turn, serial: self.serial };
        self.serial += 1;
        self.insert(key, place, cost, ticket);
        place
    }

    /// The first ticket of each line.
    pub fn heads(&self) -> impl Iterator<Item = Head<'_, K, T>> {
        self.lines.iter().enumerate().map(|(line, Line { key, tickets, .. })| {
            let (place, (cost, ticket)) = tickets.first_key_value().expect("no line is empty");
            Head { line, key, place: *place, cost: *cost, ticket }
        })
    }

    /// Takes the first ticket of this line.
    pub fn pop(&mut self, line: usize) -> Option<(Cost, T)> {
        let place = *self.lines.get(line)?.tickets.first_key_value()?.0;
        self.take(line, place)
    }

    /// Puts the first ticket of this line into that of `key`, where it keeps its place.
    pub fn move_head(&mut self, line: usize, key: K) {
        let Some((place, _)) = self.lines.get(line).and_then(|line| line.tickets.first_key_value()) else { return };
        let place = *place;
        if let Some((cost, ticket)) = self.take(line, place) {
            self.insert(key, place, cost, ticket);
        }
    }

    /// Puts each ticket into the line that `key_of` says, where it keeps its place. O(waiting).
    pub fn sort(&mut self, key_of: impl Fn(&T) -> K) {
        let mut tickets =
            self.lines.iter().flat_map(|line| line.tickets.values().map(move |(_, ticket)| (line, ticket)));
        if tickets.all(|(line, ticket)| key_of(ticket) == line.key) {
            return;
        }
        for line in std::mem::take(&mut self.lines) {
            self.waiting -= line.tickets.len();
            for (place, (cost, ticket)) in line.tickets {
                self.insert(key_of(&ticket), place, cost, ticket);
            }
        }
    }

    /// Takes out a ticket that is waited for no longer; `None` if it has been served already.
    pub fn remove(&mut self, place: Place) -> Option<T> {
        let line = self.lines.iter().position(|line| line.tickets.contains_key(&place))?;
        self.take(line, place).map(|(_, ticket)| ticket)
    }

    /// The tickets among which the one is that has waited longest: of each line the first one, and the first of those
    /// that have not been sent yet.
    pub fn eldest(&self) -> impl Iterator<Item = &T> {
        let new = Place { turn: Turn::New, serial: 0 };
        let firsts = self.lines.iter().flat_map(move |Line { tickets, .. }| {
            [tickets.first_key_value(), tickets.range(new..).next()].into_iter().flatten()
        });
        firsts.map(|(_, (_, ticket))| ticket)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// The cost of all that wait in lines for which `counts` holds, together.
    pub fn units(&self, counts: impl Fn(&K) -> bool) -> u64 {
        self.lines.iter().filter(|line| counts(&line.key)).map(|line| line.units).sum()
    }

    fn insert(&mut self, key: K, place: Place, cost: Cost, ticket: T) {
        let index = self.lines.iter().position(|line| line.key == key).unwrap_or_else(|| {
            self.lines.push(Line { key, tickets: BTreeMap::new(), units: 0 });
            self.lines.len() - 1
        });
        let line = &mut self.lines[index];
        line.tickets.insert(place, (cost, ticket));
        line.units += u64::from(cost.get());
        self.waiting += 1;
    }

    fn take(&mut self, index: usize, place: Place) -> Option<(Cost, T)> {
        let line = self.lines.get_mut(index)?;
        let (cost, ticket) = line.tickets.remove(&place)?;
        line.units -= u64::from(cost.get());
        if line.tickets.is_empty() {
            self.lines.swap_remove(index);
        }
        self.waiting -= 1;
        Some((cost, ticket))
    }
}

impl<K: PartialEq, T> Default for Queue<K, T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Takes the ticket that has waited longest, whatever line it stands in.
    fn pop<K: PartialEq, T>(queue: &mut Queue<K, T>) -> Option<(Cost, T)> {
        let line = queue.heads().min_by_key(|head| head.place)?.line;
        queue.pop(line)
    }

    #[test]
    fn first_come_first_served_and_whoever_leaves_is_gone() {
        let mut queue = Queue::new();
        let places: Vec<_> =
            ["a", "b", "c"].into_iter().map(|name| queue.enqueue((), Cost::MIN, Turn::New, name)).collect();
        assert_eq!(queue.remove(places[1]), Some("b"));
        assert_eq!(queue.remove(places[1]), None);
        assert_eq!(pop(&mut queue), Some((Cost::MIN, "a")));
        assert_eq!(pop(&mut queue), Some((Cost::MIN, "c")));
        assert_eq!(pop(&mut queue), None);
    }

    #[test]
    fn who_has_been_sent_before_comes_first() {
        let mut queue = Queue::new();
        for (turn, name) in [(Turn::New, "c"), (Turn::Resent, "a"), (Turn::New, "d"), (Turn::Resent, "b")] {
            queue.enqueue((), Cost::MIN, turn, name);
        }
        let order: Vec<_> = std::iter::from_fn(|| pop(&mut queue)).map(|(_, name)| name).collect();
        assert_eq!(order, ["a", "b", "c", "d"]);
    }

    #[test]
    fn a_ticket_that_changes_lines_keeps_its_place() {
        let mut queue = Queue::new();
        for name in [1, 2, 3, 4, 5, 6] {
            queue.enqueue("one", Cost::MIN, Turn::New, name);
        }
        queue.enqueue("two", Cost::MIN, Turn::New, 7);
        queue.move_head(0, "two");
        assert_eq!(queue.heads().find(|head| *head.key == "two").map(|head| *head.ticket), Some(1));
        queue.sort(|name| if name % 2 == 0 { "even" } else { "two" });
        assert_eq!((queue.len(), queue.units(|key| *key == "even"), queue.units(|_| true)), (7, 3, 7));
        let order: Vec<_> = std::iter::from_fn(|| pop(&mut queue)).map(|(_, name)| name).collect();
        assert_eq!(order, [1, 2, 3, 4, 5, 6, 7]);
        assert!(queue.is_empty() && queue.lines.is_empty());
    }

    proptest! {
        #[test]
        fn units_are_the_sum_of_what_waits(steps in proptest::collection::vec((0u8..5, 1u32..9, 0u8..3), 0..200)) {
            let (mut queue, mut model) = (Queue::new(), Vec::new());
            for (step, cost, line) in steps {
                match step {
                    0 | 1 => {
                        let cost = Cost::new(cost).unwrap();
                        model.push((queue.enqueue(line, cost, Turn::New, cost), cost));
                    }
                    2 => prop_assert_eq!(pop(&mut queue).is_some(), (!model.is_empty()).then(|| model.remove(0)).is_some()),
                    3 => queue.sort(|cost| if cost.get() > 4 { line } else { 0 }),
                    _ if !model.is_empty() => {
                        let (place, _) = model.remove(cost as usize % model.len());
                        prop_assert!(queue.remove(place).is_some());
                    }
                    _ => {}
                }
                prop_assert_eq!(queue.len(), model.len());
                let units: u64 = model.iter().map(|(_, cost)| u64::from(cost.get())).sum();
                prop_assert_eq!(queue.units(|_| true), units);
                let tickets = queue.lines.iter().map(|line| line.tickets.len());
                prop_assert_eq!((tickets.clone().sum::<usize>(), tickets.min() != Some(0)), (model.len(), true));
            }
        }
    }
}
