//! Recent maximum of a level.

use std::time::Duration;

use andante_clock::Instant;

/// Maximum of a level in the current stretch of time and in the one before.
#[derive(Clone, Copy, Debug)]
pub struct Peak {
    stretch: Duration,
    since: Instant,
    level: u32,
    current: u32,
    before: u32,
}

// === impl Peak ===

impl Peak {
    /// A peak of 0. Levels are remembered for one to two `stretch`es.
    pub fn new(stretch: Duration) -> Self {
        Self { stretch, since: Instant::START, level: 0, current: 0, before: 0 }
    }

    /// Sets the level from `now` on.
    pub fn set(&mut self, now: Instant, level: u32) {
        self.read(now);
        (self.level, self.current) = (level, self.current.max(level));
    }

    /// Recent maximum.
    pub fn read(&mut self, now: Instant) -> u32 {
        let passed = now.since(self.since);
        if passed >= self.stretch {
            self.before = if passed < self.stretch * 2 { self.current } else { self.level };
            (self.since, self.current) = (now, self.level);
        }
        self.current.max(self.before)
    }

    /// The earliest instant at which the maximum may fall.
    pub fn falls_at(&self) -> Instant {
        self.since + self.stretch
    }
}
