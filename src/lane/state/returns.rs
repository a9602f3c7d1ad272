//! `Retry-After` schedule for requests refused on arrival. With the same time for all, all would return then, and all
//! but one would be refused again.
//!
//! Each refusal gets the slot behind the one that the refusal before it got. In a full queue, places are reserved for
//! clients that are due. Otherwise a client that was just served would take the place that it leaves: 20 of 60 workers,
//! with room for 40, had no answer.

use std::time::Duration;

use andante_clock::Instant;
use andante_order::{ClientId, Map, Urgency};
use smallvec::SmallVec;

use super::turn::LineKey;

/// The returns of refused requests; nearly always none.
#[derive(Clone, Debug, Default)]
pub(super) struct ReturnSchedule {
    /// The last return to each target.
    last: Map<ReturnTo, Instant>,
    /// The next return of each client.
    due: Map<ClientId, Instant>,
}

/// The target of a return: requests of one urgency that the same limits block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ReturnTo {
    pub(super) line: LineKey,
    pub(super) urgency: Urgency,
    /// The keys of the sub-limits.
    pub(super) budgets: SmallVec<[u64; 2]>,
}

/// The most targets, and clients, remembered. Requests to further targets get their next slot.
const MOST: usize = 4096;
/// No return is later than this after the next slot: clients with earlier returns may never come, and one client may
/// ask again and again before its time.
const FARTHEST: Duration = Duration::from_secs(300);
/// The time for which a place is reserved for a client that is due: `Retry-After` is in whole seconds.
const RESERVED: Duration = Duration::from_millis(1500);

// === impl ReturnSchedule ===

impl ReturnSchedule {
    /// When a request of `client` that is refused `now` returns. Its next slot is at `next`, and `spacing` lies between
    /// two slots.
    pub(super) fn add(
        &mut self,
        now: Instant,
        to: ReturnTo,
        client: ClientId,
        next: Instant,
        spacing: Duration,
    ) -> Instant {
        if self.last.len() >= MOST {
            self.last.retain(|_, last| *last > now);
        }
        // Where slots are farther apart than that, all get the next one.
        let last = self.last.get(&to).filter(|_| spacing <= FARTHEST);
        let behind = last.map_or(next, |last| *last + spacing);
        let due = behind.clamp(next, next + FARTHEST);
        if self.last.len() < MOST || self.last.contains_key(&to) {
            self.last.insert(to, due);
        }
        if self.due.len() < MOST || self.due.contains_key(&client) {
            let first = self.due.entry(client).or_insert(due);
            *first = if *first > now { (*first).min(due) } else { due };
        }
        due
    }

    /// Records that a request of `client` waits or leaves.
    pub(super) fn returned(&mut self, client: ClientId) {
        if !self.due.is_empty() {
            self.due.remove(&client);
        }
    }

    /// Number of clients with a reserved place; 0 if `client` is one of them. O(clients).
    pub(super) fn reserved(&mut self, now: Instant, client: ClientId) -> usize {
        self.due.retain(|_, due| now < *due + RESERVED);
        let is_due = |due: &&Instant| **due <= now;
        if self.due.get(&client).filter(is_due).is_some() { 0 } else { self.due.values().filter(is_due).count() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use andante_limit::Scope;
    use andante_order::Claim;

    const SLOT: Duration = Duration::from_millis(100);
    const ONE: ClientId = Claim::USUAL.client;

    fn to(budget: u64) -> ReturnTo {
        let line = LineKey { scope: Scope::NONE, paused: None, metered: false };
        ReturnTo { line, urgency: Urgency::USUAL, budgets: SmallVec::from_slice(&[budget]) }
    }

    #[test]
    fn each_refusal_returns_a_slot_after_the_one_before_it() {
        let (mut returns, now) = (ReturnSchedule::default(), Instant::START);
        let next = now + SLOT;
        let due = [(); 3].map(|()| returns.add(now, to(1), ONE, next, SLOT));
        assert_eq!(due, [next, next + SLOT, next + 2 * SLOT]);
        assert_eq!(returns.add(now, to(2), ONE, next, SLOT), next, "another limit has slots of its own");
        // By then the slots of the first have passed.
        let later = now + 10 * SLOT;
        assert_eq!(returns.add(later, to(1), ONE, later + SLOT, SLOT), later + SLOT);
    }

    #[test]
    fn no_return_is_later_than_five_minutes_after_the_next_slot() {
        let (mut returns, next) = (ReturnSchedule::default(), Instant::START + SLOT);
        let due = (0..10_000).map(|_| returns.add(Instant::START, to(1), ONE, next, SLOT)).last();
        assert_eq!(due, Some(next + FARTHEST));
    }

    #[test]
    fn all_get_the_next_slot_where_slots_are_an_hour_apart() {
        let (mut returns, next) = (ReturnSchedule::default(), Instant::START + SLOT);
        let due = [(); 3].map(|()| returns.add(Instant::START, to(1), ONE, next, Duration::from_secs(3600)));
        assert_eq!(due, [next; 3]);
    }

    #[test]
    fn targets_beyond_the_limit_take_no_memory() {
        let (mut returns, next) = (ReturnSchedule::default(), Instant::START + SLOT);
        for budget in 0..2 * MOST as u64 {
            returns.add(Instant::START, to(budget), ONE, next, SLOT);
        }
        assert_eq!(returns.last.len(), MOST);
    }

    #[test]
    fn place_is_reserved_for_a_client_from_its_time_on_until_it_comes_or_for_a_second_and_a_half() {
        let (mut returns, now) = (ReturnSchedule::default(), Instant::START);
        let [one, other, third] = [1, 2, 3].map(|host| ClientId::of([10, 0, 0, host].into()));
        let [first, second] = [one, other].map(|client| returns.add(now, to(1), client, now + SLOT, SLOT));
        assert_eq!(returns.reserved(now, third), 0);
        assert_eq!([third, one, other].map(|client| returns.reserved(second, client)), [2, 0, 0]);
        returns.returned(other);
        assert_eq!(returns.reserved(second, third), 1);
        assert_eq!(returns.reserved(first + RESERVED, third), 0);
    }
}
