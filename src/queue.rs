//! Orders waiting requests. Owns no clock and never wakes anyone: the lane asks and sleeps itself.
//!
//! Today the order is that of arrival. Urgency and flows will become further parts of [`Place`], before its serial number;
//! nothing outside of this file looks into one.

use std::collections::BTreeMap;

use crate::limit::Cost;

/// Where in the queue a ticket stands: what is smaller is served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Those that have been on their way before come first.
    fresh: bool,
    serial: u64,
}

/// Tickets in the order in which they will be served. Every operation is O(log waiting).
#[derive(Debug)]
pub struct Queue<T> {
    tickets: BTreeMap<Place, (Cost, T)>,
    units: u64,
    serial: u64,
}

// === impl Queue ===

impl<T> Queue<T> {
    /// Nobody waits yet.
    pub const fn new() -> Self {
        Self { tickets: BTreeMap::new(), units: 0, serial: 0 }
    }

    /// Lines `ticket` up: behind all others, or in front of those who have not been sent yet if it has (`again`).
    pub fn push(&mut self, cost: Cost, again: bool, ticket: T) -> Place {
        let place = Place { fresh: !again, serial: self.serial };
        self.serial += 1;
        self.units += u64::from(cost.get());
        self.tickets.insert(place, (cost, ticket));
        place
    }

    /// What the ticket to be served next costs.
    pub fn first(&self) -> Option<Cost> {
        self.tickets.first_key_value().map(|(_, (cost, _))| *cost)
    }

    /// Takes the ticket to be served next.
    pub fn pop(&mut self) -> Option<(Cost, T)> {
        let (_, (cost, ticket)) = self.tickets.pop_first()?;
        self.units -= u64::from(cost.get());
        Some((cost, ticket))
    }

    /// Takes out a ticket that is waited for no longer; `None` if it has been served already.
    pub fn remove(&mut self, place: Place) -> Option<T> {
        let (cost, ticket) = self.tickets.remove(&place)?;
        self.units -= u64::from(cost.get());
        Some(ticket)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.tickets.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    /// The cost of all that wait, together.
    pub fn units(&self) -> u64 {
        self.units
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn first_come_first_served_and_whoever_leaves_is_gone() {
        let mut queue = Queue::new();
        let places: Vec<_> = ["a", "b", "c"].into_iter().map(|name| queue.push(Cost::MIN, false, name)).collect();
        assert_eq!(queue.remove(places[1]), Some("b"));
        assert_eq!(queue.remove(places[1]), None);
        assert_eq!(queue.pop(), Some((Cost::MIN, "a")));
        assert_eq!(queue.pop(), Some((Cost::MIN, "c")));
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn who_has_been_sent_before_comes_first() {
        let mut queue = Queue::new();
        for (again, name) in [(false, "c"), (true, "a"), (false, "d"), (true, "b")] {
            queue.push(Cost::MIN, again, name);
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(_, name)| name).collect();
        assert_eq!(order, ["a", "b", "c", "d"]);
    }

    proptest! {
        #[test]
        fn units_are_the_sum_of_what_waits(steps in proptest::collection::vec((0u8..3, 1u32..9), 0..200)) {
            let (mut queue, mut model) = (Queue::new(), Vec::new());
            for (step, cost) in steps {
                match step {
                    0 => {
                        let cost = Cost::new(cost).unwrap();
                        model.push((queue.push(cost, false, ()), cost));
                    }
                    1 => prop_assert_eq!(queue.pop().is_some(), (!model.is_empty()).then(|| model.remove(0)).is_some()),
                    _ if !model.is_empty() => {
                        let (place, _) = model.remove(cost as usize % model.len());
                        prop_assert!(queue.remove(place).is_some());
                    }
                    _ => {}
                }
                prop_assert_eq!(queue.len(), model.len());
                prop_assert_eq!(queue.units(), model.iter().map(|(_, cost)| u64::from(cost.get())).sum::<u64>());
            }
        }
    }
}
