//! Send times of our own requests, for comparison with an API's report about a window.

use std::{array, collections::VecDeque};

use andante_clock::Instant;

/// Send times of requests that count, numbered from the first on.
///
/// Level 0 has each of the last [`KEPT`] requests. Every further level has each [`STEP`]th request of the level below.
/// So memory is bounded, and the error of a lookup is at most a sixteenth of its distance.
#[derive(Clone, Debug, Default)]
pub(super) struct SentLog {
    levels: [VecDeque<SentEntry>; LEVELS],
    /// Number of requests that count.
    count: u64,
    /// Number of requests that were ever recorded.
    written: u64,
    /// Requests that other members of a fleet send for each of ours.
    others: f64,
}

#[derive(Clone, Copy, Debug)]
struct SentEntry {
    at: Instant,
    number: u64,
}

const LEVELS: usize = 5;
const KEPT: usize = 128;
const STEP: u64 = 8;

// === impl SentLog ===

impl SentLog {
    /// Sets this member's share of all requests that the fleet sends.
    pub(super) fn set_part(&mut self, part: f64) {
        self.others = 1.0 / part - 1.0;
    }

    /// Returns true if other members of a fleet send as well.
    pub(super) fn is_shared(&self) -> bool {
        self.others > 0.0
    }

    /// Estimate of the fleet's requests, given that `ours` were sent from here.
    pub(super) fn of_all(&self, ours: u64) -> f64 {
        ours as f64 * (1.0 + self.others)
    }

    /// Records that a request leaves at `now`.
    pub(super) fn sent(&mut self, now: Instant) {
        let entry = SentEntry { at: now, number: self.count };
        let levels = 1 + self.written.trailing_zeros() / STEP.ilog2();
        for level in self.levels.iter_mut().take(levels as usize) {
            if level.len() == KEPT {
                level.pop_front();
            }
            level.push_back(entry);
        }
        self.written += 1;
        self.count += 1;
    }

    /// Counts a request that left at `sent` after all.
    pub(super) fn add(&mut self, sent: Instant) {
        let number = self.up_to(sent);
        self.later(sent).for_each(|entry| entry.number += 1);
        let level = &mut self.levels[0];
        let place = level.partition_point(|entry| entry.at <= sent);
        level.insert(place, SentEntry { at: sent, number });
        if level.len() > KEPT {
            level.pop_front();
        }
        self.count += 1;
    }

    /// Removes a request that left at `sent`, because it was refused or not sent after all.
    pub(super) fn remove(&mut self, sent: Instant) {
        self.later(sent).for_each(|entry| entry.number = entry.number.saturating_sub(1));
        let level = &mut self.levels[0];
        let place = level.partition_point(|entry| entry.at <= sent);
        if place > 0 {
            level.remove(place - 1);
        }
        self.count = self.count.saturating_sub(1);
    }

    /// Number of requests that have left.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Number of requests that have left up to `at`.
    pub(super) fn up_to(&self, at: Instant) -> u64 {
        self.before(|left| left <= at)
    }

    /// Number of requests that have left at `at` or later.
    pub(super) fn since(&self, at: Instant) -> u64 {
        self.count - self.before(|left| left < at)
    }

    /// Number of requests up to the last one with a send time for which `holds` is true.
    fn before(&self, holds: impl Fn(Instant) -> bool) -> u64 {
        let last = self.levels.iter().find_map(|level| {
            let place = level.partition_point(|entry| holds(entry.at));
            place.checked_sub(1).map(|last| level[last].number + 1)
        });
        last.unwrap_or(0).min(self.count)
    }

    /// When the request with this number left, if that is known.
    pub(super) fn departed(&self, number: u64) -> Option<Instant> {
        let level = self.levels.iter().find(|level| level.front().is_some_and(|entry| entry.number <= number))?;
        let place = level.partition_point(|entry| entry.number <= number);
        Some(level[place - 1].at)
    }

    /// When the first of the `used` requests left, which the API reported to a request that left at `sent`. `None` if
    /// they cannot all be ours.
    pub(super) fn began(&self, used: f64, sent: Instant) -> Option<Instant> {
        let (used, ours) = ((used / (1.0 + self.others)).max(1.0), self.up_to(sent));
        // A few requests may have been sent twice on the way.
        (used * 0.9 <= ours as f64 + 1.0).then(|| self.departed(ours.saturating_sub(used as u64))).flatten()
    }

    fn later(&mut self, than: Instant) -> impl Iterator<Item = &mut SentEntry> {
        let levels = self.levels.each_mut();
        let from: [usize; LEVELS] = array::from_fn(|at| levels[at].partition_point(|entry| entry.at <= than));
        levels.into_iter().zip(from).flat_map(|(level, from)| level.range_mut(from..))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ms(of: u64) -> Instant {
        Instant::START + Duration::from_millis(of)
    }

    fn ledger(count: u64) -> SentLog {
        let mut ledger = SentLog::default();
        (0..count).for_each(|at| ledger.sent(ms(at * 10)));
        ledger
    }

    #[test]
    fn the_last_are_known_exactly_and_the_others_nearly() {
        let ledger = ledger(100_000);
        assert_eq!(ledger.departed(99_990), Some(ms(999_900)));
        assert_eq!((ledger.up_to(ms(999_905)), ledger.since(ms(999_905))), (99_991, 9));
        for back in [200, 2000, 20_000, 90_000] {
            let at = ledger.departed(100_000 - back).unwrap();
            let off = at.since(Instant::START).as_millis() as f64 / 10.0 - (100_000 - back) as f64;
            assert!(off.abs() <= back as f64 / 15.0, "{back}: {off}");
        }
        assert!(ledger.levels.iter().all(|level| level.len() <= KEPT));
    }

    #[test]
    fn a_window_began_with_the_first_of_those_that_are_used() {
        let ledger = ledger(20);
        assert_eq!(ledger.began(5.0, ms(190)), Some(ms(150)));
        assert_eq!(ledger.began(5.0, ms(100)), Some(ms(60)), "as it was said to an earlier request");
        assert_eq!(ledger.began(0.0, ms(190)), Some(ms(190)));
        assert_eq!(ledger.began(50.0, ms(190)), None, "somebody else uses it too");
    }

    #[test]
    fn of_what_a_fleet_has_used_a_part_is_ours() {
        let mut ledger = ledger(20);
        ledger.set_part(0.25);
        assert_eq!(ledger.began(20.0, ms(190)), Some(ms(150)), "five of the twenty");
        assert_eq!(ledger.began(200.0, ms(190)), None);
        assert_eq!(ledger.of_all(5), 20.0);
    }

    #[test]
    fn what_was_refused_does_not_count() {
        let mut ledger = ledger(20);
        ledger.remove(ms(180));
        assert_eq!(ledger.began(5.0, ms(190)), Some(ms(140)));
        ledger.add(ms(185));
        assert_eq!(ledger.began(5.0, ms(190)), Some(ms(150)));
        assert_eq!(ledger.count(), 20);
    }
}
