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
    /// The next return of each client, and its target.
    due: Map<ClientId, (Instant, ReturnTo)>,
    /// When returns that are over were last forgotten.
    swept: Option<Instant>,
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

/// The least time between two searches for returns that are over.
const SWEEP: Duration = Duration::from_millis(100);

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
        if self.last.len() >= MOST || self.due.len() >= MOST {
            self.forget_past(now);
        }
        // If slots are more than `FARTHEST` apart, every refusal gets the next slot.
        let in_turn = spacing <= FARTHEST;
        let last = self.last.get(&to).filter(|_| in_turn);
        let behind = last.map_or(next, |last| *last + spacing);
        let due = behind.clamp(next, next + FARTHEST);
        if in_turn && (self.last.len() < MOST || self.last.contains_key(&to)) {
            self.last.insert(to.clone(), due);
        }
        let is_first = self.due.get(&client).is_none_or(|(first, _)| *first <= now || due < *first);
        if is_first && (self.due.len() < MOST || self.due.contains_key(&client)) {
            self.due.insert(client, (due, to));
        }
        due
    }

    /// Records that a request of `client` waits or leaves.
    pub(super) fn returned(&mut self, client: ClientId) {
        if !self.due.is_empty() {
            self.due.remove(&client);
        }
    }

    /// Number of clients with a reserved place, among those whose target `counts`; 0 if `client` is one of them.
    /// O(clients).
    pub(super) fn reserved(&mut self, now: Instant, client: ClientId, counts: impl Fn(&ReturnTo) -> bool) -> usize {
        self.forget_past(now);
        let is_due = |(due, to): &&(Instant, ReturnTo)| (*due..*due + RESERVED).contains(&now) && counts(to);
        if self.due.get(&client).filter(is_due).is_some() { 0 } else { self.due.values().filter(is_due).count() }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.last.len() + self.due.len()
    }

    /// Forgets returns that are over, at most ten times a second.
    pub(super) fn forget_past(&mut self, now: Instant) {
        if self.swept.is_none_or(|swept| swept + SWEEP <= now) {
            self.swept = Some(now);
            self.last.retain(|_, last| *last > now);
            self.due.retain(|_, (due, _)| now < *due + RESERVED);
            if self.last.is_empty() && self.due.is_empty() {
                (self.last, self.due) = Default::default();
            }
        }
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
        assert_eq!(returns.reserved(now, third, |_| true), 0);
        assert_eq!([third, one, other].map(|client| returns.reserved(second, client, |_| true)), [2, 0, 0]);
        returns.returned(other);
        assert_eq!(returns.reserved(second, third, |_| true), 1);
        assert_eq!(returns.reserved(first + RESERVED, third, |_| true), 0);
    }

    #[test]
    fn only_targets_that_count_have_places_reserved() {
        let (mut returns, now) = (ReturnSchedule::default(), Instant::START);
        let [one, other, third] = [1, 2, 3].map(|host| ClientId::of([10, 0, 0, host].into()));
        returns.add(now, to(1), one, now, SLOT);
        returns.add(now, to(2), other, now, SLOT);
        assert_eq!(returns.reserved(now, third, |target| target.budgets[0] == 1), 1);
        assert_eq!(returns.reserved(now, one, |target| target.budgets[0] == 2), 1, "its own place is elsewhere");
    }

    #[test]
    fn returns_that_are_over_take_no_memory() {
        let (mut returns, now) = (ReturnSchedule::default(), Instant::START);
        returns.add(now, to(1), ONE, now + SLOT, SLOT);
        returns.forget_past(now + SLOT + RESERVED);
        assert!(returns.last.is_empty() && returns.due.is_empty());
    }
}
