//! Units of a shared limit that are free for this process before they are free for others.

use std::{collections::VecDeque, time::Duration};

use andante_clock::Instant;

/// Units that count no more for this process, but may still count for members with a shorter way to the API.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lingering {
    /// Time that a unit lingers after it left.
    time: Duration,
    /// Numbers of units, each with the end of its lingering, earliest first.
    units: VecDeque<(u32, Instant)>,
    /// When the last of the reused units would have stopped lingering.
    reused_until: Instant,
}

// === impl Lingering ===

impl Lingering {
    /// Sets how long units that leave from now on linger.
    pub(crate) fn last_for(&mut self, time: Duration) {
        self.time = time;
    }

    /// Number of units that linger at `now`.
    pub(crate) fn count(&mut self, now: Instant) -> u32 {
        while self.units.front().is_some_and(|(_, until)| *until <= now) {
            self.units.pop_front();
        }
        self.units.iter().map(|(units, _)| units).sum()
    }

    /// When the first unit stops lingering.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.units.front().map(|(_, until)| *until)
    }

    /// When the first unit stops lingering. If none lingers, this is the next unit to leave the window, at `left`.
    pub(super) fn next_after(&self, left: Option<Instant>) -> Option<Instant> {
        self.next().or(left.map(|left| left + self.time))
    }

    /// Adds units that left the window at `left`.
    pub(crate) fn add(&mut self, units: u32, left: Instant) {
        if units > 0 {
            self.units.push_back((units, left + self.time));
        }
    }

    /// Reuses `units`, newest first. Any unit would be safe, because this process's next request arrives later than the
    /// unit did. But with the oldest first, steady traffic would always leave a unit that has just left, and none to
    /// give away.
    pub(crate) fn take(&mut self, mut units: u32) {
        while let Some((newest, until)) = self.units.back_mut().filter(|_| units > 0) {
            self.reused_until = self.reused_until.max(*until);
            let used = units.min(*newest);
            (*newest, units) = (*newest - used, units - used);
            if *newest == 0 {
                self.units.pop_back();
            }
        }
    }

    /// Gives back reused units that were not needed after all: their earlier use may still count for others.
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
    use crate::{Amount, Window};

    /// The window ends at W + min(sent + J, answered) for this process, and the shortest way later for others.
    #[test]
    fn what_has_left_is_ours_before_it_may_be_given_away() {
        let (margin, way, second) = (Duration::from_millis(10), Duration::from_millis(40), Duration::from_secs(1));
        let at = |ms: u64| Instant::START + Duration::from_millis(ms);
        let mut window = Window::new(&"5/s".parse().unwrap());
        window.share(3, second, way);
        let two = Amount::new(2).unwrap();
        window.take(0, two);
        window.sent(0, two, at(100));
        assert_eq!(window.lingering(at(1109), margin), (0, Some(at(1150))));
        assert_eq!(window.used(at(1110), margin), 0);
        assert_eq!(window.lingering(at(1110), margin), (2, Some(at(1150))));
        window.take(2, Amount::MIN);
        window.sent(2, Amount::MIN, at(1120));
        assert_eq!(window.lingering(at(1149), margin).0, 1);
        assert_eq!(window.lingering(at(1150), margin), (0, Some(at(2170))));
    }

    /// Four end, and three are reused at once; these three end and are reused again before the fourth is free for
    /// others.
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

    /// A request sent at 100 ms may arrive at 140 ms, and counts for a second from then on. A request that reused its
    /// unit for an instant does not change that.
    #[test]
    fn what_was_used_again_and_given_back_lingers_as_before() {
        let (margin, way, second) = (Duration::from_millis(10), Duration::from_millis(40), Duration::from_secs(1));
        let at = |ms: u64| Instant::START + Duration::from_millis(ms);
        let mut window = Window::new(&"5/s".parse().unwrap());
        window.share(2, second, way);
        window.take(0, Amount::MIN);
        window.sent(0, Amount::MIN, at(100));
        assert_eq!(window.lingering(at(1110), margin), (1, Some(at(1150))));
        window.take(1, Amount::MIN);
        assert_eq!(window.lingering(at(1120), margin).0, 0);
        assert!(window.return_unused(1, Amount::MIN));
        assert_eq!(window.lingering(at(1149), margin), (1, Some(at(1150))));
        assert_eq!(window.lingering(at(1150), margin).0, 0);
    }
}
