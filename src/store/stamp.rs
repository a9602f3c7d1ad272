//! The last instant of one process' clock, from which the next process' clock continues.
//!
//! On the same start of the machine the time in between is known exactly, whatever was done to the system's clock.
//! Across a restart of the machine only that clock tells. If it was set back, no time seems to have passed, and limits
//! wait longer than necessary. If it was set forward, the error cannot be detected.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::{self, Clock, Instant, nanos};

/// An instant on three clocks, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stamp {
    /// On andante's clock.
    pub at: Instant,
    /// Since 1970.
    wall: u64,
    /// Since the machine was started.
    since_boot: u64,
    /// Id of that start of the machine.
    boot: Option<String>,
}

/// Readings of the machine's clocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    wall: u64,
    since_boot: u64,
    boot: Option<String>,
}

impl Reading {
    /// Present readings.
    pub fn now() -> Self {
        let (since_boot, boot) = clock::since_boot();
        Self { wall: nanos(clock::wall()), since_boot: nanos(since_boot), boot }
    }

    /// Readings on a test's machine.
    #[cfg(test)]
    pub(crate) fn of(wall: Duration, since_boot: Duration, boot: &str) -> Self {
        Self { wall: nanos(wall), since_boot: nanos(since_boot), boot: Some(boot.to_owned()) }
    }

    /// A clock that continues from `stamp`.
    pub fn resume(&self, stamp: &Stamp) -> Clock {
        Clock::resume(stamp.at.since(Instant::START) + self.since(stamp))
    }

    /// The time since `stamp`.
    pub fn since(&self, stamp: &Stamp) -> Duration {
        let same = self.boot.is_some() && self.boot == stamp.boot;
        let (now, then) = if same { (self.since_boot, stamp.since_boot) } else { (self.wall, stamp.wall) };
        Duration::from_nanos(now.saturating_sub(then))
    }

    /// Since 1970.
    pub fn unix_seconds(&self) -> u64 {
        self.wall / 1_000_000_000
    }

    /// The instant `at` by andante's clock.
    pub fn stamp(self, at: Instant) -> Stamp {
        let Self { wall, since_boot, boot } = self;
        Stamp { at, wall, since_boot, boot }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(wall: u64, since_boot: u64, boot: &str) -> Reading {
        let [wall, since_boot] = [wall, since_boot].map(|seconds| seconds * 1_000_000_000);
        Reading { wall, since_boot, boot: Some(boot.to_owned()) }
    }

    #[test]
    fn the_time_between_two_processes_is_known_whatever_the_clock_was_set_to() {
        let stamp = reading(5000, 100, "a").stamp(Instant::from_nanos(7));
        let since = |now: Reading| now.since(&stamp).as_secs();
        assert_eq!(since(reading(5010, 110, "a")), 10);
        assert_eq!(since(reading(9999, 110, "a")), 10, "set forward");
        assert_eq!(since(reading(10, 110, "a")), 10, "set back");
        assert_eq!(since(reading(5060, 20, "b")), 60, "the machine was started again");
        assert_eq!(since(reading(4000, 20, "b")), 0, "and its clock set back");
        let unknown = Reading { boot: None, ..reading(5060, 110, "") };
        assert_eq!(unknown.since(&Stamp { boot: None, ..stamp.clone() }).as_secs(), 60);
    }
}
