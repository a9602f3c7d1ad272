//! What is shared with other processes, and free here before it is free for them.

use std::{collections::VecDeque, time::Duration};

use super::Window;
use crate::clock::Instant;

/// Units that count no more for this process, and may still do for members with a shorter way to the API.
#[derive(Clone, Debug, Default)]
pub(in crate::limit) struct Lingering {
    /// For how long.
    time: Duration,
    /// How many, and until when; the first of them first.
    units: VecDeque<(u32, Instant)>,
    /// Until when the last of those would have that are used again.
    reused_until: Instant,
}

// === impl Window ===

impl Window {
    /// It is shared with other processes: only `count` units are ours. What has left it may be given to others `lingers`
    /// later; `per` is its length, with all that clocks may differ.
    pub fn share(&mut self, count: u32, per: Duration, lingers: Duration) {
        (self.count, self.per) = (count, per);
        self.shared.get_or_insert_default().last_for(lingers);
    }

    /// Sets how many units may be used at all.
    pub fn set_count(&mut self, count: u32) {
        self.count = count;
    }

    /// How many units may be used at all.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// How many units have left it that others may not have yet, and when the next one that counts may be theirs.
    pub fn lingering(&mut self, now: Instant, margin: Duration) -> (u32, Instant) {
        self.forget(now, margin);
        let next = if self.used == 0 { Instant::FAR } else { self.freed(1, margin) };
        let Some(lingering) = &mut self.shared else { return (0, next) };
        (lingering.count(now), lingering.next().unwrap_or(next + lingering.time))
    }
}

// === impl Lingering ===

impl Lingering {
    /// Units that leave from now on are lingering for so long.
    pub(in crate::limit) fn last_for(&mut self, time: Duration) {
        self.time = time;
    }

    /// How many linger at `now`.
    pub(in crate::limit) fn count(&mut self, now: Instant) -> u32 {
        while self.units.front().is_some_and(|(_, until)| *until <= now) {
            self.units.pop_front();
        }
        self.units.iter().map(|(units, _)| units).sum()
    }

    /// Until when the first of them does.
    pub(in crate::limit) fn next(&self) -> Option<Instant> {
        self.units.front().map(|(_, until)| *until)
    }

    /// These units left the window at `left`.
    pub(in crate::limit) fn add(&mut self, units: u32, left: Instant) {
        if units > 0 {
            self.units.push_back((units, left + self.time));
        }
    }

    /// This process uses units again: those that left last. Any of them are as good, because what it sends arrives later than
    /// they did; but if the first were taken, where requests follow one another there would always be one that has just left,
    /// and nothing to give away.
    pub(in crate::limit) fn take(&mut self, mut units: u32) {
        while let Some((newest, until)) = self.units.back_mut().filter(|_| units > 0) {
            self.reused_until = self.reused_until.max(*until);
            let used = units.min(*newest);
            (*newest, units) = (*newest - used, units - used);
            if *newest == 0 {
                self.units.pop_back();
            }
        }
    }

    /// So many units that were used again were not used after all: what they had been before may still count for others.
    pub(super) fn give_back(&mut self, units: u32) {
        if units > 0 && self.reused_until > Instant::START {
            let place = self.units.partition_point(|(_, until)| *until <= self.reused_until);
            self.units.insert(place, (units, self.reused_until));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Amount;

    /// W + min(sent + J, answered) for ourselves, and the shortest way more for others.
    #[test]
    fn what_has_left_is_ours_before_it_may_be_given_away() {
        let (margin, way, second) = (Duration::from_millis(10), Duration::from_millis(40), Duration::from_secs(1));
        let at = |ms: u64| Instant::START + Duration::from_millis(ms);
        let mut window = Window::new(&"5/s".parse().unwrap());
        window.share(3, second, way);
        let two = Amount::new(2).unwrap();
        window.take(0, two);
        window.sent(0, two, at(100));
        assert_eq!(window.lingering(at(1109), margin), (0, at(1150)));
        assert_eq!(window.used(at(1110), margin), 0);
        assert_eq!(window.lingering(at(1110), margin), (2, at(1150)));
        window.take(2, Amount::MIN);
        window.sent(2, Amount::MIN, at(1120));
        assert_eq!(window.lingering(at(1149), margin).0, 1);
        assert_eq!(window.lingering(at(1150), margin), (0, at(2170)));
    }

    /// Four end, and three go on at once; these end and go on again before the fourth is free for others.
    #[test]
    fn what_is_not_used_again_comes_free_though_others_come_and_go() {
        let at = |ms: u64| Instant::START + Duration::from_millis(ms);
        let mut lingering = Lingering::default();
        lingering.last_for(Duration::from_millis(200));
        for (ended, when) in [(4, 0), (3, 150)] {
            lingering.add(ended, at(when));
            lingering.take(3);
        }
        assert_eq!((lingering.count(at(199)), lingering.count(at(200))), (1, 0));
    }

    /// What was sent at 100 ms may arrive at 140 ms, and counts for a second from then on. A request that used its unit again
    /// for an instant does not change that.
    #[test]
    fn what_was_used_again_and_given_back_lingers_as_before() {
        let (margin, way, second) = (Duration::from_millis(10), Duration::from_millis(40), Duration::from_secs(1));
        let at = |ms: u64| Instant::START + Duration::from_millis(ms);
        let mut window = Window::new(&"5/s".parse().unwrap());
        window.share(2, second, way);
        window.take(0, Amount::MIN);
        window.sent(0, Amount::MIN, at(100));
        assert_eq!(window.lingering(at(1110), margin), (1, at(1150)));
        window.take(1, Amount::MIN);
        assert_eq!(window.lingering(at(1120), margin).0, 0);
        assert!(window.return_unused(1, Amount::MIN));
        assert_eq!(window.lingering(at(1149), margin), (1, at(1150)));
        assert_eq!(window.lingering(at(1150), margin).0, 0);
    }
}
